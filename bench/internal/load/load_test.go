package load

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
)

// Matrix: BE-04
func TestOnlyActiveConnectionsCarryRequests(t *testing.T) {
	for _, c := range []struct{ conns, active, want int }{{10, 0, 10}, {10, 2, 2}, {10, 10, 10}, {1, 1, 1}} {
		var used atomic.Int64 // connections with a reply
		addr := clitest.Listen(t, "tcp4", "127.0.0.1:0", func(conn net.Conn) {
			first := make([]byte, 1)
			if _, err := io.ReadFull(conn, first); err != nil {
				return
			}
			used.Add(1)
			if _, err := conn.Write(first); err == nil {
				_, _ = io.Copy(conn, conn) // until the client closes
			}
		})
		o := Options{Addr: addr, Raw: true, Conns: c.conns, Depth: 2, Size: 64}
		load, err := Open(t.Context(), o)
		clitest.Must(t, err)
		defer load.Close()
		r, err := load.Run(Slice{Active: c.active, Warm: time.Millisecond, WarmMax: time.Minute, Window: 10 * time.Millisecond, WindowMax: time.Minute})
		if err != nil || !r.Steady || r.Total < uint64(2*c.want) {
			t.Fatalf("%+v: %+v, %v", o, r, err)
		}
		if n := int(used.Load()); n != c.want {
			t.Errorf("%d of %d connections asked for: %d brought requests", c.active, c.conns, n)
		}
	}
}

// Matrix: BE-04
func TestActiveConnectionsLieBetweenIdleOnes(t *testing.T) {
	all := make([]int, 1000)
	for i := range all {
		all[i] = i
	}
	chosen, err := Spread(Slice{Active: 10}, all)
	if err != nil || len(chosen) != 10 {
		t.Fatalf("%v, %v", chosen, err)
	}
	for i, c := range chosen {
		if c != i*100 {
			t.Errorf("number %d is connection %d", i, c)
		}
	}
	for _, active := range []int{-1, 1001} {
		if _, err := Spread(Slice{Active: active}, all); err == nil {
			t.Errorf("%d of %d: no error", active, len(all))
		}
	}
}

// echoes starts an echo server, which waits before it answers.
func echoes(t *testing.T, wait func()) (addr string) {
	t.Helper()
	return clitest.Listen(t, "tcp4", "127.0.0.1:0", func(conn net.Conn) {
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
		r, err := load.Run(Slice{Rate: rate, Warm: time.Millisecond, WarmMax: time.Minute, Window: window, WindowMax: time.Minute})
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
	load.meter.latency = cli.NewHistogram()
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

// A server that checks nothing itself is found out by its client: a block of another place
// at once, and any other byte in the sample.
// Matrix: BE-08
func TestReadsOfAServerThatChecksNothingAreChecked(t *testing.T) {
	const size = 64 * blocks.Size
	for name, c := range map[string]struct {
		answer int // that is wrong; 0: none
		spoil  func(p []byte, off int64)
	}{
		"right":        {0, nil},
		"elsewhere":    {2, func(p []byte, off int64) { blocks.Fill(p, off+blocks.Size, 1) }},
		"a wrong byte": {SampleMask + 1, func(p []byte, _ int64) { p[2000] ^= 1 }},
	} {
		addr := clitest.Listen(t, "tcp4", "127.0.0.1:0", func(conn net.Conn) {
			var head [blocks.HeadSize]byte
			for n := 1; ; n++ {
				if _, err := io.ReadFull(conn, head[:]); err != nil {
					return
				}
				h, err := blocks.ParseHead(&head, size)
				if err != nil {
					return
				}
				h.Data = h.Len
				h.Put(&head)
				data := make([]byte, h.Len)
				blocks.Fill(data, h.Off, 1)
				if n == c.answer {
					c.spoil(data, h.Off)
				}
				if _, err := conn.Write(append(head[:], data...)); err != nil {
					return
				}
			}
		})
		o := Options{Addr: addr, Raw: true, Conns: 1, Depth: 1, Size: blocks.Size, Kind: blocks.Read, File: size}
		l, err := OpenStorage(t.Context(), o)
		clitest.Must(t, err)
		wrong, window := c.answer > 0, 50*time.Millisecond
		if wrong {
			window = time.Minute // the wrong answer ends it, however slow the machine is
		}
		_, err = l.Run(Slice{WarmMax: time.Minute, Window: window, WindowMax: time.Minute})
		l.Close()
		if errors.Is(err, ErrReply) != wrong || err != nil && !wrong {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// phase is the script of a server for a part of a slice, turn by turn.
type phase struct {
	turn           time.Duration // its length
	replies        int
	took           time.Duration // from each request to its reply
	server, client time.Duration // CPU time used
}

// script is traffic with known costs, and the clocks that a meter reads. Both
// processes have used CPU time before the slice.
type script struct {
	m              *Meter
	now            time.Duration
	server, client time.Duration
	first          phase // once, by fill
	warming        phase
	warmTurns      int // so many until every request was answered once
	measured       phase
	drained        phase // once, by drain
	turns          int
}

const replyBytes = 100

func newScript() *script {
	s := &script{
		now: time.Hour, server: 77 * time.Second, client: 33 * time.Second, warmTurns: 5,
		first:    phase{turn: 3 * time.Millisecond, server: 700 * time.Millisecond, client: 500 * time.Millisecond},
		warming:  phase{10 * time.Millisecond, 4, 900 * time.Millisecond, 5 * time.Millisecond, 4 * time.Millisecond},
		measured: phase{10 * time.Millisecond, 20, 8 * time.Millisecond, 2 * time.Millisecond, time.Millisecond},
		drained:  phase{40 * time.Millisecond, 16, 3 * time.Second, 600 * time.Millisecond, 400 * time.Millisecond},
	}
	s.m = &Meter{
		now:    func() time.Duration { return s.now },
		server: func() (time.Duration, error) { return s.server, nil },
		client: func() (time.Duration, error) { return s.client, nil },
	}
	return s
}

func (s *script) do(p phase) {
	s.now += p.turn
	s.server += p.server
	s.client += p.client
	for range p.replies {
		s.m.Received(replyBytes)
		s.m.Answered(p.took)
	}
}

func (s *script) Fill() error {
	s.turns = 0
	s.do(s.first)
	return nil
}

func (s *script) Turn() error {
	s.turns++
	if s.turns <= s.warmTurns {
		s.do(s.warming)
	} else {
		s.do(s.measured)
	}
	return nil
}

func (s *script) Warm() bool { return s.turns >= s.warmTurns }

func (s *script) Stop() { s.do(s.drained) }

func (s *script) Pending() int { return 0 }

var tenTurns = Slice{Warm: 20 * time.Millisecond, WarmMax: time.Second, Window: 100 * time.Millisecond, WindowMax: time.Second}

func TestOnlyTheWindowIsMeasured(t *testing.T) {
	s := newScript()
	var last Result
	for slice := range 3 { // a slice does not count for the next one
		r, err := s.m.Run(tenTurns, s, 50)
		clitest.Must(t, err)
		if r.Window != 100*time.Millisecond || !r.Steady {
			t.Errorf("slice %d: window %v, steady %v", slice, r.Window, r.Steady)
		}
		if r.ServerCPU != 20*time.Millisecond || r.ClientCPU != 10*time.Millisecond {
			t.Errorf("slice %d: CPU time %v of the server, %v of the client", slice, r.ServerCPU, r.ClientCPU)
		}
		if r.Bytes != 10*20*replyBytes || r.Latency.Count() != 10*20 {
			t.Errorf("slice %d: %d bytes, %d latencies", slice, r.Bytes, r.Latency.Count())
		}
		if took := r.Latency.Summary(); took.Min < 7900 || took.Max > 8100 {
			t.Errorf("slice %d: latencies %+v", slice, took)
		}
		if want := uint64(5*4 + 10*20 + 16); r.Total != want {
			t.Errorf("slice %d: %d replies from first to last, want %d", slice, r.Total, want)
		}
		last = r
	}
	s.measured.took = time.Second
	if _, err := s.m.Run(tenTurns, s, 50); err != nil || last.Latency.Summary().Max > 9000 {
		t.Errorf("the next slice changed a result: %+v, %v", last.Latency.Summary(), err)
	}
}

func TestTheWindowWaitsForWarmQueues(t *testing.T) {
	s := newScript()
	s.warmTurns = 30
	r, err := s.m.Run(tenTurns, s, 50)
	if err != nil || !r.Steady || r.Bytes != 10*20*replyBytes {
		t.Errorf("%+v, %v", r, err)
	}
	// Not for ever: then the result shows it, and warming is measured.
	s.warmTurns = 1000
	r, err = s.m.Run(tenTurns, s, 30)
	if err != nil || r.Steady || r.Bytes != 10*4*replyBytes || r.Total != 110*4+16 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestTheWindowGrowsForEnoughReplies(t *testing.T) {
	s := newScript()
	r, err := s.m.Run(tenTurns, s, 500)
	if err != nil || r.Window != 250*time.Millisecond || r.Latency.Count() != 500 {
		t.Errorf("window %v, %d replies, %v", r.Window, r.Latency.Count(), err)
	}
	r, err = s.m.Run(tenTurns, s, 1<<40)
	if err != nil || r.Window != tenTurns.WindowMax {
		t.Errorf("window %v, %v", r.Window, err)
	}
}
