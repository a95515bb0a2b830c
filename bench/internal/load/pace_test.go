package load

import (
	"net"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
)

// echoes starts an echo server, which waits before it answers.
func echoes(t *testing.T, wait func()) (addr string) {
	t.Helper()
	return serve(t, func(conn net.Conn) {
		p := make([]byte, 4<<10)
		for {
			n, err := conn.Read(p)
			if err != nil {
				return
			}
			wait()
			if _, err := conn.Write(p[:n]); err != nil {
				return
			}
		}
	})
}

func TestPacedRequestsKeepTheirRate(t *testing.T) {
	const rate, window = 500, 400 * time.Millisecond
	load, err := Open(t.Context(), Options{Addr: echoes(t, func() {}), Raw: true, Conns: 4, Depth: 2, Size: 64})
	clitest.Must(t, err)
	defer load.Close()
	for range 2 { // the rest of the first slice does not disturb the second
		began := time.Now()
		r, err := load.Run(Slice{Rate: rate, Warm: time.Millisecond, WarmMax: 10 * time.Second, Window: window, WindowMax: window})
		if err != nil || !r.Steady {
			t.Fatalf("%+v, %v", r, err)
		}
		if took := time.Since(began); float64(r.Total) > took.Seconds()*rate+1 || r.Latency.Count() == 0 {
			t.Errorf("%d replies within %v at %d per second, %d of them in the window", r.Total, took, rate, r.Latency.Count())
		}
	}
}

func TestARequestThatWaitsForAPlaceCountsFromWhenItWasDue(t *testing.T) {
	gate := make(chan struct{})
	load, err := Open(t.Context(), Options{Addr: echoes(t, func() { <-gate }), Raw: true, Conns: 1, Depth: 1, Size: 64})
	clitest.Must(t, err)
	defer load.Close()
	load.active, load.pace = load.conns, newPace(1000, load.conns, 1)
	now := time.Duration(0)
	load.meter.now = func() time.Duration { return now }
	load.meter.latency.Reset()
	load.meter.measured = true
	clitest.Must(t, load.Fill())
	if err := load.issueDue(); err != nil || load.open != 1 {
		t.Fatalf("%d requests open, %v", load.open, err)
	}
	now = 10 * time.Millisecond // ten more are due, and there is no place for them
	if err := load.issueDue(); err != nil || load.open != 1 {
		t.Fatalf("%d requests open, %v", load.open, err)
	}
	close(gate)
	for load.meter.latency.Count() < 11 {
		clitest.Must(t, load.Turn())
	}
	// Due at 0, 1, ... 10 ms, answered at 10 ms.
	if least, most := load.meter.latency.Quantile(0), load.meter.latency.Quantile(1); least > time.Millisecond/10 || most < 9*time.Millisecond {
		t.Errorf("latencies %v to %v", least, most)
	}
	if load.open != 0 || load.pace.due != 11*time.Millisecond {
		t.Errorf("%d requests are open, the next is due at %v", load.open, load.pace.due)
	}
}

func TestPlacesAreUsedInTurn(t *testing.T) {
	a, b := &conn{}, &conn{}
	p := newPace(1000, []*conn{a, b}, 2)
	p.due = time.Millisecond
	if c, _ := p.next(0); c != nil {
		t.Error("issued before it was due")
	}
	for i, want := range []*conn{a, b, a, b, nil} {
		c, due := p.next(time.Second)
		if c != want || c != nil && due != time.Duration(i+1)*time.Millisecond {
			t.Errorf("request %d: %+v, due at %v", i, c, due)
		}
	}
	p.release(b)
	if c, _ := p.next(time.Second); c != b {
		t.Errorf("%+v", c)
	}
}
