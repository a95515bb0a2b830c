package control

import (
	"reflect"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/session2"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// There are as many of these as connections. Each fits a size of the
// allocator, which adds 8 bytes to what is larger than 512: one field more costs an idle
// connection up to 128 bytes.
// Matrix: RL-01
func TestWhatAConnectionConsistsOfKeepsItsSize(t *testing.T) {
	for _, one := range []struct {
		of   reflect.Type
		most uintptr
	}{
		{reflect.TypeFor[Conn](), 896 - 8},
		{reflect.TypeFor[dataplane.Handler](), 1024 - 8},
		{reflect.TypeFor[session2.Session](), 384},
		{reflect.TypeFor[loop.Socket](), 512},
		{reflect.TypeFor[struct {
			frame.Encoder
			dec frame.Decoder
		}](), 320},
	} {
		if got := one.of.Size(); got > one.most {
			t.Errorf("%v: %d bytes, want at most %d", one.of, got, one.most)
		}
	}
}
