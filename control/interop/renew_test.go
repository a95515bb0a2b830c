package interop_test

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Tickets of real monitors expire under a running session, and the service keys that they are made with rotate, while objects are
// written. The session stays, and every new connection to the OSD shows a ticket that the OSD can open. A client whose clock is wrong
// by hours works, too. A daemon of ours opens such tickets.
func TestTicketsAreRenewedUnderARunningSession(t *testing.T) {
	enabled(t)
	t.Parallel()
	c := startCluster(t, clusterConfig{auth: "cephx", mode: "secure", osds: 1, ttl: 8 * time.Second})
	right := dialCluster(t, c, "msgr2.1", uring.Auto)
	for _, backend := range backends {
		t.Run(string(backend), func(t *testing.T) {
			t.Parallel()
			keepSession(t, dialCluster(t, c, "msgr2.1", backend), "object of "+string(backend))
		})
	}
	for name, hours := range map[string][2]time.Duration{"ahead": {12, -12}, "behind": {-12, 12}} {
		t.Run("clock "+name, func(t *testing.T) {
			t.Parallel()
			setClocks(t, c, right, name, hours)
		})
	}
	t.Run("daemon", func(t *testing.T) { letClientIn(t, c) })
}

// rotations are so many that no OSD knows the first secret at their end. A monitor rotates its secrets every few seconds only.
const rotations, rotationsEnd = 3, 4 * time.Minute

// keepSession uses objects on new connections, while secrets rotate, on one session with the monitor.
func keepSession(t *testing.T, cl *rados.Cluster, name string) {
	ctx := within(t, rotationsEnd)
	session, first := cl.Mon().Conn(), osdSecret(t, cl)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	rounds, connections := 0, 0
	for ; osdSecret(t, cl) < first+rotations; rounds++ {
		useTicket(ctx, t, cl, name, byte(rounds))
		connections += hangUp(cl)
		<-tick.C
	}
	if now := cl.Mon().Conn(); now != session {
		t.Errorf("the monitor session was lost: %v", session.Err())
	}
	if connections < rounds {
		t.Errorf("%d connections to the osd in %d rounds", connections, rounds)
	}
	t.Logf("%d rounds, %d connections to the osd", rounds, connections)
}

// setClock is a clock that can be set.
type setClock struct{ ahead atomic.Int64 }

func (c *setClock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (*setClock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// setClocks uses a client by a clock that is wrong, and then set: tickets seem to have expired, or seem valid long after they have.
// Operations wait for new ones, and do not fail. A client that comes back behind rotations is let in.
func setClocks(t *testing.T, c *cluster, right *rados.Cluster, name string, hours [2]time.Duration) {
	ctx := within(t, rotationsEnd)
	clock := &setClock{}
	clock.ahead.Store(int64(hours[0] * time.Hour))
	keys, err := cephx.NewClient(cephx.ClientConfig{Name: admin, Key: clusterKey(t, c, admin), Now: clock.Now})
	check(t, err)
	enter := func(keys *cephx.Client, clock control.Clock) *rados.Cluster {
		m := newMessenger(t, control.Config{Name: admin, Auth: control.Auth{Client: keys}})
		return openCluster(t, m, mon.Config{Mons: []wire.Addr{c.monAddr.V2()}, Auth: keys, Clock: clock})
	}
	cl := enter(keys, clock)
	useTicket(ctx, t, cl, name, 1)
	clock.ahead.Store(int64(hours[1] * time.Hour))
	hangUp(cl)
	useTicket(ctx, t, cl, name, 2)
	away, err := cephx.NewClient(cephx.ClientConfig{Name: admin, Key: clusterKey(t, c, admin)})
	check(t, err)
	enter(away, nil).Mon().Close()
	first := osdSecret(t, right)
	check(t, msgrtest.Until(ctx, func() bool { return osdSecret(t, right) >= first+rotations }))
	hangUp(cl)
	useTicket(ctx, t, cl, name, 3)
	enter(away, nil) // the monitor does not know the secret of its ticket
}

// letClientIn has a daemon of ours, with the rotating secrets of the monitor, let a client in by a ticket of the monitor.
func letClientIn(t *testing.T, c *cluster) {
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
	ctx := within(t, patience)
	check(t, session.Open(ctx, m))
	check(t, msgrtest.Until(ctx, func() bool { return !keys.RenewAt().IsZero() }))
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
