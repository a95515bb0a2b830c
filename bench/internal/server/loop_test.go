package server

import (
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/load"
)

func TestTheLoadClientMeasuresTheLoop(t *testing.T) {
	s, err := NewLoop()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	before := s.Syscalls()
	for _, o := range []load.Options{
		{Conns: 1, Depth: 1, Size: 64},
		{Conns: 5, Depth: 7, Size: 4096},
		{Conns: 3, Depth: 3, Size: 300000},
		{Conns: 1, Depth: 8, Size: 3 << 20},
	} {
		o.Addr, o.Raw = s.Addr().String(), true
		l, err := load.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		r, err := l.Run(load.Slice{Warm: time.Millisecond, WarmMax: 10 * time.Second, Window: 10 * time.Millisecond, WindowMax: 10 * time.Second})
		if open := uint64(o.Conns * o.Depth); err != nil || r.Total < 2*open {
			t.Fatalf("%+v: %+v, %v", o, r, err)
		}
		l.Close()
	}
	if s.Syscalls() == before || s.Settings()["backend"] == "" {
		t.Errorf("%d system calls, settings %v", s.Syscalls(), s.Settings())
	}
}
