package dataplane

import (
	"errors"
	"math"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

func TestAMessageThatNoWriteCarriesIsRefusedBySend(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		return // there are no such slices
	}
	// Address space only: nobody looks at the bytes.
	huge, err := unix.Mmap(-1, 0, int(uint64(math.MaxUint32)+1), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	must(t, err)
	defer func() { _ = unix.Munmap(huge) }()
	h := NewHandler(&loop.Core{}, HandlerConfig{})
	for _, m := range []*Message{{Data: huge}, {Data: huge[:MaxMessage+1]}, {Front: huge[:1], Data: huge[:MaxMessage]}} {
		if err := h.Send(m); !errors.Is(err, ErrTooLarge) {
			t.Errorf("got %v", err)
		}
	}
	if n, _ := h.QueuedOut(); n != 0 {
		t.Errorf("%d messages are charged", n)
	}
	if tooLarge(&Message{Data: huge[:MaxMessage]}) {
		t.Error("the largest message is refused")
	}
}
