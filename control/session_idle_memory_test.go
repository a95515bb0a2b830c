//go:build !race

package control_test

import (
	"context"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// memoryInUse is what the process has on its heap and its stacks.
func memoryInUse() int64 {
	for range 3 { // the stacks of those who wait shrink by half with each
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// RL-01: what one idle established connection takes, both of its ends together. A
// part of it are the core's tables.
func TestAnIdleConnectionTakesLittle(t *testing.T) {
	const most = 32 << 10
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			ctx := deadline(t)
			each := idleMemory(t, ctx, v)
			for again := 0; each > most && again < 2; again++ {
				each = min(each, idleMemory(t, ctx, v)) // what else the process does only adds to it
			}
			if t.Logf("%d bytes", each); each > most {
				t.Errorf("more than %d", most)
			}
		})
	}
}

func idleMemory(t *testing.T, ctx context.Context, v variant) int64 {
	t.Helper()
	const n = 400
	server, addr := plainServer(t, v, "SLS")
	client := startMessenger(t, clientConfig(v))
	open := func(n int) { openIdle(t, ctx, server, client, addr, n) }
	open(n / 8) // what is made once for all of them does not count
	before := memoryInUse()
	open(n)
	return (memoryInUse() - before) / n
}

// Silent sockets are gone soon behind their deadline, however many they are: 5000 in
// the long form, where the machine has as many descriptors. How soon is printed.
func TestAllSilentSocketsAreGoneBehindTheirDeadline(t *testing.T) {
	n, timeout, soon := 200, 300*time.Millisecond, time.Minute // what is not of the machine's making takes longer, or for ever
	if os.Getenv("RINGMSGR_LONG") != "" {
		n, timeout, soon = 5000, 10*time.Second, 2*time.Second
	}
	for _, v := range newest {
		t.Run(v.String(), func(t *testing.T) {
			ctx := deadline(t)
			cfg := control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "1"}, HalfOpen: 2 * n, HandshakeTimeout: timeout}
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
