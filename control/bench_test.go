package control_test

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// BenchmarkEcho is the whole path there and back in one process: one
// connection, depth messages under way. The CPU time of both ends, cpu-ns/op, compares
// on a machine that others use, too.
func BenchmarkEcho(b *testing.B) {
	for _, backend := range []uring.Backend{uring.IOUring, uring.Epoll} {
		for _, cell := range []struct {
			name        string
			size, depth int
		}{{"64B/depth1", 64, 1}, {"4KiB/depth1", 4 << 10, 1}, {"64B/depth256", 64, 256}, {"4KiB/depth16", 4 << 10, 16}, {"1MiB/depth4", 1 << 20, 4}, {"4MiB/depth1", 4 << 20, 1}} {
			b.Run(string(backend)+"/"+cell.name, func(b *testing.B) { benchmarkEcho(b, backend, cell.size, cell.depth) })
		}
	}
}

func benchmarkEcho(b *testing.B, backend uring.Backend, size, depth int) {
	server := newMessenger(b, "osd.0", 1, backend)
	if err := server.Start(&control.Dispatcher{Fast: echo}); err != nil {
		b.Fatal(err)
	}
	addrs, err := server.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		b.Fatal(err)
	}
	client := newMessenger(b, "client.admin", 1, backend)
	done := make(chan struct{})
	left, out := 0, 0
	err = client.Start(&control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
		if left--; left == 0 {
			close(done)
			return true
		}
		if out > 0 {
			out--
			m.Retain()
			if err := c.Send(m); err != nil {
				b.Error(err)
			}
		}
		return true
	}})
	if err != nil {
		b.Fatal(err)
	}
	conn, err := client.Connect(addrs[0], wire.OSD)
	if err != nil {
		b.Fatal(err)
	}
	if err := conn.WaitReady(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(2 * size))
	b.ReportAllocs()
	b.ResetTimer()
	spent := processCPU(b)
	left, out = b.N, max(b.N-depth, 0)
	for range min(depth, b.N) {
		if err := conn.Send(control.NewMessage(1, nil, make([]byte, size))); err != nil {
			b.Fatal(err)
		}
	}
	<-done
	b.StopTimer()
	b.ReportMetric(float64((processCPU(b)-spent).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

// processCPU is the CPU time that the process has used.
func processCPU(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}

func echo(c *control.Conn, m *control.Message) bool {
	m.Retain()
	if err := c.Send(m); err != nil {
		m.Release()
	}
	return true
}
