package control_test

import (
	"context"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/uring"
)

func newMessenger(t testing.TB, name string, cores int, backend uring.Backend) *control.Messenger {
	t.Helper()
	n, err := wire.ParseEntityName(name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := control.Config{Name: n, Plane: dataplane.Config{Cores: cores, Driver: uring.Config{Backend: backend}}}
	m, err := control.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := m.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return m
}
