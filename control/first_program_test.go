package control_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// What somebody writes first: a server that chooses its nonce, and a client that
// knows no nonce.
func TestTheFirstProgramOfANewcomerWorks(t *testing.T) {
	for _, backend := range engines {
		for _, host := range []string{"127.0.0.1", "0.0.0.0"} {
			ctx := deadline(t)
			server := newMessenger(t, "osd.0", 1, backend)
			if err := server.Start(&control.Dispatcher{Fast: echo}); err != nil {
				t.Fatal(err)
			}
			bound, err := server.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort(host + ":0")})
			if err != nil {
				t.Fatal(err)
			}
			to := wire.Addr{Type: wire.AddrMsgr2, AddrPort: loopback(bound[0].AddrPort.Port())}
			client := newMessenger(t, "client.admin", 1, backend)
			if err := client.Start(); err != nil {
				t.Fatal(err)
			}
			conn, err := client.Connect(to, wire.OSD)
			if err != nil {
				t.Fatal(err)
			}
			if err := conn.WaitReady(ctx); err != nil {
				t.Fatalf("%s: %v", host, err)
			}
			if got, err := call(ctx, conn, 1, "hello"); got != "hello" || err != nil {
				t.Errorf("%s: %q, %v", host, got, err)
			}
		}
	}
}

// A nonce that was given is that of one process.
// Matrix: HS-18
func TestTheFirstProgramWithAWrongNonceEndsInAnError(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		for _, policy := range []string{"LC", "LLC"} {
			server := nodeOf(t, v, "osd.0", map[string]string{"LC": "SLS", "LLC": "SFS"}[policy], 7)
			client := nodeOf(t, v, "client.1", policy, 2)
			conn, err := client.Connect(server.Addr.WithNonce(8), wire.OSD)
			if err != nil {
				t.Fatal(err)
			}
			short, cancel := context.WithTimeout(ctx, daemonHandshake)
			err = conn.WaitReady(short)
			cancel()
			var e *control.Error
			if !errors.Is(err, control.ErrStuck) || !errors.As(err, &e) || e.Stage != control.StageIdent || !strings.Contains(e.Advice(), "nonce") {
				t.Errorf("%s: %v", policy, err)
			}
			if !strings.HasSuffix(err.Error(), e.Advice()) {
				t.Errorf("%s: the error does not say what to look at: %v", policy, err)
			}
			if conn.State() == control.StateClosing {
				t.Errorf("%s: the connection has given up", policy)
			}
		}
	})
}

func TestWaitReadySaysThatThePeerSpeaksAnotherProtocol(t *testing.T) {
	ctx := deadline(t)
	for _, c := range []struct{ says, advice string }{
		{"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "this is a web server"},
		{"SSH-2.0-OpenSSH_9.2\r\nmore than a banner of ours\r\n", "this is an SSH server"},
	} {
		lst, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				s, err := lst.Accept()
				if err != nil {
					return
				}
				_, _ = s.Write([]byte(c.says)) // who hangs up first does not matter
				_ = s.Close()
			}
		})
		client := nodeOf(t, variants[0], "client.1", "LLC", 2)
		conn, err := client.Connect(wire.Addr{Type: wire.AddrMsgr2, AddrPort: lst.Addr().(*net.TCPAddr).AddrPort()}, wire.OSD)
		if err != nil {
			t.Fatal(err)
		}
		err = conn.WaitReady(ctx)
		var e *control.Error
		if !errors.Is(err, control.ErrStuck) || !errors.As(err, &e) || e.Stage != control.StageBanner || e.Advice() != c.advice {
			t.Errorf("%v", err)
		}
		conn.MarkDown()
		if err := lst.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

// What may mend is waited for, and the log has a line about it, not one for each
// attempt.
func TestAServerThatComesLaterIsWaitedForAndLogged(t *testing.T) {
	nodetest.CheckLeaks(t)
	ctx := deadline(t)
	at := msgrtest.ReservePort(t) // nobody listens there
	var log lockedBuffer
	client := nodeOf(t, variants[0], "client.1", "LLC", 2, func(c *nodetest.NodeConfig) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		c.Timeouts.InitialBackoff, c.Timeouts.MaxBackoff = time.Millisecond, 10*time.Millisecond
	})
	conn, err := client.Connect(wire.Addr{Type: wire.AddrMsgr2, AddrPort: at}, wire.OSD)
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan error, 1)
	go func() { ready <- conn.WaitReady(ctx) }()
	eventually(t, ctx, "some attempts", func() bool {
		st, err := conn.Stats()
		return err == nil && st.Counters.Attempts > 8
	})
	select {
	case err := <-ready:
		t.Fatalf("not waited for: %v", err)
	default:
	}
	if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "nothing listens there") {
		t.Errorf("logged:\n%s", text)
	}
	p := control.StatefulServer()
	server, err := control.New(control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Default: &p})
	if err != nil {
		t.Fatal(err)
	}
	defer end(t, server)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: at}); err != nil {
		t.Fatal(err)
	}
	if err := <-ready; err != nil {
		t.Error(err)
	}
}

// lockedBuffer is a log.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
