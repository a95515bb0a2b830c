package dataplane

import (
	"fmt"
	"testing"
)

// BenchmarkOutQueue pushes and pops one message in a queue that holds one or
// more of each priority.
func BenchmarkOutQueue(b *testing.B) {
	for _, n := range []int{1, 2, 16, 65536} {
		b.Run(fmt.Sprint("priorities=", n), func(b *testing.B) {
			var q outQueue
			for i := range max(n, 64) {
				q.push(&Message{Priority: uint16(i % n)})
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				m := q.pop()
				m.Priority = uint16(i*40503) & uint16(n-1)
				q.push(m)
				if q.peek() == nil {
					b.Fatal("empty")
				}
			}
		})
	}
}
