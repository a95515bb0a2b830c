package frame

import (
	"fmt"
	"testing"
)

var benchSizes = []int{64, 4 << 10, 64 << 10, 4 << 20}

func sizeName(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprint(n>>20, "MiB")
	case n >= 1<<10:
		return fmt.Sprint(n>>10, "KiB")
	}
	return fmt.Sprint(n, "B")
}

// BenchmarkTransfer encodes and decodes messages with a data segment.
func BenchmarkTransfer(b *testing.B) {
	for _, m := range modes {
		for _, n := range benchSizes {
			b.Run(m.name+"/"+sizeName(n), func(b *testing.B) {
				p, data := newPipe(b, m, n), pattern(n, 1)
				b.ReportAllocs()
				b.SetBytes(int64(n))
				for b.Loop() {
					if _, err := p.transfer(1, nil, data); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
