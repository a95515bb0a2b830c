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
