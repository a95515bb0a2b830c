package steplock

import (
	"runtime"
	"testing"
	"time"
)

// The actions of one connection keep the order of their steps, whichever goroutines
// step.
func TestActionsOfAConnectionKeepTheirOrder(t *testing.T) {
	var l Lock
	var o Outbox
	o.Of(&l)
	const each, goroutines = 1000, 4
	next, wrong, at := 0, 0, 0
	done := make(chan struct{})
	for range goroutines {
		go func() {
			for range each {
				l.Lock()
				n := next
				next++
				o.PutLocked(func() {
					if at != n { // one at a time: at needs no lock
						wrong++
					}
					runtime.Gosched()
					if at++; at == each*goroutines {
						close(done)
					}
				})
				l.Unlock()
			}
		}()
	}
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("two ran at a time")
	}
	if wrong != 0 {
		t.Errorf("%d of %d were out of order", wrong, at)
	}
}
