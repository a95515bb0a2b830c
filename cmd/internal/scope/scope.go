// Package scope makes the messenger of a program, and ends it.
package scope

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
)

// shutdownTime bounds the end of a messenger. Only a defect takes as long, or a machine that
// gives a core no time.
const shutdownTime = 10 * time.Second

// Close ends m. It waits for no peer: Messenger.Drain before it does.
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

// Wait waits until ctx ends. The error says that a core broke before.
func Wait(ctx context.Context, m *control.Messenger) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-m.Failures():
		return fmt.Errorf("a core broke: %w", err)
	}
}

// Stats calls f while the statistics of m are served, for "ringmsgr top" and the exporter: at
// the path of a Unix socket, or with auto where both look for a process. Without a path it
// only calls f.
func Stats(m *control.Messenger, path string, f func() error) error {
	if path == "" {
		return f()
	}
	at := path
	if path == "auto" {
		at = control.StatsSocket(os.Getpid())
	}
	stats, err := m.ServeStats(at)
	if err != nil {
		return fmt.Errorf("--stats %s: %w", path, Cause(err))
	}
	return errors.Join(f(), stats.Close())
}

// Cause is the error number in err, if there is one. The caller names the file or the address,
// in place of the layers that wrapped it.
func Cause(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
