package storage

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/uring"
)

// silent is a driver whose sockets bring no bytes.
type silent struct {
	uring.Driver
	armed int
}

func (d *silent) Recv(uring.Socket, []byte, []byte) (int, unix.Errno) { return 0, unix.EAGAIN }

func (d *silent) Arm(uring.Kind, uring.Socket, uint64) (uring.Op, error) {
	d.armed++
	return 0, nil
}

// The kernel may end a multishot request with a notice about bytes that were read already.
func TestTheFloorHearsOfWhatComesBehindTheLastNotice(t *testing.T) {
	d := new(silent)
	c := &ringConn{r: &Ring{drv: d, stage: make([]byte, ringStage)}}
	for _, flags := range []uring.Flags{uring.More, 0} {
		clitest.Must(t, c.ready(&uring.Completion{Flags: flags}))
		if want := map[uring.Flags]int{uring.More: 0, 0: 1}[flags]; d.armed != want {
			t.Errorf("flags %d: asked %d times, want %d", flags, d.armed, want)
		}
	}
}
