package session

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
)

// pair returns the two ends of a TCP connection.
func pair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	clitest.Must(t, err)
	defer l.Close()
	client, err = net.Dial("tcp4", l.Addr().String())
	clitest.Must(t, err)
	server, err = l.Accept()
	clitest.Must(t, err)
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// A server that wants encryption refuses clients without it.
func TestTheModesDoNotMix(t *testing.T) {
	for _, secure := range []bool{false, true} {
		client, server := pair(t)
		go func() {
			_, _, _ = Accept(t.Context(), server, !secure)
			server.Close()
		}()
		if _, _, err := Connect(t.Context(), client, 0, 7, secure); err == nil {
			t.Fatal("connected")
		}
	}
}

func TestASilentPeerEndsWithTheContext(t *testing.T) {
	client, _ := pair(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, _, err := Connect(ctx, client, 0, 7, false)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("error %v", err)
	}
}
