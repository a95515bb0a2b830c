package dataplane

import (
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/planetest"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// What a kit below this package has for it, with our types.
const patience = planetest.Patience

var (
	loopback = planetest.Loopback
	deadline = planetest.Deadline
	must     = drivertest.Must
	linkPair = planetest.LinkPair[*loop.Link, *loop.Listener]
)

// overBackends runs f over each engine of the build. One that the kernel
// refuses is skipped with its reason.
func overBackends(t *testing.T, f func(t *testing.T, cfg loop.Config)) {
	t.Helper()
	planetest.OverEngines(t, func(t *testing.T, e planetest.Engine) {
		f(t, loop.Config{Driver: uring.Config{Backend: e.Backend}, Receive: loop.ReceiveMode(e.Receive)})
	})
}

// newPlane starts a plane that ends with the test. A core to which a busy machine gives no time for a while
// does not count as stalled, as that has no counts.
func newPlane(t testing.TB, cfg loop.Config) *loop.Plane {
	t.Helper()
	cfg.StallAfter = patience
	return planetest.Start(t, cfg.Driver.Backend, func() (*loop.Plane, error) { return loop.New(cfg) })
}

// overPlanes runs f over a plane of each engine of the build.
func overPlanes(t *testing.T, cores int, f func(t *testing.T, p *loop.Plane)) {
	t.Helper()
	overBackends(t, func(t *testing.T, cfg loop.Config) {
		cfg.Cores = cores
		f(t, newPlane(t, cfg))
	})
}

// couple opens a handler on each core, joined by a connection.
func couple(t testing.TB, a, b *loop.Core, oa, ob *recorder, opt OpenOptions) (ha, hb *Handler) {
	t.Helper()
	ha, hb = NewHandler(a, HandlerConfig{Owner: oa}), NewHandler(b, HandlerConfig{Owner: ob})
	join(t, ha, hb, opt)
	return ha, hb
}

// join opens both handlers over a new connection between their cores.
func join(t testing.TB, ha, hb *Handler, opt OpenOptions) {
	t.Helper()
	joinMode(t, ha, hb, opt, plain2)
}

// joinMode is join for a framing that is not encrypted.
func joinMode(t testing.TB, ha, hb *Handler, opt OpenOptions, m wireMode) {
	t.Helper()
	la, lb := linkPair(t, ha.Core(), hb.Core())
	for _, one := range []struct {
		h *Handler
		l *loop.Link
	}{{ha, la}, {hb, lb}} {
		o := opt
		o.Codec = newPeer(t, m).ours()
		one.h.Open(one.l, o)
	}
}

// until waits for a condition over what r is told.
func until(t testing.TB, r *recorder, what string, done func() bool) {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		r.mu.Lock()
		if r.notice == nil {
			r.notice = make(chan struct{})
		}
		notice := r.notice
		r.mu.Unlock()
		if done() {
			return
		}
		select {
		case <-notice:
		case <-limit.C:
			t.Fatalf("waited in vain for %s: %d messages, events %v, fault %v", what, len(r.list()), r.log(), r.fault())
		}
	}
}

// await waits until the call has run done.
func await(t testing.TB, call func(done func())) {
	t.Helper()
	ran := make(chan struct{})
	call(func() { close(ran) })
	select {
	case <-ran:
	case <-time.After(patience):
		t.Fatal("the call does not end")
	}
}

func stats(t testing.TB, c *loop.Core) CoreStats {
	t.Helper()
	st, err := StatsOf(c)
	must(t, err)
	return st
}
