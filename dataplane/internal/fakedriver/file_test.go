package fakedriver_test

import (
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/fakedriver"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// Matrix: ST-01
func TestFilesKeepTheContract(t *testing.T) {
	drivertest.Files(t, func(*testing.T) *drivertest.Bed {
		d := fakedriver.New()
		d.Disk.Align = uring.Alignment{Memory: 512, Offset: 512}
		return &drivertest.Bed{Driver: d, Disk: d.Disk, Dir: "/data", Direct: uring.Direct}
	})
}
