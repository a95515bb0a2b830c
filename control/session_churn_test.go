package control_test

import (
	"context"
	"os"
	"runtime"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Peers that come, do one thing, and go, as fast as they can.

// churnRounds is how often.
func churnRounds(long int) int {
	if os.Getenv("RINGMSGR_LONG") != "" {
		return long
	}
	return 150
}

// heapBytes is what is in use once the collector has been there.
func heapBytes() int64 {
	for range 2 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Whatever a peer does before it goes, nothing of it stays: no
// connection, no goroutine, no descriptor, no place among the half-open ones, and no
// memory that grows with the number of peers. Honest ones go on meanwhile.
// Matrix: SE-43, SH-16, HI-15, HI-31, RL-08, RL-12
func TestPeersThatComeAndGoAtOnceLeaveNothing(t *testing.T) {
	hello := nodetest.Read(frame.TagHello)
	for _, ending := range []struct {
		name string
		do   func(p *msgrtest.Peer)
	}{
		{"ident", func(p *msgrtest.Peer) {
			p.Handshake()
			p.SendPayload(frame.TagClientIdent, p.ClientIdent(7, 1))
		}},
		{"no banner", func(p *msgrtest.Peer) { p.WriteRaw([]byte("GET / HTTP/1.1\r\n")) }},
		{"half a handshake", func(p *msgrtest.Peer) { p.HandshakeUntil(hello) }},
		{"a frame out of place", func(p *msgrtest.Peer) {
			p.Handshake()
			p.Send(frame.TagHello, make([]byte, 20))
		}},
		{"a target that is not there", func(p *msgrtest.Peer) {
			p.Handshake()
			ci := p.ClientIdent(7, 1)
			ci.TargetAddr = ci.TargetAddr.WithNonce(12345)
			p.SendPayload(frame.TagClientIdent, ci)
		}},
		{"a bad frame of a session", func(p *msgrtest.Peer) {
			p.Establish(7, 1)
			p.WriteRaw(make([]byte, 64))
		}},
	} {
		t.Run(ending.name, func(t *testing.T) {
			nodetest.CheckLeaks(t)
			for _, v := range newest {
				t.Run(v.String(), func(t *testing.T) {
					ctx, cancel := context.WithTimeout(context.Background(), 40*sessionTime)
					defer cancel()
					server, addr := plainServer(t, v, "SLS")
					client := startMessenger(t, clientConfig(v))
					conn, err := client.Connect(addr, wire.OSD)
					must(t, err)
					must(t, conn.WaitReady(ctx))
					visit := func(i int) {
						p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{
							Name: wire.EntityName{Type: wire.Client, ID: "x"}, Number: int64(i), Addr: wire.Addr{Type: wire.AddrAny, Nonce: uint32(i + 1), AddrPort: loopback(0)}, Rev0: v.rev0,
						}, addr)
						ending.do(p)
						if i%2 == 0 {
							p.Reset()
						} else {
							p.Close()
						}
					}
					gone := func() {
						eventually(t, ctx, "the last of them to be gone", func() bool {
							st, err := server.Stats()
							return err == nil && st.Open == 1 && st.HalfOpen == 0
						})
					}
					rounds := churnRounds(84_000) // times six endings and two engines: a million
					for i := range rounds / 3 {
						visit(i)
					}
					gone()
					before := heapBytes()
					for i := range rounds {
						visit(i)
					}
					gone()
					if grown := heapBytes() - before; grown > 1<<20+int64(rounds)*16 {
						t.Errorf("%d bytes more after %d peers", grown, rounds)
					}
					if c := conn.State(); c != control.StateReady {
						t.Errorf("the honest connection is %v", c)
					}
				})
			}
		})
	}
}

// plainServer is a messenger that nothing observes, so that only its own memory
// counts.
func plainServer(t *testing.T, v variant, policy string) (*control.Messenger, wire.Addr) {
	t.Helper()
	p := shortPolicies[policy]()
	cfg := control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "1"}, Number: 1, Default: &p, Door: control.Door{FailureRate: -1}}
	cfg.Plane.Cores = 1
	v.configure(&cfg)
	m := startMessenger(t, cfg)
	addrs, err := m.Bind(v2(loopback(0).Addr(), 0))
	must(t, err)
	return m, addrs[0]
}

func clientConfig(v variant) control.Config {
	cfg := control.Config{Name: wire.EntityName{Type: wire.Client, ID: "2"}}
	cfg.Plane.Cores = 1
	v.configure(&cfg)
	return cfg
}

// The data phase needs no goroutine of a connection.
// Matrix: RL-10
func TestEstablishedConnectionsHaveNoGoroutines(t *testing.T) {
	for _, v := range newest {
		t.Run(v.String(), func(t *testing.T) {
			ctx := deadline(t)
			const n = 200
			server, addr := plainServer(t, v, "SLS")
			client := startMessenger(t, clientConfig(v))
			connect := func(n int) { openIdle(t, ctx, server, client, addr, n) }
			connect(1)
			var before int
			eventually(t, ctx, "the first handshake to be gone", func() bool {
				now := runtime.NumGoroutine()
				same := now == before
				before = now
				return same
			})
			connect(n)
			eventually(t, ctx, "as many goroutines as before", func() bool { return runtime.NumGoroutine() <= before })
		})
	}
}

// A peer that repeats a question which has an answer, and reads none of
// them, is ended after a fixed number.
// Matrix: HI-14
func TestAPeerThatAsksTheSameAgainAndAgainIsEnded(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", true)
		p := s.dial()
		p.Handshake()
		ci := p.ClientIdent(clientCookie, 1)
		ci.Supported &^= wire.FeatureMsgAddr2
		sent := 0
		for ; p.Err() == nil && sent < 100_000; sent++ {
			p.SendPayload(frame.TagClientIdent, ci) // until it cannot be sent any more
		}
		if p.Err() == nil {
			t.Errorf("sent %d times", sent)
		}
		eventually(t, ctx, "the end of it", func() bool {
			st, err := s.node.Stats()
			return err == nil && st.HalfOpen == 0 && st.Counters.AcceptFailures == 1
		})
		if n := s.node.Probe.Seen(nodetest.Read(frame.TagClientIdent)); n > 64 {
			t.Errorf("%d of them were answered", n)
		}
	})
}

// An address that no peer can have is refused, or stored and never dialled.
// Matrix: HI-28
func TestAddressesThatNobodyCanHaveAreNotDialled(t *testing.T) {
	for _, text := range []string{
		"v2:0.0.0.0:6800/2", "v2:[::]:6800/2", "v2:[::ffff:0.0.0.0]:6800/2", "v2:224.0.0.1:6800/2", "v2:[ff02::1]:6800/2",
		"v2:255.255.255.255:6800/2", "v2:[::ffff:224.0.0.1]:6800/2", "v2:127.0.0.1:0/2",
	} {
		t.Run(text, func(t *testing.T) {
			addr, err := wire.ParseAddr(text)
			must(t, err)
			everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
				s := playTo(t, ctx, v, "LP", false)
				s.addr = addr
				p := s.dial()
				p.Handshake()
				p.SendPayload(frame.TagClientIdent, p.ClientIdent(clientCookie, 1))
				p.ExpectEnd()
				s.must(p)
				if n := s.node.Probe.Seen(nodetest.SocketConnecting()); n != 0 {
					t.Errorf("dialled %d times", n)
				}
				if c := s.node.Lookup(addr); c != nil {
					t.Errorf("there is a connection: %v", c.State())
				}
			})
		})
	}
}

// A message of more than 90 MiB passes where both sides are configured for it,
// and by default it is refused from its preamble.
// Matrix: RL-13
func TestTheLargestMessageIsThatOfTheConfiguration(t *testing.T) {
	const size = 92 << 20
	for _, v := range newest {
		t.Run(v.String(), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 4*sessionTime)
			defer cancel()
			large := func(c *nodetest.NodeConfig) {
				c.Receiving.Limits = frame.DefaultLimits()
				c.Receiving.Limits.Data = 100 << 20
			}
			got := make(chan int, 1)
			sum := withChain(&control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
				good := len(m.Data)
				for i := 0; i < len(m.Data); i += 4093 {
					if m.Data[i] != byte(i>>8) {
						good = -1
					}
				}
				got <- good
				return true
			}})
			data := make([]byte, size)
			for i := 0; i < size; i += 4093 {
				data[i] = byte(i >> 8)
			}
			server := nodeOf(t, v, "osd.1", "SLS", 1, sum, large)
			client := nodeOf(t, v, "client.2", "LC", 2, large)
			must(t, client.Dial(server).Send(control.NewMessage(1, nil, data)))
			select {
			case n := <-got:
				if n != size {
					t.Errorf("%d bytes of %d", n, size)
				}
			case <-ctx.Done():
				t.Fatal("it does not come")
			}
			small := nodeOf(t, v, "osd.3", "SLS", 3)
			conn := client.Dial(small, control.Once())
			must(t, conn.WaitReady(ctx))
			must(t, conn.Send(control.NewMessage(1, nil, data)))
			select {
			case <-conn.Closed():
			case <-ctx.Done():
				t.Error("a message above the limit is taken")
			}
		})
	}
}
