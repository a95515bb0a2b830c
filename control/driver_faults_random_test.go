package control_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/dataplane/faulty"
	"github.com/ringmsgr/ringmsgr/dataplane/leaktest"
)

// Many faults in one run, by seed, at all ends at the same time.

// anyFault lets one in so many requests of a running core fail. A core that fails as a
// whole is not among it: there would soon be none left.
func anyFault(seed uint64) *faulty.Random {
	return faulty.NewRandom(rand.New(rand.NewPCG(seed, 3)), map[faulty.Request]int{
		faulty.Adopt: 6, faulty.Accept: 3, faulty.AcceptEnd: 6, faulty.Connect: 6, faulty.ConnectEnd: 6, faulty.Ready: 20, faulty.ReadyEnd: 60,
		faulty.Receive: 20, faulty.ReceiveEnd: 60, faulty.Read: 60, faulty.Send: 60, faulty.SendEnd: 40, faulty.Map: 20,
	})
}

func TestNothingIsLostOverDriversThatFailAtRandom(t *testing.T) {
	msgrtest.CheckLeaks(t)
	mapped := leaktest.Mapped(t)
	seeds := uint64(2)
	if os.Getenv("RINGMSGR_LONG") != "" {
		seeds = 60
	}
	type run struct {
		e    engine
		seed uint64
	}
	var runs []run
	for _, e := range driverEngines() {
		for i := range seeds {
			runs = append(runs, run{e, seedOfSample(t)*seeds + i})
		}
	}
	t.Logf("RINGMSGR_SAMPLE=%d", seedOfSample(t))
	name := func(i int) string {
		return title(string(runs[i].e.backend), string(runs[i].e.receive), runs[i].seed)
	}
	spread(t, 6, len(runs), name, func(t *testing.T, i int) { failAtRandom(t, runs[i].e, runs[i].seed) })
	if n := leaktest.Settled(mapped, func() int { return leaktest.Mapped(t) }); n > mapped {
		t.Errorf("%d bytes mapped before, %d after", mapped, n)
	}
}

func failAtRandom(t *testing.T, e engine, seed uint64) {
	ctx := deadline(t)
	r := anyFault(seed)
	var running atomic.Bool // set-up is the business of other tests
	ask := func(of faulty.Request) faulty.Fault {
		if !running.Load() {
			return faulty.Fault{}
		}
		return r.Ask(of)
	}
	var log lockedLog
	v, broken := variant{backend: e.backend}, e.broken(ask, 1+int(seed%2), &log)
	// No fault leaves a handshake waiting for its peer: one that waits fails the test.
	patient := func(c *msgrtest.NodeConfig) { c.HandshakeTimeout = 2 * sessionTime }
	hub := nodeOf(t, v, "osd.1", "LP", 9, withChain(echoer()), broken, patient)
	var lines []*driverLine
	for i, one := range []struct{ name, policy string }{{"osd.2", "LP"}, {"osd.3", "LP"}, {"osd.4", "LP"}} {
		lines = append(lines, &driverLine{from: nodeOf(t, v, one.name, one.policy, uint32(2+i), withChain(echoer()), broken, patient), to: hub})
	}
	running.Store(true)
	for _, l := range lines {
		l.conn = l.from.Dial(l.to)
	}
	const rounds = 15
	for round := uint64(1); round <= rounds; round++ {
		if round == rounds {
			r.Stop()
		}
		for i, l := range lines {
			l.send(t, uint64(i+1)*100+round)
		}
		for i, l := range lines {
			eventually(t, ctx, fmt.Sprintf("round %d on line %d\n%s", round, i, log.String()), l.done)
		}
	}
	struck := 0
	for _, request := range faulty.Requests() {
		struck += r.Count(request)
	}
	if struck < 5 {
		t.Errorf("%d faults", struck)
	}
	for i, l := range lines {
		want := make([]uint64, 0, len(l.sent))
		for _, tid := range l.sent {
			want = append(want, tid+1000)
		}
		if got := l.arrived(); !slices.Equal(got, l.sent) {
			t.Errorf("line %d: arrived %v of %v", i, got, l.sent)
		}
		if got := l.echoed(); !slices.Equal(got, want) {
			t.Errorf("line %d: echoes %v of %v", i, got, want)
		}
	}
}
