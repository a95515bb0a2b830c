package resize

import "testing"

func TestOnlyAConnectionThatIsHereAndAtRestLeaves(t *testing.T) {
	for _, one := range []struct {
		name                   string
		c                      Conn
		evacuation, step, came bool
	}{
		{"it is here", Conn{Here: true}, true, true, true},
		{"it is elsewhere", Conn{}, false, false, false},
		{"it goes where its handshake is, which ends with a step", Conn{Here: true, Boarding: true}, false, true, false},
		{"it is about to leave", Conn{Here: true, Underway: true}, false, false, false},
		{"it is over", Conn{Here: true, Closing: true}, false, false, false},
		{"the core runs, or did when its evacuation began", Conn{Here: true, CoreRuns: true}, true, false, false},
		{"the core runs, and it is boarding", Conn{Here: true, Boarding: true, CoreRuns: true}, false, false, false},
	} {
		for at, want := range map[Moment]bool{Evacuation: one.evacuation, StepEnded: one.step, Arrival: one.came} {
			if got := one.c.Leaves(at); got != want {
				t.Errorf("%s, moment %d: leaves %v", one.name, at, got)
			}
		}
	}
}
