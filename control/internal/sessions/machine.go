package sessions

import (
	"encoding/binary"
	"io"
	"sync"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/session1"
	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/control/internal/steplock"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// machine is the session of a connection, or of an accepted socket, in the protocol
// that it speaks: one of msgr2 and msgr1 is there. Both have the Lifecycle. The
// messenger's lock guards it.
type machine struct {
	*session.Lifecycle
	msgr2 *session.Session
	msgr1 *session1.Session
}

// advance is the Step of the protocol.
func (s *machine) advance(ev session.Event, env session.Env) []session.Action {
	if s.msgr1 != nil {
		return s.msgr1.Advance(ev, env)
	}
	return s.msgr2.Advance(ev, env)
}

// peerText names the peer in errors and logs.
func (s *machine) peerText() string { return peerText(s.Peer.Target, s.Peer.Addrs) }

func peerText(target wire.Addr, addrs wire.AddrVec) string {
	if !target.IsBlank() {
		return target.String()
	}
	return addrs.String()
}

// snapshot converts what a handler says to the form of the machine.
func snapshot(m dataplane.Snapshot) session.Snapshot {
	return session.Snapshot{InSeq: m.InSeq, OutSeq: m.OutSeq, Queued: m.Queued, Sent: m.Sent, Notifications: m.Notifications}
}

// asksLocked says whether the claim of the peer to its address can be checked there. msgr1
// has no question for that.
func (s *machine) asksLocked() bool {
	if s.msgr2 == nil {
		return false
	}
	_, ok := s.msgr2.Question(nil)
	return ok
}

// movingToSocketLocked says that an attempt has a socket for the connection, or is about
// to, and brings the handler to that socket's core.
func (s *machine) movingToSocketLocked() bool {
	switch s.State {
	case session.Accepting, session.Establishing, session.Connecting, session.Replacing:
		return true
	}
	return false
}

// isMsgr1 says whether an address is one at which msgr1 is spoken. Every other one
// is for msgr2.
func isMsgr1(a wire.Addr) bool { return a.Type == wire.AddrLegacy }

// newSession is the session of a connection, in the protocol of the address that it
// goes by, or of an accepted socket of msgr2, which has none yet.
func (m *Manager) newSession(p *Policy, peer session.Peer) machine {
	if isMsgr1(peer.Target) {
		return m.newSession1(p, peer)
	}
	s := session.New(p.rules(), peer, m.backoff())
	return machine{Lifecycle: &s.Lifecycle, msgr2: &s}
}

// newSession1 is a session of msgr1.
func (m *Manager) newSession1(p *Policy, peer session.Peer) machine {
	s := session1.New(m.cfg.Name.Type, p.rules1(), peer, m.backoff())
	return machine{Lifecycle: &s.Lifecycle, msgr1: &s}
}

func (m *Manager) backoff() session.Backoff {
	return m.cfg.Backoff
}

// randomSource makes random numbers other than 0, for any goroutine, but not under
// the messenger's lock: a source may be a system call, or a user's.
type randomSource struct {
	mu     sync.Mutex
	from   io.Reader // guarded by mu
	failed uint64    // guarded by mu
	buf    [8]byte   // guarded by mu
	check  *steplock.Check
}

func (r *randomSource) next() uint64 {
	r.check.MustBeFree("the source of random numbers")
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draw()
}

// pair returns two numbers.
func (r *randomSource) pair() (a, b uint64) {
	r.check.MustBeFree("the source of random numbers")
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draw(), r.draw()
}

// draw is next. The caller holds the lock of the source.
func (r *randomSource) draw() uint64 {
	for {
		// The system's source does not fail; an injected one that does leaves
		// zeros, which the counter makes unique.
		if _, err := io.ReadFull(r.from, r.buf[:]); err != nil {
			r.failed++
			return r.failed
		}
		if v := binary.LittleEndian.Uint64(r.buf[:]); v != 0 {
			return v
		}
	}
}

// numbers are random numbers for one step. They are drawn before, as the lock is
// held during a step.
type numbers struct{ client, server uint64 }

func (m *Manager) drawNumbers() (n numbers) {
	n.client, n.server = m.random.pair()
	return n
}

// cookie is a new client cookie.
func (n numbers) cookie() uint64 { return n.client }

// owner is a new server cookie, which tells peers of package control the core that
// owns the socket, if they can reach it by a hint.
func (n numbers) owner(m *Manager, c *Conn) uint64 {
	h := m.steering.Hint(c.s.att.link.Core().ID())
	if !h.Known() {
		return n.server
	}
	cookie := h.Cookie(n.server)
	if cookie == 0 {
		return n.server // one of very many draws
	}
	m.hints.Count(func(n *steering.HintCounts) { n.Given++ })
	return cookie
}
