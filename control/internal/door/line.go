package door

import (
	"container/list"
	"net/netip"
	"time"
)

// A newcomer whose source has too many failures waits. Its socket is open, and no
// goroutine reads it. The line of each source moves as its failures are forgiven, first
// come first served, and the lines of several sources take turns. A guest that begins
// counts as a failure in advance, until Passed: so a line of honest peers moves at the
// speed of their handshakes.

// line are the waiting guests of one source. The door's lock guards it.
type line struct {
	source, prefix netip.Prefix
	guests         list.List // of *Guest, oldest first
}

// shortestWait keeps the timer from running all the time.
const shortestWait = time.Millisecond

// lines are the lines of all sources, each of which has one, in the order of their turns. The
// door's lock guards them.
type lines struct {
	list list.List // of *line
	of   map[netip.Prefix]*list.Element
}

func newLines() lines { return lines{of: make(map[netip.Prefix]*list.Element)} }

// push puts a guest at the end of the line of its source.
func (l *lines) push(g *Guest) {
	source := g.scopes[inSource].key
	e := l.of[source]
	if e == nil {
		e = l.list.PushBack(&line{source: source, prefix: g.scopes[inPrefix].key})
		l.of[source] = e
	}
	g.waits = e.Value.(*line).guests.PushBack(g)
}

// remove takes a guest out of its line.
func (l *lines) remove(g *Guest) {
	e := l.of[g.scopes[inSource].key]
	of := e.Value.(*line)
	of.guests.Remove(g.waits)
	g.waits = nil
	if of.guests.Len() == 0 {
		delete(l.of, of.source)
		l.list.Remove(e)
	}
}

// each asks for the first guest of each line in how long it may go on, as long as one has: 0 is
// for one that has left its line. again is the time until the next look, 0 if no guest waits.
func (l *lines) each(ask func(of *line, g *Guest) (wait time.Duration)) (again time.Duration) {
	for moved := true; moved; {
		moved, again = false, 0
		for e := l.list.Front(); e != nil; {
			of := e.Value.(*line)
			e = e.Next() // of may be removed
			switch wait := ask(of, of.guests.Front().Value.(*Guest)); {
			case wait == 0:
				moved = true
			case again == 0 || wait < again:
				again = wait
			}
		}
	}
	return again
}

// mustWait says whether a newcomer has to wait, and whether there is room for it
// in the line. The lock is held.
func (d *Door) mustWait(source, prefix netip.Prefix, now time.Time) (wait, room bool) {
	e := d.turns.of[source]
	if e == nil {
		return d.owes(source, prefix, now) > 0, !d.closed
	}
	return true, !d.closed && e.Value.(*line).guests.Len() < d.cfg.Rate.Line
}

// join puts a guest at the end of the line of its source. The lock is held.
func (d *Door) join(g *Guest) {
	d.turns.push(g)
	d.queued.Add(1)
	d.counters.Waited++
}

// leaveLine takes a waiting guest out of its line, and returns its function of Begin. The
// lock is held.
func (d *Door) leaveLine(g *Guest) (begin func()) {
	if g.waits == nil {
		return nil
	}
	d.turns.remove(g)
	d.queued.Add(-1)
	begin, g.begin = g.begin, nil
	return begin
}

// Begin calls f when the guest may begin its handshake: at once for most guests, else
// later on any goroutine. It also calls f for a guest that is evicted while it waits, or
// has waited for too long; the function of OnEvict is called before. f must not block.
func (g *Guest) Begin(f func()) {
	if g.atOnce {
		f()
		return
	}
	d := g.door
	d.mu.Lock()
	if g.waits != nil {
		g.begin = f
		d.mu.Unlock()
		return
	}
	d.mu.Unlock()
	f()
}

// Passed says that the handshake has come to something, or that its peer is not
// to blame.
func (g *Guest) Passed() {
	if g == nil || g.door.cfg.Rate.PerSecond <= 0 {
		return
	}
	d := g.door
	if !g.paid && d.queued.Load() == 0 {
		g.passed = true
		return
	}
	now := d.cfg.Rate.Clock.Now()
	d.mu.Lock()
	g.passed = true
	if g.paid {
		g.paid = false
		d.owedBySource.refund(g.scopes[inSource].key, now)
		d.owedByPrefix.refund(g.scopes[inPrefix].key, now)
	}
	waiting := d.turns.list.Len() > 0
	d.mu.Unlock()
	if waiting {
		d.next()
	}
}

// Failed says that the handshake has come to nothing. Without it and Passed, Leave
// does.
func (g *Guest) Failed(now time.Time) {
	if g == nil {
		return
	}
	g.door.mu.Lock()
	defer g.door.mu.Unlock()
	g.fail(now)
}

// fail charges a guest once, unless it has paid. The door's lock is held.
func (g *Guest) fail(now time.Time) {
	if !g.passed && !g.paid && !g.spared {
		g.door.charge(g.scopes[inSource].key, g.scopes[inPrefix].key, now)
	}
	g.passed = true
}

// next lets the guests begin whose turn it is, and runs again for the next turn.
func (d *Door) next() {
	now := d.cfg.Rate.Clock.Now()
	d.mu.Lock()
	begin, again := d.takeTurns(now)
	call, sooner := d.giveRoom(now)
	begin = append(begin, call...)
	if again == 0 || sooner > 0 && sooner < again {
		again = sooner
	}
	at := now.Add(max(again, shortestWait))
	arm := again > 0 && (d.wakes.IsZero() || at.Before(d.wakes))
	if arm {
		d.wakes = at
	}
	d.mu.Unlock()
	for _, f := range begin {
		if f != nil {
			f()
		}
	}
	if arm {
		d.cfg.Rate.Clock.AfterFunc(at.Sub(now), func() {
			d.mu.Lock()
			if d.wakes.Equal(at) { // else an earlier one was armed since
				d.wakes = time.Time{}
			}
			d.mu.Unlock()
			d.next()
		})
	}
}

// takeTurns takes the guests out of the lines that may begin, or that have waited for too
// long, one of each line after the other; again is the time until the next look, 0 if no
// guest waits. The lock is held.
func (d *Door) takeTurns(now time.Time) (begin []func(), again time.Duration) {
	again = d.turns.each(func(l *line, g *Guest) time.Duration {
		wait, late := d.owes(l.source, l.prefix, now), d.cfg.Rate.Longest-now.Sub(g.arrived)
		switch {
		case wait == 0 || d.closed:
			d.charge(l.source, l.prefix, now)
			g.paid = true
			begin = append(begin, d.leaveLine(g))
		case late <= 0:
			d.counters.Evicted++
			_, f := d.evict(g)
			begin = append(begin, f)
		default:
			return min(wait, late)
		}
		return 0
	})
	return begin, again
}

// Close lets nobody wait any more.
func (d *Door) Close() {
	if d.cfg.Rate.Clock == nil {
		return // nobody waits
	}
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.next()
}

// Waiting is how many wait for their turn, or for a place.
func (d *Door) Waiting() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return int(d.queued.Load()) + d.all.waiting
}

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
