package planetest

import (
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/uring"
)

// Failing is a driver that breaks at the wish of a test.
type Failing struct {
	uring.Driver
	Broken *atomic.Bool
	Err    error // what it fails with
}

// Wait fails once the driver is broken.
func (d Failing) Wait(timeout time.Duration) ([]uring.Completion, error) {
	if d.Broken.Load() {
		return nil, d.Err
	}
	got, err := d.Driver.Wait(timeout)
	if d.Broken.Load() {
		return nil, d.Err
	}
	return got, err
}
