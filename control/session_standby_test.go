package control_test

import (
	"context"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// PO-16, peers without an address: they never wait for somebody who cannot
// dial them, so what a stateful server queues reaches them.
func TestPeerWithoutAnAddressComesBackForTheServersMessages(t *testing.T) {
	for _, policy := range []string{"LP", "LPR"} {
		t.Run(policy, func(t *testing.T) {
			everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
				server := nodeOf(t, v, "osd.1", "SFS", 1)
				client := nodeOf(t, v, "client.2", policy, 2, func(c *msgrtest.NodeConfig) { c.Unbound = true })
				cutIdle(t, ctx, client, server)
				send(t, first(t, ctx, server), 7)
				receives(t, ctx, client, 7)
				client.Await(ctx, "established C(2,1,1,2)")
			})
		})
	}
}

// PO-16, peers with an address: the session waits, and a keepalive is enough to
// fetch what the server has queued.
func TestKeepaliveFetchesWhatAServerQueuedForAPeerInStandby(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		server := nodeOf(t, v, "osd.1", "SFS", 1)
		client := nodeOf(t, v, "osd.2", "LP", 2)
		conn := cutIdle(t, ctx, client, server)
		client.Await(ctx, "standby C(1,1,0,1)")
		theirs := first(t, ctx, server)
		eventually(t, ctx, "the server's standby", func() bool { return theirs.State() == control.StateStandby })
		send(t, theirs, 7)
		if n, _ := theirs.Stats(); n.IO.Queued != 1 || n.State != control.StateStandby.String() {
			t.Errorf("the server has %+v", n)
		}
		conn.Keepalive()
		receives(t, ctx, client, 7)
		client.Await(ctx, "established C(2,1,1,2)")
	})
}

// cutIdle opens a session and breaks it while neither side has anything to
// send. It returns the connector's side.
func cutIdle(t *testing.T, ctx context.Context, connector, acceptor *msgrtest.Node) *control.Conn {
	t.Helper()
	conn := connector.Dial(acceptor)
	if err := conn.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	settled(t, ctx, conn)
	cut := acceptor.Probe.ArmNext(msgrtest.Read(frame.TagKeepalive2), msgrtest.Fault())
	conn.Keepalive()
	acceptor.Hit(ctx, cut)
	return conn
}
