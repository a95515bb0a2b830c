package control_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// hangUp ends a handshake at one step.
type hangUp struct{ at probe.Point }

// At implements probe.Probe.
func (h hangUp) At(_ context.Context, e probe.Event) error {
	if e.Point == h.at && e.When == probe.Before {
		return errCut
	}
	return nil
}

// The caller learns whether the authentication or the network failed, from
// the error of the wait, in the reset event and in the counters.
// Matrix: AU-25
func TestFailedAuthenticationIsToldFromAFailedNetwork(t *testing.T) {
	crc, secure := []auth.Mode{auth.CRC}, []auth.Mode{auth.Secure}
	admin, nobody := entity(t, "client.admin"), entity(t, "client.nobody")
	good, server := cephxPair(t, crc, crc)
	needsSecure, secureServer := cephxPair(t, secure, secure)
	withKey := func(name wire.EntityName) auth.Client {
		key, err := cephx.NewKey(cephx.AES, nil, time.Now())
		must(t, err)
		c, err := cephx.NewClient(cephx.ClientConfig{Name: name, Key: key, Modes: func(wire.EntityType) []auth.Mode { return crc }})
		must(t, err)
		return c
	}
	for _, c := range []struct {
		name     string
		client   auth.Client
		server   auth.Server // nil: nobody listens
		stop     probe.Probe
		peer     wire.EntityType
		want     bool
		also     error
		accepted uint64 // failed authentications that the server counts
	}{
		{"wrong key", withKey(admin), server, nil, wire.Mon, true, &auth.Refused{Errno: auth.EACCES}, 1},
		{"unknown entity", withKey(nobody), server, nil, wire.Mon, true, &auth.Refused{Errno: auth.EACCES}, 1},
		{"no method in common", none.NewClient(admin), server, nil, wire.Mon, true, auth.ErrNoMethod, 1},
		{"no mode in common", needsSecure, server, nil, wire.Mon, true, auth.ErrNoMode, 1},
		{"no ticket", withKey(admin), secureServer, nil, wire.OSD, true, cephx.ErrNoTicket, 0},
		{"nobody there", good, nil, nil, wire.Mon, false, nil, 0},
		{"cut before the banner", good, server, hangUp{probe.Point{Step: probe.SocketAccepted}}, wire.Mon, false, nil, 0},
		{"cut before the request", good, server, hangUp{probe.Point{Step: probe.FrameRead, Tag: frame.TagAuthRequest}}, wire.Mon, false, nil, 0},
		{"cut before the proof", good, server, hangUp{probe.Point{Step: probe.FrameRead, Tag: frame.TagAuthRequestMore}}, wire.Mon, false, nil, 0},
		{"cut before the end", good, server, hangUp{probe.Point{Step: probe.FrameWrite, Tag: frame.TagAuthDone}}, wire.Mon, false, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			own := "mon.a"
			if c.peer == wire.OSD {
				own = "osd.0"
			}
			peer := newParty(t, control.Config{Name: entity(t, own), Auth: control.Auth{Server: c.server}, Diagnostics: control.Diagnostics{Probe: c.stop}}).bind(t)
			if c.server == nil {
				shutdown(t, peer.m)
			}
			reset := make(chan error, 1)
			m := authMessenger(t, control.Config{Name: admin, Auth: control.Auth{Client: c.client}}, &control.Dispatcher{
				Reset: func(conn *control.Conn, _ bool) { reset <- conn.Err() },
			})
			conn, err := m.Connect(peer.addr, c.peer, control.Once())
			must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), authPatience)
			defer cancel()
			told := map[string]error{"wait": conn.WaitReady(ctx)}
			select {
			case told["reset event"] = <-reset:
			case <-ctx.Done():
				t.Fatal("no reset event")
			}
			for what, err := range told {
				if err == nil || errors.Is(err, control.ErrAuth) != c.want || c.also != nil && !errors.Is(err, c.also) {
					t.Errorf("%s: %v", what, err)
				}
			}
			want := uint64(0)
			if c.want {
				want = 1
			}
			if st, _ := conn.Stats(); st.Counters.AuthFailures != want || st.Counters.Faults != 1 {
				t.Errorf("counted %+v", st.Counters)
			}
			if c.server != nil {
				happens(t, "the server's failure", func() bool { return counters(t, peer.m).AcceptFailures == 1 })
				if n := counters(t, peer.m).AuthFailures; n != c.accepted {
					t.Errorf("the server counts %d", n)
				}
			}
		})
	}
}

// Who was refused, and has nothing else to offer, gives up, also on a lossless
// connection that otherwise dials for ever: the peer sees one attempt.
// Matrix: AU-04
func TestALosslessConnectionThatIsRefusedGivesUp(t *testing.T) {
	crc := []auth.Mode{auth.CRC}
	_, server := cephxPair(t, crc, crc)
	mon := newParty(t, control.Config{Name: entity(t, "mon.a"), Auth: control.Auth{Server: server}}).bind(t)
	policy := control.LosslessClient()
	client := newParty(t, control.Config{Name: entity(t, "client.admin"), Default: &policy, Timeouts: control.Timeouts{InitialBackoff: time.Microsecond, MaxBackoff: time.Microsecond}})
	conn, err := client.m.Connect(mon.addr, wire.Mon)
	must(t, err)
	arrives(t, "the end", conn.Closed())
	if err := conn.Err(); !errors.Is(err, control.ErrAuth) || !errors.Is(err, auth.ErrNoMethod) {
		t.Error(err)
	}
	happens(t, "the refusal", func() bool { return counters(t, mon.m).AuthFailures == 1 })
	if n := counters(t, mon.m).Accepted; n != 1 {
		t.Errorf("%d attempts", n)
	}
}

// The address of a peer that nobody has is no question of authentication.
func TestAnAddressWithoutAPeerIsNoFailedAuthentication(t *testing.T) {
	client := newParty(t, control.Config{Name: entity(t, "client.admin")})
	gone := &party{addr: wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:1")}}
	if _, err := client.dial(t, gone, wire.Mon); err == nil || errors.Is(err, control.ErrAuth) || control.StageOf(err) != control.StageConnect {
		t.Error(err)
	}
}
