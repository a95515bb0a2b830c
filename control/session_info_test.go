package control_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// heard keeps what Info and Auth say within the Accept and Connect events.
type heard struct {
	mu   sync.Mutex
	info []control.Info
	auth int
}

func (h *heard) hear(c *control.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.info = append(h.info, c.Info())
	if c.Auth() != nil {
		h.auth++
	}
}

func (h *heard) dispatcher() *control.Dispatcher {
	return &control.Dispatcher{
		Accept:  func(c *control.Conn, _ int, _ bool) { h.hear(c) },
		Connect: func(c *control.Conn, _ int) { h.hear(c) },
	}
}

// Matrix: OB-01
func TestInfoIsCompleteInTheAcceptAndConnectEvents(t *testing.T) {
	everyMode(t, func(t *testing.T, ctx context.Context, v variant) {
		var ours, theirs heard
		server := nodeOf(t, v, "osd.1", "LP", 1, withChain(theirs.dispatcher()))
		client := nodeOf(t, v, "osd.2", "LP", 2, withChain(ours.dispatcher()))
		// The second event is that of a reconnect.
		client.Probe.Arm(nodetest.Write(frame.TagMessage), 2, nodetest.Fault())
		c := client.Dial(server)
		send(t, c, 1)
		receives(t, ctx, server, 1)
		send(t, c, 2)
		receives(t, ctx, server, 1, 2)
		for _, one := range []struct {
			who  *heard
			conn *control.Conn
			peer wire.Addr
		}{{&ours, c, server.Addr}, {&theirs, first(t, ctx, server), client.Addr}} {
			want := one.conn.Info()
			one.who.mu.Lock()
			if len(one.who.info) != 2 || one.who.auth != 2 {
				t.Errorf("%d events, %d with Auth", len(one.who.info), one.who.auth)
			}
			for i, got := range one.who.info {
				if len(got.PeerAddrs) != 1 || got.PeerAddrs[0] != one.peer || got.Handshake <= 0 || got.Local == "" || got.Peer == "" {
					t.Errorf("event %d: %+v", i, got)
				}
				if got.Features != want.Features || got.PeerNumber != want.PeerNumber || got.PeerType != want.PeerType ||
					got.Protocol != want.Protocol || got.Auth != want.Auth || got.Mode != want.Mode || got.Compression != want.Compression ||
					got.Lossy != want.Lossy || got.Accepted != want.Accepted || got.Placement.By == "" {
					t.Errorf("event %d: %+v, later %+v", i, got, want)
				}
			}
			one.who.mu.Unlock()
		}
	})
}

// Matrix: KA-02, RL-07, OB-01
func TestStatsTellWhatAConnectionHoldsAndWhenItWasHeard(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		const size, part = 5000, 700
		var k keepsake
		server := nodeOf(t, v, "osd.1", "SFS", 1, withChain(k.dispatcher()))
		p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{Name: wire.EntityName{Type: wire.OSD, ID: "2"}, Number: 2, Addr: v2(loopback(1).Addr(), 1).WithNonce(2), Rev0: v.rev0}, server.Addr)
		defer p.Close()
		p.Establish(7, 1)
		p.SendMessage(frame.MessageHeader{Seq: 1, TID: 1}, make([]byte, size), nil, nil)
		half := half(t, p, frame.MessageHeader{Seq: 2, TID: 2}, make([]byte, size))[:part]
		p.WriteRaw(half)
		if p.Err() != nil {
			t.Fatal(p.Err())
		}
		c := first(t, ctx, server)
		var st control.ConnStats
		eventually(t, ctx, "the part of a message", func() bool {
			var err error
			st, err = c.Stats()
			return err == nil && st.IO.MessagesIn == 1 && st.IO.Unfinished == part
		})
		// The kept one, and what is there of the other behind its head.
		if st.IO.Reserved < size || st.IO.Reserved > size+part {
			t.Errorf("%d bytes reserved", st.IO.Reserved)
		}
		if st.Lossy {
			t.Error("a lossless connection is called lossy")
		}
		quiet := st.IO.Quiet
		eventually(t, ctx, "silence to last", func() bool {
			st, err := c.Stats()
			return err == nil && st.IO.Quiet > quiet+10*time.Millisecond
		})
		p.WriteRaw(half[:1])
		eventually(t, ctx, "the next byte", func() bool {
			st, err := c.Stats()
			return err == nil && st.IO.Unfinished == part+1 && st.IO.Quiet < 5*time.Second
		})
		k.letGo()
		eventually(t, ctx, "less to be reserved", func() bool {
			st, err := c.Stats()
			return err == nil && st.IO.Reserved <= part+1
		})
	})
}

// Matrix: OB-01
func TestInfoSaysHowAConnectionReceivesAndWhy(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		server := nodeOf(t, v, "osd.1", "SFS", 1)
		c := nodeOf(t, v, "client.2", "LLC", 2).Dial(server)
		if err := c.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		theirs := first(t, ctx, server)
		st, err := server.Stats()
		if err != nil {
			t.Fatal(err)
		}
		mode, why := loop.ReceiveBuffers, loop.WhySmall // of one that chooses, behind small messages
		if of := st.Cores[0]; of.Receive != string(loop.ReceiveAuto) {
			mode, why = loop.ReceiveMode(of.Receive), loop.Why(of.ReceiveWhy)
		}
		var tid uint64
		eventually(t, ctx, "it to receive as it should", func() bool {
			tid++
			send(t, c, tid)
			info := theirs.Info()
			return info.Receive == mode && info.ReceiveWhy == why
		})
		if one, err := theirs.Stats(); err != nil || one.IO.Receive != mode || one.IO.ReceiveWhy != why {
			t.Errorf("the statistics say %q, %q, %v", one.IO.Receive, one.IO.ReceiveWhy, err)
		}
		c.MarkDown()
		for _, gone := range []*control.Conn{c, theirs} {
			eventually(t, ctx, "nothing without a TCP connection", func() bool {
				info := gone.Info()
				return info.Receive == "" && info.ReceiveWhy == ""
			})
		}
	})
}

func TestStatsCallALossyConnectionLossy(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		server := nodeOf(t, v, "osd.1", "SLS", 1)
		c := nodeOf(t, v, "client.2", "LC", 2).Dial(server)
		if err := c.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		for _, one := range []*control.Conn{c, first(t, ctx, server)} {
			if st, err := one.Stats(); err != nil || !st.Lossy {
				t.Errorf("%+v %v", st, err)
			}
		}
	})
}

// Matrix: OB-02
func TestFailedHandshakesAreCountedByCause(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		var clock pressedClock
		server := nodeOf(t, v, "osd.1", "SLS", 1, patient, clock.of)
		silence(t, ctx, "127.0.0.1", server.Addr.AddrPort, 1) // ends by the timeout
		for _, s := range silence(t, ctx, "127.0.0.1", server.Addr.AddrPort, 2) {
			if _, err := s.Write([]byte("GET / HTTP/1.1\r\n")); err != nil {
				t.Fatal(err)
			}
		}
		p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{Name: wire.EntityName{Type: wire.Client, ID: "2"}, Addr: wire.Addr{Nonce: 2, AddrPort: loopback(1)}, Rev0: v.rev0}, server.Addr)
		defer p.Close()
		p.Handshake()
		ci := p.ClientIdent(0, 1)
		ci.TargetAddr = ci.TargetAddr.WithNonce(999)
		p.SendPayload(frame.TagClientIdent, ci)
		want := control.FailureCounters{Timeout: 1, Banner: 2, WrongPeer: 1}
		var n control.Counters
		failures := func(count uint64) func() bool {
			return func() bool {
				st, err := server.Stats()
				n = st.Counters
				return err == nil && n.AcceptFailures == count
			}
		}
		eventually(t, ctx, "those that end at once", failures(3))
		eventually(t, ctx, "the limit of the silent one", func() bool { return clock.press(isHandshake) == 1 })
		eventually(t, ctx, "all failures", failures(4))
		if n.Failures != want || n.BadBanners.HTTP != 2 {
			t.Errorf("%+v, %+v, want %+v", n.Failures, n.BadBanners, want)
		}
	})
}
