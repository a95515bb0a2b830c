package sessions

import (
	"container/list"
	"context"
	"errors"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
	"github.com/ringmsgr/ringmsgr/uring"
)

// dialling is one attempt of the connector, from the dial to READY. Its goroutine
// has the socket, the machine of package session decides.
type dialling struct {
	c           *Conn
	a           *attempt
	target      wire.Addr
	peerType    wire.EntityType
	ctx         context.Context
	hinted      uint16 // source port that was bound for the owner hint, 0: none
	hintOutcome hintOutcome
}

// run is the goroutine of the attempt.
func (d *dialling) run() {
	m, a := d.c.m, d.a
	defer m.work.Leave()
	defer close(a.done)
	defer a.release()
	a.interrupt()
	err := m.dials.enter(a.ctx, d.target.AddrPort)
	a.begun = m.cfg.Clock.Now()
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
	m := d.c.m
	ctx, cancel := m.withTimeout(d.a.ctx, m.cfg.Timeout)
	defer cancel()
	d.ctx = ctx
	d.a.probe = probe.NewSocket(m.cfg.Probe, m.sockets.Add(1), false, d.c.user.Probed())
	if err := d.dial(); err != nil {
		return d.wrap(stats.StageConnect, err)
	}
	err := protocolAt(d.target).connect(d)
	if err != nil {
		d.hintFailed()
	} else {
		err = d.session()
		d.judgeHint()
		if err == nil {
			err = d.ready()
		}
	}
	if err != nil {
		d.a.ended(err)
		d.a.wipe()
		d.a.link.Close()
	}
	return err
}

// wrap names the stage and the peer.
func (d *dialling) wrap(stage stats.Stage, err error) error {
	if err == nil || errors.Is(err, errSuperseded) || errors.Is(err, errReported) {
		return err
	}
	return &stats.Error{Stage: stage, Peer: d.target.String(), State: session.Connecting, Err: err}
}

func (d *dialling) dial() error {
	if err := d.a.probe.Step(d.ctx, probe.Point{Step: probe.SocketConnecting}, probe.Before); err != nil {
		return err
	}
	m := d.c.m
	link, err := d.dialSocket()
	d.a.link = link
	if err == nil {
		d.a.probe.Connected(link)
		d.a.watch(m, false)
	}
	return err
}

// wrapAt is wrap with the stage of a handshake that has failed, if err is about that.
func (d *dialling) wrapAt(stage stats.Stage, err error) error {
	var he *handshake.Error
	if errors.As(err, &he) {
		stage = stats.Stage(he.Stage)
	}
	return d.wrap(stage, err)
}

// session opens or resumes the session on the authenticated stream (Ceph's ProtocolV2.cc): the
// machine chooses the frame, and takes the answer.
func (d *dialling) session() error {
	select {
	case snap := <-d.a.suspended:
		err := d.a.converse(d.ctx, d.c, d.c.s.step(session.Authenticated{Attempt: d.a.number, IO: snapshot(snap)}))
		return d.wrapAt(stats.StageIdent, err)
	case <-d.ctx.Done():
		return d.wrap(stats.StageIdent, context.Cause(d.ctx))
	}
}

// ready opens the handler on the socket, once the handler is on its core. In msgr1 a frame to
// the peer may come before.
func (d *dialling) ready() error { return d.wrapAt(stats.StageSession, d.a.awaitHandler(d.ctx, d.c)) }

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
	at map[netip.AddrPort]*dialLine // guarded by mu, like those
}

type dialLine struct {
	busy    int
	waiting list.List // of chan struct{}, closed when it is its turn
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
		l = &dialLine{}
		d.at[at] = l
	}
	if l.busy < DialsAtOnce {
		l.busy++
		d.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	place := l.waiting.PushBack(turn)
	d.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-turn: // both at once
		d.next(at, l)
	default:
		l.waiting.Remove(place)
	}
	return context.Cause(ctx)
}

// leave gives a place back.
func (d *dials) leave(at netip.AddrPort) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next(at, d.at[at])
}

// next has the first in line take a place that is free now.
func (d *dials) next(at netip.AddrPort, l *dialLine) {
	if first := l.waiting.Front(); first != nil {
		close(l.waiting.Remove(first).(chan struct{}))
		return
	}
	if l.busy--; l.busy == 0 {
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

// adoptHintLocked takes over the hint in the cookie of SERVER_IDENT, and compares it with the
// followed one.
func (d *dialling) adoptHintLocked(cookie uint64) {
	c, old := d.c, d.c.hint.to
	c.hint.to = steering.ParseCookie(cookie)
	if d.hinted == 0 || c.hint.to.Cores != old.Cores {
		return // no hint was followed, or the peer has another number of cores now
	}
	d.hintOutcome = hintContradicted
	if c.hint.to == old {
		d.hintOutcome = hintConfirmed
	}
}

// hintOutcome is the outcome of the hint that an attempt followed.
type hintOutcome uint8

const (
	hintPending hintOutcome = iota
	hintConfirmed
	hintContradicted
)

// judgeHint counts the outcome that adoptHintLocked has found, and ends hints to a host where
// they do not hold.
func (d *dialling) judgeHint() {
	h := d.c.m.hints
	switch d.hintOutcome {
	case hintConfirmed:
		h.Count(func(n *steering.HintCounts) { n.Confirmed++ })
	case hintContradicted:
		h.Pause(d.target.AddrPort.Addr(), "contradicted", func(n *steering.HintCounts) { n.Contradicted++ })
	}
}
