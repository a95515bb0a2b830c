package control

import (
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/internal/sessions"
)

// Policy is the behaviour of a connection after faults and towards other connections (Ceph's
// Policy.h). It is data: take a named one and change fields. testdata/policy_pairs.md has the
// outcome of every pair of named policies.
type Policy = sessions.Policy

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

// StatelessServer accepts lossy clients and keeps no session.
func StatelessServer() Policy {
	return Policy{Name: "stateless-server", Lossy: true, Server: true}
}

// StatelessRegisteredServer is StatelessServer, but a second connection from an address ends
// the first.
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
