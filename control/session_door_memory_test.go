//go:build !race

package control_test

import (
	"context"
	"net"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// memoryInUse is that of the heap and of stacks, in bytes.
func memoryInUse() int64 {
	for range 3 { // the stacks of those who wait shrink by half with each
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// Matrix: RL-01, AIM-01
func TestAHalfOpenConnectionTakesAtMost16KiB(t *testing.T) {
	const most = 16 << 10
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			each := halfOpenMemory(t, v)
			for again := 0; each > most && again < 2; again++ {
				each = min(each, halfOpenMemory(t, v)) // what else the process does only adds to it
			}
			if each > most {
				t.Errorf("%d bytes", each)
			}
		})
	}
}

// halfOpenMemory is what one half-open connection takes, in bytes, the test's own
// end of it included.
func halfOpenMemory(t *testing.T, v variant) int64 {
	t.Helper()
	ctx := deadline(t)
	const n = 512
	server, addr := plainServer(t, v, func(c *control.Config) { c.Door.HalfOpen = 4 * n })
	total := 0
	open := func(more int) {
		for range more {
			// One banner at a time: a core keeps as many gather lists as it had writes in flight at once.
			_, err := silence(t, ctx, "127.0.0.1", addr.AddrPort, 1)[0].Read(make([]byte, 1))
			must(t, err)
		}
		total += more
		eventually(t, ctx, "all of them", func() bool { return statsOf(t, server).HalfOpen == total })
	}
	open(n / 8) // what is made once for all of them, such as the core's tables, does not count
	before := memoryInUse()
	open(n)
	return (memoryInUse() - before) / n
}

// unfinishedAuth is what a peer sends to have an acceptor keep as much as one frame
// can be: the banner, HELLO, and an AUTH_REQUEST without its last bytes; in msgr1 a
// connect message with an authorizer without those.
func unfinishedAuth(t *testing.T, v variant) []byte {
	t.Helper()
	if v.msgr1 {
		ask := wire1.Connect{
			Features: wire.FeaturesPacific, HostType: wire.Client, Protocol: wire1.Protocol(wire.Client, wire.OSD), AuthMethod: 1, AuthorizerLen: 60 << 10,
		}
		hello := wire1.ConnectorHello{Own: wire.Addr{Type: wire.AddrLegacy, Nonce: 9}}.AppendTo(nil)
		return append(ask.AppendTo(hello), make([]byte, 60<<10-100)...)
	}
	banner, rev := wire2.Banner{Supported: wire.BannerRevision1}, frame.Rev1
	if v.rev0 {
		banner.Supported, rev = 0, frame.Rev0
	}
	enc := frame.NewEncoder(rev)
	hello, err := enc.AppendFrame(nil, frame.TagHello, wire2.Hello{EntityType: wire.Client}.AppendTo(nil))
	must(t, err)
	request := wire2.AuthRequest{Method: uint32(auth.None), PreferredModes: []uint32{1}, Payload: make([]byte, 60<<10)}
	large, err := enc.AppendFrame(nil, frame.TagAuthRequest, request.AppendTo(nil))
	must(t, err)
	return slices.Concat(banner.AppendTo(nil), hello, large[:len(large)-100])
}

// All half-open connections together keep no more than what is their own and
// Door.Bytes, whatever they send, and honest ones get in meanwhile.
// Matrix: HI-07, RL-01, AIM-01, V1-08
func TestWhatHalfOpenConnectionsSendIsBoundedInSum(t *testing.T) {
	for _, v := range append(slices.Clone(variants), msgr1For(t)...) {
		t.Run(v.String(), func(t *testing.T) {
			ctx := deadline(t)
			const n, bytes = 192, 1 << 20
			// 16 KiB of a silent one, 8 KiB of its own, 4 KiB read ahead, in a buffer
			// that has grown to at most twice that.
			const each = (16 + 8 + 8) << 10
			used := heldByGreedyPeers(t, ctx, v, n, bytes)
			for again := 0; used > n*each+bytes && again < 2; again++ {
				used = min(used, heldByGreedyPeers(t, ctx, v, n, bytes)) // what else the process does only adds to it
			}
			if used > n*each+bytes {
				t.Errorf("%d connections hold %d bytes, %d each", n, used, used/n)
			}
		})
	}
}

func heldByGreedyPeers(t *testing.T, ctx context.Context, v variant, n int, bytes int64) int64 {
	t.Helper()
	server, addr := plainServer(t, v, func(c *control.Config) { c.Door.HalfOpen, c.Door.Bytes = 4*n, bytes })
	opening := unfinishedAuth(t, v)
	greed := func(n int) {
		for _, c := range silence(t, ctx, "127.0.0.1", addr.AddrPort, n) {
			go func(c net.Conn) { _, _ = c.Write(opening) }(c) // it may be refused on the way
		}
	}
	greed(4) // what is made once for all of them does not count
	before := memoryInUse()
	greed(n)
	eventually(t, ctx, "the bound", func() bool {
		st, err := server.Stats()
		refused := st.Counters.Door.Memory
		return err == nil && refused > 0 && st.Counters.Failures.Limits == refused && uint64(st.HalfOpen)+refused == uint64(n+4)
	})
	used := memoryInUse() - before
	if err := connect(t, plainClient(t, v), addr, wire.OSD, control.Once()).WaitReady(ctx); err != nil {
		t.Errorf("an honest peer: %v", err)
	}
	return used
}

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
			server, addr := plainServer(t, v, func(c *control.Config) { c.Door.HalfOpen, c.Timeouts.Handshake = 2*n, timeout })
			silence(t, ctx, "127.0.0.1", addr.AddrPort, n)
			last := time.Now()
			var st control.Stats
			eventually(t, ctx, "all of them to be gone", func() bool {
				st = statsOf(t, server)
				return st.HalfOpen == 0 && st.Counters.Accepted == uint64(n)
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
