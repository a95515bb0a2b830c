package nodetest

import (
	"net"
	"testing"
	"time"
)

// fakeTB is a test that a helper may fail.
type fakeTB struct {
	testing.TB
	failed  bool
	cleanup []func()
}

func (f *fakeTB) Helper()               {}
func (f *fakeTB) Cleanup(c func())      { f.cleanup = append(f.cleanup, c) }
func (f *fakeTB) Errorf(string, ...any) { f.failed = true }

// Matrix: INV-07
func TestLeaksAreFound(t *testing.T) {
	for _, leak := range []struct {
		name string
		make func() (undo func())
	}{
		{"goroutine", func() func() { c := make(chan struct{}); go func() { <-c }(); return func() { close(c) } }},
		{"descriptor", func() func() {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			return func() { _ = l.Close() }
		}},
	} {
		t.Run(leak.name, func(t *testing.T) {
			f := &fakeTB{TB: t}
			checkLeaks(f, 50*time.Millisecond)
			undo := leak.make()
			for _, c := range f.cleanup {
				c()
			}
			undo()
			if !f.failed {
				t.Error("not found")
			}
		})
	}
}
