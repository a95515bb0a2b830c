package door

import (
	"cmp"
	"container/list"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config of a Door. Most, PerSource, PerPrefix and Patience are required.
type Config struct {
	// Most is how many connections may be half open.
	Most int
	// PerSource and PerPrefix are the shares of one source and of one prefix
	// (SourceOf, PrefixOf). They bind while more than half of Most is in use.
	PerSource int
	PerPrefix int
	// Patience is how long a connection that has made progress may stand still
	// before a newcomer can take its place.
	Patience time.Duration
	// Grace is how long a peer may be silent, once its handshake listens (Guest.Listen),
	// before a newcomer can take its place; 0: a newcomer takes it at once.
	Grace time.Duration
	// Line is how many newcomers may wait for a place, up to Rate.Longest, by Rate.Clock. The
	// shares bind while more than half of it is in use; 0: nobody waits.
	Line int
	// Bytes bounds the bytes that all guests together hold beyond OwnBytes each; 0: no bound.
	Bytes int64
	// Rate bounds the connections that come to nothing; zero: no bound.
	Rate Rate
}

// Shares is the usual configuration for a bound: a 16th for a source and a
// quarter for a prefix, but 8 and 32 at least, and a second of patience.
func Shares(most int) Config {
	return Config{
		Most: most, PerSource: max(most/16, min(most, 8)), PerPrefix: max(most/4, min(most, 32)), Patience: time.Second,
	}
}

// Waiting is cfg with a line for places of half as many as there are places, and a grace
// of a quarter of the patience. It needs Rate.Longest and Rate.Clock.
func (cfg Config) Waiting() Config {
	cfg.Grace, cfg.Line = cfg.Patience/4, cfg.Most/2
	return cfg
}

// ErrEvicted: an accepted connection gave its place among the half-open ones to a
// newcomer, as its peer was silent.
var ErrEvicted = errors.New("control: half-open connection gave way to a newcomer")

// Counters count the connections that a door has turned away since it was made.
type Counters struct {
	OverAll uint64 `json:"over_all"` // refused: all places taken, nobody gave way
	Source  uint64 `json:"source"`   // refused: the share of the source address
	Prefix  uint64 `json:"prefix"`   // refused: the share of the prefix
	Evicted uint64 `json:"evicted"`  // let in, and later gave way to a newcomer
	Memory  uint64 `json:"memory"`   // let in, and ended for a lack of room for the bytes that they sent
	Rate    uint64 `json:"rate"`     // refused: too many of the source or the prefix came to nothing
	Waited  uint64 `json:"waited"`   // let in after a wait, or evicted in it, for the same reason
	Lined   uint64 `json:"lined"`    // waited for a place
	Late    uint64 `json:"late"`     // of these, refused in the end: none became free in time
}

// Door lets connections in. All methods may be called by any goroutine, a
// core's too: the lock is held for a few steps, and for a few more for each guest that
// has made progress since it was held last. No other code runs under it.
type Door struct {
	cfg Config

	progress reports      // of guests, not in the lists yet
	queued   atomic.Int64 // how many wait for their turn; changes under mu

	mu       sync.Mutex // guards the fields below, and those of guests that name no other guard
	all      scope
	sources  map[netip.Prefix]*scope
	prefixes map[netip.Prefix]*scope
	counters Counters
	beyond   int64 // bytes, see Guest.Hold

	owedBySource, owedByPrefix debts
	turns                      lines     // of guests that wait for their turn, and hold a place
	rooms                      lines     // of guests that wait for a place (room.go)
	wakes                      time.Time // when next is going to be called; zero: not
	closed                     bool
}

// New makes a door.
func New(cfg Config) *Door {
	return &Door{
		cfg: cfg, sources: make(map[netip.Prefix]*scope), prefixes: make(map[netip.Prefix]*scope),
		owedBySource: newDebts(&cfg.Rate, 1), owedByPrefix: newDebts(&cfg.Rate, PrefixRate), turns: newLines(), rooms: newLines(),
	}
}

// Guest is one connection that was let in. One goroutine at a time uses it: the caller of
// Admit up to Begin, then the goroutine of the handshake. Methods of a nil Guest do nothing.
type Guest struct {
	door    *Door
	arrived time.Time
	atOnce  bool // it did not have to wait
	scopes  [scopes]*scope
	links   [scopes]link // its places in the lists of the scopes
	moved   bool         // it has made progress, as far as the lists know
	last    time.Time    // of that
	listens atomic.Int64 // when its handshake began to wait for the peer: since its arrival, plus 1; 0: it does not
	report  report       // of progress that the lists do not know of
	gone    bool
	evicted atomic.Bool            // changes under the lock
	spared  bool                   // it is not charged, as it is not to blame for its end
	evict   atomic.Pointer[func()] // until it is called
	waits   *list.Element          // its place in line, nil: it does not wait
	begin   func()                 // while it waits, see Begin

	// Of its goroutine, once it does not wait any more.
	held   int64 // bytes
	paid   bool  // it has been charged in advance
	passed bool  // it is not going to be charged any more
}

// Admit lets a connection in, or returns nil and the cause of the refusal.
func (d *Door) Admit(from netip.Addr, now time.Time) (*Guest, Cause) {
	source, prefix := SourceOf(from), PrefixOf(from)
	d.mu.Lock()
	wait, roomInLine := d.mustWait(source, prefix, now)
	victim, cause, lines := (*Guest)(nil), TooMany, false
	if !wait || roomInLine {
		victim, cause, lines = d.roomOrLine(source, prefix, !wait, now)
	}
	if cause != Admitted {
		d.count(cause)
		d.mu.Unlock()
		return nil, cause
	}
	var evict, begin func()
	if victim != nil {
		d.counters.Evicted++
		evict, begin = d.evict(victim)
	}
	g := &Guest{door: d, arrived: now, atOnce: !wait && !lines}
	g.scopes = [scopes]*scope{inAll: &d.all, inSource: scopeOf(d.sources, source), inPrefix: scopeOf(d.prefixes, prefix)}
	switch {
	case lines:
		d.joinRoom(g)
	case wait:
		d.list(g)
		d.join(g)
	default:
		d.list(g)
	}
	d.mu.Unlock()
	if evict != nil {
		evict()
	}
	if begin != nil {
		begin() // it finds out that it has to go
	}
	if wait || lines {
		d.next()
	}
	return g, Admitted
}

// evict has a guest go. The lock is held. The caller calls the returned functions that are
// not nil without the lock: begin is set for a guest that has waited up to now.
func (d *Door) evict(g *Guest) (evict, begin func()) {
	g.evicted.Store(true)
	if g.waits != nil || g.listens.Load() == 0 {
		g.spared = true // it has cost nothing yet, or the peer waits for us
	}
	d.unlist(g, 1)
	return g.takeEvict(), d.leaveLine(g)
}

// takeEvict returns the function of OnEvict, to the first caller only.
func (g *Guest) takeEvict() func() {
	if f := g.evict.Swap(nil); f != nil {
		return *f
	}
	return nil
}

// Cause says why a connection was refused.
type Cause uint8

// The causes.
const (
	Admitted   Cause = iota // it was not
	FullDoor                // all places are taken, and nobody gives way
	FullSource              // the same for the share of its source
	FullPrefix              // the same for the share of its prefix
	TooMany                 // too many of its source or prefix came to nothing, and enough of its source wait
)

var causeNames = [...]string{
	"admitted", "no room", "no room for its source address", "no room for its prefix", "too many of its source come to nothing",
}

// String is the cause in a few words.
func (c Cause) String() string { return causeNames[c] }

func (d *Door) count(c Cause) {
	n := &d.counters
	*[...]*uint64{FullDoor: &n.OverAll, FullSource: &n.Source, FullPrefix: &n.Prefix, TooMany: &n.Rate}[c]++
}

// room returns the guest whose place a newcomer takes, nil if a place is free, or the cause
// of a refusal. The lock is held.
func (d *Door) room(source, prefix netip.Prefix, now time.Time) (*Guest, Cause) {
	if d.all.n <= d.cfg.Most/2 && d.all.n < d.cfg.Most {
		return nil, Admitted
	}
	if d.all.leaving+d.all.waiting >= d.cfg.Most {
		return nil, FullDoor
	}
	if s := d.sources[source]; s != nil {
		if s.leaving >= d.cfg.PerSource {
			return nil, FullSource
		}
		if s.n >= d.cfg.PerSource {
			return d.victim(s, now, FullSource)
		}
	}
	if s := d.prefixes[prefix]; s != nil && s.n >= d.cfg.PerPrefix {
		return d.victim(s, now, FullPrefix)
	}
	if d.all.n < d.cfg.Most {
		return nil, Admitted
	}
	return d.victim(&d.all, now, FullDoor)
}

// victim is the guest of a scope that gives way: the oldest silent one, if its grace is over,
// else the one that has stood still for longest, if that is long enough. The lock is held.
func (d *Door) victim(s *scope, now time.Time, full Cause) (*Guest, Cause) {
	d.relistMoved()
	if g := s.silent.first; g != nil && (g.waits != nil || g.listened(now) >= d.cfg.Grace) {
		return g, Admitted
	}
	if g := s.moving.first; g != nil && now.Sub(g.last) >= d.cfg.Patience {
		return g, Admitted
	}
	return nil, full
}

// OnEvict has f called once the guest has to go, at once if that is decided
// already. It must not block: the newcomer's core calls it.
func (g *Guest) OnEvict(f func()) {
	if g == nil {
		return
	}
	g.evict.Store(&f)
	if g.evicted.Load() {
		if f := g.takeEvict(); f != nil {
			f()
		}
	}
}

// Listen says that the handshake waits for the peer from now on, until Progress; before, and
// from Progress on, the peer waits for us. A second call changes nothing. It takes no lock.
func (g *Guest) Listen(now time.Time) {
	if g != nil && g.listens.Load() == 0 {
		g.listens.Store(int64(max(now.Sub(g.arrived), 0)) + 1)
	}
}

// listened is for how long the handshake has waited for the peer.
func (g *Guest) listened(now time.Time) time.Duration {
	if since := g.listens.Load(); since > 0 {
		return now.Sub(g.arrived) - time.Duration(since-1)
	}
	return 0
}

// Progress says that the peer has done a step of the handshake. It takes no lock.
func (g *Guest) Progress(now time.Time) {
	if g != nil {
		g.listens.Store(0)
		g.door.progress.add(g, now.Sub(g.arrived))
	}
}

// Leave gives the place back: the connection is open, or closed. Without Passed
// it has come to nothing. A second call does nothing.
func (g *Guest) Leave() {
	if g == nil {
		return
	}
	d := g.door
	var now time.Time
	if d.cfg.Rate.PerSecond > 0 {
		now = d.cfg.Rate.Clock.Now()
	}
	d.mu.Lock()
	d.relistMoved() // the reports do not keep a guest that has gone
	d.release(g)
	g.fail(now)
	switch {
	case g.gone:
	case g.evicted.Load():
		d.left(g)
	default:
		d.unlist(g, 0)
	}
	g.gone = true
	lined := d.all.waiting > 0
	d.mu.Unlock()
	if lined {
		d.next() // there is room
	}
}

// Counters takes a snapshot.
func (d *Door) Counters() Counters {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counters
}

// A guest makes progress at each step of its handshake, and its place in the lists
// matters only when a guest has to give way. So the guest does not move in the lists at
// once: it reports, without the lock, and the next user of the lists, which holds the
// lock, brings them up to date. The reports are younger than the lists and are taken in
// the order of their times, so the result is the same as if each step had moved its guest.

// reports are the guests that have made progress since the last take.
type reports struct {
	head  atomic.Pointer[Guest] // linked by report.next
	taken []*Guest              // by take; reused, and guarded by the door's lock
}

// report is the progress of one guest.
type report struct {
	at     atomic.Int64 // the time of its last step: since its arrival, in nanoseconds
	listed atomic.Bool  // it is among the reports
	next   *Guest
	seen   time.Duration // at, as take has found it; guarded by the door's lock
}

// add reports a step of g. Any goroutine, but one at a time for each guest.
func (r *reports) add(g *Guest, at time.Duration) {
	g.report.at.Store(int64(at))
	if !g.report.listed.CompareAndSwap(false, true) {
		return // it is listed, and take reads its time later
	}
	for {
		old := r.head.Load()
		g.report.next = old
		if r.head.CompareAndSwap(old, g) {
			return
		}
	}
}

// take empties the reports and returns the guests, the one with the oldest step first.
// The result holds until forget. The door's lock is held.
func (r *reports) take() []*Guest {
	if r.head.Load() == nil {
		return nil
	}
	for g := r.head.Swap(nil); g != nil; {
		next := g.report.next
		g.report.next = nil
		g.report.listed.Store(false) // a step from here on is a new report
		g.report.seen = time.Duration(g.report.at.Load())
		r.taken = append(r.taken, g)
		g = next
	}
	slices.Reverse(r.taken) // reports of one moment in the order in which they came
	slices.SortStableFunc(r.taken, func(a, b *Guest) int {
		return cmp.Compare(a.arrived.Add(a.report.seen).Sub(b.arrived), b.report.seen)
	})
	return r.taken
}

// forget drops the reports that take has returned. The door's lock is held.
func (r *reports) forget() {
	clear(r.taken)
	r.taken = r.taken[:0]
}

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
	if s.n == 0 && s.leaving == 0 && s.waiting == 0 {
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
