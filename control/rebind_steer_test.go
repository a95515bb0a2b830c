package control_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// What is steered before a Rebind is steered after it, pins and counters
// included, and after an Unbind as well, but for those.
func TestARebindIsSteeredAsBefore(t *testing.T) {
	needSteering(t)
	nodetest.CheckLeaks(t) // of programs and maps, too
	m, at := steered(t, control.SteerTable, nil)
	if err := m.PinPeer(source(1), 2); err != nil {
		t.Fatal(err)
	}
	ctx := deadline(t)
	total, want := 0, make([]int, steerCores)
	for range 3 {
		for range 10 {
			knock(t, netip.AddrPortFrom(source(1), 0), at)
		}
		total += 10
		want[2] += 10
		got, st := arrived(t, m, total)
		expectCores(t, got, want)
		if g := st.Steering.Groups; !st.Steering.Active || len(g) != 1 || g[0].Addr != at.String() || g[0].Counters.Cores[2].Addr.Selected != uint64(total) {
			t.Errorf("steering %+v", st.Steering)
		}
		addrs, err := m.Rebind(ctx)
		if err != nil {
			t.Fatal(err)
		}
		at = addrs[0].AddrPort
	}
	if err := m.Unbind(); err != nil {
		t.Fatal(err)
	}
	addrs, err := m.Rebind(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.PinPeer(source(1), 3); err != nil {
		t.Fatal(err)
	}
	knock(t, netip.AddrPortFrom(source(1), 0), addrs[0].AddrPort)
	want[3]++
	got, _ := arrived(t, m, total+1)
	expectCores(t, got, want)
}

// A hand-over passes the address of the last Rebind, and a successor can be
// bound anew.
func TestRebindGoesTogetherWithAHandOver(t *testing.T) {
	for _, backend := range engines {
		t.Run(string(backend), func(t *testing.T) {
			nodetest.CheckLeaks(t)
			ctx := deadline(t)
			us, err := control.New(serverConfig(backend, 2))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { end(t, us) })
			if err := us.Start(echoAll()); err != nil {
				t.Fatal(err)
			}
			if _, err := us.Bind(v2(ownHost(), 0)); err != nil {
				t.Fatal(err)
			}
			addrs, err := us.Rebind(ctx)
			if err != nil {
				t.Fatal(err)
			}
			s := newStream(t, backend, wire.MDS, control.LosslessClient(), addrs[0])
			successor := succeed(t, ctx, us, serverConfig(backend, 3), echoAll())
			t.Cleanup(func() { end(t, successor) })
			if _, err := us.Rebind(ctx); !errors.Is(err, control.ErrHandedOver) {
				t.Errorf("rebind after a hand-over: %v", err)
			}
			if got := successor.Addrs(); !got.Equal(addrs) {
				t.Fatalf("the successor is at %v, want %v", got, addrs)
			}
			if err := s.c.WaitReady(ctx); err != nil {
				t.Error(err)
			}
			s.end()
			s.c.MarkDown()
			again, err := successor.Rebind(ctx)
			if err != nil || again[0].AddrPort.Port() == addrs[0].AddrPort.Port() || again[0].AddrPort.Addr() != addrs[0].AddrPort.Addr() || again[0].Nonce == addrs[0].Nonce {
				t.Fatalf("from %v to %v: %v", addrs, again, err)
			}
			newStream(t, backend, wire.MDS, control.LosslessClient(), again[0])
		})
	}
}

// A Rebind waits for a hand-over that is under way. If that fails it goes on, if
// its own context ends it does not.
func TestRebindWaitsForAHandOver(t *testing.T) {
	us, err := control.New(serverConfig(uring.Auto, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer end(t, us)
	if err := us.Start(); err != nil {
		t.Fatal(err)
	}
	before, err := us.Bind(v2(ownHost(), 0))
	if err != nil {
		t.Fatal(err)
	}
	ctx := deadline(t)
	begun, fail := make(chan struct{}), make(chan struct{})
	cfg := serverConfig(uring.Auto, 1)
	cfg.Plane.Open = func(int) (uring.Driver, error) {
		close(begun)
		<-fail
		return nil, errors.New("no driver")
	}
	a, b := unixPair(t)
	ends := make(chan error, 2)
	go func() { ends <- us.HandOver(ctx, a) }()
	go func() {
		_, err := control.TakeOver(ctx, cfg, b)
		ends <- err
	}()
	<-begun
	impatient, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := us.Rebind(impatient); !errors.Is(err, context.Canceled) {
		t.Errorf("rebind without patience: %v", err)
	}
	if got := us.Addrs(); !got.Equal(before) {
		t.Errorf("now at %v", got)
	}
	rebound := make(chan error, 1)
	go func() {
		_, err := us.Rebind(ctx)
		rebound <- err
	}()
	close(fail)
	for range 2 {
		if err := <-ends; err == nil {
			t.Error("handed over to nobody")
		}
	}
	if err := <-rebound; err != nil {
		t.Errorf("rebind: %v", err)
	}
	if got := us.Addrs(); got.Equal(before) {
		t.Errorf("still at %v", got)
	}
}

// The core that gets the number of a removed one has none of its pins.
func TestPinsEndWithTheirCore(t *testing.T) {
	needSteering(t)
	nodetest.CheckLeaks(t)
	m, at := steered(t, control.SteerTable, nil)
	from := netip.AddrPortFrom(source(1), 0)
	if err := m.PinPeer(from.Addr(), 2); err != nil {
		t.Fatal(err)
	}
	knock(t, from, at)
	got, _ := arrived(t, m, 1)
	expectCores(t, got, []int{0, 0, 1, 0})
	ctx := deadline(t)
	if err := m.RemoveCore(ctx, 2); err != nil {
		t.Fatal(err)
	}
	knock(t, from, at)
	if id, err := m.AddCore(ctx); id != 2 || err != nil {
		t.Fatalf("core %d, %v", id, err)
	}
	knock(t, from, at)
	hashed := func() bool { return statsOf(t, m).Steering.Groups[0].Counters.Hash >= 2 }
	if err := msgrtest.Until(ctx, hashed); err != nil {
		t.Errorf("%v: counters %+v, want two connections by hash", err, statsOf(t, m).Steering.Groups[0].Counters)
	}
	for core, c := range statsOf(t, m).Steering.Groups[0].Counters.Cores {
		if c.Missed() != 0 {
			t.Errorf("%d connections were pinned to core %d, which was not there", c.Missed(), core)
		}
	}
}
