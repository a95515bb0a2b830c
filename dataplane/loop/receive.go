package loop

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
	"github.com/ringmsgr/ringmsgr/uring"
)

// A socket receives in one of two ways, and in one at a time: by a watch, which tells
// that bytes have come, and direct reads (read.go), or by a multishot receive, with
// which the ring fills buffers that all sockets of the core share. It changes over by
// cancelling the one; when the final completion of that is there, the other is armed.
// Completions come in the order of the stream, and nothing is read directly while a
// receive is armed, so no byte is lost or overtakes another.
//
// What costs no system call for each read is best for small frames. A large one would
// be copied once more out of the ring's buffers, so it is read into its place; to
// submit that read to the ring instead takes the same CPU, and one turn more.
//
// In mode ReceiveAuto each socket decides for itself:
//
//	it begins by readiness          the ring then receives nothing for a handshake, or
//	                                for those that are idle, and what it reads is bounded
//	it goes over to the buffers     when some reads in a row, soon one after the other,
//	                                have brought small frames
//	it goes back to readiness       when a large frame comes; when it is stopped, as one
//	                                that does not read must not go on to receive; when it
//	                                brings more in a turn than a visit takes, or falls
//	                                behind; when the buffers have run out
//
// Each time that it has gone back it wants to see twice as many small reads before it
// tries again. A socket that then stays with the buffers is trusted as at first.
const (
	// smallFrame is the average size of frames, in bytes, up to which a socket goes over to
	// the buffers, largeFrame beyond which it goes back. Of larger ones they save system
	// calls but hardly any CPU, as there is more to copy; and a turn receives all that the
	// buffers hold, so that others wait longer for theirs.
	smallFrame, largeFrame = 8 << 10, 16 << 10
	// frameWindow is over how many bytes received into buffers that is looked at.
	frameWindow = 128 << 10
	// fewReads is how many small reads in a row it takes at first, manyReads at most.
	fewReads, manyReads = 4, 1024
	// soonAfter is how long after the last bytes a read counts: keepalives are small, too,
	// and of idle connections there are thousands.
	soonAfter = time.Second
	// steadyReceives is how many receives into buffers in a row make up for what was.
	steadyReceives = 512
)

// Why says what a socket receives in its present way for.
type Why string

// The reasons.
const (
	WhyAsked     Why = "configured"                             // Config.Receive
	WhyEngine    Why = "the engine has no receive buffers"      // epoll, or an old kernel
	WhyWhole     Why = "connections cannot share a buffer here" // no incremental buffers: before Linux 6.12
	WhyBegun     Why = "few small frames so far"
	WhySmall     Why = "small frames"
	WhyLarge     Why = "large frames"
	WhyStopped   Why = "reading was stopped"
	WhyBehind    Why = "it fell behind"
	WhyExhausted Why = "the receive buffers ran out"
	WhyEach      Why = "each connection by its frames" // of a core
)

// way is how a socket receives. Owner: its core.
type way struct {
	receiving bool     // a multishot receive is in flight
	watching  bool     // a watch for readiness is in flight
	ready     bool     // the watch is what it wants, else the receive
	why       Why      // it wants that
	op        uring.Op // what is in flight
	streak    int32    // small reads, or receives, in a row
	needs     int32    // small reads until it goes over to the buffers
	bytes     uint32   // that came with the streak, or since they were last looked at
	frames    uint32   // the same
	turn      uint64   // in which bytes came into buffers last
	came      int      // how many in that turn
}

// begin is the way of a new socket.
func (w *way) begin(c *Core) {
	w.ready, w.why, w.needs = c.receive != ReceiveBuffers, c.receiveWhy, fewReads
	if c.receive == ReceiveAuto {
		w.why = WhyBegun
	}
}

// count begins to count anew, with a streak.
func (w *way) count(streak int32) { w.streak, w.bytes, w.frames = streak, 0, 0 }

// average is the size of the frames that were counted, in bytes.
func (w *way) average() uint32 { return w.bytes / max(w.frames, 1) }

// chooseReceive settles how the sockets of the core receive.
func (c *Core) chooseReceive() {
	c.receive, c.receiveWhy = c.cfg.Receive, WhyAsked
	switch {
	case !c.info.Receive:
		c.receive, c.receiveWhy = ReceiveReady, WhyEngine
	case c.receive == ReceiveAuto && !c.info.Has(uring.FeatureIncremental):
		c.receive, c.receiveWhy = ReceiveReady, WhyWhole
	case c.receive == ReceiveAuto:
		c.receiveWhy = WhyEach
	}
}

// Receives is how the socket receives, ReceiveBuffers or ReceiveReady, and why. On its
// core; ReceiveView is for others.
func (s *Socket) Receives() (ReceiveMode, Why) {
	s.core.assertOwner()
	if s.way.ready {
		return ReceiveReady, s.way.why
	}
	return ReceiveBuffers, s.way.why
}

// arm starts receiving. Nothing may be armed.
func (s *Socket) arm() {
	if s.way.ready {
		s.armReady()
	} else {
		s.armReceive()
	}
}

func (s *Socket) armReceive() {
	op, err := s.core.drv.Receive(s.sock, s.user)
	if err != nil {
		s.Fault(fmt.Errorf("receive: %w", err))
		return
	}
	s.ops++
	s.way.op, s.way.receiving = op, true
	s.stopped = false // it gets what is there
	s.core.stats.Receiving++
}

func (s *Socket) armReady() {
	op, err := s.core.drv.Ready(s.sock, s.user)
	if err != nil {
		s.Fault(fmt.Errorf("watch: %w", err))
		return
	}
	s.ops++
	s.way.op, s.way.watching = op, true
}

// disarmed notes the final completion of what was armed.
func (s *Socket) disarmed() {
	if s.way.receiving {
		s.core.stats.Receiving--
	}
	s.way.receiving, s.way.watching = false, false
}

// ReadInPlace has the socket read by readiness from now on, into the places that a
// Placer names: a large frame has come. What the ring has already received still
// comes, in order.
func (s *Socket) ReadInPlace() {
	s.core.assertOwner()
	s.way.count(0)
	s.leaveBuffers(WhyLarge)
}

// leaveBuffers goes back to readiness.
func (s *Socket) leaveBuffers(why Why) {
	w := &s.way
	if w.ready || s.dead {
		return
	}
	w.ready, w.why = true, why
	s.show()
	w.count(0)
	w.needs = min(2*w.needs, manyReads)
	s.core.stats.LeftBuffers++
	if w.receiving {
		s.core.drv.Cancel(w.op)
	}
}

// stopReceiving is called when the socket is stopped: nothing more comes than what
// is on its way. ReceiveBuffers goes on until BacklogBytes are held back.
func (s *Socket) stopReceiving() {
	if s.core.receive == ReceiveAuto {
		s.leaveBuffers(WhyStopped)
	}
}

// didRead notes a direct read of n bytes, with which so many frames became complete,
// the given time after the last one.
func (s *Socket) didRead(n int, frames uint64, after time.Duration) {
	w := &s.way
	if s.core.receive != ReceiveAuto || !w.ready || s.framer == nil {
		return
	}
	if after > soonAfter {
		w.count(0)
	}
	w.bytes, w.frames = w.bytes+uint32(n), w.frames+uint32(frames)
	if w.average() > smallFrame {
		w.count(0)
		return
	}
	w.streak++
	if w.streak < w.needs || s.dead || s.ending || s.eof || s.paused != nil || s.detach != nil || !w.watching {
		return
	}
	w.ready, w.why = false, WhySmall
	s.show()
	w.count(0)
	s.core.stats.TookBuffers++
	s.core.drv.Cancel(w.op)
}

// ready is a readiness edge.
func (s *Socket) ready(cp *uring.Completion) {
	errno := cp.Errno()
	if cp.Flags&uring.More == 0 {
		s.disarmed()
	}
	if s.dead {
		return
	}
	if errno != 0 && errno != unix.ECANCELED {
		s.Fault(fmt.Errorf("watch: %w", errno))
		return
	}
	if cp.Flags&uring.More == 0 {
		if s.detaching() {
			return // what has come is read on the other core
		}
		s.core.stats.Rearms++
		s.arm()
	}
	if s.dead || errno != 0 {
		return // a watch that is armed tells of what is there
	}
	if cp.Res&(unix.POLLHUP|unix.POLLERR) != 0 && (s.Throttled() || s.eof && s.link == nil) {
		s.Fault(ErrPeerClosed) // the peer cannot read an answer any more
		return
	}
	if cp.Res&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0 {
		s.ending = true
	}
	if !s.way.receiving {
		s.list()
	}
}

// received is a slice of the ring's buffers.
func (s *Socket) received(cp *uring.Completion) {
	if cp.Buf != 0 {
		defer s.core.drv.Release(cp.Buf)
	}
	last := cp.Flags&uring.More == 0
	if last {
		s.disarmed()
	}
	if s.dead {
		return
	}
	switch errno := cp.Errno(); {
	case cp.Res > 0 && len(cp.Data) != int(cp.Res):
		s.Fault(fmt.Errorf("receive: %d bytes in a buffer that is not ours: %w", cp.Res, unix.EIO))
	case cp.Res > 0:
		s.take(cp.Data)
	case cp.Res == 0:
		s.end()
	case errno == unix.ENOBUFS && s.core.receive == ReceiveAuto:
		s.leaveBuffers(WhyExhausted)
	case errno != unix.ENOBUFS && errno != unix.ECANCELED && errno != unix.EAGAIN && errno != unix.EINTR:
		s.Fault(fmt.Errorf("receive: %w", errno))
	}
	if s.Backlog() >= s.most {
		s.leaveBuffers(WhyBehind) // from here on readiness tells of the end of the stream, too
	}
	if !last || s.dead || s.eof || s.detaching() {
		return
	}
	s.core.stats.Rearms++
	if !s.way.receiving { // who took the bytes may have gone on reading
		s.arm() // whatever is held back: nobody else would
	}
}

// take delivers what the ring has received.
func (s *Socket) take(p []byte) {
	st, w := &s.core.stats, &s.way
	st.BytesIn += uint64(len(p))
	st.Receives++
	if w.turn != st.Turns {
		w.turn, w.came = st.Turns, 0
	}
	if w.came += len(p); w.came > visitBytes && s.core.receive == ReceiveAuto && s.framer != nil {
		s.keep(p)
		s.leaveBuffers(WhyBehind)
		return
	}
	frames := st.FramesIn
	s.deliver(p)
	if s.core.receive != ReceiveAuto || w.ready {
		return
	}
	if w.streak++; w.streak == steadyReceives {
		w.needs = fewReads
	}
	w.bytes, w.frames = w.bytes+uint32(len(p)), w.frames+uint32(st.FramesIn-frames)
	if w.bytes < frameWindow {
		return
	}
	if w.average() > largeFrame && s.Backlog() == 0 { // else there are frames that do not count yet
		s.leaveBuffers(WhyLarge)
		return
	}
	w.count(w.streak)
}

// full says that the reader of the socket has to consume something first.
func (s *Socket) full() bool {
	return s.paused != nil || s.Backlog() >= s.most
}

// resumeReading goes on after the reader took something.
func (s *Socket) resumeReading() {
	if s.dead || s.eof || s.detaching() || s.full() || s.way.receiving {
		return
	}
	switch {
	case s.way.ready && s.stopped:
		s.stopped = false
		s.list() // the readiness event came while we did not read, and does not come again
	case !s.way.ready && !s.way.watching:
		s.armReceive()
	}
}

// ReceiveView shows any goroutine how the socket of a ReceiveShower receives. Its core
// writes it when that changes, not with each read.
type ReceiveView struct{ at atomic.Uint32 }

// ReceiveShower is a Framer that shows how its socket receives.
type ReceiveShower interface {
	Framer
	// ReceiveView is written while the framer has the socket. A framer of several sockets
	// has one for each.
	ReceiveView(s *Socket) *ReceiveView
}

// reasons are those of sockets; a view names them by their place here.
var reasons = [...]Why{WhyAsked, WhyEngine, WhyWhole, WhyBegun, WhySmall, WhyLarge, WhyStopped, WhyBehind, WhyExhausted}

// Receives is the mode, ReceiveBuffers or ReceiveReady, and why; both are empty without a
// socket. Any goroutine.
func (v *ReceiveView) Receives() (ReceiveMode, Why) {
	switch at := v.at.Load(); {
	case at == 0:
		return "", ""
	case at%2 == 0:
		return ReceiveReady, reasons[at/2-1]
	default:
		return ReceiveBuffers, reasons[at/2]
	}
}

// show is called when the way of the socket has changed, or its framer has come.
func (s *Socket) show() {
	if s.view == nil {
		return
	}
	at := slices.Index(reasons[:], s.way.why)
	invariants.Check(at >= 0, "a reason that has no number")
	if s.way.ready {
		at++
		s.view.at.Store(uint32(2 * at))
	} else {
		s.view.at.Store(uint32(2*at + 1))
	}
}

// hide is called when the socket has no framer any more.
func (s *Socket) hide() {
	if s.view != nil {
		s.view.at.Store(0)
		s.view = nil
	}
}
