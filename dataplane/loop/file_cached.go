package loop

import "github.com/ringmsgr/ringmsgr/uring"

// What the page cache has is read at once, within the system call that asks for it. So a
// call that asked for everything would pass megabytes through the processor's cache before
// the first of it is looked at and sent. It asks for some, and the next one, which sends
// that, for more. The disk notices nothing: no turn sleeps while a read waits for the next.

// turnReads is after how many bytes a system call asks for no further read through the page
// cache.
const turnReads = 512 << 10

// cached says that op may be answered by the page cache.
func (f *File) cached(op *FileOp) bool { return op.kind == uring.KindRead && !f.align.Direct() }

// readLater has the file looked at behind the next system call.
func (f *File) readLater() {
	c := f.core
	if !f.later {
		f.later = true
		c.readsLater = append(c.readsLater, f)
	}
	// What would be too much for the driver waits for others, and not for the turn alone.
	if f.busy+f.line.n > f.opt.Ops || int64(c.fileBusy)+c.stats.Files.Waiting > int64(c.cfg.FileOps) {
		f.waited = true
	}
}

// readFiles goes on with what the last system call has left, before others ask for more.
func (c *Core) readFiles() {
	c.readRoom = turnReads
	done := 0
	for last := len(c.readsLater); done < last && c.readRoom > 0; done++ {
		f := c.readsLater[done]
		f.later = false
		f.pump() // if it has more, it comes behind the others
	}
	n := copy(c.readsLater, c.readsLater[done:])
	clear(c.readsLater[n:])
	c.readsLater = c.readsLater[:n]
}
