//go:build !giouring

package interop_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// A messenger with the v1 ports of real daemons.

// TestMsgr1MessengerWithRealDaemons shares objects with the real tools, knowing nothing
// but v1 addresses, loses its connections, and goes on.
// Matrix: V1-12
func TestMsgr1MessengerWithRealDaemons(t *testing.T) {
	enabled(t)
	for _, method := range []string{"none", "cephx"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, clusterConfig{auth: method, mode: "crc", osds: 1, msgr1: true})
			for _, backend := range backends {
				t.Run(string(backend), func(t *testing.T) { useMsgr1(t, c, backend) })
			}
			t.Run("refused", func(t *testing.T) { refusedMsgr1(t, c) })
		})
	}
}

func useMsgr1(t *testing.T, c *cluster, backend uring.Backend) {
	quiet(t, c)
	cl := dialCluster(t, c, control.Msgr1, backend)
	useObjects(t, c, cl)
	seen := map[wire.EntityType]bool{}
	for _, conn := range cl.Messenger().Conns() {
		i := conn.Info()
		want := auth.None
		if c.auth == "cephx" && i.PeerType == wire.OSD {
			want = auth.Cephx // the monitor wants no authorizer
		}
		if i.Protocol != "msgr1" || i.Features != wire.FeaturesPacific || !i.Lossy || i.Auth != want || i.Mode != auth.CRC {
			t.Errorf("%+v", i)
		}
		seen[i.PeerType] = true
		conn.MarkDown()
	}
	if !seen[wire.Mon] || !seen[wire.OSD] {
		t.Errorf("connections to %v", seen)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	check(t, object(t, cl, "again").WriteFull(ctx, []byte("all connections are new")))
	if got, err := object(t, cl, "again").ReadAll(ctx); err != nil || string(got) != "all connections are new" {
		t.Errorf("read %q, %v", got, err)
	}
	check(t, object(t, cl, "again").Remove(ctx))
}

// refusedMsgr1 dials wrong addresses, and an OSD without a ticket: daemons refuse each attempt.
func refusedMsgr1(t *testing.T, c *cluster) {
	m, err := control.New(control.Config{
		Name: wire.EntityName{Type: wire.Client, ID: "admin"}, Plane: loop.Config{Cores: 1, Driver: uring.Config{Backend: backends[0]}},
		Auth: control.Auth{Client: none.NewClient(wire.EntityName{Type: wire.Client, ID: "admin"})},
	})
	check(t, err)
	t.Cleanup(func() { shutdown(t, m) })
	check(t, m.Start())
	p := &peer{t: t, m: m}
	osd := c.osdAddrOf(0, "public_addrs", "v1")
	wantRefused(p, osd.WithNonce(osd.Nonce+1), wire.OSD, control.StageHello)
	wantRefused(p, c.monAddr.V1().WithNonce(77), wire.Mon, control.StageHello)
	wantRefused(p, osd, wire.Mon, control.StageIdent) // another protocol version
	wantRefused(p, c.monAddr.V2().WithType(wire.AddrLegacy), wire.Mon, control.StageBanner)
	if c.auth == "none" {
		return
	}
	conn, err := m.Connect(osd, wire.OSD, control.Once())
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := conn.WaitReady(ctx); !errors.Is(err, control.ErrAuth) || !errors.Is(err, &auth.Refused{Errno: auth.EACCES}) {
		t.Errorf("without a ticket: %v", err)
	}
}

// TestMsgr1RealClientConnectsToUs has the real tool, which knows a v1 address alone, log in
// to a monitor of ours, ask for its status, and give it data and take it back, across cuts.
// Matrix: V1-12
func TestMsgr1RealClientConnectsToUs(t *testing.T) {
	enabled(t)
	t.Parallel()
	for _, method := range []string{"none", "cephx"} {
		for _, backend := range backends {
			t.Run(method+"/"+string(backend), func(t *testing.T) {
				u := serveAsMon(t, clusterConfig{auth: method, mode: "crc"}, control.Msgr1, backend)
				u.pinged()
				u.asked()
				u.keeps(4<<10, 4<<20)
			})
		}
	}
}
