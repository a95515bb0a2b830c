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

// Maps that are missing, or that could not be read, are asked for, and again behind a tick. The reason why no map comes is forgotten
// when one has come.
func TestMissingMapsAreAskedFor(t *testing.T) {
	incs, wholes := chain(t, 20)
	c := start(t, Options{})
	take := func(epoch uint32, inc, whole []byte, follow uint32, bad error) {
		t.Helper()
		c.followed.Store(0)
		m := &osdmap.Map{Epoch: epoch}
		copy(m.FSID[:], wholes[30][12:28])
		c.take(m, inc, whole)
		if got, err := c.followed.Load(), c.e.noMap(); got != follow || !errors.Is(err, bad) || bad == nil && err != nil {
			t.Errorf("behind map %d: maps from %d on are asked for, want %d; %v", epoch, got, follow, err)
		}
	}
	take(30, nil, wholes[30], 0, nil)
	take(31, []byte("what"), nil, 31, ErrMessage)
	take(31, incs[31], nil, 0, nil)
	take(35, incs[35], nil, 32, nil)
	c.e.tick(c.e.now())
	take(36, incs[36], nil, 32, nil)
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
