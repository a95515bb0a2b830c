package sessions

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime/pprof"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/door"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// acceptor gets the sockets that are accepted on an address, which is ours once settled is closed.
func (m *Manager) acceptor(at wire.Addr, settled <-chan struct{}) func(*loop.Link) {
	speaks := protocolAt(at)
	return func(link *loop.Link) { m.accepted(link, speaks, settled) }
}

// accepted gets a new socket, on its core. If the socket may become half-open,
// a goroutine goes on with it.
func (m *Manager) accepted(link *loop.Link, speaks protocol, settled <-chan struct{}) {
	begun := m.cfg.Clock.Now()
	guest := m.admit(link, begun)
	if guest == nil {
		return
	}
	m.arriving.Add(1)
	guest.Begin(func() { go m.serve(link, guest, begun, speaks, settled) })
}

func (m *Manager) serve(link *loop.Link, guest *door.Guest, begun time.Time, speaks protocol, settled <-chan struct{}) {
	pprof.SetGoroutineLabels(context.Background()) // the core has started it, and its work is not the core's in profiles
	defer guest.Leave()
	pin, pinned := m.steering.Pinned(link.PeerAddr())
	m.lock()
	m.arriving.Add(-1)
	refuse := !m.started || !m.work.Enter()
	m.counters.Accepted++
	if refuse {
		m.counters.Refused++
		m.unlock()
		guest.Passed()
		link.Close()
		return
	}
	m.halfOpen++
	att := m.newAttempt()
	att.begin(m, begun)
	att.link = link
	att.accepted = &accepting{m: m, link: link, guest: guest, att: att, pin: pin, pinned: pinned, speaks: speaks, settled: settled}
	m.unlock()
	defer m.work.Leave()
	guest.OnEvict(func() { att.cancel(door.ErrEvicted) })
	att.accepted.run()
}

// accepting is one accepted socket until it is decided whether it gets a new
// session or that of an existing connection. Its goroutine reads and writes the
// frames, the machine of package session decides.
type accepting struct {
	m      *Manager
	link   *loop.Link
	guest  *door.Guest
	att    *attempt
	speaks protocol
	// settled is closed once Bind or Rebind has made the address of the listener ours: before, a
	// peer that asks for the address would be refused. nil: it is ours.
	settled <-chan struct{}
	ctx     context.Context
	s       machine          // of the socket: guarded by the lock of sessions
	began   []session.Action // of the first step: for the log of the connection
	policy  *Policy
	pin     int // core that the peer was pinned to when it came, if pinned
	pinned  bool
	// The connection that gets the socket, once that is decided: a new one, or an
	// existing one (takingOver).
	conn       *Conn
	takingOver bool
	young      bool            // that connection has a socket, and has not had it for long
	place      stats.Placement // of the socket
}

func (a *accepting) run() {
	m := a.m
	defer close(a.att.done)
	defer a.att.release()
	defer a.att.cancel(nil)
	ctx, cancel := m.withTimeout(a.att.ctx, m.cfg.Timeout) // the time begins after the wait for its turn
	defer cancel()
	a.ctx = ctx
	err := a.handshake()
	if err == nil {
		err = a.session()
	}
	if err == nil || errors.Is(err, errSuperseded) || errors.Is(err, ErrShutdown) {
		a.guest.Passed()
	} else {
		a.guest.Failed(m.cfg.Clock.Now())
	}
	now := m.cfg.Clock.Now()
	m.lock()
	m.handshakeEndedLocked(now)
	if err != nil && !errors.Is(err, errSuperseded) {
		stats.CountFailure(&m.counters, err)
	}
	stranger := m.strangers.speech(err, now)
	m.unlock()
	if stranger != "" {
		m.cfg.Logger.Warn("a client of another protocol has connected: this port speaks ceph msgr", "speaks", stranger,
			"peer", a.link.PeerAddr(), "port", a.link.LocalAddr(), "msgr1", a.speaks == protocol(msgr1{}))
	}
	if err != nil {
		a.att.ended(err)
		a.att.wipe()
		a.link.Close()
		a.att.probe.Decided(m.ctx, nil, false)
		m.cfg.Logger.Debug("accepted socket closed", "peer", a.link.PeerAddr(), "err", err)
	}
}

// strangers are clients of other protocols, for example HTTP: the time of the last log line, by
// protocol. The messenger's lock guards them.
type strangers map[wire2.Speech]time.Time

// tellStrangers is the least time between two log lines about one protocol: a program that
// checks whether a port answers comes again and again.
const tellStrangers = time.Minute

// speech is the protocol of a peer whose handshake ended with err, if the log is to have a line
// about it; else empty.
func (s strangers) speech(err error, now time.Time) wire2.Speech {
	e, ok := errors.AsType[*wire2.BannerError](err)
	if !ok || e.Speech == wire2.SpeechOther {
		return ""
	}
	if last, told := s[e.Speech]; told && now.Sub(last) < tellStrangers {
		return ""
	}
	s[e.Speech] = now
	return e.Speech
}

func (a *accepting) handshake() error {
	m := a.m
	if m.cfg.Probe != nil {
		a.att.probe = probe.NewSocket(m.cfg.Probe, a.att.serial, true, nil)
		a.att.probe.Connected(a.link)
	}
	a.att.watch(m, true)
	if err := a.att.probe.Step(a.ctx, probe.Point{Step: probe.SocketAccepted}, probe.Before); err != nil {
		return err
	}
	if a.settled != nil {
		select {
		case <-a.settled:
		case <-a.ctx.Done():
			return context.Cause(a.ctx)
		}
	}
	return a.speaks.accept(a)
}

// session reads the peer's frames and answers, until the socket belongs to a connection or is
// to be closed.
func (a *accepting) session() error {
	for {
		f, err := a.att.talk.receive(a.ctx)
		if err != nil {
			return err
		}
		o := a.step(f)
		if o.send != nil && a.conn == nil {
			err = a.att.talk.send(a.ctx, o.send)
		}
		switch {
		case err != nil:
			return err
		case o.hangup != nil:
			return o.hangup
		case a.conn != nil && a.takingOver:
			return a.att.fail(a.conn, a.takeOver())
		case a.conn != nil:
			return a.att.fail(a.conn, a.answerFirst())
		case o.waits:
			var b [1]byte
			_ = a.link.ReadFull(a.ctx, b[:]) // the peer's end, a byte or our deadline ends it
			return errSuperseded
		}
	}
}

// step has the machine decide about a frame of the peer.
func (a *accepting) step(f session.Frame) (o outcome) {
	m := a.m
	where := a.judge(nil)
	a.att.took = m.cfg.Clock.Now().Sub(a.att.begun)
	m.lock()
	defer m.unlock()
	ev, e := a.requestLocked(f)
	actions := session.Advance(a.s.rules, ev, m.envLocked(&a.s, nil, numbers{}))
	for i, act := range actions {
		o.record(act)
		switch act := act.(type) {
		case session.Count:
			m.countLocked(&stats.ConnCounters{}, act.What)
		case session.Probe:
			e.out.PutLocked(e.h.Keepalive)
		case session.NewConn:
			if act.ReplaceLossy {
				e.s.stepLocked(session.Close{Reset: true, Replace: true, Err: ErrReplaced})
			}
			a.place = where
			a.makeLocked(actions[i+1:])
			return o
		case session.TakeOver:
			a.giveLocked(e, session.Replace{Frame: f, Reset: act.Reset, Entity: a.s.Peer.Entity, Proven: a.s.Peer.Proven})
			return o
		}
	}
	return o
}

// requestLocked is a frame of the peer with the facts that belong to it, and the connection
// that it is about, nil for none.
func (a *accepting) requestLocked(f session.Frame) (session.Request, *Conn) {
	m, peer := a.m, &a.s.Peer
	res := a.att.peer.Auth
	peer.Entity, peer.Proven = res.Entity, res.Method != auth.None && res.Entity != (wire.EntityName{})
	from := a.att.talk.sender(f)
	front := from.Addrs.Front()
	ev := session.Request{
		Frame: f, From: front, Near: front.AddrPort.Addr().Unmap() == a.link.PeerAddr().Addr().Unmap(),
		Ours:   m.ours(from.Target, a.link.LocalAddr()),
		Ended:  m.ended.IsStale(session.Name{Peer: front, Cookie: from.Cookie}, from.GlobalSeq),
		Frozen: m.handing.Frozen(),
	}
	switch {
	case m.down:
		ev.Refuse = ErrShutdown
	case coreGone(a.link):
		ev.Refuse = loop.ErrStopped // no core would say that the connection has come, and has gone
	}
	e := m.names.meantLocked(from, a.speaks, peer)
	if e != nil {
		ev.Existing, ev.Settled = e.s.rules, a.settledLocked(e)
	}
	return ev, e
}

// makeLocked makes a connection of the socket.
func (a *accepting) makeLocked(actions []session.Action) {
	m := a.m
	c := m.newConnLocked(a.link.Core(), a.policy, a.s, false)
	a.conn, a.att.number, c.s.att = c, a.s.Attempt, a.att
	c.s.numbered, c.s.numberedBy = a.att.begun, a.att.serial
	if a.att.together = a.att.talk.queues(); a.att.together {
		c.out.HoldLocked()
	}
	if front := c.s.Peer.Target; !front.IsBlank() {
		m.names.addLocked(front, c)
	}
	told := a.att.probe
	c.out.PutLocked(func() { told.Decided(m.ctx, c.user.Probed(), false) })
	c.s.performLocked(append(a.began, actions...))
}

// giveLocked lets a connection that exists have the socket.
func (a *accepting) giveLocked(e *Conn, ev session.Replace) {
	prev := e.s.att
	a.young = e.s.State == session.Ready && a.att.begun.Add(a.att.took).Sub(e.s.opened) < a.m.cfg.Backoff.Max
	told := a.att.probe
	e.out.PutLocked(func() { told.Decided(e.m.ctx, e.user.Probed(), true) })
	e.s.stepLocked(ev)
	a.conn, a.takingOver = e, true
	a.att.prev, a.att.suspended, a.att.number = prev, e.s.told, e.s.Attempt
	e.s.att = a.att
}

// takeOver is the replacing routine: the interrupted one ends first, then the
// handler moves to the socket's core, then the session is brought up to date and
// the peer answered (Ceph's ProtocolV2.cc).
func (a *accepting) takeOver() error {
	a.att.interrupt()
	snap := <-a.att.suspended
	if a.young && !snap.Useful {
		a.m.door.CameToNothing(a.link.PeerAddr().Addr(), a.att.begun)
	}
	a.place = a.judge(a.conn.h.Core())
	if err := check(a.conn.s.step(session.Suspended{Attempt: a.att.number, IO: snapshot(snap)})); err != nil {
		return err
	}
	return a.att.awaitHandler(a.ctx, a.conn)
}

// answerFirst answers for a new connection. Its handler was made on the core of the socket: it
// learns there in one go that the connection is accepted, the answer to the peer, and that it
// has the socket, if nothing has to be written before.
func (a *accepting) answerFirst() error {
	if a.att.together {
		defer a.conn.out.LetGo()
	}
	return a.att.awaitHandler(a.ctx, a.conn)
}

// beginLocked makes the session of the socket, once the type of its peer is known.
func (a *accepting) beginLocked() {
	m, typ := a.m, a.att.peer.EntityType
	a.policy = m.policies.get(typ)
	a.s = m.newSessionOf(a.speaks, a.policy, session.Peer{Type: typ})
	a.began = session.Advance(a.s.rules, session.Accept{}, m.envLocked(&a.s, nil, numbers{}))
}

// settledLocked says that this socket is not older than the numbers of a session: it began
// more than Config.Timeout after the socket that brought them. The order of the sockets counts as
// well, as the clock may have been set back in between.
func (a *accepting) settledLocked(e *Conn) bool {
	return a.att.serial > e.s.numberedBy && a.att.begun.Sub(e.s.numbered) > a.m.cfg.Timeout
}

// checkClaimed compares the claimed name of the peer with the proven one: the type is only a
// claim, and decides about policy and sessions. A daemon may act as a client, but no other
// peer as a daemon.
func checkClaimed(peer *handshake.Peer) error {
	if claimed, proven := peer.EntityType, peer.Auth.Entity; claimed != wire.Client && proven.Type != 0 && proven.Type != claimed {
		return fmt.Errorf("%w: type %v from %v", session.ErrWrongPeer, claimed, proven)
	}
	return nil
}

// admit decides, on the core, whether an accepted socket may become half open.
// One that may not is closed before a goroutine or a buffer is spent on it.
func (m *Manager) admit(link *loop.Link, now time.Time) *door.Guest {
	guest, cause := m.door.Admit(link.PeerAddr().Addr(), now)
	if guest == nil {
		link.Refuse()
		m.lines.WarnAside("accepted socket refused: "+cause.String(), "peer", link.PeerAddr())
		return nil
	}
	link.ReadAhead(readAhead)
	return guest
}

// countDoor adds the counters of the door: sockets that it refused were accepted, too.
func (m *Manager) countDoor(n *stats.Counters) {
	n.Door = m.door.Counters()
	refused := n.Door.OverAll + n.Door.Source + n.Door.Prefix + n.Door.Rate
	n.Accepted += refused
	n.Refused += refused
}

// readAhead is the number of bytes that an accepted link reads ahead of its handshake: two or
// three frames of a real one.
const readAhead = 4 << 10

// room has the door count the bytes that a handshake keeps.
func (a *accepting) room(n int) error {
	if !a.guest.Hold(n) {
		return fmt.Errorf("%w: half-open connections hold %d bytes (Config.Door.Bytes)", handshake.ErrNoRoom, a.m.cfg.Door.Bytes)
	}
	return nil
}

// steps is an accepted link that reports the progress of its handshake, and which side has to
// send next.
type steps struct {
	*loop.Link
	a *accepting
}

// leastStep is the least that a step of the handshake reads, in bytes. The
// prefix of the banner is read in smaller parts, which are no progress: else a
// first byte would be enough to keep a place.
const leastStep = 8

// ReadFull implements handshake.Link.
func (s steps) ReadFull(ctx context.Context, p []byte) error {
	s.a.guest.Listen(s.a.m.cfg.Clock.Now())
	err := s.Link.ReadFull(ctx, p)
	if err == nil && len(p) >= leastStep {
		s.a.guest.Progress(s.a.m.cfg.Clock.Now())
	}
	return err
}

// cameToNothingLocked has the door count that the last socket of a connection was of no
// use, if it was accepted.
func (m *Manager) cameToNothingLocked(last *Info, now time.Time) {
	if last == nil || !last.Accepted {
		return
	}
	if from, err := netip.ParseAddrPort(last.Peer); err == nil {
		m.door.CameToNothing(from.Addr(), now)
	}
}
