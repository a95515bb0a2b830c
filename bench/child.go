package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
)

// runChild is the whole life of a helper process.
func runChild(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return child.Main(func(gone func()) error {
		switch {
		case len(args) == 1 && args[0] == "client":
			runtime.LockOSThread() // its loop is one thread
			return child.ServeClient(openLoad, stdin, stdout, gone)
		case len(args) == 4 && args[0] == "server":
			return serveServer(args[1], args[2], args[3], stdin, stdout, gone)
		case len(args) == 3 && args[0] == "storm-server":
			return serveStorm(args[1], args[2], stdin, stdout, gone)
		case len(args) == 2 && args[0] == "storm-client":
			return serveStormClient(args[1], stdin, stdout, gone)
		case len(args) == 3 && args[0] == "storage-server":
			return serveStorage(args[1], args[2], stdin, stdout, gone)
		case len(args) == 1 && args[0] == "storage-client":
			return serveStorageClient(stdin, stdout, gone)
		case len(args) >= 3 && args[0] == "kv-server":
			return serveKV(args[1], args[2], args[3:], stdin, stdout, gone)
		case len(args) == 1 && args[0] == "kv-client":
			return serveKVClient(stdin, stdout, gone)
		}
		return fmt.Errorf("unknown child %q", args)
	}, stdout, stderr)
}

// openLoad avoids an interface that holds a nil pointer.
func openLoad(ctx context.Context, o load.Options) (child.Load, error) {
	l, err := load.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// serveServer runs one server until stdin closes.
func serveServer(name, mode, cores string, stdin io.Reader, stdout io.Writer, gone func()) error {
	all := variants()
	i := slices.IndexFunc(all, func(v variant) bool { return v.name == name })
	if i < 0 {
		return fmt.Errorf("server %q is not part of this build", name)
	}
	cfg := all[i].config
	cfg.Secure = mode == child.ModeSecure
	var err error
	if cfg.Cores, err = strconv.Atoi(cores); err != nil {
		return fmt.Errorf("cores of server %s: %w", name, err)
	}
	return child.ServeServer(name, func() (child.Server, error) { return all[i].start(cfg) }, stdin, stdout, gone)
}
