package handshake2

import (
	"context"
	"errors"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
)

// end is one end of a connection in memory.
type end = linktest.End

// outcome is what a side has in the end.
type outcome struct {
	stream *Stream
	peer   *handshake.Peer
	err    error
}

// meet runs the two sides of one handshake to their ends.
func meet(t testing.TB, cc ConnectConfig, ac AcceptConfig) (connector, acceptor outcome) {
	t.Helper()
	c, s := linktest.New()
	return both(t, t.Context(), c, s, cc, ac)
}

// both is meet over a connection of the test's.
func both(t testing.TB, ctx context.Context, c, s *end, cc ConnectConfig, ac AcceptConfig) (connector, acceptor outcome) {
	t.Helper()
	done := make(chan outcome)
	go func() {
		var o outcome
		o.stream, o.peer, o.err = Accept(ctx, s, ac)
		if o.err != nil {
			s.Out.Close()
		}
		done <- o
	}()
	connector.stream, connector.peer, connector.err = Connect(ctx, c, cc)
	if connector.err != nil {
		c.Out.Close()
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
func wantError(t testing.TB, err error) *handshake.Error {
	t.Helper()
	var e *handshake.Error
	if !errors.As(err, &e) || e.Stage == "" || e.State == "" || e.Err == nil {
		t.Fatalf("not a complete *Error: %#v", err)
	}
	return e
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
