package control

import (
	"fmt"
	"net/netip"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/dataplane/old"
)

// Placement says which core owns a connection, and which was meant to.
type Placement struct {
	Core     int `json:"core"`
	Intended int `json:"intended"`
	// By names what chose the intended core: for a connection that we made
	// "least-loaded", "given" or "same-core"; for one that we accepted
	// "table", "hint", "cpu" or "hash", and "session" if it had an owner
	// before; "moved" if the core that it was on was removed or failed.
	By string `json:"by"`
	// Reason is why Core is not Intended; empty if it is.
	Reason string `json:"reason,omitempty"`
}

// What chooses the core of a connection that we make.
const (
	byLoad = "least-loaded"
	byUser = "given"
	byConn = "same-core"
)

// byMove is what chooses a core in place of one that is gone.
const byMove = "moved"

// The reasons why a connection is not on the core that was meant.
const (
	reasonUnsteered = "unsteered"    // nothing steers our listeners
	reasonNoHint    = "no hint"      // the peer came from an ordinary port, or with a program without the hint rule
	reasonOther     = "another hint" // the peer's port named another core
	reasonMissed    = "missed"       // the rule named it, and the kernel took another
)

// PlacementCounters count accepted sockets by where they arrived.
type PlacementCounters struct {
	Intended  uint64 `json:"intended"`  // at the core that was meant
	Unsteered uint64 `json:"unsteered"` // at another one, as the rest: by reason
	NoHint    uint64 `json:"no_hint"`
	OtherHint uint64 `json:"other_hint"`
	Missed    uint64 `json:"missed"`
}

func (n *PlacementCounters) count(p Placement) {
	switch p.Reason {
	case "":
		n.Intended++
	case reasonUnsteered:
		n.Unsteered++
	case reasonNoHint:
		n.NoHint++
	case reasonOther:
		n.OtherHint++
	case reasonMissed:
		n.Missed++
	}
}

// pickCore places a new outgoing connection at the core with the fewest
// connections, in turn where several have as few, and at one that has failed or
// stands still only if all have. The lock is held.
func (m *Messenger) pickCore() *dataplane.Core {
	all := m.plane.All()
	n := len(all)
	var best *dataplane.Core
	least, healthy := 0, 0
	next := 0
	for i := range n {
		at := (m.nextCore + i) % n
		c := all[at]
		load, ok := c.Load(), fitness(c)
		if best == nil || ok > healthy || ok == healthy && load < least {
			best, least, healthy, next = c, load, ok, at+1
		}
	}
	m.nextCore = next % n
	return best
}

// fitness orders cores by whether they can be given work: those that turn, then
// those that stand still, then those that are gone or about to go.
func fitness(c *dataplane.Core) int {
	switch {
	case c.Healthy():
		return 2
	case c.State() == dataplane.CoreRunning:
		return 1
	}
	return 0
}

// placeable says whether the user may name a core.
func (m *Messenger) placeable(core int) error {
	if c := m.plane.Core(core); c == nil || c.State() == dataplane.CoreDraining {
		return fmt.Errorf("%w: core %d, there are %v", ErrConfig, core, m.Cores())
	}
	return nil
}

// place chooses the core of an outgoing connection. The lock is held.
func (m *Messenger) place(o *connectOptions) (*dataplane.Core, string, error) {
	switch {
	case o.with != nil:
		if o.with.m != m {
			return nil, "", fmt.Errorf("%w: SameCore with a connection of another messenger", ErrConfig)
		}
		return m.dialCore(o.with), byConn, nil
	case o.hasCore:
		if err := m.placeable(o.core); err != nil {
			return nil, "", err
		}
		return m.plane.Core(o.core), byUser, nil
	}
	return m.pickCore(), byLoad, nil
}

// SameCore has the core that owns c at this moment own the new connection, too:
// what a dispatcher of c sends on it then never changes threads. Without this and
// without OnCore the core with the fewest connections gets it.
func SameCore(c *Conn) ConnectOption { return func(o *connectOptions) { o.with = c } }

// dialled is the placement behind a dial of our own, which never leaves the
// core: by what chose it first, unless an accepted socket came between.
func (p Placement) dialled(core *dataplane.Core) Placement {
	by := "session"
	if p.By == byLoad || p.By == byUser || p.By == byConn {
		by = p.By
	}
	return Placement{Core: core.ID(), Intended: core.ID(), By: by}
}

// placement is the placement now. The lock is held.
func (c *Conn) placement() Placement {
	p := c.place
	p.Core = c.h.Core().ID()
	return p
}

// landed says whether an accepted socket arrived where it should; had is the
// core that owns its session, nil for a new one. The lock is held.
func (m *Messenger) landed(link *dataplane.Link, had *dataplane.Core) Placement {
	p := m.steer.judge(arrival{peer: link.PeerAddr(), core: link.Core().ID(), had: had, pins: m.pins})
	m.counters.Placement.count(p)
	return p
}

// arrival is an accepted socket: whose, and where.
type arrival struct {
	peer netip.AddrPort
	core int
	had  *dataplane.Core // owner of its session, nil for a new one
	pins bool            // the table has entries
}

// judge compares where a connection arrived with what the rules say.
func (s *steering) judge(a arrival) Placement {
	p := Placement{Core: a.core, Intended: a.core}
	hint := -1
	if s.takesHints() && s.policy.Hint.Contains(a.peer.Port()) {
		hint = int(a.peer.Port()) % s.policy.Cores
		if !s.live(hint) {
			hint = -1 // it leads nowhere
		}
	}
	pin, pinned := 0, false
	if a.pins {
		pin, pinned = s.pinned(a.peer)
	}
	switch {
	case pinned:
		p.By, p.Intended = "table", pin
	case a.had != nil:
		p.By, p.Intended = "session", a.had.ID()
	case hint >= 0:
		p.By, p.Intended = "hint", hint
	case s.active() && s.policy.Rules.Has(bpf.RuleCPU):
		p.By = "cpu"
	default:
		p.By = "hash"
	}
	switch {
	case p.Core == p.Intended:
	case !s.active():
		p.Reason = reasonUnsteered
	case p.By == "session" && hint < 0:
		p.Reason = reasonNoHint
	case p.By == "session" && hint != p.Intended:
		p.Reason = reasonOther
	default:
		p.Reason = reasonMissed
	}
	return p
}
