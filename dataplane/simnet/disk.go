package simnet

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// Disk is the disk of a host. It promises no more than file systems do, and takes every
// liberty that they leave it.
//
// A write is read again at once. It is durable after a sync of its file, or by itself if it
// was written so. A sync covers the writes that had ended when it was asked for, and no
// others. A sync that fails has lost the writes that it was to cover: they stay readable
// until the power goes, and no later sync makes them durable. When the power goes, chance
// chooses what becomes of each other write, also of one that is in flight: it is lost, kept,
// or torn, which means that some of its sectors were written. The same happens to a write
// that fails, is cancelled, or is in flight at the end of its process.
//
// A request ends after a delay of its own, so that requests overtake each other. It reads or
// changes the file at that moment.
//
// A name is durable after SyncDir of its directory, and a directory after SyncDir of the
// directory that it is in; a sync of a file does nothing for its name. When the power goes,
// chance chooses which changes of names that are not durable are kept. Two rules hold, as in
// file systems with a journal: a rename happens whole, in both directories, and changes of
// one name keep their order. A SyncDir that fails leaves all as it was. A directory that is
// lost takes along what is in it. A directory that nobody has made is there when a file in it
// is, and is not lost.
type Disk struct {
	host   *Host
	opt    DiskOptions
	names  map[string]*inode // as programs see them
	kept   map[string]*inode // as they are after a loss of power
	moved  []renaming        // the difference, in order
	opened map[int]*handle
	orphan bool       // the process has died, or as good as that, and no other has begun (Host.Driver)
	flying []*request // in the order in which they were asked
	seq    uint64
	counts DiskCounts
}

// DiskOptions of a disk. The zero value is a fast and faultless one.
type DiskOptions struct {
	// Latency of every request, and Jitter, the most that is added at random.
	Latency time.Duration
	Jitter  time.Duration
	// ErrorEvery fails one request, change of names or SyncDir in so many with EIO, on
	// average; 0: none.
	ErrorEvery int
	// Fail is asked for each request, and fails it with the errno that it returns. It is
	// asked for changes of names and SyncDir, too, as KindNone. nil: nothing fails.
	Fail func(kind uring.Kind, path string) unix.Errno
	// Room is how many bytes all files may have together, 0: no limit. Beyond it
	// writes fail with ENOSPC.
	Room int64
	// StopAt has the process come no further than to so many changes and syncs of names: the
	// last of them and all that is asked for behind it fail with EIO, until the test has the
	// process end (Host.Die) and another one begin. 0: never.
	StopAt int
}

// DiskCounts count the faults of the disk, so that a test sees that they happened.
type DiskCounts struct {
	Errors     int
	Crashes    int
	Stops      int // by DiskOptions.StopAt
	Lost, Torn int // writes of which no part, or some, was written where any part could be
	Dropped    int // writes that a failed sync has lost
	Unnamed    int // changes of names that were lost with the power
}

// sector is the size that a device writes whole or not at all. Direct I/O is aligned to it.
const sector = 512

// Disk is the host's.
func (h *Host) Disk() *Disk {
	if h.disk == nil {
		h.disk = &Disk{
			host: h, names: map[string]*inode{}, kept: map[string]*inode{}, opened: map[int]*handle{},
		}
	}
	return h.disk
}

// Configure changes the options for later requests.
func (k *Disk) Configure(opt DiskOptions) { k.opt = opt }

// Counts are the counts up to now.
func (k *Disk) Counts() DiskCounts { return k.counts }

// inode is a file or a directory, whatever its names are.
type inode struct {
	dir   bool
	data  []byte   // as programs see it
	disk  []byte   // as it is after a loss of power
	dirty []change // the difference, in order
}

// change is a write, or a new length.
type change struct {
	seq    uint64
	off    int64
	p      []byte
	size   int64 // new length, if p is nil
	grows  bool  // of size: never shorter
	doomed bool  // a failed sync was to cover it
}

// apply makes the change to data.
func (c *change) apply(data []byte) []byte {
	switch {
	case c.p != nil:
		data = grown(data, c.off+int64(len(c.p)))
		copy(data[c.off:], c.p)
	case c.grows:
		data = grown(data, c.size)
	default:
		data = grown(data, c.size)[:c.size]
	}
	return data
}

// below leaves of changes the bytes below size.
func below(changes []change, size int64) []change {
	rest := changes[:0]
	for _, c := range changes {
		if c.p != nil && c.off < size {
			c.p = c.p[:min(int64(len(c.p)), size-c.off)]
			rest = append(rest, c)
		}
	}
	return rest
}

func grown(data []byte, size int64) []byte {
	if more := size - int64(len(data)); more > 0 {
		data = append(data, make([]byte, more)...)
	}
	return data
}

// write changes the bytes that programs see.
func (i *inode) write(c change) {
	i.data = c.apply(i.data)
	i.dirty = append(i.dirty, c)
}

// sync makes durable what covers says. What a cut that is durable has cut off of earlier
// changes is never written.
func (i *inode) sync(covers func(c *change) bool) {
	rest := i.dirty[:0]
	for _, c := range i.dirty {
		if c.doomed || !covers(&c) {
			rest = append(rest, c)
			continue
		}
		i.disk = c.apply(i.disk)
		if c.p == nil && !c.grows {
			rest = below(rest, c.size)
		}
	}
	clear(i.dirty[len(rest):])
	i.dirty = rest
}

// syncRange makes the bytes of a range of the file durable, and its length.
func (i *inode) syncRange(from, to int64) {
	for _, at := range [...]int64{from, to} {
		var parts []change // each on one side
		for _, c := range i.dirty {
			if n := at - c.off; n > 0 && n < int64(len(c.p)) {
				right := c
				right.off, right.p = at, c.p[n:]
				c.p = c.p[:n:n]
				parts = append(parts, c, right)
			} else {
				parts = append(parts, c)
			}
		}
		i.dirty = parts
	}
	i.sync(func(c *change) bool { return c.p == nil || c.off >= from && c.off < to })
}

// crash is the loss of power.
func (i *inode) crash(k *Disk) {
	for _, c := range i.dirty {
		k.settle(&c, func(c change) { i.disk = c.apply(i.disk) })
	}
	i.dirty = nil
	i.data = append([]byte(nil), i.disk...)
}

// settle chooses the outcome of a change that was not durable.
func (k *Disk) settle(c *change, apply func(change)) {
	fate := k.host.net.rng.IntN(3)
	switch {
	case c.doomed || fate == 0:
		k.counts.Lost++
	case fate == 1 || len(c.p) == 0:
		apply(*c)
	default:
		k.counts.Torn++
		for at, end := c.off, c.off+int64(len(c.p)); at < end; {
			next := min(end, (at/sector+1)*sector)
			if k.host.net.rng.IntN(2) == 0 {
				apply(change{seq: c.seq, off: at, p: c.p[at-c.off : next-c.off]})
			}
			at = next
		}
	}
}

// crash is the loss of power: open files are gone, requests in flight have no end, and
// the disk holds all durable changes, and some of the others by chance.
// Host.Die with silent does it.
func (k *Disk) crash() {
	k.host.net.Note("disk of %v: power lost", k.host.ip)
	k.counts.Crashes++
	k.abandon(func(r *request) { r.h.dirty = append(r.h.dirty, r.change()) })
	for _, i := range k.inodes() {
		i.crash(k)
	}
	k.crashNames()
	k.opened = map[int]*handle{}
}

// killed is the end of the process: ended requests stay done, and of the requests in
// flight some are done.
func (k *Disk) killed() {
	k.abandon((*request).partly)
	k.opened = map[int]*handle{}
}

// abandon ends the requests in flight without an answer. It calls changed with each
// request that changes a file and is not refused.
func (k *Disk) abandon(changed func(r *request)) {
	for _, r := range k.flying {
		r.gone = true
		if r.changes() {
			changed(r)
		}
	}
	k.flying = nil
}

// Flip flips a bit of a file, in what is durable and in what programs see; false if
// the file does not reach as far.
func (k *Disk) Flip(path string, off int64, bit uint) bool {
	i := k.names[path]
	if i == nil || off >= int64(len(i.disk)) || off >= int64(len(i.data)) {
		return false
	}
	i.disk[off] ^= 1 << (bit % 8)
	i.data[off] ^= 1 << (bit % 8)
	return true
}
