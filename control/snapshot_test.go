package control_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Matrix: OB-01
func TestStatisticsAreServed(t *testing.T) {
	nodetest.CheckLeaks(t)
	m, addr := handoverServer(t, uring.Auto, 2)
	s := newStream(t, uring.Auto, wire.MDS, control.LosslessClient(), addr)
	s.progress(10)
	for _, path := range []string{filepath.Join(t.TempDir(), "stats"), control.StatsSocket(os.Getpid())} {
		srv, err := m.ServeStats(path)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		snap, err := control.ReadStats(ctx, path)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if snap.PID != os.Getpid() || snap.Messenger.Name != "osd.0" || len(snap.Messenger.Cores) != 2 || len(snap.Conns) != 1 ||
			snap.Conns[0].State != "ready" || snap.Conns[0].IO.MessagesIn < 10 || time.Since(snap.Time) > time.Minute {
			t.Errorf("%+v", snap)
		}
		// Who says nothing gets JSON as well.
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		var first [1]byte
		if _, err := c.Read(first[:]); err != nil || first[0] != '{' {
			t.Errorf("%q, %v", first, err)
		}
		// It is open when the server ends.
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		_ = c.Close()
		if _, err := control.ReadStats(context.Background(), path); !errors.Is(err, control.ErrStats) {
			t.Errorf("after the end: %v", err)
		}
		var text bytes.Buffer
		if err := snap.WriteText(&text); err != nil || !strings.Contains(text.String(), addr.AddrPort.String()) || !strings.Contains(text.String(), "lossless") && !strings.Contains(text.String(), "stateful-server") {
			t.Errorf("%v: %s", err, text.String())
		}
	}
	s.end()
}
