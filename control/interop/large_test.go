package interop_test

import (
	"context"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
)

// Objects that do not fit into one operation go in pieces, and are the same for
// the real tool: below, at and above the size of one and of two pieces, and above
// what a frame and an OSD would take at once.
func TestObjectsLargerThanOneOperation(t *testing.T) {
	enabled(t)
	t.Parallel()
	c := startCluster(t, clusterConfig{auth: "cephx", mode: "secure", osds: 1})
	cl := dialCluster(t, c, "msgr2.1", backends[0])
	quiet(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for _, size := range []int{rados.PieceSize - 1, rados.PieceSize, rados.PieceSize + 1, 2*rados.PieceSize + 12345, 100 << 20} {
		shareObject(ctx, t, c, cl, size)
	}
	piece, err := func() ([]byte, error) {
		check(t, object(t, cl, "parts").WriteFull(ctx, []byte("0123456789")))
		return object(t, cl, "parts").Read(ctx, 4, 3)
	}()
	if err != nil || string(piece) != "456" {
		t.Errorf("a part of an object: %q, %v", piece, err)
	}
	if piece, err = object(t, cl, "parts").Read(ctx, 8, 100); err != nil || string(piece) != "89" {
		t.Errorf("the end of an object: %q, %v", piece, err)
	}
	if piece, err = object(t, cl, "parts").Read(ctx, 10, 100); err != nil || len(piece) != 0 {
		t.Errorf("behind the end: %q, %v", piece, err)
	}
	check(t, object(t, cl, "parts").Remove(ctx))
}
