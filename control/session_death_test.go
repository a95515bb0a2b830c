package control_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// What becomes of a session whose peer is gone: killed, frozen, or restarted.

// watchful has a node notice a peer that is silent.
func watchful(c *msgrtest.NodeConfig) {
	c.KeepaliveEvery, c.KeepaliveTimeout = stallDeadline/8, stallDeadline
}

// eachDeath runs a test for a peer whose kernel resets the connection, and for
// one that never says anything again.
func eachDeath(t *testing.T, policies []string, run func(t *testing.T, ctx context.Context, v variant, policy string, die func(p *msgrtest.Peer))) {
	msgrtest.CheckLeaks(t)
	deaths := []func(p *msgrtest.Peer){(*msgrtest.Peer).Reset, func(*msgrtest.Peer) {}}
	names := []string{"killed", "frozen"}
	n := len(variants)
	name := func(i int) string { return title(policies[i/n/2], names[i/n%2], variants[i%n]) }
	spread(t, 16, len(policies)*len(deaths)*n, name, func(t *testing.T, i int) {
		run(t, deadline(t), variants[i%n], policies[i/n/2], deaths[i/n%2])
	})
}

// FT-28, the connector's side: a killed acceptor and a frozen one end alike.
func TestConnectorOfADeadPeerComesAgain(t *testing.T) {
	eachDeath(t, []string{"LC", "LLC", "LP", "LPR"}, func(t *testing.T, ctx context.Context, v variant, policy string, die func(p *msgrtest.Peer)) {
		s := stageFor(t, ctx, v, policy, watchful)
		p := s.accept()
		p.Ignore(frame.TagKeepalive2)
		ci := p.ExpectClientIdent()
		cookie := uint64(serverCookie)
		if policy == "LC" {
			cookie = 0
		}
		p.SendPayload(frame.TagServerIdent, p.ServerIdent(cookie, 1))
		send(t, s.conn, 1)
		p.ExpectMessage()
		s.must(p)
		die(p)
		if policy == "LC" {
			s.node.Await(ctx, "closed C(1,1,0,1) R(1,0)")
			return
		}
		again := s.accept()
		if sr := again.ExpectReconnect(); sr.ClientCookie != ci.Cookie || sr.ServerCookie != serverCookie || sr.ConnectSeq != 1 || sr.MsgSeq != 0 {
			t.Errorf("SESSION_RECONNECT %+v", sr)
		}
		again.Ignore(frame.TagKeepalive2)
		again.SendPayload(frame.TagSessionReconnectOK, wire.SessionReconnectOK{})
		if hd, _ := again.ExpectMessage(); hd.TID != 1 || hd.Seq != 1 {
			t.Errorf("message %+v", hd)
		}
		s.must(again)
		s.node.Await(ctx, "established C(2,1,1,2)")
	})
}

// FT-28, the acceptor's side.
func TestAcceptorOfADeadPeerKeepsWhatItsPolicySays(t *testing.T) {
	ends := map[string]string{
		"SLS": "closed A(1,1,0,1) R(1,0)", "SLR": "closed A(1,1,0,1) R(1,0)", "SFS": "standby A(1,1,0,1)", "LP": "standby A(1,1,0,1)",
	}
	eachDeath(t, []string{"SLS", "SLR", "SFS", "LP"}, func(t *testing.T, ctx context.Context, v variant, policy string, die func(p *msgrtest.Peer)) {
		s := playTo(t, ctx, v, policy, true, watchful)
		p, _ := s.establish(clientCookie, 5)
		die(p)
		s.node.Await(ctx, ends[policy])
	})
}

// restart ends a node and starts another at its port. It runs under load.
func restart(t *testing.T, ctx context.Context, v variant, n *msgrtest.Node, policy string, nonce uint32) *msgrtest.Node {
	t.Helper()
	if err := n.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	fresh := nodeOf(t, v, "osd.1", policy, nonce, withChain(echoer()), func(c *msgrtest.NodeConfig) { c.Unbound = true })
	addrs, err := fresh.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: n.Addr.AddrPort})
	if err != nil {
		t.Fatal(err)
	}
	fresh.Addr = addrs.V2()
	return fresh
}

// load sends messages until it is told to stop.
func load(c *control.Conn) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			m := control.NewMessage(1, nil, nil)
			if c.Send(m) != nil {
				m.Release() // the connection is over
				return
			}
			select {
			case <-tick.C:
			case <-over:
				return
			}
		}
	}()
	return func() { close(over); <-done }
}

// FT-29: the process at an address is another one, with the nonce of the old
// one or with its own.
func TestClientsOfARestartedListenerAreReset(t *testing.T) {
	for _, pair := range []pairing{{"LC", "SLS"}, {"LLC", "SFS"}, {"LP", "LP"}, {"LPR", "LPR"}} {
		for _, nonce := range []uint32{3, 4} {
			t.Run(title(pair.connector, fmt.Sprintf("nonce%+d", nonce-3)), func(t *testing.T) {
				everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
					old := nodeOf(t, v, "osd.1", pair.acceptor, 3, withChain(echoer()))
					client := nodeOf(t, v, connectorName(pair.connector), pair.connector, 2)
					conn := client.Dial(old)
					stop := load(conn)
					eventually(t, ctx, "some load", func() bool { return len(client.Inbox.TIDs()) > 50 })
					fresh := restart(t, ctx, v, old, pair.acceptor, nonce)
					switch {
					case pair.lossy():
						<-conn.Closed()
						eventually(t, ctx, "the reset event", func() bool { return client.Probe.Objects()[0].Resets == 1 })
					case nonce == 3:
						client.Await(ctx, "established C(2+,2,1+,2) R(0,1)")
					default:
						// Nobody is at the old address any more, and the client
						// does not take somebody else for it.
						eventually(t, ctx, "attempts that fail", func() bool {
							st, err := conn.Stats()
							return err == nil && st.Counters.Attempts > 4 && st.Counters.Ready == 1
						})
						conn.MarkDown()
					}
					stop()
					if conn.State() == control.StateClosing {
						conn = client.Dial(fresh)
					}
					send(t, conn, 77)
					awaitTID(t, ctx, client, 1077)
				})
			})
		}
	}
}
