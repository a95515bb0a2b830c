package sessions

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/ringmsgr/ringmsgr/control/internal/binding"
	"github.com/ringmsgr/ringmsgr/control/internal/handover"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// HandOver gives everything to another process; see control.Messenger.HandOver.
func (m *Manager) HandOver(ctx context.Context, conn *net.UnixConn) error {
	if err := m.beginHandOver(); err != nil {
		return err
	}
	unlock, err := m.resizing.Lock(ctx) // a core that is being removed may take long
	if err != nil {
		m.lock()
		defer m.unlock()
		m.handing.Undo()
		return fmt.Errorf("%w: %w", handover.ErrHandOver, err)
	}
	defer unlock()
	return handover.Pass(ctx, conn, &predecessor{m: m})
}

// beginHandOver says why there can be no hand-over, or begins one.
func (m *Manager) beginHandOver() error {
	m.lock()
	defer m.unlock()
	switch {
	case m.down:
		return ErrShutdown
	case m.handing.Done():
		return ErrHandedOver
	}
	return m.handing.Begin()
}

// predecessor is a messenger that is handed over: it carries out the steps that
// package handover decides on.
type predecessor struct {
	m         *Manager
	listeners []*loop.Listener // that the successor gets
	conns     []handover.Frozen
}

// Offer is our identity, which a successor gets first.
func (p *predecessor) Offer() handover.Offer {
	m := p.m
	m.lock()
	defer m.unlock()
	return handover.Offer{Entity: m.cfg.Name, Nonce: m.nonce, Number: m.number, Bound: m.bound, Addrs: m.addrs}
}

// Listeners are duplicates of the listeners of all addresses.
func (p *predecessor) Listeners() (d handover.Descriptors, err error) {
	d.Close = func() { handover.CloseFiles(d.FDs) }
	p.listeners = p.m.listeners.All()
	for _, l := range p.listeners {
		fd, err := l.Descriptor()
		if err != nil {
			d.Close()
			return d, err
		}
		d.FDs = append(d.FDs, fd)
	}
	return d, nil
}

// Steering are the programs of all addresses.
func (p *predecessor) Steering(addrs int) (d handover.Descriptors, err error) {
	programs, err := p.m.steering.Files(addrs)
	for _, f := range programs {
		d.FDs = append(d.FDs, int(f.Fd()))
	}
	d.Close = func() { closeFiles(programs) }
	return d, err
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // a duplicate
	}
}

// Pause has connections wait in the queues of the listening sockets.
func (p *predecessor) Pause() error {
	for _, l := range p.listeners {
		if err := l.Pause(); err != nil {
			return err
		}
	}
	return nil
}

// HalfOpen counts sockets that are not decided about yet.
func (p *predecessor) HalfOpen() int {
	p.m.lock()
	defer p.m.unlock()
	return p.m.halfOpen + int(p.m.arriving.Load())
}

// Freeze stops all lossless sessions.
func (p *predecessor) Freeze() []handover.Frozen {
	m := p.m
	m.lock()
	defer m.unlock()
	m.handing.Freeze()
	for _, c := range m.sortedLocked() {
		if c.s.Policy.Lossy || c.local {
			continue
		}
		f := &frozen{c: c}
		c.s.stepLocked(session.Freeze{})
		if c.s.att != nil {
			f.attempt = c.s.att.done
			c.s.att = nil
		}
		f.suspended = c.s.told
		p.conns = append(p.conns, f)
	}
	return p.conns
}

// Settle looks once more for changes of the passed sessions.
func (p *predecessor) Settle(passed []handover.Frozen) (last handover.Attempts, closed int, err error) {
	m := p.m
	m.lock()
	defer m.unlock()
	if m.down {
		return last, 0, ErrShutdown
	}
	for _, f := range passed {
		if f.(*frozen).c.s.State == session.Closing {
			closed++
		}
	}
	p.conns = passed // the others are closed
	return m.attemptsLocked(), closed, nil
}

// attemptsLocked are the numbers of the last attempts.
func (m *Manager) attemptsLocked() handover.Attempts {
	return handover.Attempts{Msgr2: uint64(m.globalSeq), Msgr1: uint64(m.globalSeq1)}
}

// Undo has frozen sessions and paused listeners go on.
func (p *predecessor) Undo() {
	m := p.m
	m.lock()
	m.handing.Undo()
	for _, f := range p.conns {
		if c := f.(*frozen).c; c.s.State != session.Closing {
			c.out.PutLocked(c.h.Thaw)
			c.s.goOnLocked()
		}
	}
	m.unlock()
	for _, l := range p.listeners {
		_ = l.Resume() // fails only if the core is gone, and the listener with it
	}
}

// Finish closes our end of everything that was passed.
func (p *predecessor) Finish() {
	m := p.m
	m.lock()
	m.handing.Finish()
	listeners, taken := m.listeners.Take()
	for _, f := range p.conns {
		c := f.(*frozen).c
		c.handed.Store(true)
		c.h.HandedOver()
		c.s.closeLocked(false, ErrHandedOver)
	}
	m.unlock()
	m.steering.Close(taken)
	binding.Close(listeners)
}

// frozen is a connection that stands still.
type frozen struct {
	c         *Conn
	attempt   <-chan struct{}           // that was interrupted, and may still run
	suspended <-chan dataplane.Snapshot // comes when the socket is closed
}

func (f *frozen) Attempt() <-chan struct{}             { return f.attempt }
func (f *frozen) Suspended() <-chan dataplane.Snapshot { return f.suspended }
func (f *frozen) Dispatched() <-chan struct{}          { return f.c.user.Idle() }
func (f *frozen) Due() int                             { return f.c.user.Due() }
func (f *frozen) Core() int                            { return f.c.h.Core().ID() }

// Export asks the core, unless the connection is closed.
func (f *frozen) Export() (<-chan dataplane.HandlerState, bool) {
	c := f.c
	c.m.lock()
	defer c.m.unlock()
	if c.s.State == session.Closing {
		return nil, false
	}
	answer := make(chan dataplane.HandlerState, 1)
	c.out.PutLocked(func() { c.h.Freeze(func(st dataplane.HandlerState) { answer <- st }) })
	return answer, true
}

// Record combines the states of the machine and of the core.
func (f *frozen) Record(st dataplane.HandlerState) (s handover.Session, ok bool) {
	c := f.c
	c.m.lock()
	if ok = c.s.State != session.Closing; ok {
		c.s.stepLocked(session.FrozenSnapshot{IO: frozenSnapshot(&st)})
		s = recordLocked(c, st)
	}
	c.m.unlock()
	if !ok {
		st.Release() // it may call the user (Message.Free)
	}
	return s, ok
}

// frozenSnapshot is the state of a handler, as the machine wants it.
func frozenSnapshot(st *dataplane.HandlerState) session.Snapshot {
	return session.Snapshot{InSeq: st.InSeq, OutSeq: st.OutSeq, Queued: len(st.Replay)+len(st.Queued) > 0, Sent: len(st.Sent) > 0}
}

// recordLocked is everything of a connection that its successor needs.
func recordLocked(c *Conn, st dataplane.HandlerState) handover.Session {
	s := &c.s
	policy := s.Policy
	// The features as configured: the successor supports those of its own version by default.
	policy.Supported, policy.Required = c.policy.Supported, c.policy.Required
	return handover.Session{
		Peer: s.Peer, Once: s.Once, PolicyName: c.policy.Name, Policy: policy, Record: s.rules.Record(),
		PeerGlobalSeq: s.PeerGlobalSeq, ConnectSeq: s.ConnectSeq, Features: s.Features, IO: st,
	}
}

// Successor is a Manager that takes the listeners and sessions of another process over: it
// carries out the steps of package handover, except those that make the Manager.
type Successor struct {
	m     *Manager
	conns []*Conn
	addrs wire.AddrVec // of the predecessor

	listeners []*loop.Listener // that were the predecessor's
	places    []netip.AddrPort // of the listeners, in the order of Offer.Addrs, of which some may have been learned
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
	for _, g := range binding.Groups(s.listeners) {
		s.places = append(s.places, g.Addr())
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
	m.steering.Adopt(m.listeners.Taken(), m.Cores(), files, s.places)
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
	m.places = s.places
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
	ours := m.policies.get(peer.Type)
	p := Policy{
		Name: s.PolicyName, Server: s.Policy.Server, Standby: s.Policy.Standby, ResetCheck: s.Policy.ResetCheck, Register: s.Policy.Register,
		Supported: s.Policy.Supported, Required: s.Policy.Required, Messages: ours.Messages, Bytes: ours.Bytes,
		StandbyAge: ours.StandbyAge, GiveUpAfter: ours.GiveUpAfter,
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
