//go:build !race

package sim_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
)

// simKind is a pair of policies.
type simKind struct {
	name            string
	dialler, server func() control.Policy
	both            bool // either side dials
	lossless        bool
}

var simKinds = []simKind{
	{"lossless-peer", control.LosslessPeer, control.LosslessPeer, true, true},
	{"lossless-peer-reuse", control.LosslessPeerReuse, control.LosslessPeerReuse, true, true},
	{"lossless-client", control.LosslessClient, control.StatefulServer, false, true},
	{"lossy-client", control.LossyClient, control.StatelessServer, false, false},
	{"lossy-registered", control.LossyClient, control.StatelessRegisteredServer, false, false},
}

// simPlan are the choices of a seed before the run begins.
type simPlan struct {
	kind     simKind
	nodes    int
	cores    int // at most, per node
	net      simnet.Options
	protocol simProtocol
	actions  int
	burst    int // messages sent at once, at most
	large    int // bytes of a large payload, at most
	lanes    int // goroutines that send on one connection

	rev0       bool // msgr2.0
	priorities bool
	replies    bool // some messages are answered from the dispatcher
	slow       bool // some messages are kept for a while
	silent     bool // connections and machines die without a word
	resizes    bool // cores come and go
	drains     bool // connections end in good order, too
	calls      bool // some messages are requests
	postings   bool // users post memory
	pauses     bool // users stop connections for a while
	stops      bool // break points also reset, half-close and hold
	rebinds    bool // servers move to other addresses
	breakEvery int  // a break point in so many disturbs; 0: none does

	// Bounds; 0: none.
	messages, bytes, dispatch int64 // throttles on received messages
	queueMessages, queueBytes int64
	callsMost, postingsMost   int // on a connection

	idle, every, timeout time.Duration // idle limit and keepalives; 0: none

	foe *adversaryPlan // nil: there is none
}

func newPlan(r *rand.Rand) simPlan {
	p := simPlan{
		kind:    simKinds[r.IntN(len(simKinds))],
		nodes:   2 + r.IntN(2),
		cores:   1 + r.IntN(4),
		actions: 20 + r.IntN(80),
		burst:   1 + r.IntN(40),
		lanes:   1 + r.IntN(3),
		net: simnet.Options{
			Latency: time.Duration(r.IntN(2000)) * time.Microsecond,
			Jitter:  time.Duration(r.IntN(5000)) * time.Microsecond,
		},
		rev0:       r.IntN(6) == 0,
		priorities: r.IntN(2) == 0,
		replies:    r.IntN(3) == 0,
		slow:       r.IntN(3) == 0,
		silent:     r.IntN(3) == 0,
	}
	if r.IntN(8) == 0 {
		// Bytes trickle: cuts fall anywhere in a frame.
		p.net.Segment, p.net.Window = 16<<r.IntN(5), 1<<(10+r.IntN(4))
		p.actions, p.large = p.actions/2, 2000
	} else {
		p.net.Segment, p.net.Window = 1<<(11+r.IntN(6)), 1<<(13+r.IntN(6))
		p.large = 100 << 10
	}
	if r.IntN(2) == 0 {
		p.net.ResetEvery = 20 << r.IntN(6)
	}
	if r.IntN(3) == 0 {
		p.breakEvery = 40 << r.IntN(4)
	}
	p.bound(r)
	return p
}

// bound chooses throttles, queue bounds and timeouts.
func (p *simPlan) bound(r *rand.Rand) {
	some := func(from, span int) int64 {
		if r.IntN(3) != 0 {
			return 0
		}
		return int64(from + r.IntN(span))
	}
	p.messages, p.bytes, p.dispatch = some(1, 8), some(100, 20_000), some(100, 100_000)
	p.queueMessages, p.queueBytes = some(1, 40), some(300, 100_000)
	seconds := func(from, span int) time.Duration {
		return time.Duration(from*1000+r.IntN(span*1000)) * time.Millisecond
	}
	if p.silent || r.IntN(4) == 0 {
		if r.IntN(2) == 0 {
			p.idle = seconds(3, 8)
		}
		if p.idle == 0 || r.IntN(2) == 0 {
			p.every, p.timeout = seconds(1, 3), seconds(3, 6)
		}
	}
}

// learn adds what the simulator has learnt later. It draws from a source of its own, more, which
// is that of all choices about it.
func (p *simPlan) learn(more *rand.Rand) {
	p.calls, p.postings, p.pauses, p.stops = more.IntN(2) == 0, more.IntN(2) == 0, more.IntN(3) == 0, more.IntN(2) == 0
	if more.IntN(3) == 0 {
		p.callsMost, p.postingsMost = 1+more.IntN(20), 1+more.IntN(5)
	}
}

// policy is one of the kind's, with throttles of its own.
func (p *simPlan) policy(f func() control.Policy) control.Policy {
	policy := f()
	if p.messages > 0 {
		policy.Messages = loop.NewThrottle(p.messages)
	}
	if p.bytes > 0 {
		policy.Bytes = loop.NewThrottle(p.bytes)
	}
	return policy
}

// String are the choices of the plan but its policies.
func (p simPlan) String() string {
	foe := p.foe
	p.kind, p.foe = simKind{}, nil
	type plain simPlan
	text := fmt.Sprintf("%+v", plain(p))
	if foe != nil {
		text += fmt.Sprintf(" with %+v", *foe)
	}
	return text
}

// Ten of 16 seeds have worlds of msgr2 alone, four of msgr1 alone. In the other two,
// nodes have both protocols, and some of them msgr1 alone. With an adversary it is 13, two and one.

// simProtocol is the protocol of a world.
type simProtocol string

const (
	simMsgr2 simProtocol = "msgr2"
	simMsgr1 simProtocol = "msgr1"
	simMixed simProtocol = "mixed"
)

var simOneProtocol = flag.String("sim.protocol", "", "what all worlds speak: msgr2, msgr1 or mixed; without it the seed decides")

// protocolOf is the protocol of the world of a seed, with an adversary or without. Seeds that once found a bug in
// msgr2 keep msgr2.
func protocolOf(seed uint64, foe bool) simProtocol {
	old, mixed := []uint64{1, 4, 7, 10}, []uint64{3, 12}
	if foe {
		old, mixed = []uint64{5, 12}, []uint64{11}
	}
	switch {
	case *simOneProtocol != "":
		return simProtocol(*simOneProtocol)
	case slices.Contains(old, seed%16):
		return simMsgr1
	case slices.Contains(mixed, seed%16):
		return simMixed
	}
	return simMsgr2
}

// flags are those that repeat the world of a seed.
func (w *world) flags() string {
	text := fmt.Sprintf("-sim.first=%d -sim.seeds=1", w.seed)
	if w.plan.protocol != "" && w.plan.protocol != protocolOf(w.seed, w.foe != nil) || *simOneProtocol != "" {
		text += " -sim.protocol=" + string(w.plan.protocol)
	}
	return text
}

// old says that a node has msgr1 alone.
func (n *node) old() bool {
	switch n.w.plan.protocol {
	case simMsgr1:
		return true
	case simMixed:
		return n.id != 0 && (n.w.seed/16+uint64(n.id))%2 == 0
	}
	return false
}

// binds are the addresses on which a server listens.
func (n *node) binds() wire.AddrVec {
	v2 := wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.AddrPortFrom(n.host.IP(), 6800)}
	v1 := v2.WithType(wire.AddrLegacy)
	switch {
	case n.old():
		return wire.AddrVec{v1}
	case n.w.plan.protocol == simMixed:
		return wire.AddrVec{v2, v1.WithPort(6801)}
	}
	return wire.AddrVec{v2}
}

// dial connects to another node, by msgr2 if both ends have it. Now and then a user dials the
// other address, which ends the session of msgr2 with a reset. So no user does that where only
// an adversary may disturb.
func (n *node) dial(to *node, opts ...control.ConnectOption) (*control.Conn, error) {
	if n.old() || n.w.plan.protocol == simMixed && n.w.rng.IntN(8) == 0 && !n.w.foe.calm() {
		return n.m.Connect(to.addrs.V1(), wire.OSD, opts...)
	}
	return n.m.ConnectTo(to.addrs, wire.OSD, opts...)
}

// comeBack connects to another node by each protocol that both have, unless it is. A
// session that a client has left ends when the client is back by the same protocol: by the
// other one it is another session, and the first one stays until Policy.StandbyAge.
func (n *node) comeBack(to *node) {
	n.channelTo(to)
	if n.w.plan.protocol != simMixed || n.old() {
		return
	}
	for _, a := range to.addrs {
		conn, err := n.m.Connect(a, wire.OSD)
		if err != nil {
			n.w.fail("connect: %v", err)
			return
		}
		if n.conns[conn] == nil {
			n.channel(conn, to, to.life, 1)
		}
	}
}

// In two of three seeds drivers have receive buffers, so that connections go over to
// them and back; in the others they read by readiness alone, as with epoll. Buffers are
// few, so that they run out. The size is the seed's, and changes nothing else about it.

// receiveBuffersOf is how many bytes of receive buffers each driver of a seed has. Seeds
// that found a bug without keep the course on which they did.
func receiveBuffersOf(seed uint64) int {
	if seed%3 == 0 || oldBug(seed) {
		return 0
	}
	return 2 << (10 + seed/3%6)
}

// oldBug says that a seed found a bug before the simulator knew all that it knows now: it keeps its course.
func oldBug(seed uint64) bool {
	return slices.ContainsFunc(slices.Concat(simRegressions, adversaryRegressions), func(r regression) bool { return r.seed == seed })
}
