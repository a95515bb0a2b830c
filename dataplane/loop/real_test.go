package loop

import (
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/planetest"
	"github.com/ringmsgr/ringmsgr/uring"
)

// What a kit below this package has for it, with our types.
const patience = planetest.Patience

var (
	loopback = planetest.Loopback
	deadline = planetest.Deadline
	must     = planetest.Must
	stats    = planetest.Stats[CoreStats]
	linkPair = planetest.LinkPair[*Link, *Listener]
	netPair  = planetest.NetPair[*Link, *Listener]
)

// overBackends runs f over each engine of the build. One that the kernel
// refuses is skipped with its reason.
func overBackends(t *testing.T, f func(t *testing.T, cfg Config)) {
	t.Helper()
	planetest.OverEngines(t, func(t *testing.T, e planetest.Engine) {
		f(t, Config{Driver: uring.Config{Backend: e.Backend}, Receive: ReceiveMode(e.Receive)})
	})
}

// newPlane starts a plane that ends with the test.
func newPlane(t testing.TB, cfg Config) *Plane {
	t.Helper()
	return planetest.Start(t, cfg.Driver.Backend, func() (*Plane, error) { return New(cfg) })
}

// overPlanes runs f over a plane of each engine of the build.
func overPlanes(t *testing.T, cores int, f func(t *testing.T, p *Plane)) {
	t.Helper()
	overBackends(t, func(t *testing.T, cfg Config) {
		cfg.Cores = cores
		f(t, newPlane(t, cfg))
	})
}
