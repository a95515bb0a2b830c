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
}
