package control_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Matrix: RL-02
func TestNoMoreConnectionsAreHalfOpenThanAllowed(t *testing.T) {
	msgrtest.CheckLeaks(t)
	const limit, silent = 3, 8
	for _, backend := range engines {
		t.Run(string(backend), func(t *testing.T) {
			ctx := deadline(t)
			cfg := serverConfig(backend, 2)
			cfg.HalfOpen, cfg.HandshakeTimeout = limit, time.Hour
			m, at := serveEcho(t, cfg)
			dial := func() net.Conn {
				c, err := net.Dial("tcp", at.AddrPort.String())
				must(t, err)
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			var conns []net.Conn
			ended := make(chan int, silent)
			for i := range silent {
				c := dial()
				conns = append(conns, c)
				go func() {
					_, _ = io.Copy(io.Discard, c) // it ends with whatever ends the connection
					ended <- i
				}()
			}
			gone := make(map[int]bool)
			eventually(t, ctx, "the end of those above the limit", func() bool {
				for len(ended) > 0 {
					gone[<-ended] = true
				}
				return len(gone) == silent-limit
			})
			eventually(t, ctx, "all to be counted", func() bool { return statsOf(t, m).Counters.Accepted == silent })
			if n := statsOf(t, m).HalfOpen; n != limit {
				t.Errorf("%d connections are half open", n)
			}
			for _, c := range conns {
				_ = c.Close()
			}
			eventually(t, ctx, "room for others", func() bool { return statsOf(t, m).HalfOpen == 0 })
			newStream(t, backend, wire.Client, control.LossyClient(), at).progress(5)
		})
	}
}
