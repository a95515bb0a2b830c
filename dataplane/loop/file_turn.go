package loop

import (
	"math"
	"time"

	"github.com/ringmsgr/ringmsgr/uring"
)

// A system call begins only some of the requests on files, and the next call, a turn later,
// more of them. There are two reasons.
//
// The kernel reads from the page cache at once, within the system call. A call with all
// requests would pass megabytes through the processor's cache before the first bytes are
// sent.
//
// A frame that needs no file waits for the end of its turn, and each request on a file makes
// the turn longer by its start and its end. So turns are short while there are frames that
// need no file. When all frames need files, many requests in a call cost less than few.
//
// The disk is busy all the same: no turn sleeps while requests wait for the next one.
const (
	// turnReads is the number of bytes of reads through the page cache after which a system
	// call asks for no more.
	turnReads = 512 << 10
	// defaultFileTurn is the number of requests that a system call begins beside frames that
	// need no file. Fewer cost more CPU for each request, as fewer answers are sent together;
	// with 16 little is gained.
	defaultFileTurn = 8
	// mixPeriod is the time over which frames without files are counted.
	mixPeriod = 100 * time.Millisecond
	// mixShare: frames without a file do not count if this many times as many need one.
	mixShare = 16
)

// fileTurn is the number of requests that the next system call may still begin. Owner: the
// core.
type fileTurn struct {
	bytes  int64   // of reads through the page cache
	ops    int     // requests
	line   []*File // files with requests for the call after that
	asked  uint64  // requests that were not asked for by the end of another, in this period
	ending bool    // Done is being called
	frames uint64  // that asked for work, up to the beginning of the period
	since  time.Duration
	mixed  bool // in the last period frames came that needed no file
}

// begin sets the bounds of the next call.
func (t *fileTurn) begin(c *Core) {
	if c.now-t.since >= mixPeriod {
		work := c.stats.FramesIn - c.stats.AcksIn
		t.mixed = work-t.frames > t.asked+t.asked/mixShare
		t.since, t.frames, t.asked = c.now, work, 0
	}
	t.bytes, t.ops = turnReads, math.MaxInt
	if t.mixed {
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

// nextTurn has the file looked at after the next system call.
func (f *File) nextTurn() {
	c := f.core
	if !f.later {
		f.later = true
		c.turnOf.line = append(c.turnOf.line, f)
	}
	// Requests beyond the bounds of the driver wait for others, and not for the turn alone.
	if f.busy+f.line.n > f.opt.Ops || int64(c.fileBusy-c.reads.parked)+c.stats.Files.Waiting > int64(c.cfg.FileOps) {
		f.waited = true
	}
}

// turnFiles goes on with the requests that the last system call has left, before new ones.
func (c *Core) turnFiles() {
	t := &c.turnOf
	t.begin(c)
	done := 0
	for last := len(t.line); done < last && t.bytes > 0 && t.ops > 0; done++ {
		f := t.line[done]
		f.later = false
		f.pump() // a file with more requests goes to the end of the line
	}
	n := copy(t.line, t.line[done:])
	clear(t.line[n:])
	t.line = t.line[:n]
}
