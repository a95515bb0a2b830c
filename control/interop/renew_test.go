package interop_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Tickets of real monitors expire under a running session, and the service keys
// that they are made with rotate, while objects are written. The session stays,
// and every new connection to the OSD shows a ticket that the OSD can open.
func TestTicketsAreRenewedUnderARunningSession(t *testing.T) {
	enabled(t)
	t.Parallel()
	const (
		ttl       = 8 * time.Second
		rotations = 3
		// The monitor rotates its keys every few seconds only.
		limit = 2 * time.Minute
	)
	c := startCluster(t, clusterConfig{auth: "cephx", mode: "secure", osds: 1, ttl: ttl})
	for _, backend := range backends {
		t.Run(string(backend), func(t *testing.T) {
			t.Parallel()
			cl := dialCluster(t, c, "msgr2.1", backend)
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			session, first := cl.Mon().Conn(), osdSecret(t, cl)
			tick := time.NewTicker(200 * time.Millisecond)
			defer tick.Stop()
			rounds, connections := 0, 0
			for osdSecret(t, cl) < first+rotations {
				useTicket(ctx, t, cl, "object of "+string(backend), byte(rounds))
				connections += hangUp(cl)
				rounds++
				<-tick.C
			}
			if now := cl.Mon().Conn(); now != session {
				t.Errorf("the monitor session was lost: %v", session.Err())
			}
			if connections < rounds {
				t.Errorf("%d connections to the osd in %d rounds", connections, rounds)
			}
			t.Logf("%d rounds, %d connections to the osd", rounds, connections)
		})
	}
}

// A daemon of ours has the rotating secrets of a real monitor, and lets a client in by the
// ticket that the monitor has made.
func TestADaemonOfOursOpensTicketsOfRealMonitors(t *testing.T) {
	enabled(t)
	t.Parallel()
	c := startCluster(t, clusterConfig{auth: "cephx", mode: "secure", osds: 1})
	self := c.newOSDKey(t, 7)
	own := self.Name
	store := cephx.NewSecretStore(wire.OSD)
	keys, err := cephx.NewClient(cephx.ClientConfig{Name: own, Key: self.Key, Secrets: store})
	check(t, err)
	server, err := cephx.NewServer(cephx.ServerConfig{Own: own.Type, Secrets: store})
	check(t, err)
	m := newMessenger(t, control.Config{Name: own, Auth: control.Auth{Client: keys, Server: server}})
	session, err := mon.NewClient(mon.Config{Mons: []wire.Addr{c.monAddr.V2()}, Auth: keys})
	check(t, err)
	t.Cleanup(session.Close)
	accepted := make(chan *control.Conn, 1)
	check(t, m.Start(session.Dispatcher(), &control.Dispatcher{Accept: func(conn *control.Conn, _ int, _ bool) { accepted <- conn }}))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	check(t, session.Open(ctx, m))
	check(t, msgrtest.Until(ctx, func() bool { return !store.NeedRefresh(time.Now()) }))
	addrs, err := m.Bind(loopbackPort())
	check(t, err)

	conn, err := dialCluster(t, c, "msgr2.1", backends[0]).Messenger().Connect(addrs[0], wire.OSD)
	check(t, err)
	check(t, conn.WaitReady(ctx))
	if i := (<-accepted).Info(); i.Auth != auth.Cephx || i.PeerEntity.String() != "client.admin" {
		t.Errorf("the client is %+v", i)
	}
}

// osdSecret is the number of the secret that our ticket for OSDs is made with.
func osdSecret(t *testing.T, cl *rados.Cluster) uint64 {
	t.Helper()
	for _, i := range cl.Tickets() {
		if i.Service == wire.OSD {
			return i.SecretID
		}
	}
	t.Fatal("there is no ticket for OSDs")
	return 0
}

// useTicket writes and reads an object.
func useTicket(ctx context.Context, t *testing.T, cl *rados.Cluster, name string, content byte) {
	t.Helper()
	pattern := bytes.Repeat([]byte{content}, 10_000)
	check(t, object(t, cl, name).WriteFull(ctx, pattern))
	got, err := object(t, cl, name).ReadAll(ctx)
	check(t, err)
	if !bytes.Equal(got, pattern) {
		t.Fatal("read other bytes than were written")
	}
}

// hangUp closes the connections to OSDs, so that the next request shows its
// ticket again, and returns how many there were.
func hangUp(cl *rados.Cluster) int {
	n := 0
	for _, conn := range cl.Messenger().Conns() {
		if conn.Info().PeerType == wire.OSD {
			conn.MarkDown()
			n++
		}
	}
	return n
}
