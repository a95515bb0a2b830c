package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/dataplane/old"
	"github.com/ringmsgr/ringmsgr/uring"
)

// ErrNoPort: no port is free to listen on. It names the ports that were tried,
// and wraps what the kernel said of the last one.
var ErrNoPort = errors.New("control: no free port")

// portChoice says which ports an address may have.
type portChoice struct {
	from  bpf.PortRange // the zero value: what the kernel chooses
	avoid map[uint16]bool
}

func onePort(port uint16) portChoice { return portChoice{from: bpf.PortRange{First: port, Last: port}} }

func (p portChoice) String() string {
	s := ""
	switch {
	case p.from == bpf.PortRange{}:
		s = "among those of the kernel"
	case p.from.First == p.from.Last:
		s = fmt.Sprintf("%d", p.from.First)
	default:
		s = p.from.String()
	}
	if n := len(p.avoid); n > 0 {
		s += fmt.Sprintf(" but %d to avoid", n)
	}
	return s
}

// listen listens on the first port that is free. If none is, it tries all of
// them again, as often as configured.
func (m *Messenger) listen(ctx context.Context, ip netip.Addr, ports portChoice) ([]*dataplane.Listener, error) {
	for pass := 0; ; pass++ {
		group, err := m.listenOnce(ip, ports)
		if err == nil || !taken(err) {
			return group, err
		}
		if pass >= m.cfg.BindRetries {
			return nil, fmt.Errorf("%w: %v, tried %d times: %w", ErrNoPort, ports, pass+1, err)
		}
		if err := m.pause(ctx); err != nil {
			return nil, err
		}
	}
}

// taken says that another port may be had where this one was not.
func taken(err error) bool {
	return errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EACCES) || errors.Is(err, errAvoided)
}

// errAvoided is what stands in for the kernel's answer where all ports are to be
// avoided.
var errAvoided = errors.New("all of them are to be avoided")

// pause waits between two tries.
func (m *Messenger) pause(ctx context.Context) error {
	over := make(chan struct{})
	stop := m.cfg.Clock.AfterFunc(m.cfg.BindRetryDelay, func() { close(over) })
	defer stop()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-m.ctx.Done():
		return context.Cause(m.ctx)
	}
}

// listenOnce tries each port once.
func (m *Messenger) listenOnce(ip netip.Addr, ports portChoice) ([]*dataplane.Listener, error) {
	if ports.from == (bpf.PortRange{}) {
		return m.listenAnywhere(ip, ports.avoid)
	}
	err := errAvoided
	for port := int(ports.from.First); port <= int(ports.from.Last); port++ {
		if ports.avoid[uint16(port)] {
			continue
		}
		var group []*dataplane.Listener
		if group, err = m.listenGroup(netip.AddrPortFrom(ip, uint16(port))); err == nil || !taken(err) {
			return group, err
		}
	}
	return nil, err
}

// listenAnywhere lets the kernel choose. A port to be avoided is held while it
// chooses again, so that it comes up once at most.
func (m *Messenger) listenAnywhere(ip netip.Addr, avoid map[uint16]bool) ([]*dataplane.Listener, error) {
	var held []*dataplane.Listener
	defer func() { closeListeners(held) }()
	for range len(avoid) + 1 {
		group, err := m.listenGroup(netip.AddrPortFrom(ip, 0))
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
func (m *Messenger) listenGroup(at netip.AddrPort) ([]*dataplane.Listener, error) {
	var group []*dataplane.Listener
	cores := m.running()
	opt := uring.ListenOptions{Exclusive: len(cores) > 1}
	for _, c := range cores {
		l, err := c.Listen(at, opt, m.accepted)
		if err != nil {
			closeListeners(group)
			return nil, err
		}
		group = append(group, l)
		at, opt = l.Addr(), uring.ListenOptions{ReusePort: true}
	}
	if len(group) == 0 {
		return nil, ErrNoCore
	}
	return group, nil
}
