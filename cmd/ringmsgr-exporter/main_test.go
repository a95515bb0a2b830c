package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

func TestWrongCallsNameTheFlag(t *testing.T) {
	for args, want := range map[string]string{
		"":                       "usage: ringmsgr-exporter PID|SOCKET",
		"1 2":                    "usage: ringmsgr-exporter PID|SOCKET",
		"--listen here 1":        `--listen "here": missing port in address; want HOST:PORT`,
		"--listen 192.0.2.1:0 1": "--listen 192.0.2.1:0: cannot assign requested address",
		"--listen":               "--listen needs a value",
		"--conns=perhaps 1":      `--conns "perhaps": want true or false`,
		"--version=perhaps":      `--version "perhaps": want true or false`,
		"--port 1":               "there is no flag --port",
	} {
		var out, errs bytes.Buffer
		status := run(t.Context(), &out, &errs, strings.Fields(args))
		if status == cli.OK || out.Len() > 0 || !strings.Contains(errs.String(), want) || strings.Contains(errs.String(), "listen tcp") {
			t.Errorf("%q: status %d, %q %q; want %q", args, status, out.String(), errs.String(), want)
		}
	}
}

// The exporter is there before the messenger, and shows it as soon as it comes.
func TestAMessengerIsShownOnceItIsThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stats")
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	status := make(chan int, 1)
	go func() { status <- run(ctx, in, io.Discard, []string{"--listen", "127.0.0.1:0", path}) }()
	var socket, url string
	if _, err := fmt.Fscanf(out, "serving %s at %s\n", &socket, &url); err != nil || socket != path {
		t.Fatalf("%q, %v", socket, err)
	}
	if code, text := get(t, url); code != http.StatusInternalServerError {
		t.Errorf("%d before there is a messenger: %s", code, text)
	}
	m, err := control.New(control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "7"}, Plane: loop.Config{Cores: 1}})
	clitest.Must(t, err)
	clitest.Must(t, m.Start(&control.Dispatcher{}))
	stats, err := m.ServeStats(path)
	clitest.Must(t, err)
	get(t, url) // it says which process it is
	code, text := get(t, url)
	for _, want := range []string{`ringmsgr_up{messenger="osd.7"} 1`, "process_resident_memory_bytes"} {
		if code != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%d, no %s in\n%s", code, want, text)
		}
	}
	if err := stats.Close(); err != nil {
		t.Error(err)
	}
	end, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	if err := m.Shutdown(end); err != nil {
		t.Error(err)
	}
	cancel()
	if s := <-status; s != cli.OK {
		t.Errorf("status %d", s)
	}
}

// dialled is a listener with one connection, of the test.
type dialled chan net.Conn

func (d dialled) Accept() (net.Conn, error) {
	if c, ok := <-d; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (d dialled) Close() error   { close(d); return nil }
func (d dialled) Addr() net.Addr { return &net.UnixAddr{} }

// A client that keeps its connection without a use of it, or does not read its answer, does
// not keep a descriptor of ours.
func TestAConnectionThatNobodyUsesIsClosed(t *testing.T) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) })
	for _, name := range []string{"idle", "not reading"} {
		synctest.Test(t, func(t *testing.T) {
			l := make(dialled, 1)
			server := newServer(answer)
			go func() { _ = server.Serve(l) }() // it ends with the test
			theirs, ours := net.Pipe()
			l <- ours
			began := time.Now()
			fmt.Fprint(theirs, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
			if name == "idle" {
				r, err := http.ReadResponse(bufio.NewReader(theirs), nil)
				if err == nil {
					_, err = io.Copy(io.Discard, r.Body)
				}
				if err != nil {
					t.Error(err)
				}
			} else {
				hour := time.NewTimer(time.Hour) // of the test's clock
				<-hour.C
			}
			n, err := io.Copy(io.Discard, theirs)
			if err != nil || n >= 1<<20 {
				t.Errorf("%s: %d bytes came, %v", name, n, err)
			}
			if name == "idle" && time.Since(began) > 2*time.Minute {
				t.Errorf("it was closed after %v", time.Since(began))
			}
			_ = server.Close()
		})
	}
}

func get(t *testing.T, url string) (code int, text string) {
	t.Helper()
	answer, err := http.Get(url)
	clitest.Must(t, err)
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	clitest.Must(t, err)
	return answer.StatusCode, string(b)
}
