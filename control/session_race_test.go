package control_test

import (
	"context"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Two ends that may both dial. The connection that the lower address dials
// survives; the nonce decides which address is lower.

// racers are two nodes, the first of which is under test.
func racers(t *testing.T, v variant, weWin bool, chain ...*control.Dispatcher) (us, them *nodetest.Node) {
	t.Helper()
	return racersWith(t, v, weWin, func(*nodetest.NodeConfig) {}, chain...)
}

// racersThatWait are racers of whom the one that is told to wait does so for longer
// than a test takes. It would dial once more if the winner of the race took longer
// than the longest pause.
func racersThatWait(t *testing.T, v variant, weWin bool) (us, them *nodetest.Node) {
	t.Helper()
	return racersWith(t, v, weWin, func(c *nodetest.NodeConfig) { c.Timeouts.MaxBackoff = time.Hour })
}

func racersWith(t *testing.T, v variant, weWin bool, change func(*nodetest.NodeConfig), chain ...*control.Dispatcher) (us, them *nodetest.Node) {
	t.Helper()
	ours, theirs := uint32(2), uint32(1)
	if weWin {
		ours, theirs = 1, 2
	}
	us = nodeOf(t, v, "osd.1", "LP", ours, change)
	them = nodeOf(t, v, "osd.2", "LP", theirs, change, withChain(chain...))
	return us, them
}

// everyPoint runs a test for each break point and variant.
func everyPoint(t *testing.T, names string, run func(t *testing.T, ctx context.Context, v variant, at nodetest.Point)) {
	pointsIn(t, names, variants, run)
}

func pointsIn(t *testing.T, names string, list []variant, run func(t *testing.T, ctx context.Context, v variant, at nodetest.Point)) {
	nodetest.CheckLeaks(t)
	at := points(names)
	name := func(i int) string { return title(nodetest.PointName(at[i/len(list)]), list[i%len(list)]) }
	spread(t, 8, len(at)*len(list), name, func(t *testing.T, i int) {
		run(t, deadline(t), list[i%len(list)], at[i/len(list)])
	})
}

// Matrix: RA-01, RA-14
func TestRaceOfIdentsMakesOneSession(t *testing.T) {
	everyMode(t, func(t *testing.T, ctx context.Context, v variant) {
		us, them := racersThatWait(t, v, true)
		start := []*nodetest.Break{
			us.Probe.Arm(nodetest.SocketConnecting(), 1, nodetest.Block()),
			them.Probe.Arm(nodetest.SocketConnecting(), 1, nodetest.Block()),
		}
		a := us.Probe.Arm(nodetest.Write(frame.TagClientIdent), 1, nodetest.Block())
		b := them.Probe.Arm(nodetest.Write(frame.TagClientIdent), 1, nodetest.Block())
		send(t, us.Dial(them), 1)
		send(t, them.Dial(us), 2)
		us.Hit(ctx, start[0])
		them.Hit(ctx, start[1])
		start[0].Release()
		start[1].Release()
		us.Hit(ctx, a)
		them.Hit(ctx, b)
		a.Release()
		b.Release()
		receives(t, ctx, them, 1)
		receives(t, ctx, us, 2)
		us.Await(ctx, "established C(1,1,0,1)", "closed A(1,0-1,0,0)")
		them.Await(ctx, "established C(1,1,0,0) A(0,0,0,1)", "replaced A(1,1,0,0)")
	})
}

// The side that is told to wait gets its messages over the
// other connection, which opens though its own side has nothing to send.
// Matrix: RA-08, RA-09
func TestWaitingSideIsServedByTheWinner(t *testing.T) {
	everyMode(t, func(t *testing.T, ctx context.Context, v variant) {
		us, them := racersThatWait(t, v, true)
		b := us.Probe.Arm(nodetest.SocketConnecting(), 1, nodetest.Block())
		us.Dial(them)
		us.Hit(ctx, b)
		told := them.Probe.Arm(nodetest.Read(frame.TagWait), 1, nodetest.Continue())
		waiting := them.Dial(us)
		for tid := range uint64(5) {
			send(t, waiting, tid+1)
		}
		them.Hit(ctx, told)
		b.Release()
		receives(t, ctx, us, 1, 2, 3, 4, 5)
		us.Await(ctx, "established C(1,1,0,1)", "closed A(1,1,0,0)")
		them.Await(ctx, "established C(1,1,0,0) A(0,0,0,1)", "replaced A(1,1,0,0)")
		if st, err := us.Stats(); err != nil || st.Counters.WaitsSent != 1 {
			t.Errorf("%d times WAIT sent (%v), want once", st.Counters.WaitsSent, err)
		}
	})
}

// Matrix: RA-17, RP-13
func TestStalledIdentIsReplaced(t *testing.T) {
	everyMode(t, func(t *testing.T, ctx context.Context, v variant) {
		us, them := racers(t, v, false, greeter(7))
		b := us.Probe.Arm(nodetest.Read(frame.TagServerIdent), 1, nodetest.Stall())
		send(t, us.Dial(them), 1)
		us.Hit(ctx, b)
		us.Await(ctx, "established C(1,1,0,0) A(0,0,0,1)", "replaced A(1,1,1,0)")
		receives(t, ctx, us, 7)
		receives(t, ctx, them, 1)
	})
}
