package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/cmd/internal/address"
	"github.com/ringmsgr/ringmsgr/cmd/internal/flags"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/uring"
)

// messenger makes one, with the cores and the engine that the flags say.
func (e *env) messenger(name wire.EntityName, nonce *uint32) (*control.Messenger, error) {
	backend, err := flags.Backend(e.backend)
	if err != nil {
		return nil, err
	}
	log, err := flags.Logger(e.level, e.stderr)
	if err != nil {
		return nil, err
	}
	if os.Getenv("GOMAXPROCS") == "" { // each core blocks a thread
		runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), e.cores+2))
	}
	return control.New(control.Config{
		Name: name, Nonce: nonce, Logger: log, Plane: dataplane.Config{Cores: e.cores, Driver: uring.Config{Backend: backend}},
	})
}

// shutdown ends a messenger. What is acknowledged is durable: nothing is waited for.
func shutdown(m *control.Messenger) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return m.Shutdown(ctx)
}

// serve serves until ctx ends, or a core breaks.
func serve(ctx context.Context, e *env, _ []string) (err error) {
	at, err := address.Reader{AnyPort: true}.Parse(ctx, e.listen)
	switch {
	case err != nil:
		return cli.Usagef("--listen: %w", err)
	case e.dir == "":
		return cli.Usagef("--dir is missing")
	}
	v := &server{dir: e.dir, cores: e.cores, segment: segmentSize}
	if v.m, err = e.messenger(wire.EntityName{Type: wire.OSD, ID: "0"}, &at.Nonce); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shutdown(v.m)) }()
	if v.log, err = flags.Logger(e.level, e.stderr); err != nil {
		return err
	}
	unlock, err := lock(ctx, e.dir)
	if err != nil {
		return err
	}
	defer unlock()
	if err := v.open(); err != nil {
		return err
	}
	if err := v.m.Start(&control.Dispatcher{Fast: v.handle}); err != nil {
		return err
	}
	addrs, err := v.m.Bind(at)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "listening %v, cores %d, backend %s\n", addrs[0], e.cores, v.m.Plane().Info().Backend)
	select {
	case <-ctx.Done():
		return nil
	case err := <-v.m.Plane().Failures():
		return fmt.Errorf("a core broke: %w", err)
	}
}

// lock keeps other processes out of a directory, and waits for one that was killed: what
// it has asked the kernel for may go on for a moment.
func lock(ctx context.Context, dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for range 100 {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			return func() { _ = f.Close() }, nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
	_ = f.Close()
	return nil, fmt.Errorf("%s is in use: %w", dir, err)
}
