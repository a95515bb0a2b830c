//go:build !race

package sim_test

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/pair"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Beside honest nodes there is a peer that speaks the protocol and chooses every
// field and every moment: the adversary. It has no messenger, but sockets
// (adversary_socket_test.go), which follow the protocol as far as the seed wants
// (adversary_talk_test.go) and do anything else between (adversary_acts_test.go). In some
// seeds that is msgr1 (adversary_msgr1_test.go, adversary_msgr1_acts_test.go).
//
// The harm that it may do depends on the proof of names:
//
//   - Method none believes every name: a peer with the name and the address of another can
//     take over its session, as with the real daemons. So in these seeds the adversary has
//     names and addresses of its own.
//   - In the other seeds names are proven (nodetest.Proof). The adversary proves names of its own,
//     claims the names of honest nodes without proof, and their addresses, cookies and
//     numbers in both cases. Honest users name the peer that they connect to
//     (control.WithEntity), as an address proves no name.
//
// In both, all promises of the simulator hold among the honest nodes; in calm seeds, without
// faults of the network and of the nodes, their sessions see no event. Their memory stays
// within the documented bounds at every step, the log within ten lines a minute for each
// cause, honest traffic completes while the adversary goes on, and Shutdown leaves nothing
// behind (adversary_check_test.go).

// adversarySample are the seeds that run if -sim.seeds does not say how many.
const adversarySample = 250

// TestAdversary runs seeds with an adversary, in several processes if there are
// many of them.
// Matrix: V1-11
func TestAdversary(t *testing.T) {
	seeds := seedsOr(adversarySample)
	if cover := runSeeds(t, seeds, runAdversary); !t.Failed() && seeds >= adversarySample {
		checkActs(t, cover)
	}
}

// seedsOr is how many seeds the command line asks for, or else the sample.
func seedsOr(sample int) int {
	flag.Visit(func(f *flag.Flag) {
		if f.Name == "sim.seeds" {
			sample = *simSeeds
		}
	})
	return sample
}

// adversaryPlan is the part of a plan about the adversary, and about the bounds on it.
type adversaryPlan struct {
	proven bool          // names are proven
	calm   bool          // no faults but those that the adversary makes
	hosts  int           // it has so many addresses
	pace   time.Duration // between two acts, on average

	limits    frame.Limits
	halfOpen  int
	sendBytes int64
	leastRate int64
	grace     time.Duration
	handshake time.Duration
}

func newAdversaryPlan(r *rand.Rand) simPlan {
	p := newPlan(r)
	p.foe = &adversaryPlan{
		proven: r.IntN(3) > 0, calm: r.IntN(2) == 0, hosts: 1 + r.IntN(3), pace: time.Duration(4+r.IntN(16)) * time.Millisecond,
		halfOpen: 64, leastRate: 16 << (10 + r.IntN(3)), grace: time.Duration(1000+r.IntN(3000)) * time.Millisecond,
	}
	p.foe.handshake = time.Duration(2000+r.IntN(8000)) * time.Millisecond
	p.actions = 8 + r.IntN(16)
	p.net.Segment, p.net.Window = 1<<(11+r.IntN(6)), 1<<(14+r.IntN(5))
	p.large = 20_000
	most := uint32(48<<10 + r.IntN(32<<10))
	p.foe.limits = frame.Limits{Control: 64 << 10, Front: most, Middle: most, Data: most}
	if p.messages > 0 {
		p.messages += 8
	}
	if p.bytes > 0 {
		p.bytes += 100_000
	}
	p.dispatch = int64(100_000 + r.IntN(400_000))
	p.queueBytes = int64(100_000 + r.IntN(400_000))
	if r.IntN(2) == 0 {
		// The share of each connection has room for every honest message.
		p.foe.sendBytes = 64 * (2*int64(p.large) + simFront)
	}
	if p.foe.calm {
		p.net.ResetEvery, p.breakEvery, p.idle, p.every, p.timeout, p.silent = 0, 0, 0, 0, 0, false
	}
	return p
}

// runAdversary is a simulation with an adversary.
func runAdversary(t testing.TB, seed uint64, protocol simProtocol, trace io.Writer) *world {
	rng := rand.New(rand.NewPCG(seed, 1313))
	plan := newAdversaryPlan(rng)
	plan.resizes = !plan.foe.calm && seed%4 == 0
	plan.protocol = cmp.Or(protocol, protocolOf(seed, true))
	w := newWorld(t, seed, plan, rng, nil, trace, nil)
	foe := w.foe
	foe.begin()
	for range w.plan.actions {
		w.births(false)
		if foe.plan.calm {
			w.calmAct()
		} else {
			w.act()
		}
		if w.rng.IntN(2) == 0 {
			foe.use()
		}
		if n := w.nodes[w.rng.IntN(len(w.nodes))]; n.m != nil {
			w.traffic(n)
		}
		w.run(w.span(300 * time.Millisecond))
		w.checkDoubts(false)
		foe.checkStats(w.rng.IntN(3) == 0)
		if w.failed {
			break
		}
	}
	w.finish() // while the adversary is at work
	if !w.failed {
		w.checkCompleted("the adversary is at work")
	}
	gone := rng.IntN(2) == 0
	foe.end(gone)
	if gone && !w.failed {
		foe.forget()
		w.finish()
		w.check()
	}
	foe.checkStats(true)
	for _, n := range w.nodes {
		n.shutdown()
	}
	foe.checkLeft()
	foe.vec.Free()
	w.cover.Seeds++
	w.cover.NetResets += w.net.Counts().Resets
	return w
}

// calmAct is an act of the users of honest nodes, without any other disturbance.
func (w *world) calmAct() {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	if w.rng.IntN(6) > 0 {
		w.traffic(n)
		return
	}
	for _, ch := range n.channels {
		ch.conn.Keepalive()
	}
	w.woken = true
}

// configure bounds a node as the plan says, and has it authenticate. A nil
// adversary leaves it as it is.
func (a *adversary) configure(n *node, cfg *control.Config) {
	if a == nil {
		return
	}
	p := a.plan
	cfg.Receiving.Limits, cfg.Door.HalfOpen, cfg.Sending.Bytes, cfg.Receiving.LeastRate, cfg.Receiving.Grace = p.limits, p.halfOpen, p.sendBytes, p.leastRate, p.grace
	cfg.Timeouts.Handshake, cfg.Logger = p.handshake, a.logger(n)
	if p.proven {
		one := &nodetest.Proof{Name: cfg.Name, Modes: []auth.Mode{auth.CRC}, Seed: a.w.seed<<8 + uint64(n.process)}
		cfg.Auth.Client, cfg.Auth.Server = one.Client(), one.Server()
	}
}

// wants are the options with which an honest node connects to another.
func (a *adversary) wants(to *node) []control.ConnectOption {
	if a == nil || !a.plan.proven {
		return nil
	}
	return []control.ConnectOption{control.WithEntity(wire.EntityName{Type: wire.OSD, ID: fmt.Sprint(to.id)})}
}

// messageMost is the largest message that passes the limits, in bytes.
func (p *adversaryPlan) messageMost() int64 {
	return int64(p.limits.Front) + int64(p.limits.Middle) + int64(p.limits.Data)
}

// share is the part of a bound that each connection may hold, even if the others hold all of
// it.
func share(bound, most int64) int64 { return min(bound/64, most) }

// heldMost is the documented bound of the received bytes that a messenger with so many
// connections holds: the bound, one message beyond it, and the shares.
func (a *adversary) heldMost(conns int) int64 {
	return a.w.plan.dispatch + max(a.plan.messageMost(), loop.MinShared) + int64(conns)*share(a.w.plan.dispatch, 64<<10)
}

func TestAnAdversaryRunsTheSameCourseForTheSameSeed(t *testing.T) {
	defer pair.OnOneProcessor()()
	for seed := uint64(1000); seed < 1010; seed++ {
		repeats(t, seed, runAdversary)
	}
}

var adversaryRegressions = []regression{
	{22, simMsgr2, "who claimed the address of a node, and left, had another node begin a session there, which ended the one that they had"},
	{8, simMsgr1, "the same had a session of msgr1 go on with that node: it got messages that were for the adversary"},
	{988, simMsgr1, "the first peer of a client that is not bound said who the client is, and a session with another one was lost when it said so there"},
	{5474, simMsgr1, "a socket that came, and said no more, had a session count as one that was open before"},
}

// Matrix: V1-11
func TestAdversaryFindsOldBugs(t *testing.T) { findOldBugs(t, adversaryRegressions, runAdversary) }
