package engine

import (
	"errors"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/captured"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
)

// chain has the maps of a real cluster that changes, from epoch 30 on.
func chain(t *testing.T, n int) (incs, wholes map[uint32][]byte) {
	t.Helper()
	incs, wholes = map[uint32][]byte{}, map[uint32][]byte{}
	for _, e := range captured.Chain(t, "../osdmap/testdata/chain-reef.jsonl.gz")[:n] {
		incs[e.Epoch], wholes[e.Epoch] = e.Inc, e.Full
	}
	return incs, wholes
}

// Maps are taken one epoch after the other; a whole one goes before where one is missing, and says so.
func TestMapsAreTakenInTheirOrder(t *testing.T) {
	incs, wholes := chain(t, 100)
	const first = 30
	whole, err := osdmap.Decode(wholes[first])
	check(t, err)
	only := func(all map[uint32][]byte, epochs ...uint32) map[uint32][]byte {
		some := map[uint32][]byte{}
		for _, e := range epochs {
			some[e] = all[e]
		}
		return some
	}
	var m *osdmap.Map
	for i, c := range []struct {
		got   mon.OSDMaps
		epoch uint32
		jumps bool
		fails bool
	}{
		{got: mon.OSDMaps{Incremental: only(incs, first)}}, // of what?
		{got: mon.OSDMaps{Full: only(wholes, first)}, epoch: first},
		{got: mon.OSDMaps{Incremental: only(incs, first+1, first+2, first+3)}, epoch: first + 3},
		{got: mon.OSDMaps{Incremental: only(incs, first+2, first+6)}, epoch: first + 3}, // old, and a gap
		{got: mon.OSDMaps{Full: only(wholes, first+4), Incremental: only(incs, first+5)}, epoch: first + 5},
		{got: mon.OSDMaps{Full: only(wholes, first+1)}, epoch: first + 5},
		{got: mon.OSDMaps{FSID: mon.FSID{9}, Incremental: incs}, epoch: first + 5, fails: true},
		{got: mon.OSDMaps{Incremental: map[uint32][]byte{first + 6: incs[first+8]}}, epoch: first + 5, fails: true},
		{got: mon.OSDMaps{Full: map[uint32][]byte{first + 9: wholes[first+8]}}, epoch: first + 5, fails: true},
		{got: mon.OSDMaps{Full: only(wholes, first+8)}, epoch: first + 8, jumps: true},
		{got: mon.OSDMaps{Incremental: incs}, epoch: first + 8 + maxSteps}, // the others are asked for
		{got: mon.OSDMaps{Incremental: incs}, epoch: first + 99},
	} {
		if c.got.FSID == (mon.FSID{}) {
			c.got.FSID = whole.FSID
		}
		jumped := false
		steps, err := advance(m, &c.got)
		for _, next := range steps {
			if m != nil && next.m.Epoch != m.Epoch+1 && !next.skipped {
				t.Errorf("step %d: epoch %d follows %d", i, next.m.Epoch, m.Epoch)
			}
			m, jumped = next.m, jumped || next.skipped
		}
		if (err != nil) != c.fails || c.fails && !errors.Is(err, ErrMessage) || jumped != c.jumps {
			t.Errorf("step %d: %v, jumped %v", i, err, jumped)
		}
		if m != nil && m.Epoch != c.epoch || m == nil && c.epoch != 0 {
			t.Fatalf("step %d: %+v, want epoch %d", i, m, c.epoch)
		}
	}
}
