// Package linktest is a connection in memory for the tests of handshakes, and their recordings.
// Nothing in it waits for a network, so that what a test sees does not depend on time.
package linktest

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// Pipe is one direction of a connection: unbounded, and it wakes a reader that waits
// for more. Any goroutine may use it; one at a time reads.
type Pipe struct {
	mu     sync.Mutex
	buf    []byte
	closed bool
	wake   chan struct{}
}

// NewPipe makes a pipe with something in it, which it owns from here.
func NewPipe(content ...byte) *Pipe { return &Pipe{buf: content, wake: make(chan struct{}, 1)} }

func (p *Pipe) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Write appends a copy of b.
func (p *Pipe) Write(b []byte) {
	p.mu.Lock()
	p.buf = append(p.buf, b...)
	p.mu.Unlock()
	p.signal()
}

// Close says that nothing more comes.
func (p *Pipe) Close() *Pipe { return p.setClosed(true) }

// Reopen takes Close back: the writer is silent.
func (p *Pipe) Reopen() *Pipe { return p.setClosed(false) }

func (p *Pipe) setClosed(closed bool) *Pipe {
	p.mu.Lock()
	p.closed = closed
	p.mu.Unlock()
	p.signal()
	return p
}

// Take reads what there is.
func (p *Pipe) Take() (all []byte, closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, p.buf = p.buf, nil
	return all, p.closed
}

// Woken gets a value after what has changed since the last one.
func (p *Pipe) Woken() <-chan struct{} { return p.wake }

// ReadFull fills b. If nothing more comes, the error is io.EOF before the first byte and
// io.ErrUnexpectedEOF behind it.
func (p *Pipe) ReadFull(ctx context.Context, b []byte) error {
	for got := 0; ; {
		p.mu.Lock()
		n := copy(b[got:], p.buf)
		p.buf = p.buf[n:]
		got += n
		closed := p.closed
		p.mu.Unlock()
		switch {
		case got == len(b):
			return nil
		case closed && got == 0:
			return io.EOF
		case closed:
			return io.ErrUnexpectedEOF
		}
		select {
		case <-p.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Content is a copy of what was written and not read.
func (p *Pipe) Content() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Clone(p.buf)
}

// End is one end of a connection. One goroutine at a time writes.
type End struct {
	In, Out *Pipe
	Single  bool                           // deliver each byte on its own
	Tamper  func(off int, b []byte) []byte // what becomes of a write, at an offset in the whole
	wrote   int
}

// New returns the two ends of a connection.
func New() (c, s *End) {
	a, b := NewPipe(), NewPipe()
	return &End{In: a, Out: b}, &End{In: b, Out: a}
}

// Scripted is an end at which everything that the peer will ever send has arrived
// already, and whose peer has closed.
func Scripted(peer []byte) *End {
	return &End{In: NewPipe(bytes.Clone(peer)...).Close(), Out: NewPipe()}
}

// ReadFull reads what the other end has written.
func (e *End) ReadFull(ctx context.Context, b []byte) error { return e.In.ReadFull(ctx, b) }

// Write never waits.
func (e *End) Write(_ context.Context, b []byte) error {
	b = bytes.Clone(b)
	off := e.wrote
	e.wrote += len(b)
	if e.Tamper != nil {
		b = e.Tamper(off, b)
	}
	if !e.Single {
		e.Out.Write(b)
		return nil
	}
	for i := range b {
		e.Out.Write(b[i : i+1])
	}
	return nil
}

// UnixPair is a connected pair of Unix sockets.
func UnixPair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, errConn := net.FileConn(f)
		drivertest.Must(t, errors.Join(err, errConn, f.Close()))
		t.Cleanup(func() { _ = c.Close() })
		conns[i] = c.(*net.UnixConn)
	}
	return conns[0], conns[1]
}

// Hex is a string of bytes in a recording: hexadecimal digits in JSON.
type Hex []byte

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hex) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

// Unhex is the bytes that hexadecimal digits stand for.
func Unhex(t testing.TB, digits string) []byte {
	t.Helper()
	p, err := hex.DecodeString(digits)
	drivertest.Must(t, err)
	return p
}

// Load reads a recording of testdata, which is JSON.
func Load(t testing.TB, name string, into any) {
	t.Helper()
	p, err := os.ReadFile("testdata/" + name)
	drivertest.Must(t, err)
	drivertest.Must(t, json.Unmarshal(p, into))
}
