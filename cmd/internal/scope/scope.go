// Package scope gives a program a messenger for as long as it has a use for it.
package scope

import (
	"context"
	"errors"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
)

// shutdownTime bounds how long a messenger may take to end. Only a defect takes as long,
// or a machine that gives a core no time.
const shutdownTime = 10 * time.Second

// Close ends m. It does not wait for peers: they have nothing to gain from our patience.
func Close(m *control.Messenger) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	return m.Shutdown(ctx)
}

// With calls f with a messenger that is not started yet, and closes it. The Go scheduler has
// room for its cores (cli.GrowProcs).
func With(cfg control.Config, f func(m *control.Messenger) error) error {
	cli.GrowProcs(cfg.Plane.Cores)
	m, err := control.New(cfg)
	if err != nil {
		return err
	}
	return errors.Join(f(m), Close(m))
}
