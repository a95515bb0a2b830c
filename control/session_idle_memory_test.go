//go:build !race

package control_test

import (
	"os"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Silent sockets are gone soon behind their deadline, however many they are: 5000 in
// the long form, where the machine has as many descriptors. How soon is printed.
// Matrix: AIM-02
func TestAllSilentSocketsAreGoneBehindTheirDeadline(t *testing.T) {
	n, timeout, soon := 200, 300*time.Millisecond, time.Minute // what is not of the machine's making takes longer, or for ever
	if os.Getenv("RINGMSGR_LONG") != "" {
		n, timeout, soon = 5000, 10*time.Second, 2*time.Second
	}
	for _, v := range newest {
		t.Run(v.String(), func(t *testing.T) {
			ctx := deadline(t)
			cfg := control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "1"}, Door: control.Door{HalfOpen: 2 * n}, Timeouts: control.Timeouts{Handshake: timeout}}
			cfg.Plane.Cores = 1
			v.configure(&cfg)
			server := startMessenger(t, cfg)
			addrs, err := server.Bind(v2(loopback(0).Addr(), 0))
			must(t, err)
			silence(t, ctx, "127.0.0.1", addrs[0].AddrPort, n)
			last := time.Now()
			var st control.Stats
			eventually(t, ctx, "all of them to be gone", func() bool {
				st, err = server.Stats()
				return err == nil && st.HalfOpen == 0 && st.Counters.Accepted == uint64(n)
			})
			late := time.Since(last) - timeout
			t.Logf("%d were gone %v behind the deadline of the last", n, late.Round(time.Millisecond))
			if late > soon {
				t.Errorf("%d were gone %v behind the deadline of the last, want %v at most", n, late, soon)
			}
			if st.Counters.Failures.Timeout != uint64(n) {
				t.Errorf("%+v", st.Counters.Failures)
			}
		})
	}
}
