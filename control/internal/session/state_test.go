package session

import (
	"errors"
	"testing"
)

// A peer that tells again and again of messages that we have not sent has another session.
func TestEachFourthNumberThatCannotBeBeginsTheSessionAnew(t *testing.T) {
	var l Lifecycle
	for i := range 3 * maxStrange {
		anew, err := l.CheckReceived(1)
		if want := i%maxStrange == maxStrange-1; anew != want || !errors.Is(err, ErrProtocol) {
			t.Errorf("number %d: anew %v, %v", i+1, anew, err)
		}
	}
	for i := range 2 * maxStrange {
		if i%2 == 0 { // in a row, and not on a socket in between
			l.State = Connecting
			l.Ready(&Run{})
		}
		if anew, _ := l.CheckReceived(1); anew {
			t.Errorf("number %d: anew, though the session was open", i+1)
		}
	}
}

func TestEachOfManySessionsThatHaveEndedIsRememberedAndOnlySoMany(t *testing.T) {
	var e Ended
	for cookie := range uint64(endedMax) {
		e.Remember(Name{Cookie: cookie}, 8)
		e.Remember(Name{Cookie: cookie}, 7)
	}
	for _, cookie := range []uint64{0, endedMax / 2, endedMax - 1} {
		if n := (Name{Cookie: cookie}); !e.IsStale(n, 7) || e.IsStale(n, 8) {
			t.Errorf("session %d: %d on record", cookie, max(e.young[n], e.old[n]))
		}
	}
	for cookie := range uint64(3 * endedMax) {
		e.Remember(Name{Cookie: cookie}, 9)
	}
	if n := len(e.young) + len(e.old); n > 2*endedMax {
		t.Errorf("%d are remembered", n)
	}
}
