package session

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
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

func TestBothSidesAgreeAndLeaveTheStreamAtTheFirstDataByte(t *testing.T) {
	for _, secure := range []bool{false, true} {
		client, server := pair(t)
		accepted := make(chan error, 1)
		go func() {
			enc, _, err := Accept(t.Context(), server, secure)
			if err == nil {
				var p []byte
				p, err = enc.AppendFrame(nil, frame.TagKeepalive2, []byte("the time"))
				_, _ = server.Write(p)
			}
			accepted <- err
		}()
		enc, dec, err := Connect(t.Context(), client, 0, 7, secure)
		clitest.Must(t, err)
		clitest.Must(t, <-accepted)
		if enc.IsSecure() != secure || dec.IsSecure() != secure {
			t.Fatalf("secure: %v and %v, want %v", enc.IsSecure(), dec.IsSecure(), secure)
		}
		p := make([]byte, 256)
		n, err := client.Read(p)
		clitest.Must(t, err)
		h, err := dec.Open(p[:dec.HeadSize()])
		clitest.Must(t, err)
		f, err := dec.Finish(h, p[:dec.HeadSize()], p[dec.HeadSize():n])
		if err != nil || string(f.Seg[0]) != "the time" {
			t.Fatalf("%q, %v", f.Seg[0], err)
		}
	}
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
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v", err)
	}
}

func TestAPeerThatIsNoMessengerIsRefused(t *testing.T) {
	client, server := pair(t)
	if _, err := server.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	_, _, err := Connect(t.Context(), client, 0, 7, false)
	if !errors.Is(err, wire.ErrBadBanner) {
		t.Fatalf("error %v", err)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("reported as a timeout")
	}
}
