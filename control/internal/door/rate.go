package door

import (
	"container/list"
	"net/netip"
	"time"
)

// Rate bounds the connections of a source that come to nothing: handshakes that fail or
// are given up, and connections that the caller reports (Door.CameToNothing). Successful
// connections are not counted, so any number of honest peers come in at once.
type Rate struct {
	// PerSecond is how many of a source may come to nothing in a second, in the
	// long run; 0: any number, and the other fields mean nothing.
	PerSecond int
	// Burst is how many may do so at once. Both are PrefixRate times as much for
	// a prefix.
	Burst int
	// Line is how many of a source may wait, and Longest for how long.
	Line    int
	Longest time.Duration
	// Kept is of how many sources, and of how many prefixes, it is known how much
	// came to nothing: at the bound the one that was quiet for longest is forgotten.
	Kept int
	// Clock is the clock of the waiting guests.
	Clock Clock
}

// Clock is control.Clock.
type Clock interface {
	Now() time.Time
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// PrefixRate is how much more of a prefix than of a source may come to nothing.
const PrefixRate = 4

// debts count the failed connections of each source or each prefix that are not forgiven
// yet. The door's lock guards them.
type debts struct {
	each  time.Duration // one is forgiven in that time; 0: nothing is counted
	most  time.Duration // is owed by whom the next one may still begin
	kept  int
	of    map[netip.Prefix]*list.Element
	order list.List // of *debt, in the order of the last charge
}

// debt is the count of one source or prefix.
type debt struct {
	of    netip.Prefix
	until time.Time // when all of it is forgiven
}

// atMost is how long nobody of a source begins after many have come to nothing at
// the same time.
const atMost = time.Second

func newDebts(r *Rate, times int) debts {
	d := debts{kept: r.Kept, of: make(map[netip.Prefix]*list.Element)}
	if r.PerSecond > 0 {
		d.each = max(time.Second/time.Duration(r.PerSecond*times), 1)
		d.most = d.each * time.Duration(max(r.Burst, 1)*times)
	}
	return d
}

// wait is in how long one more may begin; 0: now.
func (d *debts) wait(of netip.Prefix, now time.Time) time.Duration {
	e := d.of[of]
	if e == nil {
		return 0
	}
	owed := e.Value.(*debt)
	d.bound(owed, now)
	return max(owed.until.Sub(now)+d.each-d.most, 0)
}

// bound has nobody owe more than there can be: of a clock that was set back, too.
func (d *debts) bound(owed *debt, now time.Time) {
	if owed.until.Sub(now) > d.most+atMost {
		owed.until = now.Add(d.most + atMost)
	}
}

// charge counts one that came to nothing, or may do so.
func (d *debts) charge(of netip.Prefix, now time.Time) {
	if d.each == 0 {
		return
	}
	e := d.of[of]
	if e == nil {
		e = d.order.PushBack(&debt{of: of, until: now})
		d.of[of] = e
	}
	owed := e.Value.(*debt)
	if owed.until.Before(now) {
		owed.until = now
	}
	owed.until = owed.until.Add(d.each)
	d.bound(owed, now)
	d.order.MoveToBack(e)
	for e := d.order.Front(); len(d.of) > d.kept || !e.Value.(*debt).until.After(now); e = d.order.Front() {
		d.forget(e)
	}
}

// refund takes a charge back.
func (d *debts) refund(of netip.Prefix, now time.Time) {
	e := d.of[of]
	if e == nil {
		return
	}
	owed := e.Value.(*debt)
	if owed.until = owed.until.Add(-d.each); !owed.until.After(now) {
		d.forget(e)
	}
}

func (d *debts) forget(e *list.Element) {
	delete(d.of, e.Value.(*debt).of)
	d.order.Remove(e)
}

// CameToNothing says that a connection of that address which was let in has
// ended, and was of no use.
func (d *Door) CameToNothing(from netip.Addr, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.charge(SourceOf(from), PrefixOf(from), now)
}

func (d *Door) charge(source, prefix netip.Prefix, now time.Time) {
	d.owedBySource.charge(source, now)
	d.owedByPrefix.charge(prefix, now)
}

// owes is in how long one more of a source may begin; 0: now. The lock is held.
func (d *Door) owes(source, prefix netip.Prefix, now time.Time) time.Duration {
	return max(d.owedBySource.wait(source, now), d.owedByPrefix.wait(prefix, now))
}
