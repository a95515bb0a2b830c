package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/old"
)

// seqMargin is what the successor leaves between its numbers of attempts and
// those of the predecessor, which still uses some for its lossy connections.
const seqMargin = 1 << 16

// TakeOver makes a messenger that continues another one: the predecessor calls
// HandOver at the other end of conn. It comes back bound to the predecessor's
// addresses, started with chain, and with all of its lossless sessions, which
// Conns, Lookup and Connect find.
//
// cfg must have the predecessor's Name; its Nonce, if set, must be the same.
// Everything else may differ. The number of cores may, too: with more of them
// further sockets join the group of each address, with fewer a core serves
// several. The policy of a session is the one that it had; the throttles are
// those of cfg's policy for the peer's type.
//
// After an error nothing was taken over, and the predecessor goes on. conn is
// of no use afterwards; the caller closes it.
func TakeOver(ctx context.Context, cfg Config, conn *net.UnixConn, chain ...*Dispatcher) (*Messenger, error) {
	l := newHandoverLink(ctx, conn)
	defer l.close()
	m, err := takeOver(l, cfg, chain)
	if err == nil {
		return m, nil
	}
	l.refuse(err)
	if m != nil {
		err = errors.Join(err, m.Shutdown(context.WithoutCancel(ctx)))
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = errors.Join(err, cause)
	}
	return nil, err
}

func takeOver(l *handoverLink, cfg Config, chain []*Dispatcher) (*Messenger, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := l.samePerson(); err != nil {
		return nil, err
	}
	h := hello{entity: cfg.Name, anyNonce: cfg.Nonce == nil}
	if cfg.Nonce != nil {
		h.nonce = *cfg.Nonce
	}
	if err := l.send(recordHello, h.appendTo(nil)); err != nil {
		return nil, err
	}
	p, err := expect(l.in, recordOffer)
	if err != nil {
		return nil, err
	}
	o, err := decodeOffer(p)
	if err != nil {
		return nil, err
	}
	if o.entity != cfg.Name || !h.anyNonce && o.nonce != h.nonce {
		return nil, badRecord("%v with nonce %d cannot succeed %v with nonce %d", cfg.Name, h.nonce, o.entity, o.nonce)
	}
	cfg.Nonce = &o.nonce
	m, err := New(cfg)
	if err != nil {
		return nil, err
	}
	if err := m.Start(chain...); err != nil {
		return m, err
	}
	return m, m.take(l, &o)
}

// take gets everything from the predecessor. The write of the last record
// decides: before it nothing moves here, behind it everything does.
func (m *Messenger) take(l *handoverLink, o *offer) error {
	if err := m.adoptListeners(l, o); err != nil {
		return err
	}
	if err := m.adoptSteering(l, o); err != nil {
		return err
	}
	if err := l.send(recordReady, nil); err != nil {
		return err
	}
	list, d, err := readSessions(l.in)
	if err != nil {
		return err
	}
	conns, err := m.restore(o, list, &d)
	if err != nil {
		return err
	}
	if err := l.send(recordCommitted, nil); err != nil {
		return err
	}
	m.begin(conns)
	return nil
}

// adoptListeners distributes the predecessor's listeners over the cores. They
// do not accept yet.
func (m *Messenger) adoptListeners(l *handoverLink, o *offer) error {
	fds, err := l.readFiles(recordListeners, int(o.listeners))
	if err != nil {
		return err
	}
	next := make(map[netip.AddrPort]int)
	for i, fd := range fds {
		// Those of one address are in the order of its cores.
		addr := localAddr(fd)
		core := m.plane.Core(next[addr] % m.plane.Cores())
		next[addr]++
		li, err := core.AdoptListener(fd, m.accepted)
		if err != nil {
			closeAll(fds[i+1:])
			return badRecord("%w", err)
		}
		m.mu.Lock()
		m.listeners = append(m.listeners, li)
		m.mu.Unlock()
	}
	return nil
}

func localAddr(fd int) netip.AddrPort {
	switch sa, _ := unix.Getsockname(fd); sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	return netip.AddrPort{} // AdoptListener refuses it
}

// restore makes the sessions. They stand still.
func (m *Messenger) restore(o *offer, list []session, d *done) ([]*Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return nil, ErrShutdown
	}
	m.bound, m.addrs, m.globalSeq = o.bound, o.addrs, d.globalSeq+seqMargin
	if m.number < 0 {
		m.number = o.number
	}
	var conns []*Conn
	for i := range list {
		c, err := m.restoreConn(&list[i])
		if err != nil {
			return nil, err
		}
		conns = append(conns, c)
	}
	return conns, nil
}

// restoreConn makes one session. The lock is held.
func (m *Messenger) restoreConn(s *session) (*Conn, error) {
	if old := m.conns[s.target]; !s.anonymous && old != nil && old.target == s.target {
		return nil, badRecord("two sessions with %v", s.target)
	}
	p := Policy{
		Name: s.policy, Server: s.server, Standby: s.standby, ResetCheck: s.resetCheck, Register: s.register,
		Supported: s.supported, Required: s.require,
	}
	ours := m.policyFor(s.peerType)
	p.Messages, p.Bytes = ours.Messages, ours.Bytes
	c := m.newConn(m.pickCore(), p)
	c.state, c.frozen, c.userKnows = StateStandby, true, true
	c.target, c.anonymous, c.once = s.target, s.anonymous, s.once
	c.peerType, c.peerEntity = s.peerType, s.peerEntity
	c.peerNumber, c.numberKnown = s.peerNumber, s.known
	c.clientCookie, c.serverCookie = s.clientCookie, s.serverCookie
	c.peerGlobalSeq, c.connectSeq, c.features = s.peerGlobalSeq, s.connectSeq, s.features
	c.mirror = dataplane.Mirror{
		InSeq: s.io.InSeq, Queued: len(s.io.Replay)+len(s.io.Queued) > 0, Sent: len(s.io.Sent) > 0,
	}
	if err := c.h.Restore(s.io); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHandOver, err)
	}
	if !c.anonymous {
		m.conns[c.target] = c
	}
	c.knownAs(s.peerAddrs)
	return c, nil
}

// begin lets everything move.
func (m *Messenger) begin(conns []*Conn) {
	m.mu.Lock()
	for _, c := range conns {
		if c.state != StateClosing {
			c.frozen = false
			c.goOn()
		}
	}
	listeners := m.listeners
	m.mu.Unlock()
	for _, l := range listeners {
		if err := l.Resume(); err != nil {
			m.cfg.Logger.Error("listener not resumed", "addr", l.Addr(), "err", err)
		}
	}
	m.widen(listeners)
	m.steerOn()
}

// widen opens sockets for the cores that the predecessor did not have.
func (m *Messenger) widen(listeners []*dataplane.Listener) {
	groups := make(map[netip.AddrPort][]*dataplane.Listener)
	for _, l := range listeners {
		groups[l.Addr()] = append(groups[l.Addr()], l)
	}
	for addr, group := range groups {
		for i := len(group); i < m.plane.Cores(); i++ {
			l, err := m.joinGroup(group, addr, m.plane.Core(i))
			if err != nil {
				m.cfg.Logger.Warn("core without a listener", "core", i, "addr", wire.Addr{Type: wire.AddrMsgr2, AddrPort: addr}, "err", err)
				break
			}
			m.mu.Lock()
			down := m.down || m.handing != handingNone
			if !down {
				m.listeners = append(m.listeners, l)
			}
			m.mu.Unlock()
			if down {
				_ = l.Close() // fails only if the core is gone, and the listener with it
			}
		}
	}
}
