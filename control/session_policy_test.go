package control_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// lifeCase is the life of a connection under a pair of policies: connect, the
// connector marks it down and connects again, the acceptor marks it down, the
// connector comes again. The lines are what each side counts.
type lifeCase struct {
	connector, acceptor string
	connects            []string // of the connector, at the end
	accepts             []string // of the acceptor, at the end
	standby             bool     // the connector waits for something to send
}

// PO-01 to PO-08.
var lifeCases = []lifeCase{
	{connector: "LC", acceptor: "SLS",
		connects: []string{"closed C(1,1,0,1)", "closed C(1,1,0,1) R(1,0)", "established C(1,1,0,1)"},
		accepts:  []string{"closed A(1,1,0,1) R(1,0)", "closed A(1,1,0,1)", "established A(1,1,0,1)"}},
	{connector: "LC", acceptor: "SLR",
		connects: []string{"closed C(1,1,0,1)", "closed C(1,1,0,1) R(1,0)", "established C(1,1,0,1)"},
		accepts:  []string{"closed A(1,1,0,1) R(1,0)", "closed A(1,1,0,1)", "established A(1,1,0,1)"}},
	{connector: "LLC", acceptor: "SFS",
		connects: []string{"closed C(1,1,0,1)", "established C(2,2,1,2) R(0,1)"},
		accepts:  []string{"closed A(1,1,0,2) R(0,1)", "replaced A(1,1,0,0)", "established A(1,1,1,1)"}},
	{connector: "LPR", acceptor: "LPR", standby: true,
		connects: []string{"closed C(1,1,0,1)", "established C(2,2,1,2) R(0,1)"},
		accepts:  []string{"closed A(1,1,0,2) R(0,1)", "replaced A(1,1,0,0)", "established A(1,1,1,1)"}},
	{connector: "LP", acceptor: "LP", standby: true,
		connects: []string{"closed C(1,1,0,1)", "established C(2,2,1,2) R(0,1)"},
		accepts:  []string{"closed A(1,1,0,2)", "replaced A(1,1,0,0)", "established A(1,1,1,1)"}},
}

func TestLifeOfAConnectionUnderEachPolicy(t *testing.T) {
	for _, c := range lifeCases {
		t.Run(c.connector+"-"+c.acceptor, func(t *testing.T) { everyMode(t, c.run) })
	}
}

func (c lifeCase) run(t *testing.T, ctx context.Context, v variant) {
	acceptor := nodeOf(t, v, "osd.1", c.acceptor, 1)
	connector := nodeOf(t, v, connectorName(c.connector), c.connector, 2)
	conn := connector.Dial(acceptor)
	send(t, conn, 1)
	receives(t, ctx, acceptor, 1)
	settled(t, ctx, conn)

	conn.MarkDown()
	again := connector.Dial(acceptor)
	if again == conn {
		t.Fatal("Connect returned the connection that was marked down")
	}
	send(t, again, 2)
	receives(t, ctx, acceptor, 1, 2)
	settled(t, ctx, again)

	theirs := acceptor.Conns()
	if len(theirs) == 2 {
		theirs = theirs[1:] // an unregistered server learns of the first one's end later
	}
	for _, x := range theirs {
		x.MarkDown()
	}
	switch {
	case again.Info().Lossy:
		<-again.Closed()
		again = connector.Dial(acceptor)
	case c.standby:
		standby := []string{"standby C(1,1,0,1)"}
		if v.msgr1 {
			standby = anyFrames(standby)
		}
		connector.Await(ctx, c.connects[0], standby[0])
		send(t, again, 3) // it wakes the session, and is lost with it
	}
	connector.Await(ctx, c.connects...)
	acceptor.Await(ctx, c.accepts...)
	send(t, again, 4)
	receives(t, ctx, acceptor, 1, 2, 4)
}

// settled waits until everything that was sent is acknowledged.
func settled(t *testing.T, ctx context.Context, c *control.Conn) {
	t.Helper()
	eventually(t, ctx, "everything acknowledged", func() bool {
		st, err := c.Stats()
		return err == nil && st.IO.Queued == 0 && st.IO.Sent == 0 && st.IO.AckLag == 0 && !st.IO.Writing
	})
}

// PO-09 and PO-11: what the session counts survives a reconnect, and starts
// anew when the peer has forgotten it. The events come in order.
func TestSessionStateEndsWithARemoteReset(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		var mu sync.Mutex
		var events []string
		note := func(s string) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, s)
		}
		acceptor := nodeOf(t, v, "osd.1", "SFS", 1, withChain(echoer()))
		connector := nodeOf(t, v, "osd.2", "LP", 2, withChain(&control.Dispatcher{
			Connect:     func(*control.Conn, int) { note("connect") },
			RemoteReset: func(*control.Conn) { note("remote reset") },
			Fast:        func(_ *control.Conn, m *control.Message) bool { note(fmt.Sprint(m.TID)); return true },
		}))
		conn := connector.Dial(acceptor)
		send(t, conn, 1)
		receives(t, ctx, connector, 1001)
		theirs := first(t, ctx, acceptor)
		theirs.SetUserData("mine")

		connector.Probe.ArmNext(msgrtest.Write(frame.TagMessage), msgrtest.Fault())
		send(t, conn, 2)
		receives(t, ctx, connector, 1001, 1002)
		if st, err := theirs.Stats(); err != nil || st.IO.InSeq != 2 || st.IO.MessagesIn != 2 || theirs.UserData() != "mine" {
			t.Errorf("after a reconnect: %+v, user data %v, %v", st.IO, theirs.UserData(), err)
		}
		settled(t, ctx, conn)
		settled(t, ctx, theirs)
		theirs.MarkDown()
		connector.Await(ctx, "standby C(2,1,1,2)")
		send(t, conn, 3)
		connector.Await(ctx, "established C(3,2,2,3) R(0,1)")
		send(t, conn, 4)
		receives(t, ctx, connector, 1001, 1002, 1004)
		now := acceptor.Conns()
		if len(now) != 1 || now[0] == theirs || now[0].UserData() != nil {
			t.Fatalf("the acceptor has %d connections, want a new one without user data", len(now))
		}
		if st, err := now[0].Stats(); err != nil || st.IO.InSeq != 1 {
			t.Errorf("after a remote reset: %+v, %v", st.IO, err)
		}
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"connect", "1001", "connect", "1002", "remote reset", "connect", "1004"}; !slices.Equal(events, want) {
			t.Errorf("events %v, want %v", events, want)
		}
	})
}

// PO-10.
func TestStatelessServerKeepsNothing(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		acceptor := nodeOf(t, v, "osd.1", "SLS", 1)
		connector := nodeOf(t, v, "client.2", "LC", 2)
		for tid := range uint64(2) {
			conn := connector.Dial(acceptor)
			send(t, conn, tid+1)
			if err := msgrtest.Until(ctx, func() bool { return len(acceptor.Inbox.TIDs()) == int(tid)+1 }); err != nil {
				t.Fatal(err)
			}
			all := acceptor.Conns()
			theirs := all[len(all)-1]
			if st, err := theirs.Stats(); err != nil || st.IO.InSeq != 1 || st.ServerCookie || theirs.UserData() != nil {
				t.Errorf("connection %d begins with %+v, user data %v, %v", tid, st, theirs.UserData(), err)
			}
			theirs.SetUserData("old")
			conn.MarkDown()
			<-theirs.Closed()
		}
	})
}

// PO-12.
func TestAnonymousConnectionsAreDistinct(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		acceptor := nodeOf(t, v, "osd.1", "SLS", 1, withChain(echoer()))
		connector := nodeOf(t, v, "client.2", "LC", 2)
		a := connector.Dial(acceptor, control.Anonymous())
		b := connector.Dial(acceptor, control.Anonymous())
		if a == b || connector.Lookup(acceptor.Addr) != nil {
			t.Fatalf("anonymous connections: %v %v, found by address: %v", a.ID(), b.ID(), connector.Lookup(acceptor.Addr))
		}
		send(t, a, 1)
		receives(t, ctx, connector, 1001)
		send(t, b, 2)
		receives(t, ctx, connector, 1001, 1002)
		acceptor.Await(ctx, "established A(1,1,0,1)", "established A(1,1,0,1)")
		got := connector.Inbox.Messages()
		if got[0].Conn != a || got[1].Conn != b {
			t.Error("the answers came over the wrong connections")
		}
	})
}

// PO-15.
func TestPolicyChangeIsForNewConnections(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		acceptor := nodeOf(t, v, "osd.1", "SLS", 1)
		connector := nodeOf(t, v, "client.2", "LC", 2)
		old := connector.Dial(acceptor, control.Anonymous())
		if err := old.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		connector.SetDefaultPolicy(control.LossyClient())
		connector.SetPolicy(wire.OSD, control.LosslessClient())
		acceptor.SetDefaultPolicy(control.StatefulServer())
		fresh := connector.Dial(acceptor)
		if err := fresh.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		if !old.Info().Lossy || fresh.Info().Lossy {
			t.Errorf("lossy: old %v, new %v; want the old one to keep its policy", old.Info().Lossy, fresh.Info().Lossy)
		}
		if a, b := policyOf(t, old), policyOf(t, fresh); a != "lossy-client" || b != "lossless-client" {
			t.Errorf("policies %s and %s", a, b)
		}
	})
}

func policyOf(t *testing.T, c *control.Conn) string {
	st, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return st.Policy
}

// PO-17.
func TestConnectTwiceIsOneConnection(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		acceptor := nodeOf(t, v, "osd.1", "LP", 1)
		connector := nodeOf(t, v, "osd.2", "LP", 2, func(c *msgrtest.NodeConfig) { c.Plane.Cores = 2 })
		conns := make([]*control.Conn, 16)
		var wg sync.WaitGroup
		for i := range conns {
			wg.Go(func() { conns[i], _ = connector.Connect(acceptor.Addr, wire.OSD) })
		}
		wg.Wait()
		for _, c := range conns {
			if c == nil || c != conns[0] {
				t.Fatalf("connections %v", conns)
			}
		}
		connector.Await(ctx, "established C(1,1,0,1)")
		acceptor.Await(ctx, "established A(1,1,0,1)")
	})
}

var updateSessionGolden = flag.Bool("session.update", false, "write the golden files of the session tests")

// The outcome of every pair of policies, PO-16. The table is documentation, so
// it is a file; every row of it is run.
func TestEveryPairOfPoliciesHasADefinedOutcome(t *testing.T) {
	msgrtest.CheckLeaks(t)
	dials := []string{"LC", "LLC", "LP", "LPR"}
	all := []string{"LC", "LLC", "LP", "LPR", "SFS", "SLS", "SLR"}
	var pairs [][2]string
	for _, a := range dials {
		for _, b := range all {
			pairs = append(pairs, [2]string{a, b})
		}
	}
	for _, name := range []string{"SFS", "SLS", "SLR"} {
		n := nodeOf(t, newest[len(newest)-1], "osd.1", name, 1)
		to := wire.Addr{Type: wire.AddrMsgr2, AddrPort: n.Addr.AddrPort, Nonce: 77}
		if _, err := n.Connect(to, wire.OSD); !errors.Is(err, control.ErrConfig) {
			t.Errorf("%s dials: %v", name, err)
		}
	}
	name := func(i int) string {
		p := pairs[i/len(variants)]
		return title(p[0]+"-"+p[1], variants[i%len(variants)])
	}
	spread(t, 8, len(pairs)*len(variants), name, func(t *testing.T, i int) {
		p := pairs[i/len(variants)]
		runPair(t, deadline(t), variants[i%len(variants)], p[0], p[1])
	})
	var table strings.Builder
	table.WriteString(pairsHead)
	for _, p := range pairs {
		table.WriteString(outcomeOf(p[0], p[1]).row())
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

// outcomeOf derives a row from the flags of the policies (msgr2.md 9.2, 9.8).
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
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |\n", o.connector, o.acceptor, kind, o.idle, o.connector1, o.accept1)
}

// runPair checks one row of the table.
func runPair(t *testing.T, ctx context.Context, v variant, connector, acceptor string) {
	want := outcomeOf(connector, acceptor)
	bound := func(c *msgrtest.NodeConfig) { c.Unbound = false }
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
		if conn.Info().Lossy != want.lossy || theirs.Info().Lossy != want.lossy {
			t.Fatalf("lossy: %v and %v, want %v", conn.Info().Lossy, theirs.Info().Lossy, want.lossy)
		}
		settled(t, ctx, conn)
		settled(t, ctx, theirs)
		// The keepalive is gone from the connector when the acceptor breaks on
		// it: both have nothing left to do.
		block := []*msgrtest.Break{us.Probe.ArmNext(msgrtest.SocketConnecting(), msgrtest.Block()), them.Probe.ArmNext(msgrtest.SocketConnecting(), msgrtest.Block())}
		cut := them.Probe.ArmNext(msgrtest.Read(frame.TagKeepalive2), msgrtest.Fault())
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
	for _, n := range []*msgrtest.Node{us, them} {
		for _, o := range n.Probe.Objects() {
			resets += o.Resets + o.RemoteResets
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
func openConn(t *testing.T, ctx context.Context, n *msgrtest.Node) *control.Conn {
	t.Helper()
	eventually(t, ctx, "one connection", func() bool { return len(n.Conns()) == 1 })
	return n.Conns()[0]
}

func awaitTID(t *testing.T, ctx context.Context, n *msgrtest.Node, tid uint64) {
	t.Helper()
	eventually(t, ctx, fmt.Sprintf("message %d", tid), func() bool { return slices.Contains(n.Inbox.TIDs(), tid) })
}

// goldenFile compares with a file of testdata.
func goldenFile(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *updateSessionGolden {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is out of date; run with -session.update\ngot:\n%s", path, got)
	}
}
