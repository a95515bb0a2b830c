package control_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/uring"
)

// provingServer asks for the proof of names, and proves its own.
func provingServer() control.Config {
	cfg := serverConfig(uring.Auto, 1)
	cfg.Auth.Client, cfg.Auth.Server = chatty{cfg.Name, crcOnly}, &chattyServer{modes: crcOnly}
	return cfg
}

// provenPeer has an OSD dial at, prove its name and say that it is at addr.
func provenPeer(t *testing.T, ctx context.Context, at wire.Addr, id string, number int64, addr wire.Addr) *msgrtest.Peer {
	t.Helper()
	p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{Name: osd(id), Number: number, Addr: addr, AuthClient: chatty{osd(id), crcOnly}}, at)
	t.Cleanup(p.Close)
	p.Handshake()
	must(t, p.Err())
	return p
}

// somewhere is an address at which nobody listens.
func somewhere(t *testing.T) wire.Addr {
	return wire.Addr{Type: wire.AddrMsgr2, AddrPort: msgrtest.ReservePort(t), Nonce: 2}
}

// What we know of a peer counts behind a hand-over what it counted before.
func TestASessionKeepsHowItsPeerIsKnownThroughHandOvers(t *testing.T) {
	nodetest.CheckLeaks(t)
	for _, handOvers := range []int{0, 1, 2} {
		t.Run("accepted, and proven", func(t *testing.T) {
			ctx := deadline(t)
			m, at := serveEcho(t, provingServer())
			y := somewhere(t)
			p := provenPeer(t, ctx, at, "9", 9, y)
			p.SendPayload(frame.TagClientIdent, p.ClientIdent(91, 5))
			p.ExpectServerIdent()
			must(t, p.Err())
			eventually(t, ctx, "the session", func() bool { return m.Lookup(y) != nil })
			for range handOvers {
				m = succeed(t, ctx, m, provingServer(), echoAll())
				defer end(t, m)
			}
			if c := m.Lookup(y); c == nil {
				t.Fatal("the only one who says that it is there is not found")
			}
			// A second name that is proven, and nobody is believed.
			other := provenPeer(t, ctx, at, "2", 2, y)
			other.SendPayload(frame.TagClientIdent, other.ClientIdent(21, 1))
			other.ExpectServerIdent()
			must(t, other.Err())
			eventually(t, ctx, "two sessions", func() bool { return len(m.Conns()) == 2 })
			if c := m.Lookup(y); c != nil {
				t.Errorf("%d hand-overs: %v is believed", handOvers, c.Info().PeerEntity)
			}
		})
		t.Run("dialled, by its name", func(t *testing.T) {
			ctx := deadline(t)
			m, at := serveEcho(t, provingServer())
			cfg := provingServer()
			cfg.Name.ID, cfg.Number = "2", 2
			cfg.Auth.Client = chatty{cfg.Name, crcOnly}
			_, y := serveEcho(t, cfg)
			c, err := m.Connect(y, wire.OSD, control.WithEntity(osd("2")))
			must(t, err)
			must(t, c.WaitReady(ctx))
			for range handOvers {
				m = succeed(t, ctx, m, provingServer(), echoAll())
				defer end(t, m)
			}
			c = m.Lookup(y)
			if _, err := m.Connect(y, wire.MDS); !errors.Is(err, control.ErrWrongPeer) {
				t.Errorf("%d hand-overs: Connect to another type: %v", handOvers, err)
			}
			// Nobody else takes what was dialled, or gets a place beside it.
			liar := provenPeer(t, ctx, at, "9", 2, y)
			liar.SendPayload(frame.TagClientIdent, liar.ClientIdent(91, 6))
			liar.ExpectEnd()
			must(t, liar.Err())
			if again, err := m.Connect(y, wire.OSD); err != nil || c == nil || again != c {
				t.Errorf("%d hand-overs: Connect: %v", handOvers, err)
			}
		})
	}
}
