package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strconv"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/original"
	"github.com/ringmsgr/ringmsgr/bench/internal/storage"
)

// runChild is the whole life of a helper process.
func runChild(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return child.Main(func() error {
		switch {
		case len(args) == 1 && args[0] == "client":
			runtime.LockOSThread() // its loop is one thread
			return child.ServeClient(load.Open, stdin, stdout)
		case len(args) == 1 && args[0] == "storage-client":
			runtime.LockOSThread()
			return child.ServeClient(load.OpenStorage, stdin, stdout)
		case len(args) == 3 && args[0] == originalServer:
			runtime.LockOSThread() // the programs of Ceph end with this thread
			start := func() (child.Server, error) { return original.StartServer(args[1], args[2] == "true") }
			return child.ServeServer(args[1], start, stdin, stdout)
		case len(args) == 2 && args[0] == originalClient:
			runtime.LockOSThread()
			open := func(ctx context.Context, o load.Options) (child.Load, error) {
				return original.OpenClient(ctx, args[1], o)
			}
			return child.ServeClient(open, stdin, stdout)
		case len(args) == 4 && args[0] == "server":
			return serveServer(args[1], args[2], args[3], stdin, stdout)
		case len(args) == 5 && args[0] == "server":
			return serveStorage(args[1], args[4], stdin, stdout)
		}
		return fmt.Errorf("unknown child %q", args)
	}, stderr)
}

// serveServer runs one server until stdin closes.
func serveServer(name, mode, cores string, stdin io.Reader, stdout io.Writer) error {
	v, err := find(variants(), name)
	if err != nil {
		return err
	}
	cfg := v.config
	cfg.Secure = mode == child.ModeSecure
	if cfg.Cores, err = strconv.Atoi(cores); err != nil {
		return fmt.Errorf("cores of server %s: %w", name, err)
	}
	return child.ServeServer(name, func() (child.Server, error) { return v.start(cfg) }, stdin, stdout)
}

// serveStorage runs one storage server on a file until stdin closes.
func serveStorage(name, file string, stdin io.Reader, stdout io.Writer) error {
	v, err := find(storageVariants(), name)
	if err != nil {
		return err
	}
	var cfg storage.Config
	if err := json.Unmarshal([]byte(file), &cfg); err != nil {
		return fmt.Errorf("file of server %s: %w", name, err)
	}
	return child.ServeServer(name, func() (child.Server, error) { return v.storage(cfg) }, stdin, stdout)
}
