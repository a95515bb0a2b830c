package osdmap

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/crush"
)

// Beside these: the tools of the cluster, on the files that RINGMSGR_BENCH_MAPS=DIR has written there:
//
//	crushtool -i DIR/1000.crush --test --show-statistics --rule 0 --num-rep 3 --min-x 0 --max-x 32767
//	osdmaptool DIR/1000.osdmap --test-map-pgs --pool 1
//
// CPU time of one placement here by that of the tools of 16.2, less the start of each: medians and extremes of 5 interleaved pairs
// on a busy machine with two CPUs (AMD EPYC), with 10, 1 000 and 10 000 OSDs: crush 0.81 (0.75 to 0.83), 0.67 (0.65 to 0.70), 0.53
// (0.41 to 0.54); computed 0.81 (0.43 to 1.05), 0.63 (0.42 to 0.67), 0.42 (0.38 to 0.45).
func BenchmarkPlacement(b *testing.B) {
	const groups = 1 << 15
	for _, n := range []int{10, 1000, 10000} {
		m, whole := cluster(b, n, groups)
		if dir := os.Getenv("RINGMSGR_BENCH_MAPS"); dir != "" {
			blob := tree(rand.New(rand.NewPCG(1, 2)), n, max(n/10, 3), max(n/100, 1), true)
			for name, p := range map[string][]byte{"osdmap": whole, "crush": blob} {
				check(b, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.%s", n, name)), p, 0o644))
			}
		}
		b.Run(fmt.Sprintf("osds=%d/crush", n), func(b *testing.B) {
			b.ReportAllocs()
			var w crush.Work
			var out [3]int32
			for i := range b.N {
				m.crush.Do(&w, 0, uint32(i), 1, m.osds.weights, out[:])
			}
		})
		var s Scratch
		computed := *m
		computed.tables = nil
		b.Run(fmt.Sprintf("osds=%d/computed", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				computed.Place(&s, PG{1, uint32(i) % groups})
			}
		})
		b.Run(fmt.Sprintf("osds=%d/kept", n), func(b *testing.B) {
			b.ReportAllocs()
			for seed := range uint32(groups) {
				m.Place(&s, PG{1, seed})
			}
			b.ResetTimer()
			for i := range b.N {
				m.Place(&s, PG{1, uint32(i) % groups})
			}
		})
	}
}
