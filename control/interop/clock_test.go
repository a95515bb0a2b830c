package interop_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// setClock is a clock that can be set.
type setClock struct{ ahead atomic.Int64 }

func (c *setClock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (*setClock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// dialByClock is dialCluster, of a client whose tickets expire by a clock.
func dialByClock(t *testing.T, c *cluster, clock *setClock) *rados.Cluster {
	t.Helper()
	keys, err := cephx.NewClient(cephx.ClientConfig{Name: admin, Key: clusterKey(t, c, admin), Now: clock.Now})
	check(t, err)
	m := newMessenger(t, control.Config{Name: admin, Auth: control.Auth{Client: keys}})
	return openCluster(t, m, mon.Config{Mons: []wire.Addr{c.monAddr.V2()}, Auth: keys, Clock: clock})
}

// A client whose clock is wrong by hours works. Where the clock is set under way, tickets seem to have expired, or seem valid long after
// they have: operations wait for new ones, and do not fail.
func TestClocksThatAreWrongByHoursDoNotMatter(t *testing.T) {
	enabled(t)
	t.Parallel()
	c := startCluster(t, clusterConfig{auth: "cephx", mode: "crc", osds: 1, ttl: 8 * time.Second})
	right := dialCluster(t, c, "msgr2.1", uring.Auto)
	for name, hours := range map[string][2]time.Duration{"ahead": {12, -12}, "behind": {-12, 12}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			clock := &setClock{}
			clock.ahead.Store(int64(hours[0] * time.Hour))
			cl := dialByClock(t, c, clock)
			useTicket(ctx, t, cl, name, 1)
			clock.ahead.Store(int64(hours[1] * time.Hour))
			hangUp(cl)
			useTicket(ctx, t, cl, name, 2)
			first := osdSecret(t, right) // three rotations later no OSD knows the present one
			check(t, msgrtest.Until(ctx, func() bool { return osdSecret(t, right) >= first+3 }))
			hangUp(cl)
			useTicket(ctx, t, cl, name, 3)
		})
	}
}
