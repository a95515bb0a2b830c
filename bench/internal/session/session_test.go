package session

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/handshake"
)

// pair returns the two ends of a TCP connection.
func pair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err = net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func TestBothSidesAgreeAndLeaveTheStreamAtTheFirstDataByte(t *testing.T) {
	client, server := pair(t)
	accepted := make(chan error, 1)
	go func() {
		err := Accept(t.Context(), server)
		if err == nil {
			_, err = server.Write([]byte("data"))
		}
		accepted <- err
	}()
	if err := Connect(t.Context(), client, 0, 7); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 16)
	n, err := client.Read(buf)
	if err != nil || string(buf[:n]) != "data" {
		t.Fatalf("%q, %v", buf[:n], err)
	}
}

func TestASilentPeerEndsWithTheContext(t *testing.T) {
	client, _ := pair(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := Connect(ctx, client, 0, 7)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v", err)
	}
}

func TestAPeerThatIsNoMessengerIsRefused(t *testing.T) {
	client, server := pair(t)
	if _, err := server.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	err := Connect(t.Context(), client, 0, 7)
	var failed *handshake.Error
	if !errors.As(err, &failed) || failed.Stage != handshake.StageBanner {
		t.Fatalf("error %v", err)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("reported as a timeout")
	}
}
