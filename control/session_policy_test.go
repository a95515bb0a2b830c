package control_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// settled waits until everything that was sent is acknowledged.
func settled(t *testing.T, ctx context.Context, c *control.Conn) {
	t.Helper()
	eventually(t, ctx, "everything acknowledged", func() bool {
		st, err := c.Stats()
		return err == nil && st.IO.Queued == 0 && st.IO.Sent == 0 && st.IO.AckLag == 0 && !st.IO.Writing
	})
}

// Matrix: HS-23, PO-15
func TestPolicyChangeIsForNewConnections(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		acceptor := nodeOf(t, v, "osd.1", "SLS", 1)
		connector := nodeOf(t, v, "client.2", "LC", 2)
		old := connector.Dial(acceptor, control.Anonymous())
		must(t, old.WaitReady(ctx))
		connector.SetPolicy(wire.Any, control.LossyClient())
		connector.SetPolicy(wire.OSD, control.LosslessClient())
		acceptor.SetPolicy(wire.Any, control.StatefulServer())
		fresh := connector.Dial(acceptor)
		must(t, fresh.WaitReady(ctx))
		if !old.Info().Lossy || fresh.Info().Lossy {
			t.Errorf("lossy: old %v, new %v; want the old one to keep its policy", old.Info().Lossy, fresh.Info().Lossy)
		}
		if a, b := connStats(t, old).Policy, connStats(t, fresh).Policy; a != "lossy-client" || b != "lossless-client" {
			t.Errorf("policies %s and %s", a, b)
		}
	})
}

// Matrix: PO-12, PO-17, XC-04
func TestAnAddressHasOneConnectionBesideTheAnonymousOnes(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		acceptor := nodeOf(t, v, "osd.1", "SLS", 1, withChain(echoer()))
		connector := nodeOf(t, v, "client.2", "LC", 2, func(c *nodetest.NodeConfig) { c.Plane.Cores = 2 })
		anonymous := connector.Dial(acceptor, control.Anonymous())
		if connector.Lookup(acceptor.Addr) != nil {
			t.Error("an anonymous connection is found by its address")
		}
		conns := make([]*control.Conn, 16)
		var wg sync.WaitGroup
		for i := range conns {
			wg.Go(func() { conns[i], _ = connector.Connect(acceptor.Addr, wire.OSD) })
		}
		wg.Wait()
		for _, c := range conns {
			if c == nil || c != conns[0] || c == anonymous {
				t.Fatalf("connections %v", conns)
			}
		}
		another := connector.Dial(acceptor, control.Anonymous())
		if another == anonymous || another == conns[0] {
			t.Error("an anonymous connection is shared")
		}
		for tid, c := range []*control.Conn{anonymous, conns[0], another} {
			send(t, c, uint64(tid))
			awaitTID(t, ctx, connector, uint64(1000+tid))
			if got := connector.Inbox.Messages()[tid].Conn; got != c {
				t.Errorf("the answer came over connection %d, want %d", got.ID(), c.ID())
			}
		}
		if n := statsOf(t, acceptor).Counters; n.Accepted != 3 || n.Conns != 3 {
			t.Errorf("the acceptor has %+v", n)
		}
	})
}

var updateSessionGolden = flag.Bool("session.update", false, "write the golden files of the session tests")

// policyRun is a pair of policies, and in what its session speaks.
type policyRun struct {
	dials, accepts string
	v              variant
}

// policyRuns are all pairs in all variants of a list.
func policyRuns(list []variant) (out []policyRun) {
	for _, a := range []string{"LC", "LLC", "LP", "LPR"} {
		for _, b := range []string{"LC", "LLC", "LP", "LPR", "SFS", "SLS", "SLR"} {
			for _, v := range list {
				out = append(out, policyRun{a, b, v})
			}
		}
	}
	return out
}

// The outcome of every pair of policies, PO-16, which is the same in both protocols. The
// table is documentation, so it is a file; every row of it is run, in one variant of each
// protocol.
// Matrix: SE-37, SE-38, PO-01, PO-02, PO-03, PO-04, PO-05, PO-06, PO-07, PO-08, PO-10, PO-16
func TestEveryPairOfPoliciesHasADefinedOutcome(t *testing.T) {
	drivertest.LeavesNothing(t)
	for _, name := range []string{"SFS", "SLS", "SLR"} {
		n := nodeOf(t, newest[len(newest)-1], "osd.1", name, 1)
		to := wire.Addr{Type: wire.AddrMsgr2, AddrPort: n.Addr.AddrPort, Nonce: 77}
		wantError(t, name+" dials", onlyError(n.Connect(to, wire.OSD)), control.ErrConfig)
	}
	runs := append(sampleOf(t, policyRuns(variants), len(variants)),
		sampleOf(t, policyRuns(msgr1Variants), len(msgr1Variants))...)
	name := func(i int) string { return title(runs[i].dials+"-"+runs[i].accepts, runs[i].v) }
	spread(t, 8, len(runs), name, func(t *testing.T, i int) {
		runPair(t, deadline(t), runs[i].v, runs[i].dials, runs[i].accepts)
	})
	var table strings.Builder
	table.WriteString(pairsHead)
	for _, r := range policyRuns(variants[:1]) {
		table.WriteString(outcomeOf(r.dials, r.accepts).row())
	}
	goldenFile(t, "policy_pairs.md", table.String())
}

const pairsHead = `# Pairs of policies

What becomes of a session by the policies of its two ends, both of which are
bound to an address. The acceptor's policy decides whether the session is lossy. Policies
that serve (stateful-server, stateless-server, stateless-registered-server) do
not dial. The columns behind "session" say what a fault does: with nothing to
send on either side, with a message of the connector, with a message of the
acceptor. "resumes": the connection comes back and every message arrives exactly
once. "standby": both ends keep the session until one of them may dial and has
something to send. "ends": both ends get a reset event.

Where a peer policy meets stateful-server, messages of the acceptor can wait in
standby: the server may not dial, and the connector, to which the peer's policy
is unknown, has nothing to dial for. Nothing is lost, Keepalive or the next Send
of the connector fetches them, and the acceptor's queue is bounded and visible in
its statistics. lossless-client is the policy for clients of a stateful-server:
it comes back by itself. So does every connector without an address, whatever its
policy, because nobody could dial it: its column "idle" says "resumes".

A connector without an address (an unbound client) is refused by an acceptor with
lossless-client, lossless-peer or lossless-peer-reuse, which could not dial it
back; it goes on trying with back-off.

| connector | acceptor | session | idle | connector sends | acceptor sends |
|---|---|---|---|---|---|
`

// outcome is what the rules say of a pair.
type outcome struct {
	connector, acceptor       string
	lossy                     bool
	idle, connector1, accept1 string
}

// outcomeOf derives a row from the flags of the policies (Ceph's Policy.h and ProtocolV2.cc).
func outcomeOf(connector, acceptor string) outcome {
	a, b := shortPolicies[connector](), shortPolicies[acceptor]()
	o := outcome{connector: a.Name, acceptor: b.Name, lossy: b.Lossy}
	if o.lossy {
		o.idle, o.connector1, o.accept1 = "ends", "ends", "ends"
		return o
	}
	// After the fault each end dials at once, or when it has work, or never.
	o.idle, o.connector1, o.accept1 = "standby", "resumes", "resumes"
	if !a.Standby || !b.Standby && !b.Server {
		o.idle = "resumes"
	}
	if b.Server && a.Standby {
		o.accept1 = "standby"
	}
	return o
}

func (o outcome) row() string {
	kind := "lossless"
	if o.lossy {
		kind = "lossy"
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |\n", o.connector, o.acceptor, kind, o.idle, o.connector1,
		o.accept1)
}

// runPair checks one row of the table.
func runPair(t *testing.T, ctx context.Context, v variant, connector, acceptor string) {
	want := outcomeOf(connector, acceptor)
	bound := func(c *nodetest.NodeConfig) { c.Unbound = false }
	them := nodeOf(t, v, "osd.1", acceptor, 1, bound)
	us := nodeOf(t, v, "osd.2", connector, 2, bound)
	for phase, result := range []string{want.idle, want.connector1, want.accept1} {
		conn := us.Dial(them)
		base := uint64(10 * phase)
		send(t, conn, base+1)
		awaitTID(t, ctx, them, base+1)
		theirs := openConn(t, ctx, them)
		send(t, theirs, base+2)
		awaitTID(t, ctx, us, base+2)
		for _, c := range []*control.Conn{conn, theirs} {
			if info, st := c.Info().Lossy, connStats(t, c).Lossy; info != want.lossy || st != want.lossy {
				t.Fatalf("lossy: %v, by the statistics %v, want %v", info, st, want.lossy)
			}
		}
		settled(t, ctx, conn)
		settled(t, ctx, theirs)
		// The keepalive is gone from the connector when the acceptor breaks on
		// it: both have nothing left to do.
		block := []*nodetest.Break{
			us.Probe.ArmNext(nodetest.SocketConnecting(), nodetest.Block()),
			them.Probe.ArmNext(nodetest.SocketConnecting(), nodetest.Block()),
		}
		cut := them.Probe.ArmNext(nodetest.Read(frame.TagKeepalive2), nodetest.Fault())
		conn.Keepalive()
		them.Hit(ctx, cut)
		if result == "ends" {
			<-conn.Closed()
			<-theirs.Closed()
			for _, b := range block {
				b.Forget()
			}
			continue
		}
		notReady := func(c *control.Conn) func() bool { return func() bool { return c.State() != control.StateReady } }
		eventually(t, ctx, "the fault seen by the connector", notReady(conn))
		eventually(t, ctx, "the fault seen by the acceptor", notReady(theirs))
		if phase == 1 {
			send(t, conn, base+3)
		} else if phase == 2 {
			send(t, theirs, base+4)
		}
		if result == "standby" {
			for _, c := range []*control.Conn{conn, theirs} {
				if s := c.State(); s != control.StateStandby {
					t.Errorf("phase %d: state %v, want standby", phase, s)
				}
			}
		}
		for _, b := range block {
			b.Forget()
		}
		if result == "standby" {
			send(t, conn, base+5) // the connector can always wake it
			awaitTID(t, ctx, them, base+5)
		}
		for _, c := range []*control.Conn{conn, theirs} {
			if err := c.WaitReady(ctx); err != nil {
				t.Fatalf("phase %d: %v", phase, err)
			}
		}
		switch phase {
		case 1:
			awaitTID(t, ctx, them, base+3)
		case 2:
			awaitTID(t, ctx, us, base+4)
		}
	}
	resets := 0
	for _, n := range []*nodetest.Node{us, them} {
		for _, l := range n.Inbox.Lives() {
			resets += l.Resets + l.RemoteResets
		}
		seen := map[uint64]bool{}
		for _, tid := range n.Inbox.TIDs() {
			if seen[tid] {
				t.Errorf("%s got %d twice", n.Name(), tid)
			}
			seen[tid] = true
		}
	}
	if wantResets := map[bool]int{true: 6}[want.lossy]; resets != wantResets {
		t.Errorf("%d reset events, want %d", resets, wantResets)
	}
}

// openConn is the only connection of a node that is not closed.
func openConn(t *testing.T, ctx context.Context, n *nodetest.Node) *control.Conn {
	t.Helper()
	eventually(t, ctx, "one connection", func() bool { return len(n.Conns()) == 1 })
	return n.Conns()[0]
}

func awaitTID(t *testing.T, ctx context.Context, n *nodetest.Node, tid uint64) {
	t.Helper()
	eventually(t, ctx, fmt.Sprintf("message %d", tid), func() bool { return slices.Contains(n.Inbox.TIDs(), tid) })
}

// goldenFile compares with a file of testdata.
func goldenFile(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *updateSessionGolden {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if got != string(want) {
		t.Errorf("%s is out of date; run with -session.update\ngot:\n%s", path, got)
	}
}
