package sessions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/keylog"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
	"github.com/ringmsgr/ringmsgr/uring"
)

// attempt is one goroutine that works on a socket for a connection. The attempt that takes
// the connection over cancels this one and waits for done; later events of this one change
// nothing, as the machine knows its number.
type attempt struct {
	number    uint64 // in its session
	ctx       context.Context
	cancelCtx atomic.Pointer[context.CancelCauseFunc] // of ctx; nil: it has ended
	done      chan struct{}
	prev      *attempt                  // that it interrupted; ends before it goes on
	suspended <-chan dataplane.Snapshot // from the handler, once its last socket is closed
	moved     chan error                // the handler is on the core of the socket; capacity 1
	// together: the handler is on the core of the socket from the start, and no goroutine waits
	// until it has the socket.
	together bool

	// Of its goroutine until the connection is ready.
	begun  time.Time
	serial uint64        // numbers sockets in the order in which they began
	took   time.Duration // the whole handshake
	link   *loop.Link
	// The addresses of link, made when they are first needed.
	localText, peerText string
	probe               *probe.Socket // nil: none
	tap                 probe.Tap     // nil: the socket has no tap
	talk                talk
	peer                *handshake.Peer // as far as it is known

	dial     *dialling  // we dialled; else
	accepted *accepting // we accepted
}

// errSuperseded ends an attempt after its connection has moved on, errReported one whose
// failure the machine knows. They are never shown.
var (
	errSuperseded = errors.New("superseded")
	errReported   = errors.New("reported")
)

func (m *Manager) newAttempt() *attempt {
	a := &attempt{done: make(chan struct{}), moved: make(chan error, 1)}
	ctx, cancel := context.WithCancelCause(m.ctx)
	a.ctx = ctx
	a.cancelCtx.Store(&cancel)
	return a
}

// cancel ends the attempt because of cause, unless it has ended. Any goroutine.
func (a *attempt) cancel(cause error) {
	if cancel := a.cancelCtx.Load(); cancel != nil {
		(*cancel)(cause)
	}
}

// release drops everything except the channels on which others wait: the connection keeps the
// attempt until the next one begins.
func (a *attempt) release() {
	a.cancelCtx.Store(nil)
	a.ctx, a.prev, a.suspended, a.link, a.probe, a.tap, a.talk, a.peer, a.dial, a.accepted = nil, nil, nil, nil, nil, nil, nil, nil, nil, nil
}

// begin notes when its socket begins, and its number: the order of sockets holds also where the clock is set back.
func (a *attempt) begin(m *Manager, at time.Time) { a.begun, a.serial = at, m.sockets.Add(1) }

// wipe overwrites the secrets of a handshake that has failed.
func (a *attempt) wipe() {
	if a.talk != nil {
		a.talk.Wipe()
	}
}

// ends are the addresses of the socket.
func (a *attempt) ends() (local, peer string) {
	if a.localText == "" {
		a.localText, a.peerText = a.link.LocalAddr().String(), a.link.PeerAddr().String()
	}
	return a.localText, a.peerText
}

// interrupt waits until the attempt that this one interrupted has ended.
func (a *attempt) interrupt() {
	if a.prev != nil {
		<-a.prev.done
		a.prev = nil // so that no chain of them is kept
	}
}

// coreGone says that the core of a link has ended, and the socket with it: the
// handler cannot move there.
func coreGone(l *loop.Link) bool {
	s := l.Core().State()
	return s == loop.CoreFailed || s == loop.CoreStopped
}

// The events of an attempt in both roles.

// awaitHandler waits until the handler is on the core of the socket, and has the machine go on.
func (a *attempt) awaitHandler(ctx context.Context, c *Conn) error {
	if !a.together {
		if err := <-a.moved; err != nil {
			return err
		}
	}
	if err := context.Cause(c.m.ctx); err != nil {
		return err
	}
	a.took = c.m.cfg.Clock.Now().Sub(a.begun)
	return a.converse(ctx, c, c.s.step(session.HandlerMoved{Attempt: a.number}))
}

// converse sends the frames of the machine, and has it judge the peer's answers, until it sends
// nothing more. o is the outcome of the last step.
func (a *attempt) converse(ctx context.Context, c *Conn, o outcome) error {
	for check(o) == nil && o.send != nil {
		if err := a.talk.send(ctx, o.send); err != nil {
			return err
		}
		var ev session.Event = session.Sent{Attempt: a.number}
		if !a.talk.last(o.send) {
			f, err := a.talk.receive(ctx)
			if err != nil {
				return err
			}
			ev = session.Answer{Attempt: a.number, Frame: f}
		}
		a.took = c.m.cfg.Clock.Now().Sub(a.begun)
		o = c.s.step(ev)
	}
	return check(o)
}

// check says why an attempt does not go on after a step.
func check(o outcome) error {
	switch {
	case o.superseded:
		return errSuperseded
	case o.faulted != nil:
		return errReported
	}
	return nil
}

// fail has the fault rule applied to an attempt that has ended with an error, unless that has
// happened, or the connection has moved on.
func (a *attempt) fail(c *Conn, err error) error {
	if err == nil || errors.Is(err, errSuperseded) || errors.Is(err, errReported) {
		return err
	}
	if o := c.s.step(session.Failed{Attempt: a.number, Err: err, Terminal: stats.Terminal(err)}); o.superseded {
		return errSuperseded
	}
	return err
}

// The user's view of the wire: Config.Diagnostics.Tracer and Config.Diagnostics.KeyLog.

// watch asks the tracer for a tap, once the attempt has a socket.
func (a *attempt) watch(m *Manager, accepted bool) {
	if m.cfg.Tracer == nil {
		return
	}
	a.tap = m.cfg.Tracer.Trace(probe.TracedSocket{
		Accepted: accepted, Local: a.link.LocalAddr(), Peer: a.link.PeerAddr(),
	})
}

// ended says that the socket of an attempt is closed before it belonged to a handler.
func (a *attempt) ended(why error) {
	if a.tap != nil {
		a.tap.Ended(why)
	}
}

// keyLogger is Config.Diagnostics.KeyLog as handshakes take it, nil without one. It warns that
// there is one.
func keyLogger(w io.Writer, log *slog.Logger) func(authDone, secret []byte) {
	if w == nil {
		return nil
	}
	log.Warn("the keys of connections in mode secure are logged: whoever has them can read what was recorded")
	var mu sync.Mutex
	return func(authDone, secret []byte) {
		line := keylog.Append(nil, authDone, secret)
		mu.Lock()
		_, err := w.Write(line)
		mu.Unlock()
		clear(line)
		if err != nil {
			log.Warn("the key of a connection could not be logged", "err", fmt.Errorf("key log: %w", err))
		}
	}
}

// dialling is one attempt of the connector, from the dial to READY. Its goroutine
// has the socket, the machine of package session decides.
type dialling struct {
	c        *Conn
	a        *attempt
	target   wire.Addr
	peerType wire.EntityType
	ctx      context.Context
	hinted   uint16 // source port that was bound for the owner hint, 0: none
}

// run is the goroutine of the attempt.
func (d *dialling) run() {
	m, a := d.c.m, d.a
	defer m.work.Leave()
	defer close(a.done)
	defer a.release()
	a.interrupt()
	err := m.dials.enter(a.ctx, d.target.AddrPort)
	a.begin(m, m.cfg.Clock.Now())
	if err == nil {
		err = d.attempt()
		m.dials.leave(d.target.AddrPort)
	} else {
		err = d.wrap(stats.StageConnect, err)
	}
	a.cancel(nil)
	_ = a.fail(d.c, err) // the machine decides about the next attempt
}

func (d *dialling) attempt() error {
	m, a := d.c.m, d.a
	ctx, cancel := m.withTimeout(a.ctx, m.cfg.Timeout)
	defer cancel()
	d.ctx = ctx
	a.probe = probe.NewSocket(m.cfg.Probe, a.serial, false, d.c.user.Probed())
	if err := d.dial(); err != nil {
		return d.wrap(stats.StageConnect, err)
	}
	err := protocolAt(d.target).connect(d)
	if err != nil {
		d.hintFailed()
	} else if err = d.session(); err == nil {
		err = d.wrap(stats.StageSession, a.awaitHandler(ctx, d.c))
	}
	if err != nil {
		a.ended(err)
		a.wipe()
		a.link.Close()
	}
	return err
}

// wrap names the peer and the stage, which is that of the handshake if that has failed.
func (d *dialling) wrap(stage stats.Stage, err error) error {
	if err == nil || errors.Is(err, errSuperseded) || errors.Is(err, errReported) {
		return err
	}
	if he, ok := errors.AsType[*handshake.Error](err); ok {
		stage = stats.Stage(he.Stage)
	}
	return &stats.Error{Stage: stage, Peer: d.target.String(), State: session.Connecting, Err: err}
}

func (d *dialling) dial() error {
	if err := d.a.probe.Step(d.ctx, probe.Point{Step: probe.SocketConnecting}, probe.Before); err != nil {
		return err
	}
	link, err := d.dialSocket()
	d.a.link = link
	if err == nil {
		d.a.probe.Connected(link)
		d.a.watch(d.c.m, false)
	}
	return err
}

// session opens or resumes the session on the authenticated stream (Ceph's ProtocolV2.cc): the
// machine chooses the frame, and takes the answer.
func (d *dialling) session() error {
	select {
	case snap := <-d.a.suspended:
		err := d.a.converse(d.ctx, d.c, d.c.s.step(session.Authenticated{Attempt: d.a.number, IO: snapshot(snap)}))
		return d.wrap(stats.StageIdent, err)
	case <-d.ctx.Done():
		return d.wrap(stats.StageIdent, context.Cause(d.ctx))
	}
}

// DialsAtOnce bounds the connections of a messenger that are dialled, or in their handshake, at
// one address at the same time. Others wait for their turn.
const DialsAtOnce = 256

// dials has attempts at one address wait for each other. A server that thousands of clients
// dial at the same moment has to turn some away in their handshake (Config.Door), and the work
// of both sides is lost: one after the other the clients are ready much sooner.
//
// An attempt with a place gives it back within Config.Timeout and waits for no attempt in
// line, so that the line moves on. The zero value is ready. Any goroutine.
type dials struct {
	mu sync.Mutex
	at map[netip.AddrPort]*dialLine // guarded by mu
}

// dialLine are the attempts at one address.
type dialLine struct {
	places   chan struct{} // full: the next attempt waits, in line
	attempts int           // with a place or in line; guarded by dials.mu
}

// enter waits for a place at the address, or until ctx has ended: then the error is its cause
// and there is no place to leave.
func (d *dials) enter(ctx context.Context, at netip.AddrPort) error {
	d.mu.Lock()
	l := d.at[at]
	if l == nil {
		if d.at == nil {
			d.at = make(map[netip.AddrPort]*dialLine)
		}
		l = &dialLine{places: make(chan struct{}, DialsAtOnce)}
		d.at[at] = l
	}
	l.attempts++
	d.mu.Unlock()
	select {
	case l.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		d.end(at, l)
		return context.Cause(ctx)
	}
}

// leave gives a place back.
func (d *dials) leave(at netip.AddrPort) {
	d.mu.Lock()
	l := d.at[at]
	d.mu.Unlock()
	<-l.places
	d.end(at, l)
}

func (d *dials) end(at netip.AddrPort, l *dialLine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l.attempts--; l.attempts == 0 {
		delete(d.at, at)
	}
}

// hinting is the connector's knowledge of the peer's owner core. The messenger's lock guards it.
type hinting struct {
	to steering.Owner
	// failed says that the last dial was hinted, and the peer was silent. A
	// firewall may let ordinary ports pass only: the next dial uses one.
	failed bool
}

// hintedPorts are the source addresses to try for the next dial of c, in order;
// none if there is no hint to follow.
func (m *Manager) hintedPorts(c *Conn, peer netip.Addr) []netip.AddrPort {
	m.lock()
	to, doubt := c.hint.to, c.hint.failed
	c.hint.failed = false
	m.unlock()
	if doubt {
		return nil
	}
	return m.hints.Ports(to, peer)
}

// dialSocket connects to the peer, by a hinted port if there is one.
func (d *dialling) dialSocket() (*loop.Link, error) {
	c, m := d.c, d.c.m
	for {
		m.lock()
		core := m.dialCoreLocked(c)
		m.unlock()
		link, err := d.dialFrom(core)
		if !errors.Is(err, loop.ErrStopped) || core.State() == loop.CoreRunning || len(m.running()) == 0 || d.ctx.Err() != nil {
			return link, err
		}
		// The core was removed meanwhile, or has failed: another one dials.
		d.hinted = 0
	}
}

// dialFrom dials from a core.
func (d *dialling) dialFrom(core *loop.Core) (*loop.Link, error) {
	c, m := d.c, d.c.m
	to := d.target.AddrPort
	ports := m.hintedPorts(c, to.Addr())
	for _, local := range ports {
		link, err := core.Dial(d.ctx, local, to, uring.SocketOptions{})
		switch {
		case err == nil:
			d.hinted = local.Port()
			m.hints.Count(func(n *steering.HintCounts) { n.Dialled++ })
			m.lock()
			c.s.counters.Hinted++
			m.unlock()
			return link, nil
		case errors.Is(err, unix.EADDRINUSE), errors.Is(err, unix.EADDRNOTAVAIL):
			m.hints.Count(func(n *steering.HintCounts) { n.Busy++ })
			continue
		case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
			m.hints.Pause(to.Addr(), "refused", func(n *steering.HintCounts) { n.Refused++ })
		case errors.Is(err, unix.ECONNREFUSED):
			return nil, err // the host has answered: the port is not the cause
		default:
			d.hinted = local.Port()
			d.hintFailed()
			return nil, err
		}
		ports = nil
		break
	}
	if len(ports) > 0 {
		m.hints.Count(func(n *steering.HintCounts) { n.Gone++ })
	}
	return core.Dial(d.ctx, netip.AddrPort{}, to, uring.SocketOptions{})
}

// hintFailed is called when a dial or a handshake failed. An attempt that was
// cancelled for another socket says nothing about its port.
func (d *dialling) hintFailed() {
	m := d.c.m
	m.lock()
	defer m.unlock()
	if d.hinted != 0 && d.a.peer == nil && d.a.ctx.Err() == nil {
		d.c.hint.failed = true
	}
}

// checkHint compares the hinted port with the port in the peer's HELLO.
func (d *dialling) checkHint() {
	if d.hinted == 0 {
		return
	}
	if seen := d.a.peer.SeenAs; !seen.IsBlank() && seen.AddrPort.Port() != d.hinted {
		d.c.m.hints.Pause(d.target.AddrPort.Addr(), "translated", func(n *steering.HintCounts) { n.Translated++ })
	}
}

// adoptHintLocked takes over the hint in the cookie of SERVER_IDENT, and counts whether it is the
// followed one. Hints to a host where they do not hold end.
func (d *dialling) adoptHintLocked(cookie uint64) {
	c, old := d.c, d.c.hint.to
	c.hint.to = steering.ParseCookie(cookie)
	if d.hinted == 0 || c.hint.to.Cores != old.Cores {
		return // no hint was followed, or the peer has another number of cores now
	}
	m, held, peer := c.m, c.hint.to == old, d.target.AddrPort.Addr()
	m.mu.LaterLocked(func() {
		if held {
			m.hints.Count(func(n *steering.HintCounts) { n.Confirmed++ })
		} else {
			m.hints.Pause(peer, "contradicted", func(n *steering.HintCounts) { n.Contradicted++ })
		}
	})
}
