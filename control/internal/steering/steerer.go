package steering

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Config configures a Steerer.
type Config struct {
	Mode      Mode          // the user's name for Rules, for logs
	Rules     bpf.Rules     // to have in force
	Auto      bool          // the user left the rules to us: do without rules that do not work
	Off       error         // why nothing is to be steered; nil: steer
	HintPorts bpf.PortRange // zero: bpf.LocalHintRange
	// Load makes a program: bpf.Load, or a fake in tests.
	Load   func(bpf.Config) (*bpf.Steering, error)
	Logger *slog.Logger
	// Waits is called before a call that may wait for the kernel; nil: no call.
	Waits func()
}

// TableSize is the number of peers that each listening address can have pinned.
const TableSize = 4096

// For is the Config of a mode, on cores that are pinned to their CPUs, or with a network of
// their own.
func For(m Mode, pinned, ownNetwork bool) Config {
	rules, err := m.Rules(pinned)
	c := Config{Mode: m, Rules: rules, Auto: m == Auto, Off: err}
	switch {
	case m == None:
		c.Off = errors.New("switched off")
	case ownNetwork:
		c.Off = errors.New("the cores have a network of their own")
	}
	return c
}

// Hints says whether connections are made by the owner hints of peers.
func (c *Config) Hints() bool { return c.Off == nil && c.Rules.Has(bpf.RuleHint) }

// Group is one listening address.
type Group struct {
	Addr      netip.AddrPort
	Listeners []Listener // in the order of their cores
}

// Listener is one socket of a group. The caller keeps it open during the call.
type Listener struct{ Core, FD int }

// phase says how far a Steerer is.
type phase uint8

const (
	unbound phase = iota
	open          // the listeners are steered, or err says why not
	closed
)

// Steerer steers the listeners of one messenger.
type Steerer struct {
	cfg  Config
	pins atomic.Bool          // the table has been used
	now  atomic.Pointer[view] // the present facts, for callers that must not wait; never nil

	// mu guards the fields below. It is held over the system calls of package bpf, never
	// over a log line, and no other lock is taken under it.
	mu      sync.Mutex
	phase   phase
	adopted uint64       // how often listening had been given up before
	err     error        // why nothing is steered
	policy  bpf.Policy   // Cores is the divisor of hints: it never falls
	gone    map[int]bool // cores below policy.Cores; true: there is no such core, and its slots are empty
	groups  []*group
	pending []func() // log lines to write when mu is free
	// inherited are the programs of a predecessor, until ours take over.
	inherited []*group
}

// group is one listening address with its program.
type group struct {
	addr netip.AddrPort
	prog *bpf.Steering
	last bpf.Counters // when the program was closed
}

// errOneCore is why a single core is not steered.
var errOneCore = errors.New("there is one core only")

// New makes a Steerer that steers nothing yet.
func New(cfg Config) *Steerer {
	s := &Steerer{cfg: cfg}
	s.now.Store(&view{})
	return s
}

// change runs f, makes its outcome visible, and writes the log.
func (s *Steerer) change(f func()) {
	s.lock()
	f()
	s.now.Store(s.current())
	lines := s.pending
	s.pending = nil
	s.mu.Unlock()
	for _, line := range lines {
		line()
	}
}

// lock takes the lock, which is held over system calls.
func (s *Steerer) lock() {
	s.waits()
	s.mu.Lock()
}

func (s *Steerer) waits() {
	if s.cfg.Waits != nil {
		s.cfg.Waits()
	}
}

// log writes a line when the lock is free.
func (s *Steerer) log(write func(string, ...any), text string, args ...any) {
	s.pending = append(s.pending, func() { write(text, args...) })
}

// Begin steers the listeners of all addresses, between cores with these numbers,
// ascending. taken is how often listening had been given up when they were opened
// (binding.Listeners.Taken). That nothing can be steered is no error: the kernel's hash decides
// then, and Stats says why.
func (s *Steerer) Begin(taken uint64, cores []int, groups []Group) {
	s.change(func() {
		s.adopted = taken
		s.begin(cores, groups)
	})
}

func (s *Steerer) begin(cores []int, groups []Group) {
	s.decide(cores)
	for _, g := range groups {
		s.start(g.Addr, g.Listeners[0].FD)
		for _, l := range g.Listeners {
			s.add(l)
		}
	}
	s.report()
}

// Follow steers the listeners of other addresses in place of the present ones, one for one:
// they take the tables and counters of the programs over. After Close it begins anew.
func (s *Steerer) Follow(taken uint64, cores []int, groups []Group) {
	s.change(func() {
		s.adopted = taken
		if s.phase != open {
			s.begin(cores, groups)
			return
		}
		if !s.active() {
			return
		}
		for i, g := range s.groups {
			g.addr = groups[i].Addr
			err := g.prog.Attach(groups[i].Listeners[0].FD)
			for _, l := range groups[i].Listeners {
				if err == nil {
					err = g.prog.Add(l.Core, l.FD)
				}
			}
			if s.fail(err); err != nil {
				s.report()
				return
			}
		}
	})
}

// Close closes the programs and keeps their last counters. They go on steering as
// long as a listener is left. taken counts this time, too: a Begin or a Follow
// that came after it stays.
func (s *Steerer) Close(taken uint64) {
	s.change(func() {
		if s.phase != open || s.adopted >= taken {
			return
		}
		s.phase = closed
		for _, g := range s.inherited {
			_ = g.prog.Close() // the predecessor's goes on without us
		}
		s.inherited = nil
		for _, g := range s.groups {
			g.last, _ = g.prog.Counters() // zeros where they cannot be read
			_ = g.prog.Close()
		}
	})
}

// decide chooses the policy; s.err is the reason if nothing can be steered.
func (s *Steerer) decide(cores []int) {
	s.phase, s.err, s.groups, s.gone, s.policy = open, s.cfg.Off, nil, map[int]bool{}, bpf.Policy{}
	if s.err == nil && len(cores) < 2 {
		s.err = errOneCore
	}
	if s.err != nil {
		return
	}
	s.policy = bpf.Policy{Rules: s.cfg.Rules, Cores: slices.Max(cores) + 1}
	for core := range s.policy.Cores {
		s.gone[core] = !slices.Contains(cores, core)
	}
	if !s.policy.Rules.Has(bpf.RuleHint) {
		return
	}
	if err := s.setHint(); err != nil && !s.cfg.Auto {
		s.err = err
	} else if err != nil {
		s.log(s.cfg.Logger.Info, "no owner hints", "err", err)
	}
}

// setHint sets the range of hinted ports for the present number of cores, or
// takes the rule out of the policy and says why.
func (s *Steerer) setHint() error {
	hint, err := hintRange(s.cfg.HintPorts, s.policy.Cores)
	if err == nil && s.policy.Cores > maxHintCores {
		err = errManyHints
	}
	if err != nil {
		s.policy.Rules &^= bpf.UseHint
		hint = bpf.PortRange{}
	}
	s.policy.Hint = hint
	return err
}

// start puts a program in charge of the group of addr, whose first listener is
// fd.
func (s *Steerer) start(addr netip.AddrPort, fd int) {
	if s.err != nil {
		return
	}
	prog, err := s.cfg.Load(bpf.Config{MaxCores: slotsFor(s.policy.Cores), TableSize: TableSize})
	if err == nil {
		s.groups = append(s.groups, &group{addr: addr, prog: prog})
		err = s.apply(prog)
	}
	if err == nil {
		err = prog.Attach(fd)
	}
	s.fail(err)
}

// apply sets the policy.
func (s *Steerer) apply(prog *bpf.Steering) error {
	cpus, err := uring.AllowedCPUs()
	if err != nil {
		return err
	}
	p := s.policy
	p.CPUs = coreOfCPU(p.Cores, cpus, prog.Info().CPUs)
	return prog.SetPolicy(p)
}

// coreOfCPU gives each of the machine's CPUs a core. Pinned cores lie on the allowed CPUs
// in their order, so these CPUs have the cores in their order; with more CPUs than cores
// they begin again. Other CPUs, which may take SYNs for us, are spread.
func coreOfCPU(cores int, allowed []int, cpus int) []int {
	homes := make([]int, cpus)
	for cpu := range homes {
		homes[cpu] = cpu % cores
		if i := slices.Index(allowed, cpu); i >= 0 {
			homes[cpu] = i % cores
		}
	}
	return homes
}

// add puts a listener into its core's slot of the last group.
func (s *Steerer) add(l Listener) {
	if s.err == nil {
		s.fail(s.groups[len(s.groups)-1].prog.Add(l.Core, l.FD))
	}
}

// fail gives up steering if err is not nil: the kernel's hash decides.
func (s *Steerer) fail(err error) {
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

// report logs how the listeners are steered. That they are not is logged only
// if the user may have expected it.
func (s *Steerer) report() {
	log := s.cfg.Logger
	switch {
	case s.err == nil:
		s.log(log.Info, "connections are steered", "mode", s.cfg.Mode, "rules", s.ruleNames(), "hint", s.policy.Hint)
	case s.cfg.Off != nil, errors.Is(s.err, errOneCore):
	case s.cfg.Auto:
		s.log(log.Info, "connections are not steered", "mode", s.cfg.Mode, "err", s.err)
	default:
		s.log(log.Warn, "connections are not steered", "mode", s.cfg.Mode, "err", s.err)
	}
}

// active says whether all listeners are steered.
func (s *Steerer) active() bool { return s.phase == open && s.err == nil && len(s.groups) > 0 }

func (s *Steerer) ruleNames() []string {
	var names []string
	for _, r := range []bpf.Rule{bpf.RuleAddrPort, bpf.RuleAddr, bpf.RuleHint, bpf.RuleCPU} {
		if s.policy.Rules.Has(r) {
			names = append(names, r.String())
		}
	}
	return names
}

// ErrUnsteered is returned for pins where no table is in force.
var ErrUnsteered = errors.New("control: connections are not steered by a table")

// Pin changes the tables of all listening addresses. check is asked first, under
// the Steerer's lock: a core that it finds is not dropped before it is pinned.
func (s *Steerer) Pin(check func() error, change func(*bpf.Steering) error) error {
	s.lock()
	defer s.mu.Unlock()
	if err := check(); err != nil {
		return err
	}
	switch {
	case s.phase == unbound:
		return fmt.Errorf("%w: not bound", ErrUnsteered)
	case s.err != nil:
		return fmt.Errorf("%w: %w", ErrUnsteered, s.err)
	case s.phase == closed:
		return fmt.Errorf("%w: not bound any more", ErrUnsteered)
	case !s.policy.Rules.Has(bpf.RuleAddr):
		return fmt.Errorf("%w: mode %s", ErrUnsteered, s.cfg.Mode)
	}
	s.pins.Store(true)
	var errs []error
	for _, g := range s.groups {
		errs = append(errs, change(g.prog))
	}
	return errors.Join(errs...)
}

// Pinned is the core that the table has for a peer. Where nobody was ever pinned
// it makes no system call.
func (s *Steerer) Pinned(peer netip.AddrPort) (core int, ok bool) {
	table := s.now.Load().table
	if table == nil || !s.pins.Load() {
		return 0, false
	}
	s.waits()
	core, ok, err := table.Pinned(peer)
	if err == nil && !ok {
		core, ok, err = table.Pinned(netip.AddrPortFrom(peer.Addr(), 0))
	}
	return core, ok && err == nil
}

// view is a copy of the facts at one moment. It never changes.
type view struct {
	active bool
	rules  bpf.Rules
	cores  int
	hint   bpf.PortRange
	gone   map[int]bool
	table  *bpf.Steering // that has the pins; nil: none is in force
}

// current makes the view of this moment. The lock is held.
func (s *Steerer) current() *view {
	v := &view{active: s.active(), rules: s.policy.Rules, cores: s.policy.Cores, hint: s.policy.Hint, gone: maps.Clone(s.gone)}
	if v.active && v.rules.Has(bpf.RuleAddr) {
		v.table = s.groups[0].prog // all have the same pins
	}
	return v
}

// takesHints says whether a peer that follows a hint gets where it leads.
func (v *view) takesHints() bool { return v.active && v.rules.Has(bpf.RuleHint) }

// Hint is the owner hint for the peer of a session that core owns: the zero Owner if the
// peer could not reach the core by a hint. It never waits.
func (s *Steerer) Hint(core int) Owner {
	v := s.now.Load()
	if !v.takesHints() || core >= v.cores || v.gone[core] {
		return Owner{}
	}
	return Owner{Core: core, Cores: v.cores}
}

// Accepted is an accepted socket: its addresses and its core.
type Accepted struct {
	Peer   netip.AddrPort
	Core   int // where it arrived
	Owner  int // core that owns its session, NoCore for a new one
	Pin    int // core that its peer is pinned to, if Pinned
	Pinned bool
}

// NoCore is a number that no core has.
const NoCore = -1

// The rules that choose the core of an accepted connection.
const (
	ByTable   = "table"
	BySession = "session" // it had an owner before
	ByHint    = "hint"
	ByCPU     = "cpu"
	ByHash    = "hash"
)

// The reasons why a connection is not on the core that was meant.
const (
	Unsteered = "unsteered"    // nothing steers our listeners
	NoHint    = "no hint"      // the peer came from an ordinary port, or with a program without the hint rule
	OtherHint = "another hint" // the peer's port named another core
	Missed    = "missed"       // the rule named it, and the kernel took another
)

// Verdict names the intended core, the rule that chose it, and the reason if the connection
// is not there; Reason is empty if it is.
type Verdict struct {
	Intended int
	By       string
	Reason   string
}

// Judge compares the core at which a connection arrived with the rules. It never waits.
func (s *Steerer) Judge(a Accepted) Verdict { return s.now.Load().judge(a) }

func (v *view) judge(a Accepted) Verdict {
	out := Verdict{Intended: a.Core}
	hint := NoCore
	if v.takesHints() && v.hint.Contains(a.Peer.Port()) {
		hint = int(a.Peer.Port()) % v.cores
		if v.gone[hint] {
			hint = NoCore // it leads nowhere
		}
	}
	switch {
	case a.Pinned:
		out.By, out.Intended = ByTable, a.Pin
	case a.Owner != NoCore:
		out.By, out.Intended = BySession, a.Owner
	case hint != NoCore:
		out.By, out.Intended = ByHint, hint
	case v.active && v.rules.Has(bpf.RuleCPU):
		out.By = ByCPU
	default:
		out.By = ByHash
	}
	switch {
	case a.Core == out.Intended:
	case !v.active:
		out.Reason = Unsteered
	case out.By == BySession && hint == NoCore:
		out.Reason = NoHint
	case out.By == BySession && hint != out.Intended:
		out.Reason = OtherHint
	default:
		out.Reason = Missed
	}
	return out
}
