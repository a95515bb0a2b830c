package control_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// A session that stood still for a hand-over which came to nothing says in its
// SESSION_RECONNECT what it had received until then. A number of before would
// have the peer count anew, and what it sends next be taken for duplicates.
func TestAfterAFailedHandOverTheSessionResumesBehindWhatItReceived(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		inside, goOn := make(chan struct{}), make(chan struct{})
		s := stageFor(t, ctx, v, "LLC", withChain(&control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
			if m.TID == 103 {
				close(inside)
				<-goOn
			}
			return false
		}}))
		p, _ := s.establish()
		p.Ignore(frame.TagAck)
		for seq := uint64(1); seq <= 3; seq++ {
			p.SendMessage(frame.MessageHeader{Seq: seq, TID: 100 + seq}, nil, nil, nil)
		}
		<-inside
		// The core does not answer in time.
		a, b := unixPair(t)
		patience, end := context.WithCancel(ctx)
		defer end()
		fake, ended := make(chan error, 1), make(chan error, 1)
		go func() { fake <- control.BreakSuccession(patience, s.node.Messenger, b, control.StopSilent, nil) }()
		go func() { ended <- s.node.HandOver(patience, a) }()
		eventually(t, ctx, "a session that stands still", func() bool { return s.conn.State() == control.StateStandby })
		end()
		if err := <-ended; !errors.Is(err, control.ErrHandOver) {
			t.Errorf("hand-over: %v", err)
		}
		<-fake
		close(goOn)
		p.ExpectEnd()
		s.must(p)
		again := s.accept()
		if sr := again.ExpectReconnect(); sr.MsgSeq != 3 {
			t.Errorf("SESSION_RECONNECT says %d, received were 3: %v", sr.MsgSeq, again.Err())
		}
		again.SendPayload(frame.TagSessionReconnectOK, wire2.SessionReconnectOK{})
		again.SendMessage(frame.MessageHeader{Seq: 4, TID: 104}, nil, nil, nil)
		awaitTID(t, ctx, s.node, 104)
	})
}

// Behind MarkDown nobody is told anything, the other dispatchers of the same
// event included.
// Matrix: INV-03
func TestNothingIsToldBehindAMarkDown(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		told := make(chan struct{}, 8)
		server := nodeOf(t, v, "osd.1", "SFS", 1)
		client := nodeOf(t, v, "client.2", "LLC", 2, withChain(
			&control.Dispatcher{Connect: func(c *control.Conn, _ int) { c.MarkDown() }},
			&control.Dispatcher{Connect: func(*control.Conn, int) { told <- struct{}{} }},
		))
		conn := client.Dial(server)
		select {
		case <-conn.Closed():
		case <-ctx.Done():
			t.Fatal("not closed")
		}
		if len(told) != 0 {
			t.Error("a dispatcher heard of a connection that was marked down")
		}
	})
}

// A peer with several addresses comes back under the first, whichever was dialled,
// and finds its session. Nobody else does: what is dialled is what was asked for,
// and another peer that comes from that address is another peer.
// Matrix: HS-17
func TestAPeerIsFoundUnderItsFirstAddress(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := stageFor(t, ctx, v, "LP")
		first := wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.AddrPortFrom(ownHost(), 6800), Nonce: 2}
		p := s.accept()
		ci := p.ExpectClientIdent()
		si := p.ServerIdent(serverCookie, 1)
		si.Addrs = wire.AddrVec{first, s.l.Addr}
		p.SendPayload(frame.TagServerIdent, si)
		s.must(p)
		if err := s.conn.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		if s.node.Lookup(first) != nil || s.node.Lookup(s.l.Addr) != s.conn {
			t.Errorf("found under %v: %v, under %v: %v", first, s.node.Lookup(first), s.l.Addr, s.node.Lookup(s.l.Addr))
		}
		comes := func(addrs wire.AddrVec) *msgrtest.Peer {
			p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{
				Name: wire.EntityName{Type: wire.OSD, ID: "2"}, Number: 2, Addr: first, Rev0: v.rev0,
			}, s.node.Addr)
			t.Cleanup(p.Close)
			p.Handshake()
			sr := p.SessionReconnect(ci.Cookie, serverCookie, 50, 5, 0)
			sr.Addrs = addrs
			p.SendPayload(frame.TagSessionReconnect, sr)
			s.must(p)
			return p
		}
		if full := comes(wire.AddrVec{first}).ExpectReset(); !full {
			t.Error("who has the first address alone is taken for the peer")
		}
		back := comes(wire.AddrVec{first, s.l.Addr})
		back.ExpectReconnectOK()
		p.ExpectEnd()
		s.must(p)
		if c, err := s.node.Connect(first, wire.OSD); err != nil || c == s.conn {
			t.Errorf("Connect to an address that was only said: %v, the same connection %v", err, c == s.conn)
		} else {
			c.MarkDown()
		}
		s.conn.MarkDown()
		if s.node.Lookup(first) != nil || s.node.Lookup(s.l.Addr) != nil {
			t.Error("found behind MarkDown")
		}
	})
}

// Nobody checks the address that a client says it has. Who dials that address
// for a daemon gets one, and a daemon that comes from it is let in.
func TestAClientDoesNotHoldADaemonsAddress(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", false)
		squat := func(addr wire.Addr) *control.Conn {
			p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{
				Name: wire.EntityName{Type: wire.Client, ID: "9"}, Number: 9, Addr: addr, Rev0: v.rev0,
			}, s.node.Addr)
			t.Cleanup(p.Close)
			p.Establish(11, 1)
			s.must(p)
			c := s.node.Lookup(addr)
			if c == nil || c.PeerType() != wire.Client {
				t.Fatalf("%v", c)
			}
			return c
		}
		dialled := wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.AddrPortFrom(ownHost(), 6800), Nonce: 2}
		squatter := squat(dialled)
		c, err := s.node.Connect(dialled, wire.OSD)
		if err != nil || c == squatter || c.PeerType() != wire.OSD || s.node.Lookup(dialled) != c {
			t.Errorf("Connect: %v, the client's: %v", err, c == squatter)
		}
		if _, err := s.node.Connect(dialled, wire.Mon); !errors.Is(err, control.ErrWrongPeer) {
			t.Errorf("Connect for another daemon: %v", err)
		}
		squatter = squat(s.addr)
		p, _ := s.establish(12, 1)
		if c := s.node.Lookup(s.addr); c == squatter || c.PeerType() != wire.OSD {
			t.Errorf("the client's: %v", c == squatter)
		}
		s.talks(p, 1)
	})
}
