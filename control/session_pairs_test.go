package control_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// Two faults in the life of one session, at any two places of it.

// racingPairs is how many pairs of faults in a race there are. They have as many
// places and moments that all of them would take days: each is drawn.
const racingPairs = 60 * 29

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

// decides says that an acceptor of msgr1 may have a session behind the point of which the
// connector has not heard, so that it answers READY to the next attempt.
func (p place) decides() bool {
	return p.at.Step == probe.ReplyWrite || p.at.Step == probe.ReplyRead || p.at.Step == probe.SeqWrite
}

// exchanges says that the point is only passed where the acceptor answers SEQ.
func (p place) exchanges() bool { return p.at.Step == probe.SeqWrite || p.at.Step == probe.SeqRead }

// faults are two places, one behind the other.
type faults struct {
	pairing
	first, second place
	v             variant
}

func (f faults) name() string {
	return title(f.connector, f.first.side, msgrtest.PointName(f.first.at), f.second.side, msgrtest.PointName(f.second.at), f.v)
}

// everyPlace are the places of a side: all that msgr1 has are passed again when a
// session is resumed.
func (v variant) everyPlace(r msgrtest.Role) []msgrtest.Point {
	if v.msgr1 {
		return slices.Concat(msgrtest.HandshakePoints1(r), msgrtest.DataPoints())
	}
	return slices.Concat(msgrtest.HandshakePoints(r), msgrtest.ReconnectPoints(r), msgrtest.DataPoints())
}

// orderedPairs are all that can be, in variants of one protocol: once both sides have a
// session, it is not opened again.
func orderedPairs(list []variant) []faults {
	var out []faults
	for _, p := range []pairing{{"LLC", "SFS"}, {"LP", "LP"}} {
		var all []place
		for _, side := range []msgrtest.Role{msgrtest.Connector, msgrtest.Acceptor} {
			for _, at := range list[0].everyPlace(side) {
				all = append(all, place{side, at})
			}
		}
		for _, first := range all {
			for _, second := range all {
				if first == second || second.opens() && (first.resumes() || first.inData()) {
					continue
				}
				out = append(out, faults{p, first, second, list[len(out)%len(list)]})
			}
		}
	}
	return out
}

// TestEveryOrderedPairOfFaultsConverges is FT-26: all ordered pairs of two
// places of lossless sessions. Nothing is lost, nothing comes twice (INV-01).
func TestEveryOrderedPairOfFaultsConverges(t *testing.T) {
	orderedPairsConverge(t, allVariants, strideOf(29, 59))
}

func orderedPairsConverge(t *testing.T, list []variant, stride int) {
	msgrtest.CheckLeaks(t)
	pairs := sampleOf(t, orderedPairs(list), stride)
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
	if f.second.resumes() && !f.first.resumes() && !f.first.inData() || f.second.exchanges() && f.first.decides() {
		fault(lost)
	}
	fault(f.second)
	w.dial()
	w.talkUntil(last)
	theirs.Forget()
	w.finish()
}

// TestPairsOfFaultsInARaceConverge samples pairs with both sides free to resume,
// so that their attempts meet. The seed of the sample draws them, other ones for
// as many seeds as the stride.
func TestPairsOfFaultsInARaceConverge(t *testing.T) {
	racingPairsConverge(t, variants, strideOf(29, 59))
}

func racingPairsConverge(t *testing.T, list []variant, stride int) {
	msgrtest.CheckLeaks(t)
	type pair struct {
		policies pairing
		at       [2]msgrtest.Point
		side     [2]msgrtest.Role
		nth      [2]int
		v        variant
	}
	rng := rand.New(rand.NewPCG(seedOfSample(t)/uint64(stride), 26))
	var pairs []pair
	for i := range racingPairs {
		p := pair{policies: pairings[2+rng.IntN(3)], v: list[i%len(list)]}
		for k := range p.at {
			p.side[k] = msgrtest.Role(rng.IntN(2))
			all := list[0].everyPlace(p.side[k])
			p.at[k], p.nth[k] = all[rng.IntN(len(all))], 1+rng.IntN(2)
		}
		pairs = append(pairs, p)
	}
	pairs = sampleOf(t, pairs, stride)
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
