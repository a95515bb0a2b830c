package loop

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
