package simnet

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/stepped"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Host is one machine, or one process: it has an address, listeners and
// connections.
type Host struct {
	net       *Network
	ip        netip.Addr
	port      uint16 // last ephemeral one
	listeners map[uint16][]*listener
	ends      map[int]*end
	dead      bool // without power
	disk      *Disk
}

// IP is the host's address.
func (h *Host) IP() netip.Addr { return h.ip }

// ordered are the host's connections by age.
func (h *Host) ordered() []*end {
	return slices.SortedFunc(maps.Values(h.ends), func(a, b *end) int { return a.id - b.id })
}

// ResetAll resets every connection of the host at once, at both ends.
func (h *Host) ResetAll() {
	h.net.Note("reset all of %v", h.ip)
	for _, e := range h.ordered() {
		e.reset()
	}
}

// ResetSome resets one connection of the host, chosen at random.
func (h *Host) ResetSome() { h.some("reset %d", (*end).reset) }

// EndSome has the network end one connection of the host, chosen at random, in
// one direction: the other end reads the end of the stream.
func (h *Host) EndSome() { h.some("end %d", (*end).finish) }

// ForgetSome has the network forget one connection of the host, chosen at
// random: nothing travels on it any more, and neither end is told.
func (h *Host) ForgetSome() { h.some("forget %d", (*end).forget) }

// some does something to one connection, if there is one.
func (h *Host) some(note string, do func(*end)) {
	if list := h.ordered(); len(list) > 0 {
		e := list[h.net.rng.IntN(len(list))]
		h.net.Note(note, e.id)
		do(e)
	}
}

// Die is the sudden end of the process: its listeners vanish, and its
// connections are reset. With silent it is the machine that loses its power:
// nobody answers until Revive, the other ends are half open, and its disk holds
// what was durable. What is left of the process reaches the disk no more.
func (h *Host) Die(silent bool) {
	h.net.Note("die %v silent=%v", h.ip, silent)
	h.listeners = make(map[uint16][]*listener)
	h.dead = silent
	switch {
	case h.disk == nil:
	case silent:
		h.disk.crash()
	default:
		h.disk.killed()
	}
	if h.disk != nil {
		h.disk.orphan = true
	}
	for _, e := range h.ordered() {
		if silent {
			e.closed, e.silent = true, true // the other end hears nothing any more
		} else {
			e.reset()
		}
		delete(h.ends, e.id)
	}
}

// Revive lets a machine that died without a word answer again. It knows
// nothing of its former connections, and resets those on which something is
// still being sent to it.
func (h *Host) Revive() {
	if !h.dead {
		return
	}
	h.net.Note("revive %v", h.ip)
	h.dead = false
	for _, other := range h.net.hosts {
		for _, e := range other.ordered() {
			if e.unheard && e.peer != nil && e.peer.host == h {
				h.net.After(h.net.delay(), func() {
					if e.peer != nil {
						e.reset()
					}
				})
			}
		}
	}
}

// closeFD closes a socket that no driver has.
func (h *Host) closeFD(fd int) {
	for _, group := range h.listeners {
		for _, l := range group {
			if l.id == fd {
				l.close(h)
				return
			}
		}
	}
	if e := h.ends[fd]; e != nil {
		h.closeEnd(e)
	}
}

// closeEnd closes a connection.
func (h *Host) closeEnd(e *end) {
	delete(h.ends, e.id)
	abrupt := e.abrupt || e.rx.size > 0 // TCP resets if bytes are unread
	e.closed = true
	e.rx.clear()
	if abrupt {
		e.reset()
		return
	}
	e.finish()
}

// Deaf is how many sockets of the host listen, and have no accept armed.
func (h *Host) Deaf() (n int) {
	for _, group := range h.listeners {
		for _, l := range group {
			if !l.armed {
				n++
			}
		}
	}
	return n
}

// listener is one member of the group of a port.
type listener struct {
	id       int
	drv      *driver
	addr     netip.AddrPort
	backlog  []*end
	armed    bool
	user     uint64
	acceptOp uring.Op
}

// listen adds a listener; only group members share a port.
func (h *Host) listen(d *driver, at netip.AddrPort, group bool) (*listener, unix.Errno) {
	port := at.Port()
	if port == 0 {
		port = h.ephemeral()
	}
	if len(h.listeners[port]) > 0 && !group {
		return nil, unix.EADDRINUSE
	}
	h.net.nextID++
	l := &listener{id: h.net.nextID, drv: d, addr: netip.AddrPortFrom(at.Addr(), port)}
	h.listeners[port] = append(h.listeners[port], l)
	return l, 0
}

func (h *Host) ephemeral() uint16 {
	h.port++
	if h.port < 40000 {
		h.port = 40000
	}
	return h.port
}

// close takes the listener out of its group; what waits is reset.
func (l *listener) close(h *Host) {
	group := h.listeners[l.addr.Port()]
	if i := slices.Index(group, l); i >= 0 {
		h.listeners[l.addr.Port()] = slices.Delete(group, i, i+1)
	}
	for _, e := range l.backlog {
		e.reset()
	}
	l.backlog = nil
}

// Core is a core of a plane that runs on a Host. It has no thread: the goroutine that
// steps the Network also turns the cores, one at a time.
type Core struct {
	*loop.Core
	by  stepped.Stepper
	drv Driver
}

// Run configures a plane to run on the host: its cores have drivers, the clock
// of the network, the host's disk and its descriptors, and no threads. opened is called with each core before it has
// work, on the goroutine that starts it.
func (h *Host) Run(cfg *loop.Config, opened func(c *Core)) {
	var drv Driver // of the core that is started: one at a time is
	cfg.Now, cfg.Disk, cfg.CloseFD = h.net.Now, h.Disk(), h.closeFD
	cfg.Open = func(int) (uring.Driver, error) {
		drv = h.Driver()
		return drv, nil
	}
	cfg.Stepped = func(c *loop.Core, s stepped.Stepper) { opened(&Core{Core: c, by: s, drv: drv}) }
}

// Turn does one turn of the core: one task of its mailbox, due timers, pending writes,
// and one completion. It does nothing once the core has ended.
func (c *Core) Turn() error { return c.by.Turn() }

// Busy says whether a turn has something to do other than timers.
func (c *Core) Busy() bool {
	pending := c.drv.Pending() // first: what the core's end must see is behind it
	return c.by.Busy() || pending
}

// EndInTurn has the core end in a turn once Plane.Close has begun, as a core with a
// thread does: for a test that turns the cores on a goroutine of its own. Else Plane.Close
// ends the core on the goroutine of its caller. In the callback of Run only.
func (c *Core) EndInTurn() { c.by.EndInTurn() }

// Deadline is when the earliest timer of the core is due, by the clock of the
// network.
func (c *Core) Deadline() (when time.Duration, ok bool) { return c.by.Deadline() }
