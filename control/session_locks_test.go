//go:build invariants || race

package control_test

import (
	"testing"
	"testing/synctest"
)

// The goroutine of an accepted socket takes the lock six times: when it begins, when
// the handshake is complete, for the frame of the session, when the handler is there,
// when the answer has left, and at its end.
func TestAnAcceptedConnectionTakesTheMessengersLockSixTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccepting(t)
		a.accept() // what is made once is there from now on
		a.drop()
		before := a.server.LocksTaken()
		a.accept()
		if n := a.server.LocksTaken() - before - 1; n > 6 {
			t.Errorf("the lock was taken %d times, want at most 6", n)
		}
		a.end()
	})
}
