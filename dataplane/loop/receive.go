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

// A socket receives in one of two ways at a time. By readiness: a watch reports that
// bytes have come, and the core reads them directly (read.go). By buffers: a multishot
// receive has the ring fill buffers that all sockets of the core share. A socket
// changes over by a cancel; when the final completion is there, it arms the other way.
// Completions come in the order of the stream, and the core reads nothing directly
// while a receive is armed, so no byte is lost or overtakes another.
//
// Buffers need no system call for each read, which is best for small frames. A large
// frame would be copied once more out of the buffers, so it is read into its place; to
// submit that read to the ring costs the same CPU, and one turn more.
//
// In mode ReceiveAuto each socket decides for itself:
//
//	it begins by readiness          so that the ring receives nothing for handshakes and
//	                                idle sockets, and the bytes read are bounded
//	it goes over to the buffers     after some reads of small frames, each soon after the
//	                                last
//	it goes back to readiness       when a large frame comes; when it is stopped, as it
//	                                must then not go on to receive; when it brings more
//	                                in a turn than a visit takes, or falls behind; when
//	                                the buffers have run out
//
// Each time that a socket has gone back, it takes twice as many small reads before it
// tries again. After a long streak with the buffers the first number holds again.
const (
	// smallFrame is the average size of frames, in bytes, up to which a socket goes over to
	// the buffers; beyond largeFrame it goes back. With larger frames the buffers save
	// system calls but hardly any CPU, as more is copied; and other sockets wait longer, as
	// a turn receives all that the buffers hold.
	smallFrame, largeFrame = 8 << 10, 16 << 10
	// frameWindow is the number of bytes received into buffers over which the average is
	// taken.
	frameWindow = 128 << 10
	// fewReads is the number of small reads in a row before the first change to the
	// buffers, manyReads the bound of that number.
	fewReads, manyReads = 4, 1024
	// soonAfter is how soon after the last bytes a read has to come to count: the
	// keepalives of thousands of idle connections are small frames, too.
	soonAfter = time.Second
	// steadyReceives is the number of receives into buffers in a row after which fewReads
	// holds again.
	steadyReceives = 512
)

// Why is the reason why a socket receives in its present way.
type Why string

// The reasons.
const (
	WhyAsked     Why = "configured"                        // Config.Receive
	WhyEngine    Why = "the engine has no receive buffers" // epoll, or Linux before 6.12
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
	ready     bool     // the socket wants the watch, else the receive
	why       Why      // the reason for that
	op        uring.Op // the watch or receive in flight
	streak    int32    // small reads, or receives, in a row
	needs     int32    // small reads until it goes over to the buffers
	bytes     uint32   // bytes of the streak, or since the last look at the average
	frames    uint32   // frames of the same reads
	turn      uint64   // the last turn that brought bytes into buffers
	came      int      // the number of bytes in that turn
}

// begin is the way of a new socket.
func (w *way) begin(c *Core) {
	w.ready, w.why, w.needs = c.receive != ReceiveBuffers, c.receiveWhy, fewReads
	if c.receive == ReceiveAuto {
		w.why = WhyBegun
	}
}

// count starts the counters again, with a streak.
func (w *way) count(streak int32) { w.streak, w.bytes, w.frames = streak, 0, 0 }

// average is the mean size of the counted frames, in bytes.
func (w *way) average() uint32 { return w.bytes / max(w.frames, 1) }

// chooseReceive settles how the sockets of the core receive.
func (c *Core) chooseReceive() {
	c.receive, c.receiveWhy = c.cfg.Receive, WhyAsked
	switch {
	case !c.info.Receive:
		c.receive, c.receiveWhy = ReceiveReady, WhyEngine
	case c.receive == ReceiveAuto:
		c.receiveWhy = WhyEach
	}
}

// Receives says how the socket receives, ReceiveBuffers or ReceiveReady, and why. On its
// core; other goroutines have ReceiveView.
func (s *Socket) Receives() (ReceiveMode, Why) {
	s.core.assertOwner()
	if s.way.ready {
		return ReceiveReady, s.way.why
	}
	return ReceiveBuffers, s.way.why
}

// arm starts receiving, unless the reader of the bytes has done it already, or has the socket
// leave its core.
func (s *Socket) arm() {
	w, kind, name := &s.way, uring.KindReceive, "receive"
	if w.receiving || w.watching || s.detaching() {
		return
	}
	if w.ready {
		kind, name = uring.KindReady, "watch"
	}
	op, err := s.core.drv.Arm(kind, s.sock, s.user)
	if err != nil {
		s.Fault(fmt.Errorf("%s: %w", name, err))
		return
	}
	s.ops++
	w.op, w.watching, w.receiving = op, w.ready, !w.ready
	if w.receiving {
		s.stopped = false // the receive gets the bytes that are there
		s.core.stats.Receiving++
	}
}

// disarmed notes the final completion of the watch or receive.
func (s *Socket) disarmed() {
	if s.way.receiving {
		s.core.stats.Receiving--
	}
	s.way.receiving, s.way.watching = false, false
}

// ReadInPlace is for a Placer that sees a large frame. The socket reads by readiness
// from now on, into the places that the Placer names. Bytes that the ring has already
// received still come first, in order.
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

// stopReceiving is called when the socket is stopped: only bytes that are already
// received still come. Mode ReceiveBuffers goes on until the backlog has BacklogBytes.
func (s *Socket) stopReceiving() {
	if s.core.receive == ReceiveAuto {
		s.leaveBuffers(WhyStopped)
	}
}

// didRead notes a direct read of n bytes, the number of frames that it completed, and
// the time since the last read.
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

// ready handles a readiness edge.
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
			return // the other core reads the bytes that have come
		}
		s.core.stats.Rearms++
		s.arm()
	}
	if s.dead || errno != 0 {
		return // the new watch reports the bytes that are there
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

// received handles a slice of the ring's buffers.
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
		s.leaveBuffers(WhyBehind) // from here on readiness reports the end of the stream, too
	}
	if !last || s.dead || s.eof || s.detaching() {
		return
	}
	s.core.stats.Rearms++
	s.arm() // even with a backlog: nothing else would arm it
}

// take delivers bytes that the ring has received.
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
	if w.average() > largeFrame && s.Backlog() == 0 { // frames of a backlog are not counted yet
		s.leaveBuffers(WhyLarge)
		return
	}
	w.count(w.streak)
}

// full says that the reader of the socket has to consume something first.
func (s *Socket) full() bool {
	return s.paused != nil || s.Backlog() >= s.most
}

// resumeReading goes on to read after the reader has taken bytes.
func (s *Socket) resumeReading() {
	if s.dead || s.eof || s.detaching() || s.full() || s.way.receiving {
		return
	}
	switch {
	case s.way.ready && s.stopped:
		s.stopped = false
		s.list() // the readiness event came while the socket did not read; it does not come again
	case !s.way.ready && !s.way.watching:
		s.arm()
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

// reasons are the reasons of sockets; a view stores the index.
var reasons = [...]Why{WhyAsked, WhyEngine, WhyBegun, WhySmall, WhyLarge, WhyStopped, WhyBehind, WhyExhausted}

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
