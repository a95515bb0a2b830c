package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

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

// storageClientRequest is a line to the client of storage servers, which understands what
// the client of echo servers is asked too, but for Open.
type storageClientRequest struct {
	Server string               `json:"server"`
	Open   *load.StorageOptions `json:"open,omitempty"`
	Run    *load.Slice          `json:"run,omitempty"`
	Close  bool                 `json:"close,omitempty"`
}

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
	debug.SetGCPercent(400) // it hardly allocates while it measures
	loads := map[string]*load.Storage{}
	return proc.Serve(stdin, stdout, struct{}{}, func(line json.RawMessage) (any, error) {
		var req storageClientRequest
		if err := json.Unmarshal(line, &req); err != nil {
			return nil, err
		}
		l := loads[req.Server]
		switch {
		case req.Open != nil:
			if l != nil {
				return nil, errors.New("connections are open already")
			}
			l, err := load.OpenStorage(context.Background(), *req.Open)
			if err == nil {
				loads[req.Server] = l
			}
			return nil, err
		case l == nil:
			return nil, errors.New("no connections are open")
		case req.Run != nil:
			return l.Run(*req.Run)
		case req.Close:
			l.Close()
			delete(loads, req.Server)
			return nil, nil
		}
		return nil, errors.New("empty request")
	}, gone)
}
