package child

import (
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
func ServeServer(name string, start func() (Server, error), stdin io.Reader, stdout io.Writer) error {
	s, err := start()
	if err != nil {
		return fmt.Errorf("start server %s: %w", name, err)
	}
	defer func() { _ = s.Close() }() // the process ends with it
	p := &Process{s: s}
	if l, ok := s.(Limiter); ok {
		p.gc.room = l.RoomBeforeGC()
	}
	return proc.Serve(stdin, stdout, p)
}

// Process is the service of a server process: its methods are for the parent.
type Process struct {
	s  Server
	gc gcLoad
}

// Hello describes the server.
func (p *Process) Hello(_ struct{}, hello *Hello) error {
	hello.Addr = p.s.Addr().String()
	if n, ok := p.s.(Noncer); ok {
		hello.Nonce = n.Nonce()
	}
	if d, ok := p.s.(Describer); ok {
		hello.Settings = d.Settings()
	}
	if other, ok := p.s.(interface{ PID() int }); ok {
		hello.PID = other.PID()
	}
	return nil
}

// GCLoad switches the load on the collector on or off.
func (p *Process) GCLoad(on bool, _ *struct{}) error {
	if on {
		p.gc.on()
	} else {
		p.gc.off()
	}
	return nil
}

// Trim returns unused memory to the system.
func (p *Process) Trim(struct{}, *struct{}) error {
	debug.FreeOSMemory()
	return nil
}

// NotCounted is the answer of [Process.Syscalls] for a server that does not count them. An
// answer of net/rpc in JSON is never null.
const NotCounted = -1

// Syscalls is the number of system calls that the server has made.
func (p *Process) Syscalls(_ struct{}, calls *int64) error {
	*calls = NotCounted
	if c, ok := p.s.(Counter); ok {
		*calls = int64(c.Syscalls())
	}
	return nil
}
