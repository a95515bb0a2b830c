package door

import (
	"net/netip"
	"time"
)

// A guest is in three scopes.
const (
	inAll = iota
	inSource
	inPrefix
	scopes
)

// scope is a set of guests that share a bound: all guests, those of a source, or those of
// a prefix. The door's lock guards it.
type scope struct {
	n       int
	leaving int   // evicted, and not gone yet: they still hold their memory
	waiting int   // for a place
	silent  queue // by arrival
	moving  queue // by their last progress
	from    map[netip.Prefix]*scope
	key     netip.Prefix
}

// queue is guests in a row, oldest first, linked through their places of one
// scope.
type queue struct{ first, last *Guest }

// link is a guest's place in a queue.
type link struct{ prev, next *Guest }

func (l *queue) push(g *Guest, at int) {
	g.links[at] = link{prev: l.last}
	if l.last == nil {
		l.first = g
	} else {
		l.last.links[at].next = g
	}
	l.last = g
}

func (l *queue) remove(g *Guest, at int) {
	k := g.links[at]
	if k.prev == nil {
		l.first = k.next
	} else {
		k.prev.links[at].next = k.next
	}
	if k.next == nil {
		l.last = k.prev
	} else {
		k.next.links[at].prev = k.prev
	}
	g.links[at] = link{}
}

// of is the queue in which a guest belongs.
func (s *scope) of(g *Guest) *queue {
	if g.moved {
		return &s.moving
	}
	return &s.silent
}

// scopeOf finds a scope, or makes one.
func scopeOf(from map[netip.Prefix]*scope, key netip.Prefix) *scope {
	s := from[key]
	if s == nil {
		s = &scope{from: from, key: key}
		from[key] = s
	}
	return s
}

// list puts a guest at the end of the lists of its scopes.
func (d *Door) list(g *Guest) {
	for at, s := range g.scopes {
		s.n++
		s.of(g).push(g, at)
	}
}

// unlist takes a guest out of its scopes. leaving is 1 if it was evicted, else 0.
func (d *Door) unlist(g *Guest, leaving int) {
	for at, s := range g.scopes {
		s.of(g).remove(g, at)
		s.n--
		s.leaving += leaving
		s.forget()
	}
}

// left says that an evicted guest is gone.
func (d *Door) left(g *Guest) {
	for _, s := range g.scopes {
		s.leaving--
		s.forget()
	}
}

// forget drops a scope that is empty.
func (s *scope) forget() {
	if s.n == 0 && s.leaving == 0 && s.waiting == 0 && s.from != nil {
		delete(s.from, s.key)
	}
}

// relistMoved brings the lists up to date. The lock is held.
func (d *Door) relistMoved() {
	for _, g := range d.progress.take() {
		if !g.gone && !g.evicted.Load() {
			d.relist(g, g.arrived.Add(g.report.seen))
		}
	}
	d.progress.forget()
}

// relist moves a guest to the end of the list of those that have made progress.
func (d *Door) relist(g *Guest, now time.Time) {
	for at, s := range g.scopes {
		s.of(g).remove(g, at)
	}
	g.moved, g.last = true, now
	for at, s := range g.scopes {
		s.of(g).push(g, at)
	}
}

// SourceOf is the source of an address: the IPv4 address, or the IPv6 /64 in which a host
// chooses its addresses.
func SourceOf(a netip.Addr) netip.Prefix { return prefixOf(a, 32, 64) }

// PrefixOf is the prefix of an address: an IPv4 /24, or an IPv6 /48.
func PrefixOf(a netip.Addr) netip.Prefix { return prefixOf(a, 24, 48) }

func prefixOf(a netip.Addr, v4, v6 int) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := v6
	if a.Is4() {
		bits = v4
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return netip.Prefix{} // no address: all of those are one source
	}
	return p
}
