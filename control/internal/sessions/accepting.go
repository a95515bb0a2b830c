package sessions

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/door"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// The state of an accepted socket before the decision.

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

// beginLocked makes the session of the socket, once the type of its peer is known.
func (a *accepting) beginLocked() {
	m, typ := a.m, a.att.peer.EntityType
	a.policy = m.policies.get(typ)
	a.s = m.newSessionOf(a.speaks, a.policy, session.Peer{Type: typ, From: a.link.PeerAddr().Addr()})
	a.began = session.Advance(a.s.rules, session.Accept{}, m.envLocked(&a.s, nil, numbers{}))
}

// settledLocked says that this socket is not older than the numbers of a session: it began
// more than Config.Timeout after the socket that brought them.
func (a *accepting) settledLocked(e *Conn) bool {
	return a.att.begun.Sub(e.s.numbered) > a.m.cfg.Timeout
}

// refuseLocked is why no connection may be made, nil if one may.
func (a *accepting) refuseLocked() error {
	switch {
	case a.m.down:
		return ErrShutdown
	case coreGone(a.link):
		return loop.ErrStopped
	}
	return nil
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

// isProven says whether the peer has proven its name.
func isProven(res *auth.Result) bool {
	return res.Method != auth.None && res.Entity != (wire.EntityName{})
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
