package bpf

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cores is the number of listeners in the tables of cases.
const cores = 4

// decision is one case: what is pinned, which listeners are there, who connects, and what the
// program must do.
type decision struct {
	name     string
	policy   Policy
	pin      map[netip.Addr]int
	pinPort  map[netip.AddrPort]int
	drained  []int
	closed   []int
	arrival  Connection
	decision Decision
}

// Connection is a connection that needs a listener.
type Connection struct {
	Peer   netip.AddrPort // source of the SYN
	CPU    int            // that took the SYN
	Moving bool           // it had a listener, which closed: the CPU has no meaning
}

// Decision is what the program does with a Connection.
type Decision struct {
	Rule   Rule   // found the listener
	Core   int    // -1 for RuleHash: the kernel does not tell
	Missed []Miss // the rules that named a core without a listener before
}

// Miss is a rule that named a core without a listener; -1: the CPU has no core.
type Miss struct {
	Rule Rule
	Core int
}

// family is an address family in which all cases run.
type family struct {
	name        string
	listen, to  string // address of the group, and how the client writes it
	peer, other string // source of the clients, and another peer
}

var families = []family{
	{"IPv4", "127.0.0.1", "127.0.0.1", "127.81.3.1", "127.81.3.2"},
	{"IPv6", "::1", "::1", "::1", "2001:db8::7"},
	{"IPv4 at an IPv6 listener", "::", "127.0.0.1", "127.81.3.3", "127.81.3.4"},
	{"IPv4-mapped", "::", "::ffff:127.0.0.1", "::ffff:127.81.3.5", "127.81.3.6"},
}

// Ports of the cases. hint1 hints at core 1 of 4; plain is neither hinted nor
// ephemeral.
const (
	plain = 23457
	hint1 = 61473
	hint3 = 61475
)

func cases(t testing.TB, f family) []decision {
	a, b := someCPUs(t)
	perCPU := make([]int, b+1)
	for cpu := range perCPU {
		perCPU[cpu] = -1
	}
	perCPU[b] = 3
	perCPU[a] = 2
	coreA, coreB := perCPU[a], perCPU[b]

	ip, other := netip.MustParseAddr(f.peer), netip.MustParseAddr(f.other)
	from := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(ip, port) }
	hints := PortRange{61400, 61499}
	everything := Policy{Rules: allRules, Cores: cores, Hint: hints, CPUs: perCPU}
	only := func(r Rules) Policy { p := everything; p.Rules = r; return p }
	type (
		addrs = map[netip.Addr]int
		ports = map[netip.AddrPort]int
	)
	both := addrs{ip: 1}
	hash := func(missed ...Miss) Decision { return Decision{RuleHash, -1, missed} }

	return []decision{
		{name: "nothing enabled", pin: both, arrival: Connection{Peer: from(hint1), CPU: a}, decision: hash()},
		{name: "address pinned", policy: everything, pin: addrs{ip: 1, other: 0}, arrival: Connection{Peer: from(plain), CPU: a},
			decision: Decision{RuleAddr, 1, nil}},
		{name: "address and port before address", policy: everything, pin: both, pinPort: ports{from(plain): 0},
			arrival: Connection{Peer: from(plain), CPU: a}, decision: Decision{RuleAddrPort, 0, nil}},
		{name: "another port is pinned", policy: everything, pin: both, pinPort: ports{from(plain + 1): 0},
			arrival: Connection{Peer: from(plain), CPU: a}, decision: Decision{RuleAddr, 1, nil}},
		{name: "byte-swapped port is pinned", policy: everything, pinPort: ports{from(plain>>8 | plain&0xff<<8): 0},
			arrival: Connection{Peer: from(plain), CPU: a}, decision: Decision{RuleCPU, coreA, nil}},
		{name: "another peer is pinned", policy: everything, pin: addrs{other: 1}, pinPort: ports{netip.AddrPortFrom(other, plain): 0},
			arrival: Connection{Peer: from(plain), CPU: b}, decision: Decision{RuleCPU, coreB, nil}},
		{name: "port rule off", policy: only(useAddr), pin: both, pinPort: ports{from(plain): 0},
			arrival: Connection{Peer: from(plain), CPU: a}, decision: Decision{RuleAddr, 1, nil}},
		{name: "table off", policy: only(UseHint | UseCPU), pin: both, pinPort: ports{from(hint3): 0},
			arrival: Connection{Peer: from(hint3), CPU: a}, decision: Decision{RuleHint, 3, nil}},
		{name: "table before hint", policy: everything, pin: addrs{ip: 0}, arrival: Connection{Peer: from(hint3), CPU: a},
			decision: Decision{RuleAddr, 0, nil}},
		{name: "hint before CPU", policy: everything, arrival: Connection{Peer: from(hint1), CPU: a},
			decision: Decision{RuleHint, 1, nil}},
		{name: "first port of the range", policy: everything, arrival: Connection{Peer: from(61400), CPU: a},
			decision: Decision{RuleHint, 0, nil}},
		{name: "last port of the range", policy: everything, arrival: Connection{Peer: from(61499), CPU: a},
			decision: Decision{RuleHint, 3, nil}},
		{name: "below the range", policy: everything, arrival: Connection{Peer: from(61399), CPU: a},
			decision: Decision{RuleCPU, coreA, nil}},
		{name: "above the range", policy: everything, arrival: Connection{Peer: from(61500), CPU: a},
			decision: Decision{RuleCPU, coreA, nil}},
		{name: "hint off", policy: only(UseTable | UseCPU), arrival: Connection{Peer: from(hint1), CPU: b},
			decision: Decision{RuleCPU, coreB, nil}},
		{name: "CPU off", policy: only(UseTable | UseHint), arrival: Connection{Peer: from(plain), CPU: b}, decision: hash()},
		{name: "fewer cores than CPUs", policy: Policy{Rules: UseCPU, Cores: 1}, arrival: Connection{Peer: from(plain), CPU: b},
			decision: Decision{RuleCPU, 0, nil}},
		{name: "CPU without a core", policy: Policy{Rules: UseCPU, Cores: 1, CPUs: []int{}}, arrival: Connection{Peer: from(plain), CPU: b},
			decision: hash(Miss{RuleCPU, -1})},
		{name: "table names drained cores", policy: everything, pin: both, pinPort: ports{from(hint3): 0}, drained: []int{0, 1},
			arrival:  Connection{Peer: from(hint3), CPU: a},
			decision: Decision{RuleHint, 3, []Miss{{RuleAddrPort, 0}, {RuleAddr, 1}}}},
		{name: "all but the CPU miss", policy: everything, pin: both, drained: []int{1},
			arrival:  Connection{Peer: from(hint1), CPU: a},
			decision: Decision{RuleCPU, coreA, []Miss{{RuleAddr, 1}, {RuleHint, 1}}}},
		{name: "core of the CPU drained", policy: Policy{Rules: UseCPU, Cores: 2, CPUs: slices.Repeat([]int{1}, b+1)}, drained: []int{1},
			arrival: Connection{Peer: from(plain), CPU: b}, decision: Decision{RuleCPU, 0, nil}},
		{name: "core of the CPU closed", policy: Policy{Rules: UseCPU, Cores: 2, CPUs: slices.Repeat([]int{1}, b+1)}, closed: []int{1},
			arrival: Connection{Peer: from(plain), CPU: b}, decision: hash(Miss{RuleCPU, 1})},
		{name: "everything misses", policy: everything, pin: addrs{ip: 0}, pinPort: ports{from(hint1): 3}, closed: []int{0, 1, 3, coreA},
			arrival:  Connection{Peer: from(hint1), CPU: a},
			decision: hash(Miss{RuleAddrPort, 3}, Miss{RuleAddr, 0}, Miss{RuleHint, 1}, Miss{RuleCPU, coreA})},
		{name: "all drained", policy: everything, pin: both, drained: []int{0, 1, 2, 3}, arrival: Connection{Peer: from(plain), CPU: a},
			decision: hash(Miss{RuleAddr, 1}, Miss{RuleCPU, coreA})},

		{name: "move by address", policy: everything, pin: both, closed: []int{0},
			arrival: Connection{Peer: from(plain), CPU: a, Moving: true}, decision: Decision{RuleAddr, 1, nil}},
		{name: "move by address and port", policy: everything, pin: both, pinPort: ports{from(plain): 2}, closed: []int{0},
			arrival: Connection{Peer: from(plain), CPU: a, Moving: true}, decision: Decision{RuleAddrPort, 2, nil}},
		{name: "move by hint", policy: everything, closed: []int{0},
			arrival: Connection{Peer: from(hint3), CPU: a, Moving: true}, decision: Decision{RuleHint, 3, nil}},
		{name: "move ignores the CPU", policy: everything, pin: addrs{ip: 0}, closed: []int{0},
			arrival: Connection{Peer: from(plain), CPU: a, Moving: true}, decision: hash(Miss{RuleAddr, 0})},
	}
}

// The program decides in the kernel, about real connections.
func TestProgramDecidesByTheRules(t *testing.T) {
	for _, f := range families {
		for _, c := range cases(t, f) {
			t.Run(f.name+"/"+c.name, func(t *testing.T) { c.run(t, f) })
		}
	}
}

func (c *decision) run(t *testing.T, f family) {
	s := mustLoad(t, Config{MaxCores: cores})
	if c.arrival.Moving {
		needMigration(t, s)
	}
	g := listen(t, f.listen, cores)
	g.steer(t, s)
	g.grow(t) // without a slot: the hash always finds a listener
	to := netip.AddrPortFrom(netip.MustParseAddr(f.to), g.addr.Port())
	client := -1
	if c.arrival.Moving {
		// The connection waits at core 0, which closes below.
		must(t, s.Pin(c.arrival.Peer, 0))
		must(t, s.SetPolicy(Policy{Rules: useAddrPort}))
		client = dial(t, c.arrival.Peer, to, -1)
		if core := g.waiting(t); core != 0 {
			t.Fatalf("waits at core %d", core)
		}
		must(t, s.Unpin(c.arrival.Peer))
	}
	for peer, core := range c.pinPort {
		must(t, s.Pin(peer, core))
	}
	for addr, core := range c.pin {
		must(t, s.Pin(anyPort(addr), core))
	}
	must(t, s.SetPolicy(c.policy))
	for _, core := range c.drained {
		must(t, s.Drain(core))
	}
	before := snapshot(t, s)
	for _, core := range c.closed {
		g.close(t, core)
	}
	if !c.arrival.Moving {
		client = dial(t, c.arrival.Peer, to, c.arrival.CPU)
	}
	got := g.accept(t)
	must(t, unix.Close(client))
	if c.decision.Core >= 0 && got != c.decision.Core {
		t.Errorf("core %d has the connection, want %d", got, c.decision.Core)
	}
	want := expect(before, c)
	if after := snapshot(t, s); !reflect.DeepEqual(after, want) {
		t.Errorf("counters\n%vwant\n%v", after, want)
	}
}

// expect returns c with the case's decision added.
func expect(c Counters, d *decision) Counters {
	c.Cores = slices.Clone(c.Cores)
	row := func(core int) *CoreCounters {
		if core < 0 {
			return &c.NoCore
		}
		return &c.Cores[core]
	}
	rule := func(core int, r Rule) *RuleCounters {
		switch r {
		case RuleAddrPort:
			return &row(core).AddrPort
		case RuleAddr:
			return &row(core).Addr
		case RuleHint:
			return &row(core).Hint
		}
		return &row(core).CPU
	}
	for _, m := range d.decision.Missed {
		rule(m.Core, m.Rule).Missed++
	}
	moved := uint64(0)
	if d.arrival.Moving {
		moved = 1
	}
	if d.decision.Rule == RuleHash {
		c.Hash++
		c.HashMigrated += moved
	} else {
		rule(d.decision.Core, d.decision.Rule).Selected++
		row(d.decision.Core).Migrated += moved
	}
	return c
}

// Peer and server have one address on the IPv6 loopback. A SYN from another one
// is never answered, but it is decided.
func TestIPv6PeerIsTheSource(t *testing.T) {
	s := mustLoad(t, Config{MaxCores: 2, Policy: Policy{Rules: UseTable}})
	g := listen(t, "::1", 2)
	g.steer(t, s)
	peer := netip.MustParseAddrPort("[2001:db8:1:2:3:4:5:6]:23457")
	must(t, s.Pin(anyPort(peer.Addr()), 1))
	must(t, s.Pin(anyPort(g.addr.Addr()), 0))
	fd := openSocket(t, peer.Addr())
	defer unix.Close(fd)
	must(t, unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_FREEBIND, 1))
	must(t, unix.SetNonblock(fd, true))
	must(t, unix.Bind(fd, sockaddr(peer)))
	if err := unix.Connect(fd, sockaddr(g.addr)); err != unix.EINPROGRESS {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		c := snapshot(t, s)
		if c.Cores[1].Addr.Selected > 0 {
			return
		}
		if c.Cores[0].Addr.Selected+c.Hash > 0 {
			break
		}
	}
	t.Errorf("counters\n%v", snapshot(t, s))
}
