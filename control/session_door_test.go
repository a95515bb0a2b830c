package control_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Who may be half open, as sockets see it.

// silence opens n sockets from an address that never say anything, one after
// the other. They are closed when the test ends.
func silence(t *testing.T, ctx context.Context, from string, to netip.AddrPort, n int) []net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))}
	var list []net.Conn
	for range n {
		c, err := d.DialContext(ctx, "tcp", to.String())
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		list = append(list, c)
	}
	return list
}

func halfOpen(n int) func(*nodetest.NodeConfig) {
	return func(c *nodetest.NodeConfig) { c.Door.HalfOpen = n }
}

// Matrix: RL-02
func TestSilentSocketsDoNotShutHonestPeersOut(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		const bound, honest = 64, 20
		server := nodeOf(t, v, "osd.1", "SLS", 1, halfOpen(bound))
		silence(t, ctx, "127.0.0.1", server.Addr.AddrPort, 2*bound)
		eventually(t, ctx, "those that were evicted to be gone", func() bool {
			st := statsOf(t, server)
			return st.Counters.Accepted >= 2*bound && st.HalfOpen == bound/2+1
		})
		client := nodeOf(t, v, "client.2", "LC", 2)
		for i := range honest {
			c := client.Dial(server, control.Anonymous(), control.Once())
			if err := c.WaitReady(ctx); err != nil {
				t.Fatalf("honest peer %d: %v", i, err)
			}
		}
	})
}

// Matrix: HI-30, AIM-06
func TestRefusedSocketsWriteTenLinesAMinute(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		const n = 40
		var log logText
		server := nodeOf(t, v, "osd.1", "SLS", 1, halfOpen(1), func(c *nodetest.NodeConfig) {
			c.Logger, c.Clock = slog.New(slog.NewTextHandler(&log, nil)), stillClock()
		})
		client := nodeOf(t, v, "client.2", "LC", 2)
		b := client.Probe.Arm(nodetest.Write(frame.TagAuthRequest), 1, nodetest.Block())
		c := client.Dial(server, control.Once())
		client.Hit(ctx, b)
		eventually(t, ctx, "the server to read HELLO", func() bool { return server.Probe.Seen(nodetest.Read(frame.TagHello)) == 1 })
		for _, s := range silence(t, ctx, "127.0.0.1", server.Addr.AddrPort, n) {
			if _, err := s.Read(make([]byte, 1)); err == nil {
				t.Error("a socket without a place was sent something")
			}
		}
		eventually(t, ctx, "the sockets", func() bool { return statsOf(t, server).Counters.Door.Source == n })
		eventually(t, ctx, "the lines", func() bool { return log.count("accepted socket refused") >= 10 })
		b.Release()
		check(t, c.WaitReady(ctx))
		if got := log.count("accepted socket refused"); got != 10 {
			t.Errorf("%d lines", got)
		}
	})
}

// A peer that sends one wrong byte and then waits holds its place among
// the half-open connections no longer than that, and is counted by what it was.
// Matrix: HS-06, HS-07, HI-20, HI-30
func TestABannerThatCanBeNoneIsClosedWithItsFirstWrongByteAndCounted(t *testing.T) {
	var book logText
	server := newParty(t, control.Config{Name: entity(t, "mon.a"), Logger: book.everything(false), Timeouts: control.Timeouts{Handshake: time.Hour}}).bind(t)
	client := newParty(t, control.Config{Name: entity(t, "client.admin")})
	honest, err := client.dial(t, server, wire.Mon)
	must(t, err)
	exchange(t, honest, []byte("both are ready")) // and have said so in the log
	own := wire2.Banner{Supported: wire.BannerRevision1}.AppendTo(nil)
	var want stats.BannerCounters
	for i, c := range []struct {
		said string
		kind *uint64
	}{
		{"ceph v0", &want.Msgr1}, {"G", &want.HTTP}, {"GET / HTTP/1.1\r\n\r\n", &want.HTTP}, {"\x16", &want.TLS}, {"\x16\x03\x01", &want.TLS},
		{"S", &want.SSH}, {"\x00", &want.Other}, {"ceph v2\x00", &want.Other}, {"ceph v3", &want.Other},
		{"\x16\x03\x01" + strings.Repeat("r", 500), &want.TLS}, {strings.Repeat("\xff", 4000), &want.Other},
	} {
		*c.kind++
		conn := server.call(t)
		_, err := io.WriteString(conn, c.said)
		must(t, err)
		got, err := io.ReadAll(conn) // our end stays open for writing
		if !bytes.Equal(got, own) || err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%q: answered %x, %v; want our banner and the end", c.said, got, err)
		}
		happens(t, "the failure", func() bool { return statsOf(t, server.m).Counters.AcceptFailures == uint64(i+1) })
		if n := statsOf(t, server.m).Counters.BadBanners; n != want {
			t.Errorf("%q: counted %+v, want %+v", c.said, n, want)
		}
		// Each socket has one line, which follows the count; a warning about the protocol comes once a minute.
		closed := func() int { return book.count("accepted socket closed") }
		happens(t, "the line in the log", func() bool { return closed() > i })
		if n := closed(); n != i+1 {
			t.Errorf("%q: %d sockets closed, want %d:\n%s", c.said, n, i+1, book.String())
		}
		exchange(t, honest, []byte("not disturbed"))
	}
	if n := statsOf(t, server.m).Counters.AuthFailures; n != 0 {
		t.Errorf("%d of them count as failed authentications", n)
	}
	happens(t, "the log", func() bool { return strings.Count(book.String(), "another protocol") >= 4 })
	lines := book.String()
	for _, protocol := range []string{"msgr1", "http", "tls", "ssh"} {
		if n := strings.Count(lines, " speaks="+protocol+" "); n != 1 {
			t.Errorf("%d lines tell of %s:\n%s", n, protocol, lines)
		}
	}
	if n := strings.Count(lines, "another protocol"); n != 4 || strings.Count(lines, "msgr1=false") != 4 {
		t.Errorf("%d lines tell of other protocols:\n%s", n, lines)
	}
}

// How many connections of a source may come to nothing, as sockets see it.

// theirs is the address of those whose connections come to nothing.
var theirs = netip.MustParseAddr("127.0.1.66")

// rated is a server at which two of a source may come to nothing, and one in a second.
func rated(t *testing.T, v variant, policy string) (*nodetest.Node, *testClock) {
	clock := stillClock()
	return nodeOf(t, v, "osd.1", policy, 1, clock.of, func(c *nodetest.NodeConfig) {
		c.Door.FailureRate, c.Door.FailureBurst = 1, 2
	}), clock
}

// peerOf is a peer of the address theirs.
func peerOf(t *testing.T, ctx context.Context, v variant, to *nodetest.Node, number uint64) *msgrtest.Peer {
	t.Helper()
	p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{
		Name: wire.EntityName{Type: wire.Client, ID: "bad"}, From: theirs, Rev0: v.rev0,
		Addr: wire.Addr{Type: wire.AddrAny, Nonce: uint32(number), AddrPort: netip.AddrPortFrom(theirs, 0)},
	}, to.Addr)
	t.Cleanup(p.Close)
	return p
}

// usefulVisits are sessions of the same source before, which are no failures.
const usefulVisits = 3

// nothings are ways in which a connection comes to nothing.
var nothings = map[string]func(t *testing.T, ctx context.Context, v variant, server *nodetest.Node, i int){
	"another protocol": func(t *testing.T, ctx context.Context, _ variant, server *nodetest.Node, i int) {
		c := silence(t, ctx, theirs.String(), server.Addr.AddrPort, 1)[0]
		must(t, onlyError(c.Write([]byte("GET / HTTP/1.1\r\n"))))
		eventually(t, ctx, "the failure", func() bool { return failures(server) == uint64(i) })
	},
	"a session of no use": func(t *testing.T, ctx context.Context, v variant, server *nodetest.Node, i int) {
		visit(t, ctx, v, server, uint64(usefulVisits+i), false)
	},
}

// visit is the nth session of a peer, which sends a message if it is of use, and ends.
func visit(t *testing.T, ctx context.Context, v variant, server *nodetest.Node, nth uint64, ofUse bool) {
	t.Helper()
	p := peerOf(t, ctx, v, server, nth)
	p.Establish(0, nth)
	if ofUse {
		p.SendMessage(frame.MessageHeader{Seq: 1, TID: nth}, nil, nil, nil)
		awaitTID(t, ctx, server, nth)
	}
	p.Close()
	must(t, p.Err())
	eventually(t, ctx, "its end", func() bool { return statsOf(t, server).Counters.Closed == nth })
}

func failures(n *nodetest.Node) uint64 {
	st, _ := n.Stats()
	return st.Counters.AcceptFailures
}

func waited(n *nodetest.Node) uint64 {
	st, _ := n.Stats()
	return st.Counters.Door.Waited
}

// waits says whether the nth one waits, and will go on a second later.
func waits(n *nodetest.Node, clock *testClock, nth uint64) func() bool {
	return func() bool {
		return waited(n) == nth && clock.waiting(func(d time.Duration) bool { return d <= time.Second })
	}
}

// Matrix: HI-15
func TestASourceWhoseConnectionsComeToNothingWaitsForItsTurn(t *testing.T) {
	for name, comeToNothing := range nothings {
		t.Run(name, func(t *testing.T) {
			everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
				server, clock := rated(t, v, "SLS")
				for i := range uint64(usefulVisits) {
					visit(t, ctx, v, server, i+1, true)
				}
				for i := range 2 {
					comeToNothing(t, ctx, v, server, i+1)
				}
				if n := waited(server); n != 0 {
					t.Fatalf("%d have waited before", n)
				}
				late := peerOf(t, ctx, v, server, 9)
				eventually(t, ctx, "the peer that waits", waits(server, clock, 1))
				honest := nodeOf(t, v, "client.2", "LC", 2)
				if err := honest.Dial(server, control.Once()).WaitReady(ctx); err != nil {
					t.Errorf("another source: %v", err)
				}
				eventually(t, ctx, "one that is half open", func() bool { return statsOf(t, server).HalfOpen == 1 })
				clock.pass(time.Second)
				late.Establish(0, 9)
				closed := statsOf(t, server).Counters.Closed
				late.Close()
				if err := late.Err(); err != nil {
					t.Errorf("the one that has waited: %v", err)
				}
				eventually(t, ctx, "its end", func() bool { return statsOf(t, server).Counters.Closed == closed+1 })
				last := peerOf(t, ctx, v, server, 10) // waits until Shutdown
				eventually(t, ctx, "the last peer that waits", func() bool { return waited(server) == 2 })
				must(t, server.Shutdown(ctx))
				last.ExpectEnd()
				check(t, last.Err())
				eventually(t, ctx, "its place", func() bool {
					st, _ := server.Stats() // its error says that the cores are down
					return st.HalfOpen == 0
				})
			})
		})
	}
}

func TestSocketsThatTakeASessionOverAreFailuresUnlessTheOneBeforeWasOfUse(t *testing.T) {
	for _, use := range []bool{false, true} {
		everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
			server, clock := rated(t, v, "SFS")
			p := peerOf(t, ctx, v, server, 1)
			si := p.Establish(7, 1)
			again := func(nth uint64) error {
				p = peerOf(t, ctx, v, server, 1)
				p.Handshake()
				p.SendPayload(frame.TagSessionReconnect, p.SessionReconnect(7, si.Cookie, 1+nth, nth, 0))
				p.ExpectReconnectOK()
				return p.Err()
			}
			nth := uint64(1)
			for ; nth <= map[bool]uint64{false: 2, true: 5}[use]; nth++ {
				if use {
					p.SendMessage(frame.MessageHeader{Seq: nth, TID: nth}, nil, nil, nil)
					awaitTID(t, ctx, server, nth)
				}
				must(t, again(nth))
			}
			if n := waited(server); n != 0 {
				t.Fatalf("%d have waited", n)
			}
			if use {
				return
			}
			done := async(func() error { return again(nth) })
			eventually(t, ctx, "the socket that waits", waits(server, clock, 1))
			clock.pass(time.Second)
			if err := <-done; err != nil {
				t.Errorf("the one that has waited: %v", err)
			}
		})
	}
}

// A crowd of one source whose handshakes make progress, and which is larger than the share
// of a source and the line: nobody is to blame, so nobody is charged, and all get in. They
// are no messengers, which would take turns (DialsAtOnce). The server's time stands still: it
// is in no hurry with anybody, however busy the machine is.
// Matrix: RL-02
func TestAnHonestCrowdOfOneSourceIsNotChargedWithFailures(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		const bound, crowd = 64, 150
		server := nodeOf(t, v, "osd.1", "SLS", 1, halfOpen(bound), stillClock().of, func(c *nodetest.NodeConfig) { c.Door.FailureRate, c.Door.FailureBurst = 1, 1 })
		var all sync.WaitGroup
		for i := range uint64(crowd) {
			all.Go(func() {
				for ctx.Err() == nil {
					p := peerOf(t, ctx, v, server, i+1)
					if p.Establish(0, i+1); p.Err() == nil {
						return // and stays until all are in: without a message it comes to nothing
					}
					p.Close()
					eventually(t, ctx, "room", func() bool { return statsOf(t, server.Messenger).HalfOpen <= bound/2 })
				}
			})
		}
		all.Wait()
		st := statsOf(t, server.Messenger).Counters
		if ctx.Err() != nil || st.Conns != crowd || st.AcceptFailures != 0 || st.Door.Evicted != 0 || st.Door.Waited != 0 {
			t.Errorf("%d are in, %d failed, door %+v, %v", st.Conns, st.AcceptFailures, st.Door, ctx.Err())
		}
	})
}
