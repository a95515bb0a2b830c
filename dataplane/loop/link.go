package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// Link is a socket of a core during a handshake: exact reads and writes for one
// ordinary goroutine, carried out by the core. A call that needs the core costs a
// switch to its thread and one back. So a Link reads ahead whatever has arrived, and
// sends queued bytes with the next call that waits; CoreStats.LinkCalls counts these
// calls. A Link ends by Close, or by Carry: a Framer then owns the socket, with the
// bytes that were not read or not sent yet.
//
// One goroutine at a time uses a Link. On a core reads and writes fail with ErrOnCore
// and change nothing. Any goroutine may call Close. A call ends with its context even
// if the core stands still, as the core never touches the caller's memory.
type Link struct {
	core        *Core
	local, peer netip.AddrPort
	result      chan reply // answer to the call under way, or the cause of the end
	ahead       int        // bound of the bytes that are read ahead

	// The calling goroutine's; the core's during a call, and after Carry.
	unread []byte // taken from the socket, not read yet
	unsent []byte // queued
	spent  []byte // memory of bytes that were read, to be used again
	loose  bool   // a write may be in flight for which no call has waited
	ended  bool   // the stream of the peer ends after unread
	failed bool   // a call has failed: no other succeeds
	call   linkCall

	// The core's.
	sock  *Socket // nil once closed or given away
	cause error   // the error that ended the socket, until a call has returned it
}

// reply is the core's answer to a call.
type reply struct {
	unread []byte // all bytes that have arrived and were not read; the caller's now
	eof    bool   // the stream ends after unread
	err    error
}

// linkCall is the request of a call. It belongs to the core until the answer. A caller
// that gives up makes no other call, so the core may still read it later.
type linkCall struct {
	task   Task
	ctx    context.Context          // the caller's
	send   []byte                   // to be written first
	unread []byte                   // comes before the bytes that arrive
	wrote  bool                     // wait until all is written, and read nothing
	min    int                      // else wait for this number of bytes,
	enough func(unread []byte) bool // and, if it is set, until it returns true
}

// ErrLinkClosed is the error of calls on a closed Link.
var ErrLinkClosed = errors.New("loop: link closed")

// Dial connects to an address through the core. local may be the zero value,
// or an address and port to bind. A core that is being removed refuses with
// ErrStopped. It ends with ctx, also while the core stands still. On a core it
// fails with ErrOnCore.
func (c *Core) Dial(ctx context.Context, local, to netip.AddrPort, opt uring.SocketOptions) (*Link, error) {
	if c.plane.OnCore() {
		return nil, fmt.Errorf("connect to %v: %w", to, ErrOnCore)
	}
	l := &Link{core: c, peer: to, result: make(chan reply, 1), ahead: BacklogBytes}
	err := c.Do(func(c *Core) {
		switch {
		case ctx.Err() != nil:
			return // the caller has left
		case c.draining.Load():
			l.answer(reply{err: ErrStopped})
			return
		}
		s := newSocket(c)
		us, _, err := c.drv.Connect(local, to, opt, s.user)
		if err != nil {
			s.Fault(err)
			l.answer(reply{err: err})
			return
		}
		s.sock, s.link, s.ops = us, l, 1
		l.sock = s
	})
	if err != nil {
		return nil, err
	}
	if r := l.replied(ctx); r.err != nil {
		l.Close()
		return nil, fmt.Errorf("connect to %v: %w", to, r.err)
	}
	return l, nil
}

// replied waits for the core's answer to a call.
func (l *Link) replied(ctx context.Context) reply {
	select {
	case r := <-l.result:
		return r
	case <-l.core.done:
		return reply{err: ErrStopped}
	case <-ctx.Done():
		return reply{err: context.Cause(ctx)}
	}
}

// Adopt takes over a connected TCP descriptor, and closes it on an error. On the
// core.
func (c *Core) Adopt(fd int) (*Link, error) {
	l, err := c.take(fd)
	if err == nil {
		l.sock.arm()
	}
	return l, err
}

// take is Adopt, but for the watch: the caller arms the socket in the same turn.
func (c *Core) take(fd int) (*Link, error) {
	c.assertOwner()
	us, err := c.drv.Adopt(fd)
	if err != nil {
		c.cfg.CloseFD(fd)
		return nil, err
	}
	s := newSocket(c)
	l := &Link{core: c, sock: s, local: c.drv.LocalAddr(us), peer: c.drv.PeerAddr(us), result: make(chan reply, 1), ahead: BacklogBytes}
	s.sock, s.link = us, l
	if !l.peer.IsValid() { // gone already
		s.Fault(unix.ECONNRESET)
		return nil, unix.ECONNRESET
	}
	return l, nil
}

// ReadAhead bounds the bytes that the link reads ahead of its calls, until Carry; the
// default is BacklogBytes. In mode ReceiveBuffers the bytes in the ring's buffers come
// on top. Call it in the function that a listener gives links to, before another
// goroutine gets the link.
func (l *Link) ReadAhead(n int) {
	if s := l.Socket(); s != nil {
		l.ahead = min(max(n, 1), BacklogBytes)
		s.most = l.ahead
	}
}

// Core is the core that owns the socket.
func (l *Link) Core() *Core { return l.core }

// LocalAddr is the socket's own address.
func (l *Link) LocalAddr() netip.AddrPort { return l.local }

// PeerAddr is the address of the other end.
func (l *Link) PeerAddr() netip.AddrPort { return l.peer }

// ReadFull fills p. It sends the queued bytes before it waits. The end of the stream
// is io.EOF before the first byte and io.ErrUnexpectedEOF after it. After an error,
// that of ctx included, the link is closed.
func (l *Link) ReadFull(ctx context.Context, p []byte) error {
	if err := l.usable(ctx); err != nil || len(p) == 0 {
		return err
	}
	for got := 0; ; {
		n := copy(p[got:], l.unread)
		l.unread = l.unread[n:]
		got += n
		switch {
		case got == len(p):
			return nil
		case l.ended && got == 0:
			return l.fail(io.EOF)
		case l.ended:
			return l.fail(io.ErrUnexpectedEOF)
		}
		if err := l.take(ctx, min(len(p)-got, l.ahead), nil); err != nil {
			return err
		}
	}
}

// Await sends the queued bytes, and waits until enough returns true for the bytes
// that have arrived and were not read. It also returns at the end of the stream and
// when the link is full; ReadFull then reports missing bytes. After an error, that of
// ctx included, the link is closed.
//
// enough runs on the core each time that bytes arrive, with the former bytes and the
// new ones. It must be quick, must not keep the bytes, and must not use state of the
// caller, as it may still run after Await has returned because of ctx.
func (l *Link) Await(ctx context.Context, enough func(unread []byte) bool) error {
	if err := l.usable(ctx); err != nil || l.ended || enough(l.unread) {
		return err
	}
	return l.take(ctx, 0, enough)
}

// take has the core send the queued bytes, and takes all bytes that have arrived as
// soon as they are enough.
func (l *Link) take(ctx context.Context, least int, enough func(unread []byte) bool) error {
	c := &l.call
	c.send, c.unread, c.wrote, c.min, c.enough = l.unsent, l.unread, false, least, enough
	if len(c.unread) == 0 {
		c.unread = l.spent
	}
	l.loose = l.loose || len(l.unsent) > 0
	l.unsent, l.unread, l.spent = nil, nil, nil
	r, err := l.await(ctx)
	l.unread, l.spent, l.ended = r.unread, r.unread[:0], r.eof
	return err
}

// Write sends the queued bytes and all of p, which it does not keep. After an error,
// that of ctx included, the link is closed.
func (l *Link) Write(ctx context.Context, p []byte) error {
	l.Queue(p)
	return l.Flush(ctx)
}

// Queue copies p. The next call that waits sends it: ReadFull or Await if they have to
// wait, Write, or Flush. After Carry the framer's socket sends it first. A link that
// closes drops it.
func (l *Link) Queue(p []byte) {
	if l.unsent == nil && l.spent != nil { // the peer has sent something: more flights follow
		l.unsent = make([]byte, 0, max(len(p), usualFlight))
	}
	l.unsent = append(l.unsent, p...)
}

// usualFlight is room for the bytes that a handshake usually sends at a time.
const usualFlight = 384

// Flush sends the queued bytes and waits until the kernel has all of them. After an
// error, that of ctx included, the link is closed.
func (l *Link) Flush(ctx context.Context) error {
	if err := l.usable(ctx); err != nil || len(l.unsent) == 0 && !l.loose {
		return err
	}
	c := &l.call
	c.send, c.unread, c.wrote, c.min, c.enough = l.unsent, nil, true, 0, nil
	l.unsent, l.loose = nil, false
	_, err := l.await(ctx)
	return err
}

// usable says why a call cannot begin.
func (l *Link) usable(ctx context.Context) error {
	switch {
	case l.failed && l.core.stopping.Load():
		return ErrStopped
	case l.failed:
		return ErrLinkClosed
	case ctx.Err() != nil:
		return l.fail(context.Cause(ctx))
	}
	return nil
}

// fail closes the link because of err.
func (l *Link) fail(err error) error {
	l.failed = true
	l.Close()
	return err
}

// await has the core serve the call and waits for its answer.
func (l *Link) await(ctx context.Context) (reply, error) {
	if l.core.plane.OnCore() {
		return reply{}, ErrOnCore
	}
	if l.core.stopping.Load() {
		return reply{}, l.fail(ErrStopped)
	}
	l.call.ctx = ctx
	t := &l.call.task
	if t.of = &notLate; t.Run == nil {
		t.Run = l.serve
	}
	l.core.post(t)
	r := l.replied(ctx)
	if r.err != nil {
		return reply{}, l.fail(r.err)
	}
	return r, nil
}

// Close has the core shut the socket down, and does not wait for that. After Carry it
// does nothing.
func (l *Link) Close() {
	_ = l.core.Do(func(*Core) { // a core that has stopped has closed it
		l.Refuse()
		l.cause = nil // the call that failed has returned it
	})
}

// Refuse is Close for the function that a listener gives links to: it does not
// wait. Only on the link's core.
func (l *Link) Refuse() {
	if s := l.sock; s != nil && s.link == l {
		s.Fault(ErrLinkClosed)
	}
	l.sock = nil
}

// Reset closes the link, and the peer sees a TCP reset. It does not wait for that. For tests
// of the other end.
func (l *Link) Reset() {
	l.do(func(s *Socket) { s.Fault(ErrReset) })
}

// HalfClose ends our direction of the stream: later calls of Write fail, and bytes that
// the peer still sends can be read. It does not wait. For tests of the other end.
func (l *Link) HalfClose() {
	l.do((*Socket).EndWriting)
}

// do runs f on the core of the socket, before later calls of the same goroutine, unless the
// link has lost its socket.
func (l *Link) do(f func(s *Socket)) {
	_ = l.core.Do(func(*Core) { // an error is its end
		if s := l.sock; s != nil && s.link == l {
			f(s)
		}
	})
}

// Socket is the link's socket, nil once the link is closed or given away. On
// the link's core.
func (l *Link) Socket() *Socket {
	l.core.assertOwner()
	return l.sock
}

// Carry gives the socket to f. During the call f gets the bytes that have arrived and
// were not read. The link is of no use from then on. If the socket is gone already,
// Carry fails with ErrLinkClosed and the cause. If the socket ends during the call, f
// gets Ended. On the link's core.
func (l *Link) Carry(f Framer) error {
	s := l.Socket()
	if s == nil {
		return l.Cause()
	}
	s.touched = s.core.now
	s.carry(f)
	if s.dead {
		return nil // f has got Ended
	}
	s.feedBacklog()
	s.resumeReading()
	return nil
}

// The rest is the core's side of a Link.

// answer ends the call under way. On the core.
func (l *Link) answer(r reply) {
	select {
	case l.result <- r:
	default: // the caller has gone: its deadline came first
	}
}

// Cause says why a link has no socket any more: ErrLinkClosed, with the error that
// ended the socket if no call has returned it. On the link's core.
func (l *Link) Cause() error {
	if err := l.takeCause(); !errors.Is(err, ErrLinkClosed) {
		return fmt.Errorf("%w: %w", ErrLinkClosed, err)
	}
	return ErrLinkClosed
}

// takeCause is the error that ended the socket, ErrLinkClosed if it is not known. The
// channel may have held the answer to the last call when the socket ended, so that the
// cause had no place in it: the next call finds it here.
func (l *Link) takeCause() error {
	select {
	case <-l.result: // the same error, or the answer to an abandoned call
	default:
	}
	err := cmp.Or(l.cause, ErrLinkClosed)
	l.cause = nil
	return err
}

// serve begins a call.
func (l *Link) serve(*Core) {
	switch {
	case l.call.ctx.Err() != nil: // the caller has left
	case l.sock == nil || l.sock.link != l:
		l.answer(reply{err: l.takeCause()}) // unless it is there already
	default:
		s := l.sock
		s.core.stats.LinkCalls++
		s.prepend(l.call.unread)
		s.queueLink(l.call.send)
		s.call = &l.call
		s.writeLink()
		s.feedLink()
	}
}

// prepend puts p before the backlog, and takes its memory.
func (s *Socket) prepend(p []byte) {
	if len(p) > 0 || s.backlog == nil {
		s.backlog = append(p, s.backlog...)
	}
}

// queueLink puts p at the end of the bytes to be sent, and takes its memory.
func (s *Socket) queueLink(p []byte) {
	if len(s.unsent) == 0 {
		s.unsent = p
	} else {
		s.unsent = append(s.unsent, p...)
	}
}

// feedLink answers the call under way if its condition holds.
func (s *Socket) feedLink() {
	c := s.call
	if c == nil {
		return
	}
	var r reply
	if c.wrote {
		if s.writing {
			return
		}
	} else {
		have := s.backlog
		done := len(have) >= c.min && (c.enough == nil || c.enough(have))
		if !done && !s.eof && len(have) < s.most {
			return
		}
		r.unread, r.eof = have, s.eof
		s.backlog = nil
	}
	s.call = nil
	s.link.answer(r)
	s.resumeReading()
}

// writeLink sends the queued bytes, one write at a time.
func (s *Socket) writeLink() {
	if s.writing || len(s.unsent) == 0 {
		return
	}
	v, err := s.core.vecs.get()
	if err != nil {
		s.Fault(err)
		return
	}
	v.Append(s.unsent)
	s.unsent = nil
	s.tx.core, s.tx.vec = s.core, v
	s.writing = true
	s.send(0)
}

// leaveLink takes the socket from its link, with the bytes that the link has read
// ahead and those that it has queued.
func (s *Socket) leaveLink(l *Link) {
	l.sock, s.link = nil, nil
	s.prepend(l.unread)
	s.queueLink(l.unsent)
	l.unread, l.unsent, l.spent = nil, nil, nil
	s.writeLink()
}

// connected is the completion of Dial.
func (s *Socket) connected(res int32) {
	l := s.link
	if l == nil {
		return
	}
	if res < 0 {
		s.Fault(unix.Errno(-res))
		return
	}
	l.local = s.core.drv.LocalAddr(s.sock)
	s.arm()
	l.answer(reply{})
}
