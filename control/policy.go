package control

import (
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/old"
)

// Policy says what becomes of a connection (msgr2.md 9.2). It is data: take
// one of the named ones and change what differs. What comes of every pair of
// named policies is in testdata/policy_pairs.md, each row of which is a test.
type Policy struct {
	Name string // for logs and statistics

	Lossy      bool // a fault ends the connection; nothing is sent again
	Server     bool // never dials: after a fault it waits for the peer
	Standby    bool // does not dial again after a fault before there is something to send, if the peer could dial us
	ResetCheck bool // a peer that lost its session resets ours: queues are dropped, the user is told
	Register   bool // accepted connections are found by address, lossy ones too

	// Supported and Required are feature sets. Zero Supported means
	// everything that this package knows. MSG_ADDR2 is always required.
	Supported wire.Features
	Required  wire.Features

	// Throttles on received messages, shared by all connections of the policy;
	// nil: none.
	Messages *dataplane.Throttle
	Bytes    *dataplane.Throttle
}

// LossyClient dials; a fault of the session ends it.
func LossyClient() Policy {
	return Policy{Name: "lossy-client", Lossy: true, Register: true}
}

// LosslessClient dials, and keeps the session over faults.
func LosslessClient() Policy {
	return Policy{Name: "lossless-client", ResetCheck: true, Register: true}
}

// LosslessPeer is for two ends that both may dial.
func LosslessPeer() Policy {
	return Policy{Name: "lossless-peer", Standby: true, Register: true}
}

// LosslessPeerReuse is LosslessPeer, but a peer that comes back without its
// session resets ours.
func LosslessPeerReuse() Policy {
	return Policy{Name: "lossless-peer-reuse", Standby: true, ResetCheck: true, Register: true}
}

// StatefulServer accepts lossless clients.
func StatefulServer() Policy {
	return Policy{Name: "stateful-server", Server: true, Standby: true, ResetCheck: true, Register: true}
}

// StatelessServer accepts lossy clients and keeps nothing of them.
func StatelessServer() Policy {
	return Policy{Name: "stateless-server", Lossy: true, Server: true}
}

// StatelessRegisteredServer is StatelessServer, but a second connection from
// an address ends the first.
func StatelessRegisteredServer() Policy {
	return Policy{Name: "stateless-registered-server", Lossy: true, Server: true, Register: true}
}

var policies = []func() Policy{
	LossyClient, LosslessClient, LosslessPeer, LosslessPeerReuse, StatefulServer, StatelessServer, StatelessRegisteredServer,
}

// PolicyNames are the names that ParsePolicy knows.
func PolicyNames() []string {
	var names []string
	for _, p := range policies {
		names = append(names, p().Name)
	}
	return names
}

// ParsePolicy returns a policy by its name, for example "lossless-peer".
func ParsePolicy(name string) (Policy, error) {
	if i := slices.Index(PolicyNames(), name); i >= 0 {
		return policies[i](), nil
	}
	return Policy{}, fmt.Errorf("%w: policy %q, want one of %v", ErrConfig, name, PolicyNames())
}

// supported is the feature set that the policy offers.
func (p *Policy) supported() wire.Features {
	s := p.Supported
	if s == 0 {
		s = wire.FeaturesPacific
	}
	return s | wire.FeatureMsgAddr2
}

// required is the feature set that the policy insists on.
func (p *Policy) required() wire.Features { return p.Required | wire.FeatureMsgAddr2 }
