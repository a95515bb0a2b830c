package sessions

import (
	"errors"
	"net/netip"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/uring"
)

// claimCheck is the check of an address that the peer of an accepted connection says
// it has: package session2 has the question, and judges the answer. msgr1 has no question. It
// runs beside the session, on a socket of its own. The messenger's lock guards it.
type claimCheck struct {
	c       *Conn
	wanted  bool // Connect has returned the connection for that address
	running bool
	next    time.Time // not before
}

// checkClaimLocked checks the address that leads to a connection, if only its peer says so,
// now or when it is ready.
func checkClaimLocked(c *Conn, now time.Time) {
	k := c.claim
	if k == nil {
		if c.s.Peer.Dialled {
			return
		}
		k = &claimCheck{c: c}
		c.claim = k
	}
	k.wanted = !c.s.Peer.Dialled
	if !k.wanted || k.running || now.Before(k.next) {
		return
	}
	if c.s.rules.Question(nil) == nil || !c.m.work.Enter() {
		return
	}
	k.running = true
	c.out.PutLocked(func() { go k.run() })
}

// run is the goroutine of a check.
func (k *claimCheck) run() {
	m := k.c.m
	defer m.work.Leave()
	ev := k.ask()
	if _, reset := ev.Answer.(wire2.SessionReset); reset && k.awaitSettled() {
		ev = k.ask()
	}
	now := m.cfg.Clock.Now()
	m.lock()
	defer m.unlock()
	k.running, k.wanted, k.next = false, false, now.Add(m.cfg.Backoff.Max)
	k.c.s.stepLocked(ev)
}

// awaitSettled waits until the peer must have our SERVER_IDENT: before that it may not
// know the session that we have with it. It returns false if the peer had it already.
func (k *claimCheck) awaitSettled() bool {
	c, m := k.c, k.c.m
	m.lock()
	opened := c.s.opened
	m.unlock()
	left := m.cfg.Timeout - m.cfg.Clock.Now().Sub(opened)
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

// ask dials the address, and asks for the session. Without an answer the event says nothing
// about the address.
func (k *claimCheck) ask() (ev session.Checked) {
	c, m := k.c, k.c.m
	ctx, cancel := m.withTimeout(m.ctx, m.cfg.Timeout)
	defer cancel()
	m.lock()
	core, target, peerType := m.dialCoreLocked(c), c.s.Peer.Target, c.s.Peer.Type
	ev.Asked = c.s.rules.Question(m.addrs)
	m.unlock()
	if ev.Asked == nil {
		return ev
	}
	link, err := core.Dial(ctx, netip.AddrPort{}, target.AddrPort, uring.SocketOptions{})
	if err != nil {
		return ev
	}
	defer link.Close()
	t, err := m.connect2(ctx, &attempt{}, link, target, peerType)
	if err == nil {
		if err = t.send(ctx, ev.Asked); err == nil {
			ev.Answer, err = t.receive(ctx)
		}
	}
	ev.Other = errors.Is(err, handshake.ErrPeerType)
	return ev
}
