package control

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/door"
	"github.com/ringmsgr/ringmsgr/control/session"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// What is known of an accepted socket, in both protocols. accept.go works with it in
// msgr2, talk1.go in msgr1.

// accepting is one accepted socket until it is decided whether it gets a new
// session or that of an existing connection. Its goroutine reads and writes the
// frames, the machine of package session decides.
type accepting struct {
	m      *Messenger
	link   *dataplane.Link
	guest  *door.Guest
	att    *attempt
	msgr1  bool // what is spoken on it
	ctx    context.Context
	s      machine          // of the socket: guarded by the messenger's lock
	began  []session.Action // of the first step: for the log of the connection
	policy *Policy
	pin    int // core that the peer was pinned to when it came, if pinned
	pinned bool
	// The connection that has the socket, once that is decided: a new one, or one
	// that existed (taking).
	conn       *Conn
	takingOver bool
	young      bool      // that connection has a socket, and has not had it for long
	place      Placement // of the socket
}

// settled says that this socket is not older than the numbers of a session: their
// socket was decided about by its deadline. The lock is held.
func (a *accepting) settled(e *Conn) bool {
	return a.att.begun.Sub(e.s.numbered) > a.m.cfg.HandshakeTimeout
}

// refuse is why no connection may be made, nil if one may. The lock is held.
func (a *accepting) refuse() error {
	switch {
	case a.m.down:
		return ErrShutdown
	case coreGone(a.link):
		return dataplane.ErrStopped
	}
	return nil
}

// checkClaimed compares what the peer calls itself with what it has proven: the type is
// only a claim, and decides about policy and sessions. A daemon may act as a client, but
// nobody as a daemon.
func checkClaimed(peer *handshake.Peer) error {
	if claimed, proven := peer.EntityType, peer.Auth.Entity; claimed != wire.Client && proven.Type != 0 && proven.Type != claimed {
		return fmt.Errorf("%w: type %v from %v", ErrWrongPeer, claimed, proven)
	}
	return nil
}

// isProven says whether the peer has proven its name.
func isProven(res *auth.Result) bool {
	return res.Method != auth.None && res.Entity != (wire.EntityName{})
}

// near says whether a socket comes from the IP of the first address that its frame
// names.
func near(f session.Frame, from netip.AddrPort) bool {
	addrs, _ := session.PeerOf(f)
	return addrs.Front().AddrPort.Addr().Unmap() == from.Addr().Unmap()
}
