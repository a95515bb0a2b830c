package control

import (
	"errors"
	"net/netip"
	"time"

	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/control/session"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// ErrElsewhere is wrapped by the error of a connection that a peer made, and that
// Connect returned because the peer said that it had the address: whoever is at the
// address does not know it. Connect again: the address is dialled.
var ErrElsewhere = session.ErrElsewhere

// claimCheck is the check of an address that the peer of an accepted connection says
// it has: package session has the question, and judges the answer (claim.go there). It
// runs beside the session, on a socket of its own. The messenger's lock guards it.
type claimCheck struct {
	wanted  bool // Connect has returned the connection for that address
	running bool
	next    time.Time // not before
}

// checkClaim checks the address that leads to the connection, if only its peer says
// so, now or when it is ready. The lock is held.
func (c *Conn) checkClaim(now time.Time) {
	if c.claim == nil {
		if c.s.Peer.Dialled {
			return
		}
		c.claim = new(claimCheck)
	}
	c.claim.wanted = !c.s.Peer.Dialled
	if !c.claim.wanted || c.claim.running || now.Before(c.claim.next) {
		return
	}
	if !c.asks() || !c.m.work.enter() {
		return
	}
	c.claim.running = true
	c.out.put(func() { go c.runCheck() })
}

// asks says whether there is something to ask. msgr1 has no such question. The lock is
// held.
func (c *Conn) asks() bool {
	if c.s.msgr2 == nil {
		return false
	}
	_, ok := c.s.msgr2.Question(nil)
	return ok
}

// runCheck is the goroutine of a check.
func (c *Conn) runCheck() {
	m := c.m
	defer m.work.leave()
	ev := c.ask()
	if _, reset := ev.Answer.(wire.SessionReset); reset && c.awaitSettled() {
		ev = c.ask()
	}
	now := m.cfg.Clock.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	c.claim.running, c.claim.wanted, c.claim.next = false, false, now.Add(m.cfg.MaxBackoff)
	c.s.step(ev)
}

// awaitSettled waits until the peer must have our SERVER_IDENT: before that it may not
// know the session that we have with it. It returns false if the peer had it already.
func (c *Conn) awaitSettled() bool {
	m := c.m
	m.mu.Lock()
	opened := c.s.opened
	m.mu.Unlock()
	left := m.cfg.HandshakeTimeout - m.cfg.Clock.Now().Sub(opened)
	if left <= 0 {
		return false
	}
	settled := make(chan struct{})
	stop := m.cfg.Clock.AfterFunc(left, func() { close(settled) })
	defer stop()
	select {
	case <-settled:
	case <-c.Closed():
	case <-m.ctx.Done():
	}
	return true
}

// ask dials the address, and asks for the session. If nobody answers, the event says
// nothing about the address.
func (c *Conn) ask() (ev session.Checked) {
	m := c.m
	ctx, cancel := m.withTimeout(m.ctx, m.cfg.HandshakeTimeout)
	defer cancel()
	m.mu.Lock()
	core, target, peerType := m.dialCore(c), c.s.Peer.Target, c.s.Peer.Type
	question, ok := c.s.msgr2.Question(m.addrs)
	m.mu.Unlock()
	if !ok {
		return ev
	}
	ev.Asked = question
	link, err := core.Dial(ctx, netip.AddrPort{}, target.AddrPort, uring.SocketOptions{})
	if err != nil {
		return ev
	}
	defer link.Close()
	a := attempt{}
	stream, _, err := handshake.Connect(ctx, link, handshake.ConnectConfig{
		Options: m.handshakeOptions(&a), Target: target, PeerType: peerType, Auth: m.auth.Load().client,
	})
	if err == nil {
		t := msgr2Talk{Stream: stream}
		if err = t.send(ctx, question); err == nil {
			ev.Answer, err = t.receive(ctx)
		}
	}
	ev.Other = errors.Is(err, handshake.ErrPeerType)
	return ev
}

// near says whether a socket comes from the IP of the first address that its frame
// names.
func near(f session.Frame, from netip.AddrPort) bool {
	addrs, _ := session.PeerOf(f)
	return addrs.Front().AddrPort.Addr().Unmap() == from.Addr().Unmap()
}

// endDoubles ends the other sessions with the peer of c, which we dialled. The lock is
// held.
func (c *Conn) endDoubles() {
	for _, o := range c.m.names.all(c.s.Peer.Target) {
		if o != c && o.s.msgr2 != nil && o.s.msgr2.Doubles(c.s.msgr2) {
			o.s.step(session.Close{Reset: true, Replace: true, Err: ErrReplaced})
		}
	}
}
