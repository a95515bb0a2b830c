package session

import (
	"net/netip"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Policy is the part of a connection's policy (Ceph's Policy.h) that concerns the protocol.
type Policy struct {
	Lossy      bool // a fault ends the connection; no message is sent again
	Server     bool // never dials: after a fault it waits for the peer
	Standby    bool // after a fault does not dial before there is a message to send, if the peer could dial us
	ResetCheck bool // a peer that lost its session resets ours
	Register   bool // accepted connections are found by address, lossy ones too

	Supported wire.Features // features that we offer
	Required  wire.Features // features that the peer must have
}

// Findable says whether accepted connections are found by the peer's address.
func (p *Policy) Findable() bool { return !p.Lossy || p.Register }

// Peer is the other end of a connection, as far as it is known.
type Peer struct {
	Target      wire.Addr // address to dial; blank for none
	Dialled     bool      // Target was asked for, else the peer says that it is there
	Near        bool      // the peer that claimed Target came from its IP
	Anonymous   bool      // the connection is not found by the peer's address
	Addrs       wire.AddrVec
	Type        wire.EntityType
	Entity      wire.EntityName // as authenticated, or as expected; zero: not known
	Proven      bool            // Entity is proven, not only said
	Number      int64           // gid; valid if NumberKnown
	NumberKnown bool
	From        netip.Addr // where the socket came from on which the peer said that it is at Target; the zero Addr: not known
}

// GivesWay says whether a connection to p does not count for another peer, which says
// that it has the same address. Nobody checks the address that a client says it has, so one gives
// way to a daemon.
func (p *Peer) GivesWay(to *Peer) bool { return p.Type == wire.Client && to.Type != wire.Client }

// sameEntity compares authenticated names; one that is not known matches all.
func sameEntity(a, b wire.EntityName) bool {
	return a == b || a == (wire.EntityName{}) || b == (wire.EntityName{})
}

// Snapshot is the state of an I/O handler that is not open, as the protocol needs it.
type Snapshot struct {
	InSeq  uint64 // highest sequence received
	OutSeq uint64 // highest sequence sent
	Queued bool   // a message waits to be sent
	Sent   bool   // a message was sent and not acknowledged
	// Notifications is the number of the handler's last notification before the snapshot.
	Notifications uint64
}

// Requeued is the snapshot after everything sent was queued again.
func (s Snapshot) Requeued() Snapshot {
	s.Queued = s.Queued || s.Sent
	s.Sent = false
	return s
}

// GlobalSeq is a messenger's count of connection attempts (Ceph's ProtocolV2.cc). Its
// owner guards it.
type GlobalSeq uint64

// Next numbers an attempt, above atLeast.
func (g *GlobalSeq) Next(atLeast uint64) uint64 {
	*g = max(*g, GlobalSeq(atLeast)) + 1
	return uint64(*g)
}

// PeerWins decides which connection survives when both ends dial at once (Ceph's
// ProtocolV2.cc): the one that the end with the lower address dialled, and always the peer's if
// our own policy is that of a server. Both ends come to the same result.
func PeerWins(p Policy, ours, theirs wire.Addr) bool {
	return p.Server || ours.Compare(theirs) > 0
}
