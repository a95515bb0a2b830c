package bpf

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// Counters is a snapshot of the decisions of the program since it was loaded. The rows are read
// one after another, not at one instant.
type Counters struct {
	// Cores has a row for each slot.
	Cores []CoreCounters `json:"cores"`
	// NoCore counts misses of rules that named no slot at all: a CPU without
	// a core.
	NoCore CoreCounters `json:"no_core"`
	// Hash counts decisions that were left to the kernel's hash, and
	// HashMigrated counts the decisions among them for connections of a closing listener.
	Hash         uint64 `json:"hash"`
	HashMigrated uint64 `json:"hash_migrated"`
}

// CoreCounters counts the decisions that named one core.
type CoreCounters struct {
	AddrPort RuleCounters `json:"table_addrport"`
	Addr     RuleCounters `json:"table_addr"`
	Hint     RuleCounters `json:"hint"`
	CPU      RuleCounters `json:"cpu"`
	// Migrated is the part of all Selected that came from a closing listener.
	Migrated uint64 `json:"migrated"`
}

// RuleCounters counts the decisions of one rule.
type RuleCounters struct {
	// Selected connections went to the core that the rule named.
	Selected uint64 `json:"selected"`
	// Missed times the named core had no listener and the next rule was
	// asked.
	Missed uint64 `json:"missed"`
}

// Missed returns the number of decisions for the core while it had no listener.
func (c CoreCounters) Missed() uint64 {
	return c.AddrPort.Missed + c.Addr.Missed + c.Hint.Missed + c.CPU.Missed
}

// Total returns the sum over all cores, misses without a core included.
func (c Counters) Total() CoreCounters {
	t := c.NoCore
	for _, r := range c.Cores {
		t.AddrPort.add(r.AddrPort)
		t.Addr.add(r.Addr)
		t.Hint.add(r.Hint)
		t.CPU.add(r.CPU)
		t.Migrated += r.Migrated
	}
	return t
}

func (c *RuleCounters) add(o RuleCounters) {
	c.Selected += o.Selected
	c.Missed += o.Missed
}

// String returns a table with a row for each core that was ever named.
// Numbers are selected, or selected/missed where there are misses.
func (c Counters) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, r CoreCounters) {
		fmt.Fprintf(w, "%s\t%v\t%v\t%v\t%v\t%d\t\n", name, r.AddrPort, r.Addr, r.Hint, r.CPU, r.Migrated)
	}
	fmt.Fprintf(w, "core\t%v\t%v\t%v\t%v\tmigrated\t\n", RuleAddrPort, RuleAddr, RuleHint, RuleCPU)
	for core, r := range c.Cores {
		if r != (CoreCounters{}) {
			row(fmt.Sprint(core), r)
		}
	}
	if c.NoCore != (CoreCounters{}) {
		row("none", c.NoCore)
	}
	row("all", c.Total())
	_ = w.Flush() // into memory: cannot fail
	fmt.Fprintf(&b, "%v: %d, migrated %d\n", RuleHash, c.Hash, c.HashMigrated)
	return b.String()
}

// String returns "selected" or "selected/missed".
func (c RuleCounters) String() string {
	if c.Missed == 0 {
		return fmt.Sprint(c.Selected)
	}
	return fmt.Sprintf("%d/%d", c.Selected, c.Missed)
}

// Counters returns the counters, summed over the CPUs.
func (s *Steering) Counters() (Counters, error) {
	c := Counters{Cores: make([]CoreCounters, s.info.MaxCores)}
	err := s.use(func() error {
		none, err := s.readCounts(0)
		if err != nil {
			return err
		}
		c.NoCore = coreCounters(none)
		c.Hash = none.Selected[RuleHash]
		c.HashMigrated, c.NoCore.Migrated = none.Migrated, 0
		for core := range c.Cores {
			sum, err := s.readCounts(uint32(core) + 1)
			if err != nil {
				return err
			}
			c.Cores[core] = coreCounters(sum)
		}
		return nil
	})
	if err != nil {
		return Counters{}, err
	}
	return c, nil
}

// readCounts sums one row over the CPUs.
func (s *Steering) readCounts(row uint32) (steerCounts, error) {
	var perCPU []steerCounts
	if err := s.maps.Counters.Lookup(row, &perCPU); err != nil {
		return steerCounts{}, fmt.Errorf("read steering counters: %w", err)
	}
	var sum steerCounts
	for _, c := range perCPU {
		for r := range numRules {
			sum.Selected[r] += c.Selected[r]
			sum.Missed[r] += c.Missed[r]
		}
		sum.Migrated += c.Migrated
	}
	return sum, nil
}

func coreCounters(c steerCounts) CoreCounters {
	rule := func(r Rule) RuleCounters { return RuleCounters{c.Selected[r], c.Missed[r]} }
	return CoreCounters{
		AddrPort: rule(RuleAddrPort),
		Addr:     rule(RuleAddr),
		Hint:     rule(RuleHint),
		CPU:      rule(RuleCPU),
		Migrated: c.Migrated,
	}
}
