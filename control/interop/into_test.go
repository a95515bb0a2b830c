//go:build !giouring

package interop_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// A real OSD's answers come into memory of the caller's, by both protocols.
// Matrix: V1-13
func TestObjectsAreReadIntoMemoryOfTheCaller(t *testing.T) {
	enabled(t)
	t.Parallel()
	c := startCluster(t, clusterConfig{auth: "cephx", mode: "crc", osds: 1, msgr1: true})
	for _, backend := range backends {
		for _, protocol := range []string{"msgr2.1", control.Msgr1} {
			t.Run(protocol+"/"+string(backend), func(t *testing.T) { readInto(t, dialCluster(t, c, protocol, backend), backend) })
		}
	}
}

func readInto(t *testing.T, cl *rados.Cluster, backend uring.Backend) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	const name = "read into memory"
	rng := rand.New(rand.NewPCG(7, 7))
	pieces := uint64(0)
	for _, size := range []int{1, 4096, 4<<20 + 1, rados.PieceSize + 4097} {
		pattern := noise(size)
		check(t, object(t, cl, name).WriteFull(ctx, pattern))
		for _, room := range []int{size, size + 10, max(size-10, 0), size / 2} {
			p := bytes.Repeat([]byte{0xa5}, room+8)
			from := rng.IntN(size)
			want := pattern[from:][:min(room, size-from)]
			n, err := object(t, cl, name).ReadInto(ctx, uint64(from), p[:room])
			check(t, err)
			if !bytes.Equal(p[:n], want) || bytes.Count(p[room:], []byte{0xa5}) != 8 {
				t.Errorf("%s: %d bytes from %d of %d come as %d others", backend, room, from, size, n)
			}
			for piece := range slices.Chunk(want, rados.PieceSize) {
				if len(piece) >= 16<<10 { // smaller ones are copied
					pieces++
				}
			}
		}
	}
	posted := uint64(0)
	for _, conn := range cl.Messenger().Conns() {
		if conn.Info().PeerType == wire.OSD {
			st, err := conn.Stats()
			check(t, err)
			posted += st.IO.Posted
		}
	}
	if posted != pieces {
		t.Errorf("%d of %d answers came into memory of the caller", posted, pieces)
	}
	check(t, object(t, cl, name).Remove(ctx))
	p := make([]byte, 10)
	if n, err := object(t, cl, name).ReadInto(ctx, 0, p); n != 0 || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read of an absent object: %d, %v", n, err)
	}
}
