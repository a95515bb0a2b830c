package control_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// urgentRoad carries one connection, and puts urgent bytes into it.
type urgentRoad struct {
	addr netip.AddrPort
	out  chan *net.TCPConn // to the messenger
}

func newUrgentRoad(t *testing.T, ctx context.Context, to string) *urgentRoad {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r := &urgentRoad{addr: netip.MustParseAddrPort(l.Addr().String()), out: make(chan *net.TCPConn, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		in, err := l.Accept()
		if err != nil {
			return
		}
		var d net.Dialer
		out, err := d.DialContext(ctx, "tcp", to)
		if err != nil {
			_ = in.Close()
			return
		}
		r.out <- out.(*net.TCPConn)
		go func() {
			_, _ = io.Copy(struct{ io.Writer }{out}, in) // not by splice, which keeps its pipes; it ends with either connection
			_ = out.Close()
		}()
		_, _ = io.Copy(struct{ io.Writer }{in}, out)
		_ = in.Close()
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-ended
	})
	return r
}

// urgent sends a byte as urgent data, between what the road carries.
func (r *urgentRoad) urgent(t *testing.T) {
	t.Helper()
	c := <-r.out
	r.out <- c
	raw, err := c.SyscallConn()
	must(t, err)
	var sent error
	must(t, raw.Control(func(fd uintptr) { sent = unix.Sendto(int(fd), []byte{'!'}, unix.MSG_OOB, nil) }))
	must(t, sent)
}
