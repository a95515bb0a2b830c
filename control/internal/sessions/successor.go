package sessions

import (
	"fmt"
	"net/netip"
	"os"

	"github.com/ringmsgr/ringmsgr/control/internal/binding"
	"github.com/ringmsgr/ringmsgr/control/internal/handover"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Successor is a Manager that takes the listeners and sessions of another process over: it
// carries out the steps of package handover, except those that make the Manager.
type Successor struct {
	m     *Manager
	conns []*Conn
	addrs wire.AddrVec // of the predecessor

	listeners []*loop.Listener // that were the predecessor's
}

// Succeed begins to take over from a process with these addresses.
func (m *Manager) Succeed(addrs wire.AddrVec) *Successor { return &Successor{m: m, addrs: addrs} }

// Listeners distributes the predecessor's listeners over the cores.
func (s *Successor) Listeners(fds []int) error {
	m := s.m
	next := make(map[netip.AddrPort]int)
	for i, fd := range fds {
		// The listeners of one address are in the order of the cores.
		addr := uring.LocalAddr(fd) // AdoptListener refuses one that is not valid
		core := m.plane.Core(next[addr] % m.plane.Cores())
		next[addr]++
		li, err := core.AdoptListener(fd, m.acceptor(s.typed(addr), nil))
		if err != nil {
			handover.CloseFiles(fds[i+1:])
			return handover.Errorf("%w", err)
		}
		m.listeners.Add(li)
		s.listeners = append(s.listeners, li)
	}
	return nil
}

// typed is the address of a listener: its socket has all fields but the protocol.
func (s *Successor) typed(at netip.AddrPort) wire.Addr {
	for _, a := range s.addrs {
		if a.AddrPort.Port() == at.Port() && (a.AddrPort.Addr() == at.Addr() || at.Addr().IsUnspecified()) {
			return a
		}
	}
	return wire.Addr{Type: wire.AddrMsgr2, AddrPort: at}
}

// Steering takes the predecessor's programs. They stay in charge of their listeners,
// with the predecessor's policy until Begin.
func (s *Successor) Steering(fds []int) error {
	m := s.m
	var files []*os.File
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), "steering"))
	}
	defer closeFiles(files)
	var addrs []netip.AddrPort
	for _, g := range binding.Groups(s.listeners) { // in the order of Offer.Addrs, of which some may have been learned
		addrs = append(addrs, g.Addr())
	}
	m.steering.Adopt(m.listeners.Taken(), m.Cores(), files, addrs)
	return nil
}

// Restore makes the sessions, all at once.
func (s *Successor) Restore(o handover.Offer, sessions []handover.Session, last handover.Attempts) error {
	m := s.m
	m.lock()
	defer m.unlock()
	if m.down {
		return ErrShutdown
	}
	m.bound, m.globalSeq, m.globalSeq1 = o.Bound, session.GlobalSeq(last.Msgr2), session.GlobalSeq(last.Msgr1)
	m.setAddrs(o.Addrs)
	if m.number < 0 {
		m.number = o.Number
	}
	for i := range sessions {
		c, err := m.restoreLocked(&sessions[i])
		if err != nil {
			return err
		}
		s.conns = append(s.conns, c)
	}
	return nil
}

// restoreLocked makes one session.
func (m *Manager) restoreLocked(s *handover.Session) (*Conn, error) {
	peer := &s.Peer
	if old := m.names.found(peer.Target); !peer.Anonymous && old != nil && old.s.Peer.Entity == peer.Entity {
		return nil, handover.Errorf("two sessions with %v", peer.Target)
	}
	ours := m.policies.get(peer.Type)
	p := Policy{
		Name: s.PolicyName, Server: s.Policy.Server, Standby: s.Policy.Standby, ResetCheck: s.Policy.ResetCheck, Register: s.Policy.Register,
		Supported: s.Policy.Supported, Required: s.Policy.Required, Messages: ours.Messages, Bytes: ours.Bytes,
	}
	ns := m.newSession(&p, *peer)
	ns.Once = s.Once
	c := m.newConnLocked(m.pickCore(), &p, ns, false)
	c.s.stepLocked(session.Restore{
		Record: s.Record, PeerGlobalSeq: s.PeerGlobalSeq, ConnectSeq: s.ConnectSeq, Features: s.Features, IO: frozenSnapshot(&s.IO),
	})
	if err := c.h.Restore(s.IO); err != nil {
		return nil, fmt.Errorf("%w: %w", handover.ErrHandOver, err)
	}
	front := peer.Addrs.Front()
	if !peer.Anonymous && peer.Target != front {
		m.names.addLocked(peer.Target, c)
	}
	m.names.renamedLocked(c, session.Renamed{From: peer.Target, To: front, Also: !peer.Anonymous})
	return c, nil
}

// Begin has sessions, listeners and our own steering go on.
func (s *Successor) Begin() {
	m := s.m
	m.lock()
	for _, c := range s.conns {
		c.s.goOnLocked()
	}
	m.unlock()
	for _, l := range s.listeners {
		if err := l.Resume(); err != nil {
			m.cfg.Logger.Error("listener not resumed", "addr", l.Addr(), "err", err)
		}
	}
	groups := binding.Groups(s.listeners)
	if m.extend(groups) {
		groups = m.listeners.Groups()
	}
	m.steering.Continue(steeringGroups(groups, anyCore))
}

// extend opens sockets for the cores that the predecessor did not have, and says
// whether there are any.
func (m *Manager) extend(groups []binding.Group) (more bool) {
	for _, group := range groups {
		for i := len(group); i < m.plane.Cores(); i++ {
			l, err := m.binder.Widen(group, m.plane.Core(i))
			if err != nil {
				m.cfg.Logger.Warn("core without a listener", "core", i, "addr", group.Addr(), "err", err)
				break
			}
			m.lock()
			ok := !m.down && m.handing.Idle() && m.listeners.Join(group[0], l, nil)
			m.unlock()
			if !ok {
				_ = l.Close() // fails only if the core is gone, and the listener with it
			}
			more = true
		}
	}
	return more
}
