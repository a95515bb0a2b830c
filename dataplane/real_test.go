package dataplane

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

var loopback = netip.MustParseAddrPort("127.0.0.1:0")

// engine is a way to move bytes that a plane can be made with.
type engine struct {
	name    string
	backend uring.Backend
	receive ReceiveMode
}

// overBackends runs f over each engine of the build. One that the kernel
// refuses is skipped with its reason.
func overBackends(t *testing.T, f func(t *testing.T, cfg Config)) {
	t.Helper()
	for _, one := range engines {
		t.Run(one.name, func(t *testing.T) {
			f(t, Config{Driver: uring.Config{Backend: one.backend}, Receive: one.receive})
		})
	}
}

// newPlane starts a plane that ends with the test.
func newPlane(t testing.TB, cfg Config) *Plane {
	t.Helper()
	p, err := New(cfg)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EACCES) || errors.Is(err, errors.ErrUnsupported) {
		t.Skipf("%s: refused: %v", cfg.Driver.Backend, err)
	}
	must(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// linkPair connects core a to core b.
func linkPair(t testing.TB, a, b *Core) (dialled, accepted *Link) {
	t.Helper()
	got := make(chan *Link, 1)
	l, err := b.Listen(loopback, uring.ListenOptions{}, func(l *Link) { got <- l })
	must(t, err)
	dialled, err = a.Dial(deadline(t), netip.AddrPort{}, l.Addr(), uring.SocketOptions{})
	must(t, err)
	select {
	case accepted = <-got:
	case <-time.After(patience):
		t.Fatal("nothing accepted")
	}
	must(t, l.Close())
	return dialled, accepted
}

// deadline is a context that ends a test which hangs.
func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// stats of a core that runs.
func stats(t testing.TB, c *Core) CoreStats {
	t.Helper()
	st, err := c.Stats()
	must(t, err)
	return st
}

// couple opens a handler on each core, joined by a connection.
func couple(t testing.TB, a, b *Core, oa, ob *recorder, opt OpenOptions) (ha, hb *Handler) {
	t.Helper()
	ha, hb = NewHandler(a, HandlerConfig{Owner: oa}), NewHandler(b, HandlerConfig{Owner: ob})
	join(t, ha, hb, opt)
	return ha, hb
}

// join opens both handlers over a new connection between their cores.
func join(t testing.TB, ha, hb *Handler, opt OpenOptions) {
	t.Helper()
	joinMode(t, ha, hb, opt, wireModes[1])
}

// joinMode is join for a framing that is not encrypted.
func joinMode(t testing.TB, ha, hb *Handler, opt OpenOptions, m wireMode) {
	t.Helper()
	la, lb := linkPair(t, ha.Core(), hb.Core())
	for _, one := range []struct {
		h *Handler
		l *Link
	}{{ha, la}, {hb, lb}} {
		o := opt
		newModeCodec(t, m).ours(&o)
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
