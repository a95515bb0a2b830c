package binding

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control/internal/placement"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

var loopback = netip.MustParseAddr("127.0.0.1")

var must = drivertest.Must

func newBinder(t *testing.T, cores int) (*Binder, *loop.Plane) {
	t.Helper()
	p, err := loop.New(loop.Config{Cores: cores, Driver: uring.Config{Backend: uring.Epoll}})
	must(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return &Binder{
		Cores: func() []*loop.Core { return placement.Running(p.All()) },
		Pause: func(context.Context) error { return nil },
	}, p
}

func listen(t *testing.T, b *Binder, places ...Place) []Group {
	t.Helper()
	for i := range places {
		places[i].Accept = func(l *loop.Link) { go l.Close() }
	}
	groups, err := b.ListenAll(t.Context(), places)
	must(t, err)
	return groups
}

// coresOf are the cores of listeners, in their order.
func coresOf(list []*loop.Listener) (ids []int) {
	for _, l := range list {
		ids = append(ids, l.Core().ID())
	}
	return ids
}

// stranger listens on a port of its own.
func stranger(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

func TestIfOneAddressCannotBeBoundNoneIs(t *testing.T) {
	b, p := newBinder(t, 2)
	taken := stranger(t)
	first := listen(t, b, Place{IP: loopback})[0]
	free := first.Addr().Port()
	Close(first)
	_, err := b.ListenAll(t.Context(), []Place{{Name: "first", IP: loopback, Ports: OnePort(free)}, {Name: "second", IP: loopback, Ports: OnePort(taken)}})
	if !errors.Is(err, ErrNoPort) || !strings.Contains(err.Error(), "second") {
		t.Errorf("got %v", err)
	}
	Close(listen(t, b, Place{IP: loopback, Ports: OnePort(free)})[0]) // free again
	cores, gone := b.Cores, p.Core(1)
	must(t, p.Drain(gone))
	must(t, p.AwaitDrained(t.Context(), gone))
	b.Cores = func() []*loop.Core { return append(cores(), gone) }
	if _, err := b.ListenAll(t.Context(), []Place{{IP: loopback, Ports: OnePort(free)}}); !errors.Is(err, loop.ErrStopped) {
		t.Errorf("one core has ended: %v", err)
	}
	b.Cores = cores
	Close(listen(t, b, Place{IP: loopback, Ports: OnePort(free)})[0])
}

func TestPortsAreTriedInTheirOrderAndAgain(t *testing.T) {
	b, _ := newBinder(t, 1)
	port := stranger(t)
	passes := 0
	b.Retries = 2
	b.Pause = func(context.Context) error {
		passes++
		return nil
	}
	_, err := b.ListenAll(t.Context(), []Place{{IP: loopback, Ports: OnePort(port)}})
	if !errors.Is(err, ErrNoPort) || passes != 2 {
		t.Errorf("%d pauses, %v", passes, err)
	}
	_, err = b.ListenAll(t.Context(), []Place{{IP: loopback, Ports: Ports{From: bpf.PortRange{First: port, Last: port}, Avoid: map[uint16]bool{port: true}}}})
	if !errors.Is(err, ErrNoPort) || !errors.Is(err, errAvoided) || passes != 2 {
		t.Errorf("all to be avoided: %d pauses, %v", passes, err)
	}
	late := errors.New("late")
	b.Pause = func(context.Context) error { return late }
	if _, err := b.ListenAll(t.Context(), []Place{{IP: loopback, Ports: OnePort(port)}}); !errors.Is(err, late) {
		t.Errorf("the pause ends with %v", err)
	}
}

func TestTheListGivesItselfAwayOnce(t *testing.T) {
	b, _ := newBinder(t, 2)
	var s Listeners
	before := s.Taken()
	g := listen(t, b, Place{IP: loopback})
	if old, ok := s.Swap(g, before); !ok || len(old) != 0 || len(s.All()) != 2 {
		t.Fatalf("swapped %v for %d, %d are there", ok, len(old), len(s.All()))
	}
	extra, err := b.Widen(g[0], g[0][1].Core())
	must(t, err)
	for range 2 { // joining twice is no error
		if !s.Join(g[0][0], extra, nil) || len(s.All()) != 3 || len(s.Groups()) != 1 {
			t.Errorf("%d are there in %d groups", len(s.All()), len(s.Groups()))
		}
	}
	if s.Join(g[0][0], g[0][1], []*loop.Listener{extra}); len(s.All()) != 2 {
		t.Errorf("%d are there, one is gone", len(s.All()))
	}
	old, taken := s.Take()
	if len(old) != 2 || taken != before+1 || s.Taken() != taken || len(s.All()) != 0 {
		t.Errorf("took %d, %d times", len(old), taken)
	}
	if s.Join(g[0][0], extra, nil) || len(s.All()) != 0 {
		t.Error("one joins a list that was taken")
	}
	if _, ok := s.Swap(g, before); ok || len(s.All()) != 0 {
		t.Error("it listens again though somebody took the list")
	}
	Close(append(old, extra))
}

// Matrix: XC-06
func TestListenersFollowTheCoresThatComeAndGo(t *testing.T) {
	for _, closing := range []bool{true, false} {
		b, p := newBinder(t, 3)
		var s Listeners
		s.Swap(listen(t, b, Place{IP: loopback}, Place{IP: netip.MustParseAddr("127.0.0.2")}), 0)
		if g := s.Groups(); g[0].Addr().Addr() != loopback || g[1].Addr().Addr() == loopback || !slices.Equal(coresOf(s.All()), []int{0, 1, 2, 0, 1, 2}) {
			t.Fatalf("%v and %v are served by %v", g[0].Addr(), g[1].Addr(), coresOf(s.All()))
		}
		extra, err := b.Widen(s.Groups()[0], p.Core(1))
		must(t, err)
		s.Join(s.All()[0], extra, nil)
		all := s.All()
		lost := func(l *loop.Listener, err error) { t.Errorf("%v: %v", l.Addr(), err) }
		core := p.Core(0)
		must(t, p.Drain(core))
		b.Leave(&s, core, closing, lost)
		want := []int{2, 1, 2, 1, 1, 2, 1} // core 2 has fewer at first
		if closing {
			want = []int{1, 2, 1, 2, 1}
		}
		if err := all[0].Share(); ended(err) != closing {
			t.Errorf("closing %v: a listener of the core: %v", closing, err)
		}
		if got := coresOf(s.All()); !slices.Equal(got, want) {
			t.Errorf("closing %v: cores %v, want %v", closing, got, want)
		}
		must(t, p.AwaitDrained(t.Context(), core))
		next, err := p.AddCore()
		must(t, err)
		must(t, b.Extend(&s, next))
		for _, g := range s.Groups() {
			got := coresOf(g)
			slices.Sort(got)
			if !slices.Equal(slices.Compact(got), []int{0, 1, 2}) {
				t.Errorf("closing %v: %v is served by %v", closing, g.Addr(), got)
			}
		}
		list, _ := s.Take()
		Close(list)
	}
}
