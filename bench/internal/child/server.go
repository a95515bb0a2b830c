package child

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"runtime/debug"

	"github.com/ringmsgr/ringmsgr/bench/internal/proc"
)

// Server is a running server.
type Server interface {
	// Addr returns where it listens.
	Addr() net.Addr
	// Close ends it. It is called once.
	Close() error
}

// Counter is a server that counts its own system calls.
type Counter interface{ Syscalls() uint64 }

// Noncer is a messenger, whose clients must know the nonce of its address.
type Noncer interface{ Nonce() uint32 }

// Describer is a server with settings for the report, for example its backend.
type Describer interface{ Settings() map[string]string }

// Limiter is a server that collects garbage at a memory limit alone, as with GOMEMLIMIT and
// GOGC=off.
type Limiter interface {
	// RoomBeforeGC returns the bytes between the memory of the process when the load on the
	// collector begins and the limit; 0: there is no limit.
	RoomBeforeGC() int64
}

// Started avoids an interface that holds a nil pointer.
func Started[S Server](s S, err error) (Server, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// ServeServer runs one server until stdin closes.
func ServeServer(name string, start func() (Server, error), stdin io.Reader, stdout io.Writer, gone func()) error {
	s, err := start()
	if err != nil {
		return fmt.Errorf("start server %s: %w", name, err)
	}
	defer func() { _ = s.Close() }() // the process ends with it
	hello := Hello{Addr: s.Addr().String()}
	if n, ok := s.(Noncer); ok {
		hello.Nonce = n.Nonce()
	}
	if d, ok := s.(Describer); ok {
		hello.Settings = d.Settings()
	}
	if p, ok := s.(interface{ PID() int }); ok {
		hello.PID = p.PID()
	}
	var gc gcLoad
	if l, ok := s.(Limiter); ok {
		gc.room = l.RoomBeforeGC()
	}
	return proc.Serve(stdin, stdout, hello, func(line json.RawMessage) (any, error) {
		var req ServerRequest
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
		var stats ServerStats
		if c, ok := s.(Counter); ok {
			n := c.Syscalls()
			stats.Syscalls = &n
		}
		return stats, nil
	}, gone)
}
