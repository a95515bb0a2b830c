package main

import (
	"testing"
	"time"
)

// storyOf is a session with echoes given as when they were sent and when they
// came, both from the cut on.
func storyOf(cut time.Time, back time.Duration, echoes ...[2]time.Duration) *flockSession {
	s := &flockSession{backAt: cut.Add(back)}
	for _, e := range echoes {
		s.echoes = append(s.echoes, flockEcho{cut.Add(e[1]), e[1] - e[0]})
	}
	return s
}

func TestAStormCountsTheMessagesOfSessionsThatComeBackLate(t *testing.T) {
	const ms = time.Millisecond
	cut := time.Unix(1e9, 0)
	w := &flockWindow{At: cut, Length: time.Second}
	f := &flock{began: cut.Add(-2 * time.Second)}
	for range 50 {
		// Calm, then cut off and back soon, then calm again, then over.
		f.sessions = append(f.sessions, storyOf(cut, 300*ms,
			[2]time.Duration{-500 * ms, -490 * ms}, [2]time.Duration{-10 * ms, 300 * ms}, [2]time.Duration{400 * ms, 410 * ms},
			[2]time.Duration{1100 * ms, 1110 * ms}))
		// Cut off, and back after the window.
		f.sessions = append(f.sessions, storyOf(cut, 3200*ms,
			[2]time.Duration{-500 * ms, -490 * ms}, [2]time.Duration{5 * ms, 3200 * ms}, [2]time.Duration{3300 * ms, 3310 * ms}))
	}
	// Sent at the end of the window, or the moment before.
	f.sessions = append(f.sessions, storyOf(cut, 990*ms,
		[2]time.Duration{0, 990 * ms}, [2]time.Duration{999 * ms, 1000 * ms}, [2]time.Duration{1000 * ms, 1010 * ms}))
	var r flockResult
	f.count(w, &r)
	if r.Calm.Echoes != 100 || r.Calm.Late != 0 || r.Calm.Length != 2*time.Second || r.Calm.P99 > 11*ms {
		t.Errorf("calm %+v", r.Calm)
	}
	if r.Storm.Echoes != 101 || r.Storm.Late != 51 || r.Storm.Length != time.Second {
		t.Errorf("storm %+v", r.Storm)
	}
	// A third of the messages took 3.2 s: they are in the p99, not left out.
	if r.Storm.P50 < 300*ms || r.Storm.P50 > 320*ms || r.Storm.P99 < 3100*ms || r.Storm.P99 > 3300*ms {
		t.Errorf("storm %+v", r.Storm)
	}
	if r.Half != 990*ms || r.All != 3200*ms {
		t.Errorf("half back after %v, all after %v", r.Half, r.All)
	}
}
