package binding

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control/internal/placement"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Binder opens listeners. Its fields do not change once it is used; any goroutine
// may use it then.
type Binder struct {
	Cores   func() []*loop.Core         // those that can be given work, now
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
	Accept func(*loop.Link) // gets accepted sockets, on their core
}

// ListenAll listens on all places, or on none.
func (b *Binder) ListenAll(ctx context.Context, places []Place) ([]Group, error) {
	var groups []Group
	for _, p := range places {
		group, err := b.listen(ctx, &p)
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
// them again, as often as configured, while the last one of them is in use. It
// gives up at once if we may not listen on the last one (EACCES), or if all are
// to be avoided: waiting does not help then.
func (b *Binder) listen(ctx context.Context, p *Place) (Group, error) {
	for pass := 0; ; pass++ {
		group, err := b.listenOnce(p)
		if err == nil || !taken(err) {
			return group, err
		}
		if pass >= b.Retries || !errors.Is(err, unix.EADDRINUSE) {
			return nil, fmt.Errorf("%w: %v, tried %d times: %w", ErrNoPort, p.Ports, pass+1, err)
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
func (b *Binder) listenOnce(p *Place) (Group, error) {
	ports := &p.Ports
	if ports.From == (bpf.PortRange{}) {
		return b.listenAnywhere(p)
	}
	err := errAvoided
	for port := int(ports.From.First); port <= int(ports.From.Last); port++ {
		if ports.Avoid[uint16(port)] {
			continue
		}
		var group Group
		if group, err = b.listenGroup(p, uint16(port)); err == nil || !taken(err) {
			return group, err
		}
	}
	return nil, err
}

// listenAnywhere lets the kernel choose. A port to be avoided is held while it
// chooses again, so that it comes up once at most.
func (b *Binder) listenAnywhere(p *Place) (Group, error) {
	var held Group
	defer func() { Close(held) }()
	for range len(p.Ports.Avoid) + 1 {
		group, err := b.listenGroup(p, 0)
		if err != nil || !p.Ports.Avoid[group[0].Addr().Port()] {
			return group, err
		}
		held = append(held, group...)
	}
	return nil, errAvoided
}

// listenGroup puts a listener for a port on every core, as one SO_REUSEPORT group.
// The first one begins it alone: joining one that is there would share its
// connections with whoever has it.
func (b *Binder) listenGroup(p *Place, port uint16) (Group, error) {
	var group Group
	at, cores := netip.AddrPortFrom(p.IP, port), b.Cores()
	opt := uring.ListenOptions{Exclusive: len(cores) > 1}
	for _, c := range cores {
		l, err := c.Listen(at, opt, p.Accept)
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

// Extend has a new core accept on all addresses, with a listener that another
// core can spare, or with one of its own.
func (b *Binder) Extend(s *Listeners, core *loop.Core) error {
	for _, group := range s.Groups() {
		l, gone, err := b.listenAt(group, core)
		if err != nil {
			return fmt.Errorf("core %d: listen on %v: %w", core.ID(), group.Addr(), err)
		}
		if !s.Join(group[0], l, gone) {
			_ = l.Close() // the list was taken meanwhile
		}
	}
	return nil
}

// listenAt has a new core accept on the address of a group. gone are those of the
// group that have ended with their cores.
func (b *Binder) listenAt(group Group, core *loop.Core) (l *loop.Listener, gone []*loop.Listener, err error) {
	open, gone, err := share(group)
	if err != nil {
		return nil, nil, err
	}
	if l = spare(open); l != nil {
		return l, gone, l.Move(core)
	}
	// If no socket is left, a new group begins.
	l, err = core.Listen(group.Addr(), uring.ListenOptions{ReusePort: true, Exclusive: len(open) == 0}, group[0].Accepted())
	return l, gone, err
}

// Widen opens one more socket of a group that came from another process, on a
// core. The caller has it join the list, or closes it.
func (b *Binder) Widen(group Group, core *loop.Core) (*loop.Listener, error) {
	if _, _, err := share(group); err != nil {
		return nil, err
	}
	return core.Listen(group.Addr(), uring.ListenOptions{ReusePort: true}, group[0].Accepted())
}

// share lets others listen on the address of a group, which a single socket does
// not by itself. gone are those of it that have ended with their cores.
func share(group Group) (open, gone []*loop.Listener, err error) {
	for _, l := range group {
		err := l.Share()
		switch {
		case err == nil:
			open = append(open, l)
		case ended(err):
			gone = append(gone, l)
		default:
			return nil, nil, err
		}
	}
	return open, gone, nil
}

// ended says that a listener was closed because its core ended.
func ended(err error) bool {
	return errors.Is(err, loop.ErrLinkClosed) || errors.Is(err, loop.ErrStopped)
}

// spare is a listener whose core has another one of the same address; nil if
// there is none.
func spare(group []*loop.Listener) *loop.Listener {
	seen := make(map[*loop.Core]bool)
	for _, l := range group {
		if seen[l.Core()] {
			return l
		}
		seen[l.Core()] = true
	}
	return nil
}

// Leave takes the listeners of a core away. They are closed if what waits at them
// moves to another listener then (closing); otherwise the cores that serve the
// fewest go on accepting from them. lost hears of each that this fails for.
func (b *Binder) Leave(s *Listeners, core *loop.Core, closing bool, lost func(*loop.Listener, error)) {
	all, others := s.All(), b.Cores()
	mine := slices.DeleteFunc(slices.Clone(all), func(l *loop.Listener) bool { return l.Core() != core })
	if closing {
		s.Forget(mine)
	}
	facts := make([]placement.Fact, len(others))
	for i, c := range others {
		for _, l := range all {
			if l.Core() == c {
				facts[i].Load++
			}
		}
	}
	for _, l := range mine {
		var err error
		if to := placement.Choose(facts, 0); closing || to < 0 {
			err = l.Close()
		} else {
			facts[to].Load++
			err = l.Move(others[to])
		}
		if err != nil && !ended(err) {
			lost(l, err)
		}
	}
}

// Listeners owns the list of a messenger's listeners. The zero value has none.
// Its lock is held for a few lines of memory only, so its methods may be called
// under another one.
//
// Who takes listeners out of it closes them, after telling everybody who may look
// at their descriptors.
type Listeners struct {
	mu         sync.Mutex
	list       []*loop.Listener // replaced, never changed; guarded by mu
	handedOver uint64           // calls of Take; guarded by mu
}

// All are the listeners: of one address behind each other until cores come and
// go, and the addresses in their order always. The caller does not change it.
func (s *Listeners) All() []*loop.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list
}

// Groups are the listeners of each address, in the order of the addresses.
func (s *Listeners) Groups() []Group { return Groups(s.All()) }

// Groups are the listeners of each address, in the order of the list.
func Groups(list []*loop.Listener) []Group {
	var out []Group
	for _, l := range list {
		i := slices.IndexFunc(out, func(g Group) bool { return g.Addr() == l.Addr() })
		if i < 0 {
			out = append(out, nil)
			i = len(out) - 1
		}
		out[i] = append(out[i], l)
	}
	return out
}

// Taken is the number of calls of Take so far, for Swap and for a
// steering.Steerer.
func (s *Listeners) Taken() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handedOver
}

// Take empties the list and returns it: the messenger does not listen any more.
// taken is the number of its calls, this one included.
func (s *Listeners) Take() (old []*loop.Listener, taken uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old = s.list
	s.list = nil
	s.handedOver++
	return old, s.handedOver
}

// Swap puts the listeners of new groups in the place of the old ones, which it
// returns. It fails, and changes nothing, if Take was called since Taken
// returned taken: somebody wants nothing to listen.
func (s *Listeners) Swap(to []Group, taken uint64) (old []*loop.Listener, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handedOver != taken {
		return nil, false
	}
	old = s.list
	s.list = nil
	for _, g := range to {
		s.list = append(s.list, g...)
	}
	return old, true
}

// Add puts a listener into the list.
func (s *Listeners) Add(l *loop.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(slices.Clip(s.list), l)
}

// Join puts a listener into the list, unless it is there, and takes those out that
// are gone with their cores. It fails if beside, of the same address, is not in
// the list any more.
func (s *Listeners) Join(beside, l *loop.Listener, gone []*loop.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ok := slices.Contains(s.list, beside)
	if ok && !slices.Contains(s.list, l) {
		s.list = append(slices.Clip(s.list), l)
	}
	s.forget(gone)
	return ok
}

// Forget takes listeners that end out of the list.
func (s *Listeners) Forget(gone []*loop.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(gone)
}

func (s *Listeners) forget(gone []*loop.Listener) {
	s.list = slices.DeleteFunc(slices.Clone(s.list), func(l *loop.Listener) bool { return slices.Contains(gone, l) })
}
