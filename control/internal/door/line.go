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
	for moved := true; moved; {
		moved, again = false, 0
		for e := d.turns.list.Front(); e != nil; {
			l := e.Value.(*line)
			e = e.Next() // l may be removed
			g := l.guests.Front().Value.(*Guest)
			wait, late := d.owes(l.source, l.prefix, now), d.cfg.Rate.Longest-now.Sub(g.last)
			var f func()
			switch {
			case wait == 0 || d.closed:
				d.charge(l.source, l.prefix, now)
				g.paid = true
				f = d.leaveLine(g)
			case late <= 0:
				d.counters.Evicted++
				_, f = d.evict(g)
			default:
				if wait = min(wait, late); again == 0 || wait < again {
					again = wait
				}
				continue
			}
			moved = true
			if f != nil {
				begin = append(begin, f)
			}
		}
	}
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
