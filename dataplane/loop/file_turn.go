package loop

import (
	"math"
	"time"

	"github.com/ringmsgr/ringmsgr/uring"
)

// A system call begins only some of what files have to do, and the next one, a turn later,
// more of it. There are two reasons.
//
// What the page cache has is read at once, within the system call that asks for it. So a
// call that asked for everything would pass megabytes through the processor's cache before
// the first of it is looked at and sent.
//
// A frame that needs no file waits until the turn is over that it comes in, and a request
// on a file makes a turn longer by what it costs to begin it and to take its end. So turns
// are kept short, but only as long as there are such frames: where all of them need
// files, many requests in a call cost less than few.
//
// The disk notices nothing of either: no turn sleeps while requests wait for the next.
const (
	// turnReads is after how many bytes a system call asks for no further read through the
	// page cache.
	turnReads = 512 << 10
	// defaultFileTurn is how many requests a system call begins beside frames that need no
	// file. Fewer cost more CPU for each request, as fewer answers are sent together; with
	// 16 little is gained.
	defaultFileTurn = 8
	// mixPeriod is over how long the frames are counted that need no file.
	mixPeriod = 100 * time.Millisecond
	// mixShare: if there are so many times as many that need one, the others do not count.
	mixShare = 16
)

// fileTurn is what the next system call may still begin. Owner: the core.
type fileTurn struct {
	bytes  int64   // of reads through the page cache
	ops    int     // requests
	line   []*File // with requests that wait for the call behind that
	asked  uint64  // requests that were not asked for by the end of another, in this period
	ending bool    // Done is being called
	frames uint64  // that asked for work, up to the beginning of the period
	since  time.Duration
	mixed  bool // in the last period frames came that needed no file
}

// begin is what a call may begin.
func (t *fileTurn) begin(c *Core) {
	if c.now-t.since >= mixPeriod {
		work := c.stats.FramesIn - c.stats.AcksIn
		t.mixed = work-t.frames > t.asked+t.asked/mixShare
		t.since, t.frames, t.asked = c.now, work, 0
	}
	t.bytes, t.ops = turnReads, math.MaxInt
	if t.mixed && c.cfg.fileTurn > 0 {
		t.ops = c.cfg.fileTurn
	}
}

// takes says whether the next call may begin with op, and counts it.
func (t *fileTurn) takes(op *FileOp) bool {
	cached := op.kind == uring.KindRead && !op.file.align.Direct()
	if t.ops <= 0 || cached && t.bytes <= 0 {
		return false
	}
	t.ops--
	if cached {
		t.bytes -= op.length
	}
	return true
}

// nextTurn has the file looked at behind the next system call.
func (f *File) nextTurn() {
	c := f.core
	if !f.later {
		f.later = true
		c.turnOf.line = append(c.turnOf.line, f)
	}
	// What would be too much for the driver waits for others, and not for the turn alone.
	if f.busy+f.line.n > f.opt.Ops || int64(c.fileBusy-c.reads.parked)+c.stats.Files.Waiting > int64(c.cfg.FileOps) {
		f.waited = true
	}
}

// turnFiles goes on with what the last system call has left, before others ask for more.
func (c *Core) turnFiles() {
	t := &c.turnOf
	t.begin(c)
	done := 0
	for last := len(t.line); done < last && t.bytes > 0 && t.ops > 0; done++ {
		f := t.line[done]
		f.later = false
		f.pump() // if it has more, it comes behind the others
	}
	n := copy(t.line, t.line[done:])
	clear(t.line[n:])
	t.line = t.line[:n]
}
