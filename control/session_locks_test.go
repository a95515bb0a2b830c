//go:build invariants || race

package control_test

import "testing"

// The goroutine of an accepted socket takes the lock six times: when it begins, when
// the handshake is complete, for the frame of the session, when the handler is there,
// when the answer has left, and at its end.
func TestAnAcceptedConnectionTakesTheMessengersLockSixTimes(t *testing.T) {
	onAccepting(t, func(t *testing.T, a *accepting) {
		before := a.Server.LocksTaken()
		a.accept()
		if n := a.Server.LocksTaken() - before - 1; n > 6 {
			t.Errorf("the lock was taken %d times, want at most 6", n)
		}
	})
}
