package load

import (
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/cmd/shared/perf"
)

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
		now:     func() time.Duration { return s.now },
		server:  func() (time.Duration, error) { return s.server, nil },
		client:  func() (time.Duration, error) { return s.client, nil },
		latency: perf.NewHistogram(),
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

func (s *script) Drain() error {
	s.do(s.drained)
	return nil
}

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
		if low, high := r.Latency.Min(), r.Latency.Max(); low < 7900*time.Microsecond || high > 8100*time.Microsecond {
			t.Errorf("slice %d: latencies from %v to %v", slice, low, high)
		}
		if want := uint64(5*4 + 10*20 + 16); r.Total != want {
			t.Errorf("slice %d: %d replies from first to last, want %d", slice, r.Total, want)
		}
		last = r
	}
	s.measured.took = time.Second
	if _, err := s.m.Run(tenTurns, s, 50); err != nil || last.Latency.Max() > 9*time.Millisecond {
		t.Errorf("the next slice changed a result: %v, %v", last.Latency.Max(), err)
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
