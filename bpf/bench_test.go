package bpf

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cilium/ebpf"
)

// BenchmarkConnect connects and accepts over loopback with each rule deciding,
// and reports what the program itself takes of it: ns/syn, as the kernel
// measures it, including the measuring.
func BenchmarkConnect(b *testing.B) {
	ip := netip.MustParseAddr("127.81.10.1")
	hints := PortRange{61000, 61999}
	for _, c := range []struct {
		name   string
		policy Policy
		port   uint16
	}{
		{"hash", Policy{}, 0},
		{"cpu", Policy{Rules: UseCPU, Cores: 2}, 0},
		{"hint", Policy{Rules: UseHint, Cores: 2, Hint: hints}, 61001},
		{"table_addr", Policy{Rules: UseAddr}, 0},
		{"table_addrport", Policy{Rules: UseAddrPort}, 61003},
		{"all miss the table", DefaultPolicy(2), 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := mustLoad(b, Config{MaxCores: 2, Policy: c.policy})
			g := listen(b, "127.0.0.1", 2)
			g.steer(b, s)
			if c.policy.Rules != DefaultPolicy(2).Rules {
				must(b, s.Pin(ip, 1))
				must(b, s.PinPort(netip.AddrPortFrom(ip, 61003), 1))
			}
			stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
			must(b, err)
			defer stats.Close()
			before, err := s.prog.Stats()
			must(b, err)
			b.ReportAllocs()
			for b.Loop() {
				fd := dial(b, netip.AddrPortFrom(ip, c.port), g.addr, -1)
				g.accept(b)
				must(b, unix.Close(fd))
			}
			after, err := s.prog.Stats()
			must(b, err)
			if runs := after.RunCount - before.RunCount; runs > 0 {
				b.ReportMetric(float64((after.Runtime-before.Runtime).Nanoseconds())/float64(runs), "ns/syn")
				b.ReportMetric(float64(runs)/float64(b.N), "runs/op")
			}
		})
	}
}

// BenchmarkPin is what the control plane pays to set an entry.
func BenchmarkPin(b *testing.B) {
	s := mustLoad(b, Config{MaxCores: 2})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		must(b, s.Pin(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), i&1))
	}
}

// BenchmarkCounters is the cost of a snapshot for two cores.
func BenchmarkCounters(b *testing.B) {
	s := mustLoad(b, Config{MaxCores: 2})
	b.ReportAllocs()
	for b.Loop() {
		snapshot(b, s)
	}
}
