package interop_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/uring"
)

// watched are objects in different groups. A client watches them, and another client notifies.
type watched struct {
	t       *testing.T
	ctx     context.Context
	objects []rados.Object // as the other client sees them
	lost    chan error
}

func watchAll(ctx context.Context, t *testing.T, watcher, notifier rados.Pool) *watched {
	t.Helper()
	w := &watched{t: t, ctx: ctx, lost: make(chan error, 8)}
	for i := range cap(w.lost) {
		o := watcher.Object(fmt.Sprint("watched ", i))
		check(t, o.Create(ctx, false))
		mine, err := o.Watch(ctx, 5*time.Minute, rados.Handler{
			Notified: func(n rados.Notification) []byte { return append([]byte("heard "), n.Payload...) },
			Lost:     func(err error) { w.lost <- err },
		})
		check(t, err)
		if who, err := o.Watchers(ctx); err != nil || len(who) != 1 || who[0].Cookie != mine.Cookie() || who[0].Timeout != 5*time.Minute {
			t.Errorf("%+v, %v", who, err)
		}
		w.objects = append(w.objects, notifier.Object(o.Name()))
	}
	return w
}

func (w *watched) notify(when string) {
	w.t.Helper()
	for _, o := range w.objects {
		answers, err := o.Notify(w.ctx, []byte(when), patience)
		if err != nil || len(answers) != 1 || answers[0].Missed || string(answers[0].Data) != "heard "+when {
			w.t.Errorf("%s, %q: %+v, %v", when, o.Name(), answers, err)
		}
	}
	select {
	case err := <-w.lost:
		w.t.Errorf("%s: a watch is lost: %v", when, err)
	default:
	}
}

// wantLost waits for the loss of so many watches.
func (w *watched) wantLost(n int, when string) {
	w.t.Helper()
	for range n {
		select {
		case err := <-w.lost:
			if !errors.Is(err, syscall.ENOTCONN) {
				w.t.Errorf("%s: %v", when, err)
			}
		case <-time.After(patience):
			w.t.Fatalf("%s: a watch is lost, and nobody is told", when)
		}
	}
}

// Watches and notifies outlive restarts of OSDs, changes of the map and connections that break. A watch that an OSD has given up, or
// whose object or pool is removed, is an event.
// Matrix: IN-14
func TestAWatchOutlivesOSDsAndItsLossIsAnEvent(t *testing.T) {
	enabled(t)
	t.Parallel()
	c := startCluster(t, clusterConfig{auth: "cephx", mode: "crc", osds: 2, more: "debug ms = 0\n" +
		"osd fast shutdown = false\nosd heartbeat grace = 300\nmon allow pool delete = true\n"})
	c.createPool("watched", "4 4 replicated", "size 2")
	watcher, notifier := dialCluster(t, c, "msgr2.1", uring.Auto), dialCluster(t, c, "msgr2.1", uring.Auto)
	ctx := within(t, 5*patience)
	pools := func() (ours, theirs rados.Pool) {
		ours, err := watcher.Pool(ctx, "watched")
		check(t, err)
		theirs, err = notifier.Pool(ctx, "watched")
		check(t, err)
		return ours, theirs
	}
	p, q := pools()
	w := watchAll(ctx, t, p, q)
	w.notify("at first")
	c.ceph("osd", "down", "0")
	w.notify("while an OSD is taken to be down")
	check(t, setGroups(ctx, notifier, "watched", "pg_num_actual", 7))
	w.notify("behind a split")
	hangUp(watcher)
	w.notify("behind a break of all connections")
	for _, d := range c.osds {
		d.end(t) // the disk in memory is kept in files
		w.notify("while " + d.name + " is away")
		d.restart(t)
		c.awaitUp(2)
		w.notify("when " + d.name + " is back")
	}

	us := watcher.Messenger().Addrs()[0]
	c.ceph("osd", "blocklist", "add", fmt.Sprintf("127.0.0.1:0/%d", us.Nonce))
	w.wantLost(len(w.objects), "the client is on the blocklist")
	watcher = dialCluster(t, c, "msgr2.1", uring.Auto)
	p, q = pools()
	w = watchAll(ctx, t, p, q)
	w.notify("before the end")
	check(t, w.objects[0].Remove(ctx))
	w.wantLost(1, "the object is removed")
	check(t, q.Delete(ctx))
	w.wantLost(len(w.objects)-1, "the pool is deleted")
}

// setGroups sets the number of groups at once, where a manager takes steps. The ceph tool has no such option.
func setGroups(ctx context.Context, cl *rados.Cluster, pool, what string, n int) error {
	_, err := cl.Mon().Command(ctx, map[string]any{"prefix": "osd pool set", "pool": pool, "var": what, "val": strconv.Itoa(n)})
	return err
}
