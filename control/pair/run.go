package pair

import (
	"runtime"
	"runtime/debug"
	"testing/synctest"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
)

// The network and all cores move on one goroutine (run), by steps: an event of the network, or
// a turn of a core. Before each all other goroutines of the bubble have run until they wait.
// Without work it sleeps until the next event or timer is due, so that the bubble's time and
// that of the network are the same.

// opened keeps a core that is about to start.
func (p *Pair) opened(c *simnet.Core) {
	c.EndInTurn()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cores = append(p.cores, c)
}

// wake has the network look for work. Any goroutine.
func (p *Pair) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

func (p *Pair) run() {
	defer close(p.ended)
	for {
		synctest.Wait()
		select {
		case <-p.stop:
			return
		case f := <-p.acts:
			f()
			continue
		default:
		}
		if p.step() {
			continue
		}
		if !p.sleep() {
			return
		}
	}
}

// sleep waits until there may be work. It returns false at the end.
func (p *Pair) sleep() bool {
	var due <-chan time.Time
	if at, ok := p.next(); ok {
		timer := time.NewTimer(at - time.Since(p.began))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-p.woken:
	case <-due:
	case f := <-p.acts:
		f()
	case <-p.stop:
		return false
	}
	return true
}

// running are the cores that have not ended.
func (p *Pair) running() []*simnet.Core {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []*simnet.Core
	for _, c := range p.cores {
		if !c.Gone() {
			list = append(list, c)
		}
	}
	p.cores = append(p.cores[:0], list...)
	return list
}

// step does one event or turn that is due now, and says whether there was one.
func (p *Pair) step() bool {
	p.Network.Advance(time.Since(p.began))
	now := p.Network.Now()
	var ready []*simnet.Core // nil stands for the network
	if at, ok := p.Network.Next(); ok && at <= now {
		ready = append(ready, nil)
	}
	for _, c := range p.running() {
		if at, ok := c.Deadline(); c.Busy() || ok && at <= now {
			ready = append(ready, c)
		}
	}
	if len(ready) == 0 {
		return false
	}
	c := ready[p.Network.Rand().IntN(len(ready))]
	if c == nil {
		return p.Network.Step()
	}
	if err := c.Turn(); err != nil {
		p.t.Errorf("core %d: %v", c.ID(), err)
	}
	return true
}

// next is the time at which the next event or timer is due.
func (p *Pair) next() (at time.Duration, ok bool) {
	at, ok = p.Network.Next()
	for _, c := range p.running() {
		if d, armed := c.Deadline(); armed && (!ok || d < at) {
			at, ok = d, true
		}
	}
	return at, ok
}

// settled closes quiet when no work is left now. On the goroutine of the network.
func (p *Pair) settled(quiet chan struct{}) {
	defer close(quiet)
	for {
		synctest.Wait()
		if !p.step() {
			return
		}
	}
}

// OnOneProcessor has the process run one goroutine at a time and collect no garbage by
// itself, both of which change the order in which goroutines run, until end is called: so a
// test with a seed takes the same course again, as far as the machine lets it. The test calls
// runtime.GC now and then.
func OnOneProcessor() (end func()) {
	procs, percent := runtime.GOMAXPROCS(1), debug.SetGCPercent(-1)
	return func() {
		debug.SetGCPercent(percent)
		runtime.GOMAXPROCS(procs)
	}
}
