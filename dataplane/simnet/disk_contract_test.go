package simnet_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// Matrix: ST-01
func TestFilesKeepTheContract(t *testing.T) {
	for _, direct := range []uring.DirectMode{uring.Buffered, uring.Direct} {
		t.Run(fmt.Sprint(direct), func(t *testing.T) {
			drivertest.Files(t, func(*testing.T) *drivertest.Bed {
				n, h := diskHost(3, simnet.DiskOptions{Latency: time.Microsecond, Jitter: time.Millisecond})
				return &drivertest.Bed{
					Driver: h.Driver(), Disk: h.Disk(), Dir: "/data", Direct: direct,
					Step: func() { advance(n) },
				}
			})
		})
	}
}
