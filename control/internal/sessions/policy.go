package sessions

import (
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Policy is the behaviour of a connection after faults and towards other connections (Ceph's
// Policy.h). It is data: take a named one and change fields. control/testdata/policy_pairs.md
// has the outcome of every pair of named policies; each row is a test.
type Policy struct {
	Name string // for logs and statistics

	Lossy      bool // a fault ends the connection; no message is sent again
	Server     bool // never dials: after a fault it waits for the peer
	Standby    bool // after a fault does not dial before there is a message to send, if the peer could dial us
	ResetCheck bool // a peer that lost its session resets ours: queues are dropped, with a remote reset event
	Register   bool // accepted connections are found by address, lossy ones too

	// StandbyAge is how long a session without a socket waits for its peer, before it
	// ends with a reset event and ErrExpired; 0: an hour if the policy is one of a
	// server, else for ever; negative: for ever.
	StandbyAge time.Duration
	// GiveUpAfter bounds the time for which a connection dials without an answer, since
	// Connect or the loss of its last socket. Then it ends with a reset event and
	// ErrUnanswered, and its queue is dropped. 0 or negative: it dials for ever, as Ceph
	// does. For a session in standby there is StandbyAge; that time does not count here.
	GiveUpAfter time.Duration

	// Supported and Required are feature sets. Zero Supported means
	// everything that this package knows. MSG_ADDR2 is always required.
	Supported wire.Features
	Required  wire.Features

	// Throttles on received messages, shared by all connections of the policy;
	// nil: none.
	Messages *loop.Throttle
	Bytes    *loop.Throttle
}

// rules are the policy as the session protocol has it.
func (p *Policy) rules() session.Policy {
	supported := p.Supported
	if supported == 0 {
		supported = wire.FeaturesPacific
	}
	return session.Policy{
		Lossy: p.Lossy, Server: p.Server, Standby: p.Standby, ResetCheck: p.ResetCheck, Register: p.Register,
		Supported: supported | wire.FeatureMsgAddr2, Required: p.Required | wire.FeatureMsgAddr2,
	}
}

// policySet has the policies for new connections, by the type of the peer. The messenger's
// lock guards it. A policy in it never changes: connections share it.
type policySet struct {
	of    map[wire.EntityType]*Policy
	other *Policy // for types that are not in of
}

func newPolicySet(of map[wire.EntityType]Policy, other Policy) policySet {
	s := policySet{of: make(map[wire.EntityType]*Policy, len(of)), other: &other}
	for t, p := range of {
		s.set(t, p)
	}
	return s
}

func (s *policySet) get(t wire.EntityType) *Policy {
	if p, ok := s.of[t]; ok {
		return p
	}
	return s.other
}

func (s *policySet) set(t wire.EntityType, p Policy) {
	s.of[t] = &p
}
