package control_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/uring"
)

// openFiles makes room for so many descriptors, or says how many there is room
// for.
func openFiles(t *testing.T, want int) int {
	t.Helper()
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	if lim.Cur >= uint64(want) {
		return want
	}
	before := lim
	lim.Cur, lim.Max = uint64(want), max(lim.Max, uint64(want))
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return int(before.Cur)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	})
	return want
}

// The counters of the program agree with what the connections say of
// themselves, one by one.
func TestCountersAgreeWithWhatTheConnectionsReport(t *testing.T) {
	needSteering(t)
	cpus, err := uring.AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	n := min(connections(), openFiles(t, 2*connections()+1000)/2-500)
	for _, mode := range []control.Steer{control.SteerTable, control.SteerCPU, control.SteerNone} {
		t.Run(string(mode), func(t *testing.T) {
			policy := control.StatelessServer()
			server, _ := steered(t, mode, func(c *control.Config) { c.Default, c.HandshakeTimeout = &policy, steerPatience })
			lossy := control.LossyClient()
			client, err := control.New(control.Config{
				Name: wire.EntityName{Type: wire.Client, ID: "1"}, Default: &lossy, HandshakeTimeout: steerPatience,
				// Connects are made by the core's thread, and on its CPU.
				Plane: dataplane.Config{Cores: len(cpus), Pin: true, Driver: uring.Config{Backend: uring.Epoll}},
			})
			if err != nil {
				t.Fatal(err)
			}
			endWithTest(t, client)
			if err := client.Start(); err != nil {
				t.Fatal(err)
			}
			want := make(map[string]int) // core, by the address of the client's socket
			ctx, cancel := context.WithTimeout(t.Context(), 3*steerPatience)
			defer cancel()
			const stretch = 100 // connections at a time
			for from := 0; from < n; from += stretch {
				core := from / stretch % steerCores
				if mode == control.SteerTable {
					if err := server.PinPeer(netip.MustParseAddr("127.0.0.1"), core); err != nil {
						t.Fatal(err)
					}
				}
				var some []*control.Conn
				for i := from; i < min(n, from+stretch); i++ {
					c, err := client.Connect(server.Addrs()[0], wire.OSD, control.Anonymous(), control.OnCore(i%len(cpus)))
					if err != nil {
						t.Fatal(err)
					}
					some = append(some, c)
				}
				for _, c := range some {
					if err := c.WaitReady(ctx); err != nil {
						t.Fatalf("%v: %v", err, c.Err())
					}
					want[c.Info().Local] = core
					if mode == control.SteerCPU {
						want[c.Info().Local] = c.Core() % steerCores
					}
				}
			}
			checkReports(t, server, mode, want)
		})
	}
}

// checkReports compares connections and counters. want is the core of each
// peer, if anything was said about it.
func checkReports(t *testing.T, server *control.Messenger, mode control.Steer, want map[string]int) {
	t.Helper()
	by := map[control.Steer]string{control.SteerTable: "table", control.SteerCPU: "cpu", control.SteerNone: "hash"}[mode]
	perCore := make([]int, steerCores)
	wrong := 0
	conns := server.Conns()
	for _, c := range conns {
		info := c.Info()
		p := info.Placement
		perCore[p.Core]++
		core, ok := want[info.Peer]
		if !ok || mode != control.SteerNone && p.Core != core || p.Core != c.Core() || p.Intended != p.Core || p.By != by || p.Reason != "" {
			wrong++
		}
	}
	if wrong != 0 || len(conns) != len(want) {
		t.Errorf("%d of %d connections are not where they belong, or say something else; %d were made", wrong, len(conns), len(want))
	}
	st := statsOf(t, server)
	if p := st.Counters.Placement; p != (control.PlacementCounters{Intended: uint64(len(want))}) {
		t.Errorf("placement %+v of %d", p, len(want))
	}
	var loads, accepts []int
	for _, c := range st.Cores {
		loads, accepts = append(loads, int(c.Load)), append(accepts, int(c.Accepts))
	}
	if fmt.Sprint(loads) != fmt.Sprint(perCore) || fmt.Sprint(accepts) != fmt.Sprint(perCore) {
		t.Errorf("cores have %v and accepted %v, connections say %v", loads, accepts, perCore)
	}
	if mode == control.SteerNone {
		return
	}
	counters := st.Steering.Groups[0].Counters
	expectSelected(t, counters, perCore, func(c bpf.CoreCounters) uint64 { return c.Addr.Selected + c.CPU.Selected })
	if counters.Hash != 0 {
		t.Errorf("%d connections were left to the hash", counters.Hash)
	}
}
