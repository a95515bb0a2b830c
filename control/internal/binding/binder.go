package binding

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Binder opens listeners. Its fields do not change once it is used; any goroutine
// may use it then.
type Binder struct {
	Cores   func() []*loop.Core         // those that can be given work, now
	Accept  func(*loop.Link)            // gets accepted sockets, on their core, where a Place names nobody
	Retries int                         // passes over all ports after the first one
	Pause   func(context.Context) error // waits between two passes
}

// Group are the listeners of one address.
type Group []*loop.Listener

// Addr is the address of the group.
func (g Group) Addr() netip.AddrPort { return g[0].Addr() }

// Place is an address to listen on.
type Place struct {
	Name   string // for errors
	IP     netip.Addr
	Ports  Ports
	Accept func(*loop.Link) // nil: that of the Binder
}

// ListenAll listens on all places, or on none.
func (b *Binder) ListenAll(ctx context.Context, places []Place) ([]Group, error) {
	var groups []Group
	for _, p := range places {
		at := *b
		if p.Accept != nil {
			at.Accept = p.Accept
		}
		group, err := at.listen(ctx, p.IP, p.Ports)
		if err != nil {
			for _, g := range groups {
				Close(g)
			}
			return nil, fmt.Errorf("bind %s: %w", p.Name, err)
		}
		groups = append(groups, group)
	}
	return groups, nil
}

// Close ends listeners.
func Close(list []*loop.Listener) {
	for _, l := range list {
		_ = l.Close() // fails only if the core is gone, and the listener with it
	}
}

// ErrNoPort: no port is free to listen on. It names the ports that were tried,
// and wraps what the kernel said of the last one.
var ErrNoPort = errors.New("control: no free port")

// Ports says which ports an address may have.
type Ports struct {
	From  bpf.PortRange // the zero value: what the kernel chooses
	Avoid map[uint16]bool
}

// OnePort is the choice of a user who named one.
func OnePort(port uint16) Ports { return Ports{From: bpf.PortRange{First: port, Last: port}} }

// String says it for errors.
func (p Ports) String() string {
	s := ""
	switch {
	case p.From == bpf.PortRange{}:
		s = "among those of the kernel"
	case p.From.First == p.From.Last:
		s = fmt.Sprintf("%d", p.From.First)
	default:
		s = p.From.String()
	}
	if n := len(p.Avoid); n > 0 {
		s += fmt.Sprintf(" but %d to avoid", n)
	}
	return s
}

// listen listens on the first port that is free. If none is, it tries all of
// them again, as often as configured.
func (b *Binder) listen(ctx context.Context, ip netip.Addr, ports Ports) (Group, error) {
	for pass := 0; ; pass++ {
		group, err := b.listenOnce(ip, ports)
		if err == nil || !taken(err) {
			return group, err
		}
		if pass >= b.Retries {
			return nil, fmt.Errorf("%w: %v, tried %d times: %w", ErrNoPort, ports, pass+1, err)
		}
		if err := b.Pause(ctx); err != nil {
			return nil, err
		}
	}
}

// taken says that another port may be free where this one is not.
func taken(err error) bool {
	return errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EACCES) || errors.Is(err, errAvoided)
}

// errAvoided is what stands in for the kernel's answer where all ports are to be
// avoided.
var errAvoided = errors.New("all of them are to be avoided")

// listenOnce tries each port once.
func (b *Binder) listenOnce(ip netip.Addr, ports Ports) (Group, error) {
	if ports.From == (bpf.PortRange{}) {
		return b.listenAnywhere(ip, ports.Avoid)
	}
	err := errAvoided
	for port := int(ports.From.First); port <= int(ports.From.Last); port++ {
		if ports.Avoid[uint16(port)] {
			continue
		}
		var group Group
		if group, err = b.listenGroup(netip.AddrPortFrom(ip, uint16(port))); err == nil || !taken(err) {
			return group, err
		}
	}
	return nil, err
}

// listenAnywhere lets the kernel choose. A port to be avoided is held while it
// chooses again, so that it comes up once at most.
func (b *Binder) listenAnywhere(ip netip.Addr, avoid map[uint16]bool) (Group, error) {
	var held Group
	defer func() { Close(held) }()
	for range len(avoid) + 1 {
		group, err := b.listenGroup(netip.AddrPortFrom(ip, 0))
		if err != nil || !avoid[group[0].Addr().Port()] {
			return group, err
		}
		held = append(held, group...)
	}
	return nil, errAvoided
}

// listenGroup puts a listener for at on every core, as one SO_REUSEPORT group.
// The first one begins it alone: joining one that is there would share its
// connections with whoever has it.
func (b *Binder) listenGroup(at netip.AddrPort) (Group, error) {
	var group Group
	cores := b.Cores()
	opt := uring.ListenOptions{Exclusive: len(cores) > 1}
	for _, c := range cores {
		l, err := c.Listen(at, opt, b.Accept)
		if err != nil {
			Close(group)
			return nil, err
		}
		group = append(group, l)
		at, opt = l.Addr(), uring.ListenOptions{ReusePort: true}
	}
	if len(group) == 0 {
		return nil, loop.ErrNoCore
	}
	return group, nil
}
