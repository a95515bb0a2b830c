//go:build !epoll

package loop

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// BenchmarkRegisteredBuffers reads and overwrites blocks with direct I/O, in buffers of the
// core that are registered with the ring, and that are not.
func BenchmarkRegisteredBuffers(b *testing.B) {
	for _, size := range []int{unit, 16 * unit} {
		for _, depth := range []int{1, 16} {
			for _, what := range []string{"read", "write"} {
				for name, off := range map[string][]string{"registered": nil, "plain": {uring.FeatureRegisteredBuffers}} {
					cfg := Config{Cores: 1, Driver: uring.Config{Backend: uring.IOUring, Off: off}}
					b.Run(fmt.Sprintf("%s/%dK/%d/%s", what, size>>10, depth, name), func(b *testing.B) { benchBlocksOf(b, cfg, what, size, depth) })
				}
			}
		}
	}
}

func benchBlocksOf(b *testing.B, cfg Config, what string, size, depth int) {
	p := newPlane(b, cfg)
	f := openOn(b, p.Core(0), benchFile(b), uring.TryDirect)
	if !f.Alignment().Direct() {
		b.Skip("the file system has no direct I/O")
	}
	done := make(chan error, 1)
	spent := cpuTime(b)
	b.ResetTimer()
	must(b, p.Core(0).Do(func(c *Core) {
		next, ended := 0, 0
		for range min(depth, b.N) {
			buf, err := c.Lend(size)
			must(b, err)
			op := new(FileOp)
			ask := func() {
				off := int64(next*7919%(benchBlocks*unit/size)) * int64(size)
				next++
				if what == "read" {
					must(b, f.ReadAt(op, buf.Bytes()[:size], off))
				} else {
					must(b, f.WriteAt(op, buf.Bytes()[:size], off, Through))
				}
			}
			op.Done = func(_ *Core, op *FileOp) {
				if ended++; op.Err != nil || ended == b.N {
					done <- op.Err
				}
				if next < b.N {
					ask()
				}
			}
			ask()
		}
	}))
	must(b, <-done)
	b.StopTimer()
	b.ReportMetric(float64(cpuTime(b)-spent)/float64(b.N), "cpu-ns/op")
	st := stats(b, p.Core(0)).Driver
	if want := len(cfg.Driver.Off) == 0; (st.Registered > 0) != want {
		b.Errorf("%d requests on registered memory", st.Registered)
	}
	must(b, p.Close())
}

// cpuTime is what the process has used, in ns.
func cpuTime(b *testing.B) int64 {
	b.Helper()
	var u unix.Rusage
	must(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return u.Utime.Nano() + u.Stime.Nano()
}
