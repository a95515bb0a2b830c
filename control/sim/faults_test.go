//go:build !race

package sim_test

import (
	"math/rand/v2"

	"github.com/ringmsgr/ringmsgr/dataplane/faulty"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Two of five seeds have drivers that fail, in every way that the kernel has
// (package faulty) and that a core lives with. What fails comes from a source of its
// own, so that it changes nothing else about a seed.

// newSimFaults is what fails in a seed, nil if nothing does. A driver that breaks as a
// whole is not among it: cores without threads do not fail.
func newSimFaults(seed uint64) *faulty.Random {
	if seed%5 > 1 {
		return nil
	}
	rng := rand.New(rand.NewPCG(seed, 0x6661756c7473))
	every := make(map[faulty.Request]int)
	for request, most := range map[faulty.Request]int{
		faulty.Adopt: 8, faulty.Accept: 4, faulty.AcceptEnd: 8, faulty.Connect: 8, faulty.ConnectEnd: 8, faulty.Detach: 4,
		faulty.Ready: 16, faulty.ReadyEnd: 400, faulty.Read: 400, faulty.Send: 400, faulty.SendEnd: 200,
	} {
		every[request] = most
	}
	scale := 1 << rng.IntN(4)
	for _, request := range faulty.Requests() { // in a fixed order
		if every[request] > 0 {
			if every[request] *= scale; rng.IntN(4) == 0 {
				every[request] = 0
			}
		}
	}
	every[faulty.Receive], every[faulty.ReceiveEnd] = 64*scale, 400*scale // behind all others, whose course stays
	return faulty.NewRandom(rng, every)
}

// breakDrivers has the drivers of a node fail, if those of the world do.
func (n *node) breakDrivers(cfg *loop.Config) {
	n.broken = nil
	if n.w.faults == nil {
		return
	}
	n.broken = make(map[int]faulty.Driver)
	open := cfg.Open
	cfg.Open = func(core int) (uring.Driver, error) {
		below, err := open(core)
		if err != nil {
			return nil, err
		}
		d := faulty.New(below, n.w.faults.Ask)
		n.broken[core] = d
		return d, nil
	}
}

// holds says that the driver of a core holds something back.
func (n *node) holds(core int) bool {
	d := n.broken[core]
	return d != nil && d.Pending()
}

// endFaults lets nothing fail any more.
func (w *world) endFaults() {
	if w.faults == nil {
		return
	}
	w.faults.Stop()
	for _, r := range faulty.Requests() {
		w.cover.DriverFaults += w.faults.Count(r)
	}
}
