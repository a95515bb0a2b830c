package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/old"
)

// accepted gets a new socket, on its core: it only leaves it to a goroutine.
func (m *Messenger) accepted(link *dataplane.Link) {
	m.arriving.Add(1)
	go m.serve(link, m.cfg.Clock.Now())
}

func (m *Messenger) serve(link *dataplane.Link, begun time.Time) {
	m.mu.Lock()
	m.arriving.Add(-1)
	refuse := !m.started || m.halfOpen >= m.cfg.HalfOpen || !m.work.enter()
	m.counters.Accepted++
	if refuse {
		m.counters.Refused++
		m.mu.Unlock()
		link.Close()
		return
	}
	m.halfOpen++
	a := &accepting{m: m, link: link, begun: begun, att: m.newAttempt()}
	m.mu.Unlock()
	defer m.work.leave()
	a.run()
}

// accepting is one accepted socket until its fate is decided: a session of its
// own, or that of a connection that exists.
type accepting struct {
	m      *Messenger
	link   *dataplane.Link
	begun  time.Time
	att    *attempt
	ctx    context.Context
	hook   *hook
	stream *handshake.Stream
	peer   *handshake.Peer
	policy Policy
	front  wire.Addr // of the peer, once it has said it
}

func (a *accepting) run() {
	m := a.m
	defer close(a.att.done)
	defer a.att.cancel(nil)
	ctx, cancel := m.withTimeout(a.att.ctx, m.cfg.HandshakeTimeout)
	defer cancel()
	a.ctx = ctx
	err := a.handshake()
	if err == nil {
		err = a.session()
	}
	m.mu.Lock()
	m.halfOpen--
	if err != nil && !errors.Is(err, errOvertaken) {
		m.counters.AcceptFailures++
		countAuthFailure(&m.counters.AuthFailures, err)
	}
	m.mu.Unlock()
	if err != nil {
		a.link.Close()
		a.hook.decide(nil, false)
		m.cfg.Logger.Debug("accepted socket closed", "peer", a.link.PeerAddr(), "err", err)
	}
}

func (a *accepting) handshake() error {
	m := a.m
	cfg := handshake.AcceptConfig{
		Options:  m.handshakeOptions(nil),
		PeerAddr: a.link.PeerAddr(),
		Auth:     m.auth.Load().server,
	}
	if m.cfg.Interceptor != nil {
		a.hook = &hook{i: m.cfg.Interceptor, socket: m.sockets.Add(1)}
		a.hook.open(a.link, true)
		if err := a.hook.Before(a.ctx, handshake.Point{Step: handshake.SocketAccepted}); err != nil {
			return err
		}
		cfg.Hook = a.hook
	}
	var err error
	a.stream, a.peer, err = handshake.Accept(a.ctx, a.link, cfg)
	if err != nil {
		return err
	}
	if claimed, proven := a.peer.EntityType, a.peer.Auth.Entity; claimed != wire.Client && proven.Type != 0 && proven.Type != claimed {
		// The type in HELLO is only a claim, and decides about policy and
		// sessions. A daemon may act as a client, but nobody as a daemon.
		return fmt.Errorf("%w: HELLO of type %v from %v", ErrWrongPeer, claimed, proven)
	}
	m.mu.Lock()
	a.policy = m.policyFor(a.peer.EntityType)
	m.learn(a.peer.Target)
	m.mu.Unlock()
	return nil
}

// session reads what the peer wants and answers, until the socket belongs to
// a connection or is told to go. After RETRY and RETRY_GLOBAL it expects another
// SESSION_RECONNECT, after RESET a CLIENT_IDENT, as the sharded implementation
// does; after IDENT_MISSING_FEATURES it takes a better CLIENT_IDENT, as the
// classic one does.
func (a *accepting) session() error {
	want := frame.Tag(0)
	for range 32 {
		tag, p, err := a.stream.ReadFrame(a.ctx)
		if err != nil {
			return err
		}
		if want != 0 && tag != want {
			return fmt.Errorf("%w: %v where %v was due", ErrProtocol, tag, want)
		}
		var done bool
		switch tag {
		case frame.TagClientIdent:
			ci, e := wire.DecodeClientIdent(p)
			if e != nil {
				return e
			}
			done, err = a.clientIdent(ci)
			want = frame.TagClientIdent
		case frame.TagSessionReconnect:
			sr, e := wire.DecodeSessionReconnect(p)
			if e != nil {
				return e
			}
			want, done, err = a.reconnect(sr)
		default:
			return fmt.Errorf("%w: %v before the session", ErrProtocol, tag)
		}
		if done || err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: session handshake without end", ErrProtocol)
}

// clientIdent answers CLIENT_IDENT (msgr2.md 9.5).
func (a *accepting) clientIdent(ci wire.ClientIdent) (done bool, err error) {
	m := a.m
	m.mu.Lock()
	switch {
	case len(ci.Addrs) == 0 || ci.Addrs.Front().IsBlank():
		err = fmt.Errorf("%w: CLIENT_IDENT without an address", ErrProtocol)
	case m.addrs.Contains(ci.Addrs.Front()):
		err = fmt.Errorf("%w: the peer says that it is %v, as we are", ErrWrongPeer, ci.Addrs.Front())
	case !m.addrs.Contains(ci.TargetAddr):
		err = fmt.Errorf("%w: the peer wants %v, we are %v", ErrWrongPeer, ci.TargetAddr, m.addrs)
	case !a.policy.Lossy && m.handing >= handingFrozen:
		err = ErrHandedOver
	case m.ended.overtook(sessionName{ci.Addrs.Front(), ci.Cookie}, ci.GlobalSeq):
		err = fmt.Errorf("%w: CLIENT_IDENT with global_seq %d of a session that has ended", ErrStale, ci.GlobalSeq)
	case !a.policy.Lossy && !a.policy.Server && ci.Addrs.Front().AddrPort.Port() == 0:
		err = fmt.Errorf("%w: peer %v cannot be dialled back", ErrProtocol, ci.Addrs)
	}
	if err != nil {
		m.mu.Unlock()
		return true, err
	}
	if missing := ci.Supported.Missing(a.policy.required()); missing != 0 {
		m.mu.Unlock()
		mf := wire.IdentMissingFeatures{Features: missing}
		return false, a.stream.WriteFrame(a.ctx, frame.TagIdentMissingFeatures, mf.AppendTo(nil))
	}
	a.front = ci.Addrs.Front()
	var e *Conn
	// The classic rule: what is not registered is not looked up either.
	if !a.policy.Server || !a.policy.Lossy || a.policy.Register {
		e = m.known(a)
	}
	seen := m.view(e, a)
	if seen.exists && e.peerType == wire.OSD && e.numberKnown && e.peerNumber != ci.GID {
		seen.otherEntity = true // an OSD is its number; that of others may change (a monitor's rank)
	}
	switch v := decideIdent(seen, ci.Cookie, ci.GlobalSeq, a.policy.ResetCheck); v {
	case doEstablish, doReplaceLossy:
		return true, a.establish(ci, e) // unlocks
	case doReuse, doReuseReset:
		return true, a.reuse(e, &ci, nil, v == doReuseReset) // unlocks
	case doWait, doWaitOnly:
		m.counters.WaitsSent++
		m.mu.Unlock()
		if v == doWait {
			e.h.Keepalive() // so that a dead attempt of ours is noticed
		}
		return true, a.serverWait()
	default:
		m.mu.Unlock()
		return true, fmt.Errorf("%w: CLIENT_IDENT with global_seq %d", ErrStale, ci.GlobalSeq)
	}
}

// reconnect answers SESSION_RECONNECT (msgr2.md 9.6). want is the frame that
// must follow if the socket stays undecided.
func (a *accepting) reconnect(sr wire.SessionReconnect) (want frame.Tag, done bool, err error) {
	m := a.m
	front := sr.Addrs.Front()
	if front.Type != wire.AddrMsgr2 && front.Type != wire.AddrAny || a.front != (wire.Addr{}) && a.front != front {
		return 0, true, fmt.Errorf("%w: SESSION_RECONNECT from %v", ErrProtocol, sr.Addrs)
	}
	a.front = front
	m.mu.Lock()
	if m.handing >= handingFrozen {
		m.mu.Unlock()
		return 0, true, ErrHandedOver // the successor knows the session
	}
	if m.addrs.Contains(front) {
		m.mu.Unlock()
		return 0, true, fmt.Errorf("%w: the peer says that it is %v, as we are", ErrWrongPeer, front)
	}
	e := m.known(a)
	switch decideReconnect(m.view(e, a), sr.ClientCookie, sr.GlobalSeq, sr.ConnectSeq, a.policy.ResetCheck) {
	case doReuse:
		return 0, true, a.reuse(e, nil, &sr, false) // unlocks
	case doRetry:
		r := wire.SessionRetry{ConnectSeq: e.connectSeq}
		m.counters.RetriesSent++
		m.mu.Unlock()
		return frame.TagSessionReconnect, false, a.stream.WriteFrame(a.ctx, frame.TagSessionRetry, r.AppendTo(nil))
	case doRetryGlobal:
		r := wire.SessionRetryGlobal{GlobalSeq: e.peerGlobalSeq}
		m.counters.RetriesSent++
		m.mu.Unlock()
		return frame.TagSessionReconnect, false, a.stream.WriteFrame(a.ctx, frame.TagSessionRetryGlobal, r.AppendTo(nil))
	case doResetFull:
		return a.sendReset(true) // unlocks
	case doResetPartial:
		return a.sendReset(false) // unlocks
	case doWait, doWaitOnly:
		m.counters.WaitsSent++
		m.mu.Unlock()
		return 0, true, a.serverWait()
	default:
		m.mu.Unlock()
		return 0, true, fmt.Errorf("%w: session of another entity", ErrWrongPeer)
	}
}

func (a *accepting) sendReset(full bool) (frame.Tag, bool, error) {
	a.m.counters.ResetsSent++
	if !full {
		a.m.counters.PartialResetsSent++
	}
	a.m.mu.Unlock()
	r := wire.SessionReset{Full: full}
	return frame.TagClientIdent, false, a.stream.WriteFrame(a.ctx, frame.TagSessionReset, r.AppendTo(nil))
}

// known is the connection that we have for the peer's address, nil for none.
// Nobody checks the address that a client says it has, so one gives way to a
// daemon. The lock is held.
func (m *Messenger) known(a *accepting) *Conn {
	e := m.conns[a.front]
	if e != nil && e.peerType == wire.Client && a.peer.EntityType != wire.Client {
		return nil
	}
	return e
}

// view is what the tables of decide.go need to know of e. The lock is held.
func (m *Messenger) view(e *Conn, a *accepting) known {
	if e == nil {
		return known{}
	}
	ours, theirs := m.addrs.V2(), e.peerAddrs.V2()
	if theirs.IsBlank() {
		theirs = a.front
	}
	return known{
		exists: true,
		// Stricter than the real daemons, which compare what is claimed: a
		// session is handed to whom it was authenticated for. One that we dialled
		// is nobody's until its peer has come to us.
		otherEntity:   e.peerType != a.peer.EntityType || !sameEntity(e.peerEntity, a.peer.Auth.Entity),
		replacing:     e.state == StateReplacing && !mutantIgnoreWait,
		lossy:         e.policy.Lossy,
		peerGlobalSeq: e.peerGlobalSeq,
		connectSeq:    e.connectSeq,
		clientCookie:  e.clientCookie,
		serverCookie:  e.serverCookie,
		peerWins:      e.policy.Server || ours.Compare(theirs) > 0 || mutantIgnoreWait,
	}
}

// sameEntity compares authenticated names; one that is not known matches all.
func sameEntity(a, b wire.EntityName) bool {
	return a == b || a == (wire.EntityName{}) || b == (wire.EntityName{})
}

// serverWait tells the peer to wait and waits until it hangs up.
func (a *accepting) serverWait() error {
	if err := a.stream.WriteFrame(a.ctx, frame.TagWait, nil); err != nil {
		return err
	}
	var b [1]byte
	_ = a.link.ReadFull(a.ctx, b[:]) // its end, a byte, our deadline: all end it
	return errOvertaken
}

// establish opens a new session on the socket; e is a lossy connection that
// gives way, or nil. The lock is held; it unlocks.
func (a *accepting) establish(ci wire.ClientIdent, e *Conn) error {
	m := a.m
	if m.down {
		m.mu.Unlock()
		return ErrShutdown
	}
	if stranded(a.link) {
		m.mu.Unlock()
		return dataplane.ErrStopped
	}
	if e != nil {
		e.closeFor(true, true, ErrReplaced)
	}
	c := m.newConn(a.link.Core(), a.policy)
	c.move(evAccept)
	c.move(evEstablish)
	c.att = a.att
	c.adoptIdent(&ci, a)
	c.peerType, c.peerEntity = a.peer.EntityType, a.peer.Auth.Entity
	if !c.policy.Lossy || c.policy.Register {
		m.conns[a.front] = c
		c.target = a.front // whom to dial if the session is ours to resume
	}
	c.place = m.landed(a.link, nil)
	a.hook.decide(c, false)
	moved := make(chan struct{})
	c.userKnows = true
	c.h.Delay(false, nil)
	c.h.Move(a.link.Core(), dataplane.Arrival{Accepted: true, Replace: e != nil}, func() { close(moved) })
	m.mu.Unlock()

	err := m.await(moved)
	if err == nil {
		err = c.sendServerIdent(a, StateEstablishing, false)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return c.finish(a, StateEstablishing, err)
}

// adoptIdent takes over what CLIENT_IDENT says. The lock is held.
func (c *Conn) adoptIdent(ci *wire.ClientIdent, a *accepting) {
	c.rename(ci.Addrs)
	if !c.numberKnown {
		c.peerNumber, c.numberKnown = ci.GID, true
	}
	c.clientCookie = ci.Cookie
	c.peerGlobalSeq = ci.GlobalSeq
	c.features = ci.Supported & c.policy.supported()
	if c.peerEntity == (wire.EntityName{}) {
		c.peerEntity = a.peer.Auth.Entity
	}
}

// mine says whether the socket of a still belongs to the connection. The lock
// is held.
func (c *Conn) mine(a *accepting, in State) bool { return c.att == a.att && c.state == in }

// sendServerIdent makes the new session known to the peer.
func (c *Conn) sendServerIdent(a *accepting, in State, _ bool) error {
	m := c.m
	m.mu.Lock()
	if !c.mine(a, in) {
		m.mu.Unlock()
		return errOvertaken
	}
	c.mirror.InSeq = 0
	c.mirror.Queued = c.mirror.Queued || c.mirror.Sent
	c.mirror.Sent = false
	c.h.ResetPeerState()
	si := wire.ServerIdent{
		Addrs: m.addrs, GID: m.number, GlobalSeq: m.nextGlobalSeq(0),
		Supported: c.policy.supported(), Required: c.policy.required(),
	}
	if c.policy.Lossy {
		si.Flags = wire.IdentLossy
		c.serverCookie = 0
	} else {
		c.serverCookie = m.newServerCookie(a.link.Core())
		c.hint.to = ownerHint{} // the cookie is ours, not the peer's
		si.Cookie = c.serverCookie
	}
	m.mu.Unlock()
	return a.stream.WriteFrame(a.ctx, frame.TagServerIdent, si.AppendTo(nil))
}

// finish ends an establishing or replacing routine: READY, or the fault rule. The
// lock is held.
func (c *Conn) finish(a *accepting, in State, err error) error {
	if !c.mine(a, in) {
		return errOvertaken
	}
	if err != nil {
		c.fault(in, &Error{Stage: StageSession, Peer: c.peerText(), State: in, Err: err})
		return err
	}
	c.open(a.link, a.stream, a.peer, true, c.m.cfg.Clock.Now().Sub(a.begun))
	return nil
}

// reuse gives the socket to the connection that exists, for CLIENT_IDENT or
// for SESSION_RECONNECT (msgr2.md 9.7). The lock is held; it unlocks.
func (a *accepting) reuse(e *Conn, ci *wire.ClientIdent, sr *wire.SessionReconnect, reset bool) error {
	m := a.m
	prev := e.att
	if e.frozen {
		m.mu.Unlock()
		return ErrHandedOver
	}
	if !e.move(evReplace) {
		m.mu.Unlock()
		return fmt.Errorf("%w: state %v cannot be replaced", ErrProtocol, e.state)
	}
	e.att = a.att
	if prev != nil {
		prev.cancel(errOvertaken)
	}
	e.stopTimer()
	e.backoff = 0
	e.counters.Replaced++
	a.hook.decide(e, true)
	mirrored := make(chan dataplane.Mirror, 1)
	e.h.Delay(false, func(mirror dataplane.Mirror) { mirrored <- mirror })
	m.mu.Unlock()

	err := a.takeOver(e, prev, mirrored, ci, sr, reset)
	m.mu.Lock()
	defer m.mu.Unlock()
	return e.finish(a, StateReplacing, err)
}

// takeOver is the replacing routine: the interrupted one ends first, then the
// handler moves to the socket's core, then the session is brought up to date
// and the peer answered.
func (a *accepting) takeOver(e *Conn, prev *attempt, mirrored <-chan dataplane.Mirror, ci *wire.ClientIdent, sr *wire.SessionReconnect, reset bool) error {
	m := a.m
	if prev != nil {
		<-prev.done
	}
	mirror := <-mirrored
	moved := make(chan struct{})
	m.mu.Lock()
	if !e.mine(a, StateReplacing) {
		m.mu.Unlock()
		return errOvertaken
	}
	e.reflect(mirror)
	if stranded(a.link) {
		m.mu.Unlock()
		return dataplane.ErrStopped
	}
	e.userKnows = true
	e.place = m.landed(a.link, e.h.Core())
	e.h.Move(a.link.Core(), dataplane.Arrival{Accepted: true}, func() { close(moved) })
	m.mu.Unlock()
	if err := m.await(moved); err != nil {
		return err
	}

	m.mu.Lock()
	if !e.mine(a, StateReplacing) {
		m.mu.Unlock()
		return errOvertaken
	}
	if reset {
		e.resetSession(true)
	}
	if ci != nil {
		e.adoptIdent(ci, a)
		m.mu.Unlock()
		return e.sendServerIdent(a, StateReplacing, true)
	}
	e.peerGlobalSeq, e.connectSeq = sr.GlobalSeq, sr.ConnectSeq
	e.h.RequeueSentUpTo(sr.MsgSeq)
	ok := wire.SessionReconnectOK{MsgSeq: e.mirror.InSeq}
	m.mu.Unlock()
	return a.stream.WriteFrame(a.ctx, frame.TagSessionReconnectOK, ok.AppendTo(nil))
}
