package simnet

import (
	"container/heap"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"
)

// Options of a network. The zero value is a fast and faultless one.
type Options struct {
	// Latency of every segment, and what is added at random.
	Latency time.Duration
	Jitter  time.Duration
	// Segment is the largest piece in which bytes travel, 0: 64 KiB. Every
	// other piece is cut at a random size below it.
	Segment int
	// Whole leaves pieces uncut, for tests that count.
	Whole bool
	// Window is how many bytes a direction takes before its sender waits; 0:
	// 256 KiB.
	Window int
	// ReceiveBuffers is how many bytes of receive buffers a driver has, for
	// uring.KindReceive, which then works; 0: none.
	ReceiveBuffers int
	// ResetEvery resets a connection once in so many segments, on average; 0:
	// never.
	ResetEvery int
	// Wake, if not nil, is called when a core that was not Busy is given work: for who
	// sleeps until then. Any goroutine calls it.
	Wake func()
	// Trace, if not nil, gets a line for every event.
	Trace io.Writer
}

// Network connects hosts. It is used by one goroutine at a time.
type Network struct {
	opt    Options
	rng    *rand.Rand
	now    atomic.Int64 // any goroutine may read it
	seq    uint64
	events agenda
	hosts  []*Host
	byIP   map[netip.Addr]*Host
	nextID int
	hash   uint64
	cut    map[[2]*Host]bool // segments are kept until the cut heals, as TCP retransmits
	counts Counts
}

// Counts count the faults of the network, so that a test sees that they happened.
type Counts struct {
	Resets int // all
	Ours   int // of these, by Driver.Reset
}

// firstID is above what the kernel hands out as a descriptor, so that a number
// of the simulation which gets into a real system call hits nothing.
const firstID = 1 << 24

// New makes a network whose every choice comes from seed.
func New(seed uint64, opt Options) *Network {
	if opt.Segment == 0 {
		opt.Segment = 64 << 10
	}
	if opt.Window == 0 {
		opt.Window = 256 << 10
	}
	return &Network{
		opt: opt, rng: rand.New(rand.NewPCG(seed, 0x72696e676d736772)),
		byIP: make(map[netip.Addr]*Host), cut: make(map[[2]*Host]bool), nextID: firstID,
	}
}

// Rand is the network's source of choices, for the test that drives it.
func (n *Network) Rand() *rand.Rand { return n.rng }

// Now is the virtual time since the start. It is a dataplane clock: any goroutine may
// read it.
func (n *Network) Now() time.Duration { return time.Duration(n.now.Load()) }

// Counts says what has happened so far.
func (n *Network) Counts() Counts { return n.counts }

// Hash sums up everything that has happened: equal for equal runs.
func (n *Network) Hash() uint64 { return n.hash }

// Note adds a line to the trace, and what it says to Hash.
func (n *Network) Note(format string, args ...any) {
	n.mix(uint64(n.Now()))
	n.mixString(format)
	for _, a := range args {
		switch v := a.(type) {
		case int:
			n.mix(uint64(v))
		case uint64:
			n.mix(v)
		case bool:
			if v {
				n.mix(1)
			} else {
				n.mix(2)
			}
		case string:
			n.mixString(v)
		default:
			n.mixString(fmt.Sprint(v))
		}
	}
	if n.opt.Trace != nil {
		_, _ = fmt.Fprintf(n.opt.Trace, "%12d "+format+"\n", append([]any{n.Now()}, args...)...)
	}
}

func (n *Network) mixString(s string) {
	for i := range len(s) {
		n.mix(uint64(s[i]))
	}
	n.mix(uint64(len(s)))
}

// mix adds one value to the hash (FNV-1a).
func (n *Network) mix(v uint64) { n.hash = (n.hash ^ v) * 1099511628211 }

// noteLand is Note for the one event that there are many of.
func (n *Network) noteLand(from, to, size int, last bool) {
	n.mix(uint64(n.Now()))
	n.mix(uint64(from)<<32 | uint64(size))
	if n.opt.Trace != nil {
		_, _ = fmt.Fprintf(n.opt.Trace, "%12d land %d>%d %d bytes end=%v\n", n.Now(), from, to, size, last)
	}
}

// Host adds a host with an address.
func (n *Network) Host(ip netip.Addr) *Host {
	h := &Host{net: n, ip: ip, port: 40000, listeners: make(map[uint16][]*listener), ends: make(map[int]*end)}
	n.hosts = append(n.hosts, h)
	n.byIP[ip] = h
	return h
}

// After schedules f at a virtual time from now.
func (n *Network) After(d time.Duration, f func()) {
	heap.Push(&n.events, &event{at: n.Now() + max(d, 0), seq: n.number(), run: f})
}

// number orders what is scheduled.
func (n *Network) number() uint64 {
	n.seq++
	return n.seq
}

// Next is when the earliest event is due.
func (n *Network) Next() (at time.Duration, ok bool) {
	if len(n.events) == 0 {
		return 0, false
	}
	return n.events[0].at, true
}

// Step runs the earliest event if it is due, and says whether there was one.
func (n *Network) Step() bool {
	at, ok := n.Next()
	if !ok || at > n.Now() {
		return false
	}
	heap.Pop(&n.events).(*event).happen()
	return true
}

// Advance moves the time forward, at most to the earliest event.
func (n *Network) Advance(to time.Duration) {
	if at, ok := n.Next(); ok && at < to {
		to = at
	}
	n.now.Store(int64(max(n.Now(), to)))
}

// Quiet ends all faults: cuts heal, and nothing is reset any more.
func (n *Network) Quiet() {
	n.opt.ResetEvery = 0
	for _, a := range n.hosts {
		for _, b := range n.hosts {
			if n.cut[[2]*Host{a, b}] {
				n.Heal(a, b)
			}
		}
	}
}

// Cut stops everything that travels from a to b, until Heal. Connections stay
// up, as they do when packets are lost: what was sent waits.
func (n *Network) Cut(a, b *Host) {
	n.Note("cut %v>%v", a.ip, b.ip)
	n.cut[[2]*Host{a, b}] = true
}

// Heal undoes Cut.
func (n *Network) Heal(a, b *Host) {
	n.Note("heal %v>%v", a.ip, b.ip)
	delete(n.cut, [2]*Host{a, b})
	for _, e := range a.ordered() {
		if e.peer != nil && e.peer.host == b {
			e.pump()
		}
	}
	for _, e := range b.ordered() { // what was closed at a may still have to arrive
		if e.peer != nil && e.peer.host == a {
			e.peer.pump()
		}
	}
}

// delay is how long one segment travels.
func (n *Network) delay() time.Duration { return n.random(n.opt.Latency, n.opt.Jitter) }

// random is a time from least on, with what is added at random.
func (n *Network) random(least, jitter time.Duration) time.Duration {
	if jitter > 0 {
		least += time.Duration(n.rng.Int64N(int64(jitter)))
	}
	return least
}

// event is something at a time: the arrival of a segment, or a call. Events of
// one time happen in the order in which they were scheduled.
type event struct {
	at  time.Duration
	seq uint64
	run func() // nil: an arrival

	from, to *end
	seg      []byte
	last     bool
}

func (e *event) happen() {
	if e.from != nil {
		e.from.land(e.to, e.seg, e.last)
		return
	}
	e.run()
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// agenda is a heap of events, the earliest first (container/heap).
type agenda []*event

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].before(a[j]) }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(e any)        { *a = append(*a, e.(*event)) }

func (a *agenda) Pop() any {
	last := len(*a) - 1
	e := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	return e
}
