package control

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Steer says by which rules the kernel chooses the core of a new connection:
// one of the names, or several joined by commas ("table,cpu"). Rules are asked
// in the order table, hint, CPU; what none of them decides goes by the kernel's
// hash. Package bpf has the details.
type Steer string

// The ways to steer.
const (
	// SteerAuto is the table and the hint, and with pinned cores the CPU. The
	// CPU is not used otherwise: where one queue of the network card brings all
	// connections, it would give them all to one core.
	SteerAuto Steer = "auto"
	// SteerNone loads no program, gives no hints and follows none.
	SteerNone Steer = "none"
	// SteerCPU takes the core of the CPU that took the SYN.
	SteerCPU Steer = "cpu"
	// SteerHint takes the core that the peer's source port names, which
	// reconnecting peers of this package choose by our server_cookie.
	SteerHint Steer = "hint"
	// SteerTable takes the core that PinPeer set for the peer's address.
	SteerTable Steer = "table"
)

// ErrUnsteered is returned for pins where no table is in force.
var ErrUnsteered = errors.New("control: connections are not steered by a table")

// ParseSteer checks the form of s, the empty string being SteerAuto.
func ParseSteer(s string) (Steer, error) {
	st := Steer(s)
	if s == "" {
		st = SteerAuto
	}
	_, err := st.rules(false)
	return st, err
}

// rules are the rules of s, or of SteerAuto for cores that are pinned or not.
func (s Steer) rules(pinned bool) (bpf.Rules, error) {
	switch s {
	case SteerNone:
		return 0, nil
	case "", SteerAuto:
		if pinned {
			return bpf.UseTable | bpf.UseHint | bpf.UseCPU, nil
		}
		return bpf.UseTable | bpf.UseHint, nil
	}
	var rules bpf.Rules
	for name := range strings.SplitSeq(string(s), ",") {
		switch Steer(name) {
		case SteerCPU:
			rules |= bpf.UseCPU
		case SteerHint:
			rules |= bpf.UseHint
		case SteerTable:
			rules |= bpf.UseTable
		default:
			return 0, fmt.Errorf("%w: steering %q, want %s, %s, or a list of %s, %s and %s",
				ErrConfig, s, SteerAuto, SteerNone, SteerCPU, SteerHint, SteerTable)
		}
	}
	return rules, nil
}

// hintRange is the range of hinted ports for a peer, or for us, with so many
// cores. Both ends must come to the same one: it depends on their settings and
// on nothing else.
func (c *Config) hintRange(cores int) (bpf.PortRange, error) {
	if c.HintPorts != (bpf.PortRange{}) {
		return c.HintPorts, nil
	}
	return bpf.LocalHintRange(cores)
}

// loader is bpf.Load, or what a test puts in its place.
type loader func(bpf.Config) (*bpf.Steering, error)

// steering is what steers the listeners of a messenger: one program for each
// listening address. It steers all of them or none. nil steers nothing. Its
// owner is the messenger's lock once Bind has published it.
type steering struct {
	mode   Steer
	policy bpf.Policy   // Cores is the divisor of hints: it never falls
	gone   map[int]bool // cores below policy.Cores without slots
	groups []*steerGroup
	err    error // why nothing is steered
	closed bool
	// inherited are the programs of a predecessor, until ours take over.
	inherited []*steerGroup
}

// steerGroup is one listening address.
type steerGroup struct {
	addr netip.AddrPort
	prog *bpf.Steering
	last bpf.Counters // behind close
}

// newSteering decides what is to be steered; that nothing can be is its err.
func (m *Messenger) newSteering() *steering {
	s := &steering{mode: m.cfg.Steer}
	cores := m.span()
	rules, err := s.mode.rules(m.cfg.Plane.Pin)
	switch {
	case err != nil:
		s.err = err
	case s.mode == SteerNone:
		s.err = errors.New("switched off")
	case len(m.plane.All()) == 1:
		s.err = errOneCore
	case m.cfg.Plane.Open != nil:
		s.err = errors.New("the cores have a network of their own")
	}
	if s.err != nil {
		return s
	}
	s.policy = bpf.Policy{Rules: rules, Cores: cores}
	if !rules.Has(bpf.RuleHint) {
		return s
	}
	s.policy.Hint, err = m.cfg.hintRange(cores)
	if cores > maxHintCores {
		err = errManyHints
	}
	if err != nil && s.mode != SteerAuto {
		s.err = err
	} else if err != nil {
		s.policy.Rules &^= bpf.UseHint
		s.policy.Hint = bpf.PortRange{}
		m.cfg.Logger.Info("no owner hints", "err", err)
	}
	return s
}

// begin puts a program in charge of the group of addr, whose first listener is
// fd.
func (s *steering) begin(load loader, tableSize int, addr netip.AddrPort, fd int) {
	if s.err != nil {
		return
	}
	prog, err := load(bpf.Config{MaxCores: slotsFor(s.policy.Cores), TableSize: tableSize})
	if err == nil {
		s.groups = append(s.groups, &steerGroup{addr: addr, prog: prog})
		err = s.apply(prog)
	}
	if err == nil {
		err = prog.Attach(fd)
	}
	s.fail(err)
}

// apply sets the policy.
func (s *steering) apply(prog *bpf.Steering) error {
	p := s.policy
	if p.Rules.Has(bpf.RuleCPU) {
		cpus, err := uring.AllowedCPUs()
		if err != nil {
			return err
		}
		p.CPUs = cpuHomes(p.Cores, cpus, prog.Info().CPUs)
	}
	return prog.SetPolicy(p)
}

// cpuHomes gives each of the machine's CPUs a core. Pinned cores lie on the
// allowed CPUs in their order, so those have the cores in their order; with
// more CPUs than cores they begin again. CPUs that take SYNs for us without
// being ours are spread.
func cpuHomes(cores int, allowed []int, cpus int) []int {
	homes := make([]int, cpus)
	for cpu := range homes {
		homes[cpu] = cpu % cores
		if i := slices.Index(allowed, cpu); i >= 0 {
			homes[cpu] = i % cores
		}
	}
	return homes
}

// add puts a core's listener into the slots of the last group.
func (s *steering) add(core, fd int) {
	if s.err == nil {
		s.fail(s.groups[len(s.groups)-1].prog.Add(core, fd))
	}
}

// fail gives up steering if err is not nil: the kernel's hash decides.
func (s *steering) fail(err error) {
	if err == nil {
		return
	}
	s.err = err
	for _, g := range s.groups {
		// Without listeners in its slots, and with no rules, a program that is
		// attached leaves all to the hash.
		_ = g.prog.SetPolicy(bpf.Policy{}) // as good as it gets
		_ = g.prog.Close()
	}
	s.groups = nil
}

// report logs, once, how the listeners are steered.
func (m *Messenger) report(s *steering) {
	switch {
	case s.err == nil:
		m.cfg.Logger.Info("connections are steered", "mode", s.mode, "rules", s.ruleNames(), "hint", s.policy.Hint)
	case s.mode == SteerNone || m.plane.Cores() == 1 || errors.Is(s.err, errOneCore):
	case s.mode == SteerAuto:
		m.cfg.Logger.Info("connections are not steered", "mode", s.mode, "err", s.err)
	default:
		m.cfg.Logger.Warn("connections are not steered", "mode", s.mode, "err", s.err)
	}
}

// active says whether all listeners are steered.
func (s *steering) active() bool { return s != nil && s.err == nil && !s.closed && len(s.groups) > 0 }

// takesHints says whether a peer that follows a hint gets where it leads.
func (s *steering) takesHints() bool { return s.active() && s.policy.Rules.Has(bpf.RuleHint) }

// close lets go of the programs, keeping their last counters. The kernel has
// them work as long as a listener is left. The messenger's lock is held.
func (s *steering) close() {
	if s == nil || s.closed {
		return
	}
	s.closed = true
	_ = s.discard() // nobody uses them
	for _, g := range s.groups {
		g.last, _ = g.prog.Counters() // zeros where they cannot be read
		_ = g.prog.Close()
	}
}

// pinned is the core that the table has for a peer.
func (s *steering) pinned(peer netip.AddrPort) (core int, ok bool) {
	if !s.active() || !s.policy.Rules.Has(bpf.RuleAddr) {
		return 0, false
	}
	prog := s.groups[0].prog
	core, ok, err := prog.PinnedPort(peer)
	if err == nil && !ok {
		core, ok, err = prog.Pinned(peer.Addr())
	}
	return core, ok && err == nil
}

func (s *steering) ruleNames() []string {
	var names []string
	for _, r := range []bpf.Rule{bpf.RuleAddrPort, bpf.RuleAddr, bpf.RuleHint, bpf.RuleCPU} {
		if s.policy.Rules.Has(r) {
			names = append(names, r.String())
		}
	}
	return names
}

// PinPeer has new connections from addr, of any port, accepted by core. It
// needs the table among the rules of Config.Steer, and a messenger that is
// bound and steered, else it returns ErrUnsteered. The table forgets the pins
// that were not used for longest when it is full. A connection that exists
// stays where it is.
func (m *Messenger) PinPeer(addr netip.Addr, core int) error {
	return m.pin(core, func(p *bpf.Steering) error { return p.Pin(addr, core) })
}

// PinPeerPort is PinPeer for one address and source port, which goes before
// that for the address.
func (m *Messenger) PinPeerPort(peer netip.AddrPort, core int) error {
	return m.pin(core, func(p *bpf.Steering) error { return p.PinPort(peer, core) })
}

// UnpinPeer takes the pin of addr back. It is no error if there is none.
func (m *Messenger) UnpinPeer(addr netip.Addr) error {
	return m.pin(noCore, func(p *bpf.Steering) error { return p.Unpin(addr) })
}

// UnpinPeerPort takes the pin of one address and port back. It is no error if
// there is none.
func (m *Messenger) UnpinPeerPort(peer netip.AddrPort) error {
	return m.pin(noCore, func(p *bpf.Steering) error { return p.UnpinPort(peer) })
}

// noCore is a number that no core and no user has.
const noCore = math.MinInt

// pin changes the tables of all listening addresses; core is noCore if
// none is named.
func (m *Messenger) pin(core int, change func(*bpf.Steering) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if core != noCore {
		if err := m.placeable(core); err != nil {
			return err
		}
	}
	switch s := m.steer; {
	case s == nil:
		return fmt.Errorf("%w: not bound", ErrUnsteered)
	case s.err != nil:
		return fmt.Errorf("%w: %w", ErrUnsteered, s.err)
	case s.closed:
		return fmt.Errorf("%w: not bound any more", ErrUnsteered)
	case !s.policy.Rules.Has(bpf.RuleAddr):
		return fmt.Errorf("%w: mode %s", ErrUnsteered, s.mode)
	}
	m.pins = true
	var errs []error
	for _, g := range m.steer.groups {
		errs = append(errs, change(g.prog))
	}
	return errors.Join(errs...)
}
