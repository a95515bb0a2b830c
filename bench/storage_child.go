package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/proc"
	"github.com/ringmsgr/ringmsgr/bench/internal/storage"
)

// storageRequest is a line to a storage server. It is answered with storageStats.
type storageRequest struct {
	Procs    int  `json:"procs,omitempty"`    // GOMAXPROCS from now on
	Saturate *int `json:"saturate,omitempty"` // reads under way for nobody from now on
}

// storageStats is what a storage server says of itself.
type storageStats struct {
	child.ServerStats
	Mallocs uint64 `json:"mallocs"` // heap allocations so far
}

// storageClientRequest is a line to the client of storage servers.
type storageClientRequest = child.Request[load.StorageOptions]

// serveStorage runs one storage server until stdin closes.
func serveStorage(name, config string, stdin io.Reader, stdout io.Writer, gone func()) error {
	v, err := findStorage(name)
	if err != nil {
		return err
	}
	var cfg storage.Config
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		return err
	}
	s, err := v.start(cfg)
	if err != nil {
		return fmt.Errorf("start storage server %s: %w", name, err)
	}
	defer func() { _ = s.Close() }() // the process ends with it
	hello := child.Hello{Addr: s.Addr().String(), Settings: s.Settings()}
	if n, ok := s.(child.Noncer); ok {
		hello.Nonce = n.Nonce()
	}
	return proc.Serve(stdin, stdout, hello, func(line json.RawMessage) (any, error) {
		var req storageRequest
		if err := json.Unmarshal(line, &req); err != nil {
			return nil, err
		}
		if req.Procs > 0 {
			runtime.GOMAXPROCS(req.Procs)
		}
		if req.Saturate != nil {
			busy, ok := s.(interface{ Saturate(n int) error })
			if !ok {
				return nil, errors.New("it cannot keep its disk busy")
			}
			if err := busy.Saturate(*req.Saturate); err != nil {
				return nil, err
			}
		}
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		stats := storageStats{Mallocs: mem.Mallocs}
		if c, ok := s.(interface{ Syscalls() (uint64, bool) }); ok {
			if n, known := c.Syscalls(); known {
				stats.Syscalls = &n
			}
		}
		return stats, nil
	}, gone)
}

// serveStorageClient runs the client of storage servers until stdin closes, on one locked
// thread.
func serveStorageClient(stdin io.Reader, stdout io.Writer, gone func()) error {
	runtime.LockOSThread()
	return child.ServeClient(func(ctx context.Context, o load.StorageOptions) (child.Load, error) {
		l, err := load.OpenStorage(ctx, o)
		if err != nil {
			return nil, err // not an interface that holds a nil pointer
		}
		return l, nil
	}, stdin, stdout, gone)
}
