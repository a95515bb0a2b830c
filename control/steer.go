package control

import (
	"errors"
	"fmt"
	"math"
	"net/netip"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control/internal/binding"
	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// Steer says by which rules the kernel chooses the core of a new connection: one of the
// names, or several joined by commas ("table,cpu"). Rules are asked in the order table,
// hint, CPU; what none of them decides goes by the kernel's hash. Package bpf has the
// details.
type Steer = steering.Mode

// The ways to steer.
const (
	// SteerAuto is the table and the hint, and with pinned cores the CPU.
	SteerAuto = steering.Auto
	// SteerNone loads no program, gives no hints and follows none.
	SteerNone = steering.None
	// SteerCPU takes the core of the CPU that took the SYN.
	SteerCPU = steering.CPU
	// SteerHint takes the core that the peer's source port names.
	SteerHint = steering.Hint
	// SteerTable takes the core that PinPeer set for the peer's address.
	SteerTable = steering.Table
)

// ErrUnsteered is returned for pins where no table is in force.
var ErrUnsteered = steering.ErrUnsteered

// ParseSteer checks the form of s, the empty string being SteerAuto.
func ParseSteer(s string) (Steer, error) {
	st := Steer(s)
	if s == "" {
		st = SteerAuto
	}
	if _, err := st.Rules(false); err != nil {
		return st, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return st, nil
}

// newSteerer makes what steers our listeners, with programs that load makes.
func (m *Messenger) newSteerer(load loader) *steering.Steerer {
	cfg := &m.cfg
	rules, _ := cfg.Steer.Rules(cfg.Plane.Pin) // Validate has seen it
	c := steering.Config{
		Mode: cfg.Steer, Rules: rules, Auto: cfg.Steer == SteerAuto, HintPorts: cfg.HintPorts, TableSize: cfg.SteerTable,
		Load: load, Logger: cfg.Logger, Waits: m.mu.check.waits,
	}
	switch {
	case cfg.Steer == SteerNone:
		c.Off = errors.New("switched off")
	case cfg.Plane.Open != nil:
		c.Off = errors.New("the cores have a network of their own")
	}
	return steering.New(c)
}

// loader is bpf.Load, or what a test puts in its place.
type loader func(bpf.Config) (*bpf.Steering, error)

// steeringGroups are groups of listeners as package steering wants them: those
// on cores that keep says.
func steeringGroups(groups []binding.Group, keep func(*dataplane.Core) bool) []steering.Group {
	var out []steering.Group
	for _, group := range groups {
		g := steering.Group{Addr: group.Addr()}
		for _, l := range group {
			if core := l.Core(); keep(core) {
				g.Listeners = append(g.Listeners, steering.Listener{Core: core.ID(), FD: l.FD()})
			}
		}
		if len(g.Listeners) > 0 {
			out = append(out, g)
		}
	}
	return out
}

func anyCore(*dataplane.Core) bool { return true }

func runningCore(c *dataplane.Core) bool { return c.State() == dataplane.CoreRunning }

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

// pin changes the tables of all listening addresses; core is noCore if none is
// named.
func (m *Messenger) pin(core int, change func(*bpf.Steering) error) error {
	return m.steering.Pin(func() error {
		if core == noCore {
			return nil
		}
		return m.placeable(core)
	}, change)
}
