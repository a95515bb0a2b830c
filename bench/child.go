package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/proc"
)

// childCommand is the hidden first argument of the helper processes; "client"
// or "server", the name of a variant and the mode follow.
const childCommand = "child"

// serverHello is the first line of a server process.
type serverHello struct {
	Addr     string            `json:"addr"`            // IP:port
	Nonce    uint32            `json:"nonce,omitempty"` // of a messenger
	Settings map[string]string `json:"settings,omitempty"`
}

// serverRequest is a line to a server process.
type serverRequest struct {
	GCLoad *bool `json:"gc_load,omitempty"` // switch the load on or off
	Trim   bool  `json:"trim,omitempty"`    // return unused memory to the system
}

// serverStats answers every serverRequest.
type serverStats struct {
	Syscalls *uint64 `json:"syscalls,omitempty"` // made so far, if the server counts them
}

// clientRequest is a line to the client process; one of the fields is set.
type clientRequest struct {
	Server string        `json:"server"` // whose connections are meant
	Open   *load.Options `json:"open,omitempty"`
	Run    *load.Slice   `json:"run,omitempty"`
	Close  bool          `json:"close,omitempty"`
}

// runChild is the whole life of a helper process.
func runChild(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// Ctrl-C reaches all processes of a terminal; the parent ends its children.
	signal.Ignore(os.Interrupt)
	gone := func() { os.Exit(exitOK) }
	var err error
	switch {
	case len(args) == 1 && args[0] == "client":
		err = serveClient(stdin, stdout, gone)
	case len(args) == 3 && args[0] == "server":
		err = serveServer(args[1], args[2] == modeSecure, stdin, stdout, gone)
	case len(args) == 3 && args[0] == "storm-server":
		err = serveStorm(args[1], args[2], stdin, stdout, gone)
	case len(args) == 2 && args[0] == "storm-client":
		err = serveStormClient(args[1], stdin, stdout, gone)
	default:
		err = fmt.Errorf("unknown child %q", args)
	}
	if err != nil {
		proc.Fail(stdout, err)
		fmt.Fprintln(stderr, "bench:", err)
		return exitFailed
	}
	return exitOK
}

// serveServer runs one server until stdin closes.
func serveServer(name string, secure bool, stdin io.Reader, stdout io.Writer, gone func()) error {
	all := variants()
	i := slices.IndexFunc(all, func(v variant) bool { return v.name == name })
	if i < 0 {
		return fmt.Errorf("server %q is not part of this build", name)
	}
	cfg := all[i].config
	cfg.Secure = secure
	s, err := all[i].start(cfg)
	if err != nil {
		return fmt.Errorf("start server %s: %w", name, err)
	}
	defer func() { _ = s.Close() }() // the process ends with it
	hello := serverHello{Addr: s.Addr().String()}
	if n, ok := s.(noncer); ok {
		hello.Nonce = n.Nonce()
	}
	if d, ok := s.(describer); ok {
		hello.Settings = d.Settings()
	}
	var gc gcLoad
	return proc.Serve(stdin, stdout, hello, func(line json.RawMessage) (any, error) {
		var req serverRequest
		if err := json.Unmarshal(line, &req); err != nil {
			return nil, err
		}
		if req.GCLoad != nil && *req.GCLoad {
			gc.on()
		} else if req.GCLoad != nil {
			gc.off()
		}
		if req.Trim {
			debug.FreeOSMemory()
		}
		var stats serverStats
		if c, ok := s.(syscallCounter); ok {
			n := c.Syscalls()
			stats.Syscalls = &n
		}
		return stats, nil
	}, gone)
}

// serveClient runs the load client until stdin closes, on one locked thread.
func serveClient(stdin io.Reader, stdout io.Writer, gone func()) error {
	runtime.LockOSThread()
	debug.SetGCPercent(400) // it hardly allocates while it measures
	loads := map[string]*load.Load{}
	return proc.Serve(stdin, stdout, struct{}{}, func(line json.RawMessage) (any, error) {
		var req clientRequest
		if err := json.Unmarshal(line, &req); err != nil {
			return nil, err
		}
		l := loads[req.Server]
		switch {
		case req.Open != nil:
			if l != nil {
				return nil, errors.New("connections are open already")
			}
			l, err := load.Open(context.Background(), *req.Open)
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
