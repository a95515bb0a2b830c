package pair_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/pair"
	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
)

// wrongs are what an audit has found.
type wrongs struct {
	mu    sync.Mutex
	found []string
}

func (w *wrongs) add(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = append(w.found, err.Error())
}

// Matrix: KV-13
func TestWhatACarelessServerLosesIsNoticed(t *testing.T) {
	for name, d := range map[string]defect{
		"the file is not synced":           {noSync: true},
		"the directory is not synced":      {noDirectory: true},
		"nor the one that it is in":        {noParent: true},
		"flipped bits are returned":        {noCRC: true},
		"it answers before it has written": {tooEarly: true},
	} {
		var w wrongs
		for seed := uint64(1); seed <= 40 && len(w.found) == 0; seed++ {
			s := serverOf(seed, d)
			s.Wrong = w.add
			pair.Simulate(t, s, func(w *pair.World) {
				w.Round()
				w.Flip("/notes", errDamaged)
			})
		}
		if len(w.found) == 0 {
			t.Errorf("%s: nothing is wrong", name)
		}
	}
}

// Matrix: KV-13
func TestAFullDiskIsNoSecret(t *testing.T) {
	for _, silent := range []bool{false, true} {
		var w wrongs
		s := serverOf(1, defect{noErrors: silent})
		s.Wrong = w.add
		pair.Simulate(t, s, func(w *pair.World) {
			w.All(pair.Put, pair.Keys)
			w.Fill()
		})
		if silent != (len(w.found) > 0) {
			t.Errorf("silent %t: wrong is %q", silent, w.found)
		}
	}
}

// A server that may not refuse does not, one that lies about its keys is told, and one that
// does not start any more is wrong.
// Matrix: KV-13
func TestWhatAServerMustNotSayIsNoticed(t *testing.T) {
	var w wrongs
	s := serverOf(1, defect{})
	s.Wrong = w.add
	s.List = func(context.Context, *control.Conn) ([]string, error) { return nil, nil }
	pair.Simulate(t, s, func(world *pair.World) {
		world.All(pair.Put, 3)
		world.Disk(simnet.DiskOptions{Room: 1})
		world.All(pair.Put, 3)
		if len(w.found) > 0 {
			t.Errorf("on a full disk: %q", w.found)
		}
		world.Everything()
		world.MayRefuse(false)
		world.All(pair.Put, 1)
		world.Disk(simnet.DiskOptions{})
		world.Do(func() { world.ServerHost.Disk().Flip(book, 9, 1) })
		world.MustRestart(false)
	})
	for i, want := range []string{"the keys are", "key-000 is refused: ", "the server does not start: "} {
		if len(w.found) != 3 || !strings.HasPrefix(w.found[i], want) {
			t.Errorf("wrong is %q, want %q", w.found, want)
		}
	}
}

// All goes on until the server is ended, and the next process has what was acknowledged.
func TestAStormEndsWithTheServer(t *testing.T) {
	pair.Simulate(t, serverOf(1, defect{}), func(w *pair.World) {
		ended := 0
		w.Storm(100, func() { ended++ })
		w.MustRestart(true)
		w.Everything()
		if ended != 1 || len(w.Present()) == 0 {
			t.Errorf("ended %d times, and left %q", ended, w.Present())
		}
	})
}
