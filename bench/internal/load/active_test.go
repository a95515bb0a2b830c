package load

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
)

// serve accepts connections up to the end of the test, each with a goroutine of its own.
func serve(t *testing.T, each func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	clitest.Must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				each(conn)
			}()
		}
	}()
	return l.Addr().String()
}

// Matrix: BE-04
func TestOnlyActiveConnectionsCarryRequests(t *testing.T) {
	for _, c := range []struct{ conns, active, want int }{{10, 0, 10}, {10, 2, 2}, {10, 10, 10}, {1, 1, 1}} {
		var used atomic.Int64 // connections with a reply
		addr := serve(t, func(conn net.Conn) {
			first := make([]byte, 1)
			if _, err := io.ReadFull(conn, first); err != nil {
				return
			}
			used.Add(1)
			if _, err := conn.Write(first); err == nil {
				_, _ = io.Copy(conn, conn) // until the client closes
			}
		})
		o := Options{Addr: addr, Raw: true, Conns: c.conns, Depth: 2, Size: 64}
		load, err := Open(t.Context(), o)
		clitest.Must(t, err)
		defer load.Close()
		r, err := load.Run(Slice{Active: c.active, Warm: time.Millisecond, WarmMax: 10 * time.Second, Window: 10 * time.Millisecond, WindowMax: 10 * time.Second})
		if err != nil || !r.Steady || r.Total < uint64(2*c.want) {
			t.Fatalf("%+v: %+v, %v", o, r, err)
		}
		if n := int(used.Load()); n != c.want {
			t.Errorf("%d of %d connections asked for: %d brought requests", c.active, c.conns, n)
		}
	}
}

// Matrix: BE-04
func TestActiveConnectionsLieBetweenIdleOnes(t *testing.T) {
	all := make([]int, 1000)
	for i := range all {
		all[i] = i
	}
	chosen, err := Spread(Slice{Active: 10}, all)
	if err != nil || len(chosen) != 10 {
		t.Fatalf("%v, %v", chosen, err)
	}
	for i, c := range chosen {
		if c != i*100 {
			t.Errorf("number %d is connection %d", i, c)
		}
	}
	for _, active := range []int{-1, 1001} {
		if _, err := Spread(Slice{Active: active}, all); err == nil {
			t.Errorf("%d of %d: no error", active, len(all))
		}
	}
}
