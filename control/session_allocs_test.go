//go:build !invariants && !race

package control_test

import (
	"runtime"
	"testing"
	"testing/synctest"
)

// Both ends and the simulated network between them are counted. Of the ends the one
// that accepts takes about 120 pieces of memory on a real socket.
func TestAnAcceptedConnectionTakesFewPiecesOfMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccepting(t)
		a.accept() // what is made once is there from now on
		least := uint64(1 << 63)
		for range 5 {
			a.drop()
			var before, behind runtime.MemStats
			runtime.ReadMemStats(&before)
			a.accept()
			runtime.ReadMemStats(&behind)
			least = min(least, behind.Mallocs-before.Mallocs)
		}
		const most = 280 // 260, and some air for other releases of Go
		if least > most {
			t.Errorf("%d pieces of memory, want at most %d", least, most)
		}
		a.end()
	})
}
