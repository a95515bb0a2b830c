package control_test

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Two faults in the life of one session, at any two places of it.

var (
	sessionSeed  = flag.Uint64("session.seed", 1, "seed of the sampled pairs of faults")
	sessionPairs = flag.Int("session.pairs", 60, "pairs of faults that are sampled")
)

// place is a point of one side.
type place struct {
	side msgrtest.Role
	at   msgrtest.Point
}

func (p place) resumes() bool { return isIn(p.at, msgrtest.ReconnectPoints(p.side)) }
func (p place) inData() bool  { return isIn(p.at, msgrtest.DataPoints()) }

// opens says that the point is only passed where no session is known to both.
func (p place) opens() bool {
	return p.at.Tag == frame.TagClientIdent || p.at.Tag == frame.TagServerIdent
}

// faults are two places, one behind the other.
type faults struct {
	pairing
	first, second place
	v             variant
}

func (f faults) name() string {
	return title(f.connector, f.first.side, msgrtest.PointName(f.first.at), f.second.side, msgrtest.PointName(f.second.at), f.v)
}

// orderedPairs are all that can be: once both sides have a session, it is not
// opened again.
func orderedPairs() []faults {
	var out []faults
	for _, p := range []pairing{{"LLC", "SFS"}, {"LP", "LP"}} {
		var all []place
		for _, side := range []msgrtest.Role{msgrtest.Connector, msgrtest.Acceptor} {
			for _, at := range slices.Concat(msgrtest.HandshakePoints(side), msgrtest.ReconnectPoints(side), msgrtest.DataPoints()) {
				all = append(all, place{side, at})
			}
		}
		for _, first := range all {
			for _, second := range all {
				if first == second || second.opens() && (first.resumes() || first.inData()) {
					continue
				}
				out = append(out, faults{p, first, second, allVariants[len(out)%len(allVariants)]})
			}
		}
	}
	return out
}

// TestEveryOrderedPairOfFaultsConverges is FT-26: all ordered pairs of two
// places of lossless sessions. Nothing is lost, nothing comes twice (INV-01).
func TestEveryOrderedPairOfFaultsConverges(t *testing.T) {
	msgrtest.CheckLeaks(t)
	all := orderedPairs()
	pairs := sampleOf(all, 29)
	t.Logf("%d of %d", len(pairs), len(all))
	spread(t, 16, len(pairs), func(i int) string { return pairs[i].name() }, func(t *testing.T, i int) { pairs[i].run(t) })
}

func (f faults) run(t *testing.T) {
	w := &duet{t: t, ctx: deadline(t), v: f.v}
	w.acceptor = nodeOf(t, f.v, "osd.1", f.acceptor, 3, withChain(keeper(), echoer()))
	w.connector = nodeOf(t, f.v, connectorName(f.connector), f.connector, 2)
	// The acceptor's own attempts to resume stay out of the way until both
	// places are passed.
	theirs := w.acceptor.Probe.Arm(msgrtest.SocketConnecting(), 1, msgrtest.Block())
	var last *msgrtest.Break
	fault := func(p place) { last = w.side(p.side).Probe.ArmBehind(last, p.at, 1, msgrtest.Fault()) }
	lost := place{msgrtest.Connector, msgrtest.Write(frame.TagMessage)} // there is a session to resume
	if f.first.resumes() {
		fault(lost)
	}
	fault(f.first)
	if f.second.resumes() && !f.first.resumes() && !f.first.inData() {
		fault(lost)
	}
	fault(f.second)
	w.dial()
	w.talkUntil(last)
	theirs.Forget()
	w.finish()
}

// TestPairsOfFaultsInARaceConverge samples pairs with both sides free to resume,
// so that their attempts meet.
func TestPairsOfFaultsInARaceConverge(t *testing.T) {
	msgrtest.CheckLeaks(t)
	type pair struct {
		policies pairing
		at       [2]msgrtest.Point
		side     [2]msgrtest.Role
		nth      [2]int
		v        variant
	}
	rng := rand.New(rand.NewPCG(*sessionSeed, 26))
	var pairs []pair
	for i := range *sessionPairs {
		p := pair{policies: pairings[2+rng.IntN(3)], v: variants[i%len(variants)]}
		for k := range p.at {
			p.side[k] = msgrtest.Role(rng.IntN(2))
			all := slices.Concat(msgrtest.HandshakePoints(p.side[k]), msgrtest.ReconnectPoints(p.side[k]), msgrtest.DataPoints())
			p.at[k], p.nth[k] = all[rng.IntN(len(all))], 1+rng.IntN(2)
		}
		pairs = append(pairs, p)
	}
	name := func(i int) string {
		p := pairs[i]
		return title(i, p.policies.connector, p.side[0], msgrtest.PointName(p.at[0]), p.nth[0], p.side[1], msgrtest.PointName(p.at[1]), p.nth[1], p.v)
	}
	spread(t, 16, len(pairs), name, func(t *testing.T, i int) {
		p := pairs[i]
		w := &duet{t: t, ctx: deadline(t), v: p.v}
		w.acceptor = nodeOf(t, p.v, "osd.1", p.policies.acceptor, 1+uint32(i%2)*2, withChain(keeper(), echoer()))
		w.connector = nodeOf(t, p.v, connectorName(p.policies.connector), p.policies.connector, 2)
		for k, at := range p.at {
			// A point of the second fault may never be passed again.
			w.side(p.side[k]).Probe.Arm(at, p.nth[k], msgrtest.Fault()).Forget()
		}
		last := w.connector.Probe.Arm(msgrtest.Read(frame.TagMessage), 20, msgrtest.Continue())
		w.dial()
		w.talkUntil(last)
		w.finish()
	})
}
