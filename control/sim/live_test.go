//go:build !race

package sim_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

var liveSeeds = flag.Int("sim.live", 150, "seeds of the simulation at the bounds")

// TestHonestPeersNeverStopEachOther has every policy work at its bounds: all ends answer each
// message with the message that they received, wait where there is no room, and keep it
// meanwhile. At all bounds all answers come.
// Matrix: RL-03
func TestHonestPeersNeverStopEachOther(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	total := new(simCover)
	for seed := range uint64(*liveSeeds) {
		synctest.Test(t, func(t *testing.T) { total.add(runLive(t, seed+454)) }) // at 603 the finishers of two throttles waited for each other
		if t.Failed() {
			return
		}
	}
	t.Logf("%v", total.Acts)
	for _, event := range []string{"full", "paused", "given up", "cloned", "own"} {
		if *liveSeeds >= 100 && total.Acts[event] == 0 {
			t.Errorf("the bounds were not reached: %q never happened", event)
		}
	}
}

// liveWorld is a world whose nodes answer everything.
type liveWorld struct {
	*world
	answer liveAnswerKind
	queues map[liveLine]*liveQueue
	got    map[uint64]uint64 // answers by stream
}

// liveAnswerKind is how a user answers.
type liveAnswerKind int

const (
	answerSame  liveAnswerKind = iota // with the message itself
	answerClone                       // with a clone of it
	answerOwn                         // with a message of its own, whose Free releases the received one
)

// liveLine is a sender on a connection: of requests, or of answers, which do not wait for the
// requests.
type liveLine struct {
	c       *control.Conn
	answers bool
}

// liveQueue are the messages of one line that wait for room.
type liveQueue struct {
	on      *control.Conn
	waiting []*control.Message
	busy    bool
}

func runLive(t *testing.T, seed uint64) *simCover {
	rng := rand.New(rand.NewPCG(seed, 7))
	kind := simKinds[int(seed)%len(simKinds)]
	l := &liveWorld{answer: liveAnswerKind(rng.IntN(3)), queues: make(map[liveLine]*liveQueue), got: make(map[uint64]uint64)}
	large := 200 + rng.IntN(20_000)
	bound := func(from, most int) int64 {
		if rng.IntN(3) == 0 {
			return 0
		}
		return int64(from + rng.IntN(most))
	}
	if kind.both && l.answer == answerOwn {
		l.answer = answerClone // see budget.go: if both sides ask, they must not hold received messages
	}
	plan := newPlan(rng)
	plan.kind, plan.nodes, plan.large, plan.priorities, plan.replies, plan.slow, plan.silent = kind, 2+rng.IntN(2), large, false, false, false, false
	plan.net.ResetEvery, plan.breakEvery, plan.idle, plan.every = 0, 0, 0, 0
	plan.net.Window = 4 << (10 + rng.IntN(6))
	plan.messages, plan.bytes, plan.dispatch = bound(1, 8), bound(100, large), bound(100, 2*large)
	plan.queueMessages, plan.queueBytes = bound(1, 8), bound(100, large)
	if kind.both {
		plan.queueMessages, plan.queueBytes = 0, 0 // for the same reason
	}
	l.world = newWorld(t, seed, plan, rng, nil, nil, l)
	l.cover.Acts = make(map[string]int)

	const each = 30
	var lanes []*lane
	for _, n := range l.nodes {
		for _, to := range l.nodes {
			if to != n && to.server() && (n.id > to.id || n.server()) {
				lanes = append(lanes, n.channelTo(to).lanes...)
			}
		}
	}
	for range each {
		for _, one := range lanes {
			p := one.parcel(0, rng.IntN(large), simMessage)
			one.next++
			one.ch.from.accepted++
			l.send(liveLine{one.ch.conn, false}, &p.msg)
		}
	}
	limit := l.net.Now() + 30*time.Minute
	for !l.failed && l.net.Now() < limit {
		l.run(time.Second)
		if l.over(lanes, each) {
			break
		}
	}
	if !l.over(lanes, each) {
		l.show()
	}
	for _, one := range lanes {
		if got := l.got[one.stream]; got != each && !l.failed {
			l.fail("%d of %d answers came on stream %d, answer kind %d, plan %v", got, each, one.stream, l.answer, plan)
		}
	}
	for _, n := range l.nodes {
		for _, c := range n.stats().Cores {
			l.cover.Acts["paused"] += int(c.Paused)
			l.cover.Acts["given up"] += int(c.GivenUp)
		}
	}
	for _, n := range l.nodes {
		n.shutdown()
	}
	return l.cover
}

// show logs each connection, and the messages that wait for room there.
func (l *liveWorld) show() {
	for _, n := range l.nodes {
		for _, c := range n.m.Conns() {
			l.wait("stats", func() {
				st, err := c.Stats()
				l.t.Logf("node %d conn %d: %v %v", n.id, c.ID(), st, err)
			})
			for _, answers := range []bool{true, false} {
				if q := l.queues[liveLine{c, answers}]; q != nil {
					l.t.Logf("  answers %v: %d wait, one for room: %v", answers, len(q.waiting), q.busy)
				}
			}
		}
	}
}

func (l *liveWorld) over(lanes []*lane, each uint64) bool {
	for _, one := range lanes {
		if l.got[one.stream] != each {
			return false
		}
	}
	return true
}

// send sends, or has the message wait for earlier ones of its connection.
func (l *liveWorld) send(on liveLine, m *control.Message) {
	q := l.queues[on]
	if q == nil {
		q = &liveQueue{on: on.c}
		l.queues[on] = q
	}
	l.woken = true
	if !q.busy {
		err := on.c.Send(m)
		if err == nil {
			return
		}
		if !errors.Is(err, control.ErrQueueFull) {
			l.fail("send: %v", err)
			return
		}
		l.cover.Acts["full"]++
	}
	q.waiting = append(q.waiting, m)
	l.next(q)
}

// next has a goroutine wait for the room of the first that has none.
func (l *liveWorld) next(q *liveQueue) {
	if q.busy || len(q.waiting) == 0 {
		return
	}
	m := q.waiting[0]
	q.waiting, q.busy = q.waiting[1:], true
	var err error
	l.apart(func() { err = q.on.SendContext(context.Background(), m) }, func() {
		if err != nil && !errors.Is(err, control.ErrClosed) {
			l.fail("send: %v", err)
		}
		q.busy = false
		l.next(q)
	})
}

// received answers a message, or counts an answer.
func (l *liveWorld) received(c *control.Conn, m *control.Message, stream, number uint64) {
	if m.Type == liveAnswer {
		if number != l.got[stream]+1 {
			l.fail("answer %d of stream %d came behind %d", number, stream, l.got[stream])
		}
		l.got[stream] = number
		l.cover.Acts["echoes"]++
		return
	}
	answer := m
	switch l.answer {
	case answerSame:
		m.Retain()
	case answerClone:
		answer = m.Clone()
		l.cover.Acts["cloned"]++
	case answerOwn:
		m.Retain()
		answer = &control.Message{TID: m.TID, Front: m.Front, Middle: m.Middle, Data: m.Data, Free: func(*dataplane.Message) { m.Release() }}
		l.cover.Acts["own"]++
	}
	answer.Type = liveAnswer
	l.send(liveLine{c, true}, answer)
}

// liveAnswer is the type of answers.
const liveAnswer = 9
