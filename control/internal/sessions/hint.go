package sessions

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

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
