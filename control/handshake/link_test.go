package handshake

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
)

// pipe is one direction of an in-memory connection: unbounded, and it wakes a reader
// that waits for more.
type pipe struct {
	mu     sync.Mutex
	buf    []byte
	closed bool
	wake   chan struct{}
}

func newPipe(content ...byte) *pipe { return &pipe{buf: content, wake: make(chan struct{}, 1)} }

func (p *pipe) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pipe) write(b []byte) {
	p.mu.Lock()
	p.buf = append(p.buf, b...)
	p.mu.Unlock()
	p.signal()
}

func (p *pipe) close() *pipe {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.signal()
	return p
}

func (p *pipe) readFull(ctx context.Context, b []byte) error {
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

func (p *pipe) content() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]byte(nil), p.buf...)
}

// end is one end of a connection.
type end struct {
	rx, tx *pipe
	single bool                    // deliver each byte on its own
	tamper func(off int, b []byte) // change what is written
	wrote  int
}

func (e *end) ReadFull(ctx context.Context, p []byte) error { return e.rx.readFull(ctx, p) }

func (e *end) Write(_ context.Context, p []byte) error {
	p = append([]byte(nil), p...)
	if e.tamper != nil {
		e.tamper(e.wrote, p)
	}
	e.wrote += len(p)
	if !e.single {
		e.tx.write(p)
		return nil
	}
	for i := range p {
		e.tx.write(p[i : i+1])
	}
	return nil
}

// newLink returns the two ends of a connection.
func newLink() (c, s *end) {
	a, b := newPipe(), newPipe()
	return &end{rx: a, tx: b}, &end{rx: b, tx: a}
}

// scripted returns a link on which everything that the peer will ever send has arrived
// already, and behind which the peer has closed.
func scripted(peer []byte) *end {
	return &end{rx: newPipe(append([]byte(nil), peer...)...).close(), tx: newPipe()}
}

// both runs the two sides of one handshake to their ends.
type outcome struct {
	stream *Stream
	peer   *Peer
	err    error
}

func both(t testing.TB, ctx context.Context, c, s *end, cc ConnectConfig, ac AcceptConfig) (connector, acceptor outcome) {
	t.Helper()
	done := make(chan outcome)
	go func() {
		var o outcome
		o.stream, o.peer, o.err = Accept(ctx, s, ac)
		if o.err != nil {
			s.tx.close()
		}
		done <- o
	}()
	connector.stream, connector.peer, connector.err = Connect(ctx, c, cc)
	if connector.err != nil {
		c.tx.close()
	}
	acceptor = <-done
	for _, o := range []outcome{connector, acceptor} {
		if o.err != nil {
			wantError(t, o.err)
		}
	}
	return connector, acceptor
}

// wantError checks what holds for every error of the package.
func wantError(t testing.TB, err error) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Stage == "" || e.State == "" || e.Err == nil {
		t.Fatalf("not a complete *Error: %#v", err)
	}
	return e
}
