package door

import (
	"net/netip"
	"time"
)

// A newcomer that finds no place waits for one, so that no guest is evicted that makes
// progress or has been silent for less than Config.Grace. Its socket is open, no goroutine
// reads it, and it holds no place. The line of each source moves when a guest leaves or may
// be evicted, first come first served, and the lines of several sources take turns. The wait
// is not charged.
//
// A newcomer that finds the line full is refused. So a source that floods us with silent
// sockets gets a place for each silent one whose grace is over, and these are charged.

// roomOrLine is room, for a newcomer that may wait for a place if mayWait; lines says that it
// has to. The lock is held.
func (d *Door) roomOrLine(source, prefix netip.Prefix, mayWait bool, now time.Time) (victim *Guest, cause Cause, lines bool) {
	if d.rooms.of[source] == nil { // else others of it are before this one
		victim, cause = d.room(source, prefix, now)
	} else {
		cause = FullSource
	}
	if cause == Admitted || !mayWait || d.closed || d.all.waiting >= d.cfg.Line {
		return victim, cause, false
	}
	if s, p := d.sources[source], d.prefixes[prefix]; d.all.waiting >= d.cfg.Line/2 &&
		(s != nil && s.waiting >= d.cfg.PerSource || p != nil && p.waiting >= d.cfg.PerPrefix) {
		return nil, cause, false
	}
	return nil, Admitted, true
}

// joinRoom puts a guest at the end of the line for places of its source. The lock is held.
func (d *Door) joinRoom(g *Guest) {
	d.rooms.push(g)
	for _, s := range g.scopes {
		s.waiting++
	}
	d.counters.Lined++
}

// leaveRoom takes a guest out of its line, and returns its function of Begin. The lock is held.
func (d *Door) leaveRoom(g *Guest) (begin func()) {
	d.rooms.remove(g)
	for _, s := range g.scopes {
		s.waiting--
	}
	begin, g.begin = g.begin, nil
	return begin
}

// giveRoom gives places to waiting guests, one of each line after the other, and ends guests
// that have waited for too long. The lock is held; the caller calls the returned functions
// without it. again is the time until the next look, 0 if no guest waits.
func (d *Door) giveRoom(now time.Time) (call []func(), again time.Duration) {
	again = d.rooms.each(func(l *line, g *Guest) time.Duration {
		late := d.cfg.Rate.Longest - now.Sub(g.arrived)
		wait, _ := d.mustWait(l.source, l.prefix, now)
		victim, cause := (*Guest)(nil), TooMany
		if !wait {
			victim, cause = d.room(l.source, l.prefix, now)
		}
		switch {
		case d.closed || late <= 0:
			call = append(call, d.giveUp(g))
		case cause == Admitted:
			if victim != nil {
				d.counters.Evicted++
				evict, begin := d.evict(victim)
				call = append(call, evict, begin)
			}
			call = append(call, d.leaveRoom(g))
			d.list(g)
		default:
			return min(late, d.cfg.Patience/20) // somebody may have to give way by then
		}
		return 0
	})
	return call, again
}

// giveUp has a guest go that has waited for a place in vain. It is not to blame. The lock is held.
func (d *Door) giveUp(g *Guest) (begin func()) {
	d.counters.Late++
	g.spared = true
	g.evicted.Store(true)
	begin = d.leaveRoom(g)
	for _, s := range g.scopes {
		s.leaving++
	}
	return begin
}

// OwnBytes is the number of sent and received bytes that each guest may hold, however much
// the others hold. Real handshakes take two or three thousand.
const OwnBytes = 8 << 10

// Hold says that the handshake of a guest is about to keep n more bytes. Bytes beyond
// OwnBytes come out of Config.Bytes, which all guests share; Hold returns false if there is
// no room left, and then counts nothing. Leave gives all bytes back.
func (g *Guest) Hold(n int) bool {
	if g == nil {
		return true
	}
	beyond := max(g.held+int64(n)-OwnBytes, 0) - max(g.held-OwnBytes, 0)
	if beyond <= 0 {
		g.held += int64(n) // nobody else has to know
		return true
	}
	d := g.door
	d.mu.Lock()
	defer d.mu.Unlock()
	if g.gone || d.cfg.Bytes > 0 && d.beyond+beyond > d.cfg.Bytes {
		d.counters.Memory++
		return false
	}
	g.held += int64(n)
	d.beyond += beyond
	return true
}

// release gives back the bytes of a guest. The lock is held.
func (d *Door) release(g *Guest) {
	d.beyond -= max(g.held-OwnBytes, 0)
	g.held = 0
}
