package control_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Whom we reach: not who says that it is there.

var crcOnly = []auth.Mode{auth.CRC}

// proves has a node ask for the proof of names, and prove its own.
func proves(c *nodetest.NodeConfig) {
	c.Auth.Modes = crcOnly
	c.Auth.Client, c.Auth.Server = chatty{c.Name, crcOnly}, &chattyServer{modes: crcOnly}
}

// osd is the name of an OSD.
func osd(id string) wire.EntityName { return wire.EntityName{Type: wire.OSD, ID: id} }

// comes has an OSD dial the node that proves its name, and says that it has an
// address and a number.
func (s *scripts) comes(id string, number int64, addr wire.Addr) *msgrtest.Peer {
	s.t.Helper()
	p := msgrtest.DialPeer(s.ctx, msgrtest.PeerConfig{
		Name: osd(id), Number: number, Addr: addr, Rev0: s.v.rev0, AuthClient: chatty{osd(id), crcOnly},
	}, s.node.Addr)
	s.t.Cleanup(p.Close)
	p.Handshake()
	s.must(p)
	return p
}

// An OSD that says it has the address of another one does not keep that one out,
// neither while it is there nor when it is gone, and is not reached in its place
// by who knows whom it wants.
// Matrix: HI-12
func TestWhoClaimsAnothersAddressIsNotReachedForIt(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", false, proves)
		liar := s.comes("9", 9, s.addr)
		liar.SendPayload(frame.TagClientIdent, liar.ClientIdent(91, 5))
		liar.ExpectServerIdent()
		s.must(liar)
		eventually(t, ctx, "the session of the liar", func() bool { return s.node.Lookup(s.addr) != nil })
		theirs := s.node.Lookup(s.addr)
		wanted, err := s.node.Connect(s.addr, wire.OSD, control.WithEntity(osd("2")))
		if err != nil || wanted == theirs {
			t.Fatalf("Connect: %v, the liar's connection: %v", err, wanted == theirs)
		}
		if again, err := s.node.Connect(s.addr, wire.OSD); err != nil || again != wanted {
			t.Errorf("what was dialled comes before what is said: %v", err)
		}
		if _, err := s.node.Connect(s.addr, wire.OSD, control.WithEntity(osd("9"))); !errors.Is(err, control.ErrWrongPeer) {
			t.Errorf("Connect to the liar at the address of another: %v", err)
		}
		again := s.comes("9", 2, s.addr)
		again.SendPayload(frame.TagClientIdent, again.ClientIdent(92, 6))
		again.ExpectEnd()
		s.must(again)
		wanted.MarkDown()
		select {
		case <-wanted.Closed():
		case <-ctx.Done():
			t.Fatal("not closed")
		}

		p := s.comes("2", 2, s.addr)
		p.SendPayload(frame.TagClientIdent, p.ClientIdent(21, 1))
		p.ExpectServerIdent()
		s.must(p)
		ours, err := s.node.Connect(s.addr, wire.OSD, control.WithEntity(osd("2")))
		if err != nil || ours == theirs {
			t.Fatalf("Connect to osd.2: %v, the liar's connection: %v", err, ours == theirs)
		}
		if err := ours.WaitReady(ctx); err != nil || ours.Info().PeerEntity != osd("2") {
			t.Errorf("connected with %v: %v", ours.Info().PeerEntity, err)
		}
		if c := s.node.Lookup(s.addr); c != nil {
			t.Errorf("two have proven their names, and %v is believed", c.Info().PeerEntity)
		}
		theirs.MarkDown()
		liar.ExpectEnd()
		s.must(liar)
		s.talks(p, 1)
	})
}

// An address that a peer says it has is dialled when its socket is gone, and a
// peer of another name that comes from there is let in. The first one finds its
// session all the same.
func TestAClaimKeepsNobodyOutOnceItsSocketIsGone(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", false)
		s.name = "9"
		first, si := s.establish(91, 5)
		if c, err := s.node.Connect(s.addr, wire.OSD); err != nil || c != s.node.Lookup(s.addr) {
			t.Errorf("a claim that nothing speaks against: %v", err)
		}
		claimed := s.node.Lookup(s.addr)
		first.Close()
		eventually(t, ctx, "the end of its socket", func() bool { return claimed.State() == control.StateStandby })
		s.name = "2"
		p, _ := s.establish(21, 1)
		if c := s.node.Lookup(s.addr); c == claimed {
			t.Error("the claim without a socket is believed")
		}
		s.talks(p, 1)
		s.name = "9"
		s.reconnect(91, si.Cookie, 6, 1, 0).ExpectReconnectOK()
		s.talks(p, 2)
	})
}

// What was dialled is not taken over by an OSD that proves to be another one,
// whatever it says.
func TestWhatWasDialledIsNotTakenOverByAnotherName(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		l, err := msgrtest.ListenPeer(msgrtest.PeerConfig{
			Name: osd("2"), Number: 2, Addr: wire.Addr{Nonce: 2}, Rev0: v.rev0, AuthServer: &chattyServer{modes: crcOnly},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		s := playTo(t, ctx, v, "LP", true, proves)
		s.addr = l.Addr
		conn, err := s.node.Connect(l.Addr, wire.OSD)
		if err != nil {
			t.Fatal(err)
		}
		p := l.Accept(ctx)
		defer p.Close()
		p.Handshake()
		ci := p.ExpectClientIdent()
		p.SendPayload(frame.TagServerIdent, p.ServerIdent(serverCookie, 1))
		s.must(p)
		if err := conn.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		for _, reconnects := range []bool{false, true} {
			liar := s.comes("9", 2, s.addr)
			if reconnects {
				liar.SendPayload(frame.TagSessionReconnect, liar.SessionReconnect(ci.Cookie, serverCookie, 7, 2, 0))
			} else {
				liar.SendPayload(frame.TagClientIdent, liar.ClientIdent(92, 6))
			}
			liar.ExpectEnd()
			s.must(liar)
		}
		s.talks(p, 1)
	})
}

// Who claims the address of another peer, and leaves, does not have us begin a new
// session there: it would end the one that we have with that peer.
func TestNoNewSessionBeginsAtAnAddressThatAnotherHasClaimed(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		l, err := msgrtest.ListenPeer(msgrtest.PeerConfig{
			Name: osd("2"), Number: 2, Addr: wire.Addr{Nonce: 2}, Rev0: v.rev0, AuthServer: &chattyServer{modes: crcOnly},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		s := playTo(t, ctx, v, "LP", false, proves)
		s.addr = l.Addr
		honest, liar := s.comes("2", 2, l.Addr), s.comes("9", 9, l.Addr)
		for i, p := range []*msgrtest.Peer{honest, liar} {
			p.SendPayload(frame.TagClientIdent, p.ClientIdent(uint64(21+i), 1))
			p.ExpectServerIdent()
			s.must(p)
		}
		var theirs *control.Conn
		eventually(t, ctx, "the session of the liar", func() bool {
			for _, c := range s.node.Conns() {
				if c.Info().PeerEntity == osd("9") && c.State() == control.StateReady {
					theirs = c
				}
			}
			return theirs != nil
		})
		if err := theirs.Send(control.NewMessage(1, []byte("for osd.9"), nil)); err != nil {
			t.Fatal(err)
		}
		liar.Close()
		p := l.Accept(ctx)
		defer p.Close()
		p.Handshake()
		if sr := p.ExpectReconnect(); sr.ClientCookie != 22 {
			t.Errorf("the session with cookie %d comes back", sr.ClientCookie)
		}
		p.SendPayload(frame.TagSessionReset, wire2.SessionReset{Full: true})
		p.ExpectEnd()
		s.must(p)
		select {
		case <-theirs.Closed():
		case <-ctx.Done():
			t.Fatal("the session of the liar goes on")
		}
		if !errors.Is(theirs.Err(), control.ErrWrongPeer) {
			t.Errorf("the session of the liar ended with %v", theirs.Err())
		}
		s.talks(honest, 1)
	})
}
