package control_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// kept is the type of messages that a server never releases.
const kept = 7

// BenchmarkBesideOneThatNeverReleases measures calls to two servers in turn. A peer of
// the second one sends more than it may hold of what is never released. p99-ratio is the
// p99 there, divided by the p99 at the first one: the aim is at most 1.2, with
// -benchtime 20000x on a machine that does nothing else.
func BenchmarkBesideOneThatNeverReleases(b *testing.B) {
	conns := [2]*control.Conn{}
	for i := range conns {
		server := newMessenger(b, "osd.0", 1, uring.Auto)
		if err := server.Start(&control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
			if m.Type == kept {
				m.Retain()
				return true
			}
			return echo(c, m)
		}}); err != nil {
			b.Fatal(err)
		}
		addrs, err := server.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
		if err != nil {
			b.Fatal(err)
		}
		client := newMessenger(b, "client.admin", 1, uring.Auto)
		if err := client.Start(&control.Dispatcher{}); err != nil {
			b.Fatal(err)
		}
		if conns[i], err = client.Connect(addrs[0], wire.OSD); err != nil {
			b.Fatal(err)
		}
		if i == 1 {
			neverReleases(b, server, addrs[0])
		}
		for range 100 { // warm
			timedCall(b, conns[i])
		}
	}
	var took [2][]time.Duration
	b.ResetTimer()
	for range b.N {
		for i, c := range conns {
			took[i] = append(took[i], timedCall(b, c))
		}
	}
	b.StopTimer()
	var p99 [2]float64
	for i := range took {
		slices.Sort(took[i])
		p99[i] = float64(took[i][len(took[i])*99/100]) / float64(time.Microsecond)
	}
	b.ReportMetric(p99[0], "us-p99-alone")
	b.ReportMetric(p99[1], "us-p99-beside")
	b.ReportMetric(p99[1]/p99[0], "p99-ratio")
}

// neverReleases has a peer send until the server stops reading from it.
func neverReleases(b *testing.B, server *control.Messenger, to wire.Addr) {
	greedy := newMessenger(b, "client.greedy", 1, uring.Auto)
	if err := greedy.Start(&control.Dispatcher{}); err != nil {
		b.Fatal(err)
	}
	c, err := greedy.Connect(to, wire.OSD)
	if err != nil {
		b.Fatal(err)
	}
	stopped := msgrtest.Until(b.Context(), func() bool {
		if m := control.NewMessage(kept, nil, make([]byte, 1<<20)); c.Send(m) != nil {
			m.Release() // its queue is full
		}
		for _, c := range server.Conns() {
			if st, err := c.Stats(); err == nil && st.IO.Throttled {
				return true
			}
		}
		return false
	})
	if stopped != nil {
		b.Fatal(stopped)
	}
}

func timedCall(b *testing.B, c *control.Conn) time.Duration {
	start := time.Now()
	reply, err := c.Call(b.Context(), control.NewMessage(1, make([]byte, 64), nil))
	if err != nil {
		b.Fatal(err)
	}
	reply.Release()
	return time.Since(start)
}
