package control_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Races of two dialling ends by chance, between many cores, between ends that
// want different things, and between addresses that are hard to tell apart.

// haste delays every step of a node's handshakes by chance.
func haste(rng *rand.Rand, n *msgrtest.Node, v variant) {
	for _, role := range []msgrtest.Role{msgrtest.Connector, msgrtest.Acceptor} {
		for _, at := range v.breakPoints(role) {
			for nth := 1; nth <= 2; nth++ {
				n.Probe.Arm(at, nth, msgrtest.Delay(time.Duration(rng.Int64N(int64(5*time.Millisecond))))).Forget()
			}
		}
	}
}

// RA-12: whatever the delays, one session comes of two ends that dial at once. The
// seed of the sample draws the delays, other ones for every 101 seeds.
func TestRaceWithRandomDelaysMakesOneSession(t *testing.T) {
	msgrtest.CheckLeaks(t)
	all := make([]int, 10_000)
	for i := range all {
		all[i] = i
	}
	seed, rounds := seedOfSample(t)/101, sampleOf(t, all, 101)
	name := func(i int) string { return fmt.Sprint(rounds[i]) }
	spread(t, 24, len(rounds), name, func(t *testing.T, i int) {
		rng := rand.New(rand.NewPCG(seed, uint64(rounds[i])))
		ctx, v := deadline(t), allVariants[rounds[i]%len(allVariants)]
		us, them := nodeOf(t, v, "osd.1", "LP", 1), nodeOf(t, v, "osd.2", "LP", 2)
		haste(rng, us, v)
		haste(rng, them, v)
		var both sync.WaitGroup
		both.Go(func() { send(t, us.Dial(them), 1) })
		both.Go(func() { send(t, them.Dial(us), 2) })
		both.Wait()
		receives(t, ctx, us, 2)
		receives(t, ctx, them, 1)
		for _, n := range []*msgrtest.Node{us, them} {
			conns := n.Conns()
			if len(conns) != 1 {
				t.Fatalf("%s has %d connections", n.Name(), len(conns))
			}
			if err := conns[0].WaitReady(ctx); err != nil {
				t.Error(err)
			}
			v.check(t, conns[0])
		}
	})
}

// RA-13: on several cores everybody sees the same connection, during the race
// and behind it.
func TestRaceOnManyCoresHasOneSurvivor(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		cores := func(c *msgrtest.NodeConfig) { c.Plane.Cores = 4 }
		us, them := nodeOf(t, v, "osd.1", "LP", 2, cores), nodeOf(t, v, "osd.2", "LP", 1)
		b := us.Probe.Arm(msgrtest.Write(frame.TagClientIdent), 1, msgrtest.Block())
		conn := us.Dial(them)
		us.Hit(ctx, b)
		them.Dial(us)
		var all sync.WaitGroup
		seen := make([]*control.Conn, 16)
		for i := range seen {
			all.Go(func() {
				for range 50 {
					if seen[i] = us.Dial(them); seen[i] != conn || us.Lookup(them.Addr) != conn {
						return
					}
				}
				if conn.WaitReady(ctx) == nil {
					seen[i] = us.Dial(them)
				}
			})
		}
		all.Wait()
		for i, c := range seen {
			if c != conn {
				t.Fatalf("caller %d got another connection", i)
			}
			send(t, c, uint64(i))
		}
		us.Await(ctx, "established C(1,1,0,0) A(0,0,0,1)", "replaced A(1,1,0,0)")
		eventually(t, ctx, "all messages", func() bool { return len(them.Inbox.TIDs()) == len(seen) })
	})
}

// RA-14: the two ends want different modes of their own connections, and one
// of them speaks msgr2.0 only. What the survivor has negotiated is in force.
func TestSurvivorOfARaceHasWhatItNegotiated(t *testing.T) {
	both := []auth.Mode{auth.CRC, auth.Secure}
	for _, weWin := range []bool{true, false} {
		for _, mode := range both {
			t.Run(title("weWin", weWin, mode), func(t *testing.T) {
				everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
					wants := func(m auth.Mode) func(*msgrtest.NodeConfig) {
						return func(c *msgrtest.NodeConfig) {
							c.AuthClient, c.AuthServer = chatty{c.Name, []auth.Mode{m}}, &chattyServer{modes: both}
						}
					}
					nonce := uint32(2)
					if weWin {
						nonce = 1
					}
					us := nodeOf(t, v, "osd.1", "LP", nonce, wants(mode))
					them := nodeOf(t, variant{backend: v.backend}, "osd.2", "LP", 3-nonce, wants(auth.CRC+auth.Secure-mode))
					// The loser is as far as it can be when the other one comes.
					at, dials, other := msgrtest.Write(frame.TagClientIdent), us, them
					if weWin {
						at, dials, other = msgrtest.Read(frame.TagClientIdent), them, us
					}
					b := us.Probe.Arm(at, 1, msgrtest.Block())
					send(t, dials.Dial(other), 1)
					us.Hit(ctx, b)
					send(t, other.Dial(dials), 2)
					receives(t, ctx, other, 1)
					receives(t, ctx, dials, 2)
					b.Release()
					want := auth.CRC + auth.Secure - mode
					if weWin {
						want = mode
					}
					rev := map[bool]string{true: frame.Rev0.String(), false: frame.Rev1.String()}[v.rev0]
					for _, n := range []*msgrtest.Node{us, them} {
						c := first(t, ctx, n)
						if err := c.WaitReady(ctx); err != nil {
							t.Fatal(err)
						}
						if i := n.Conns()[0].Info(); i.Mode != want || i.Protocol != rev {
							t.Errorf("%s: mode %v and %s, want %v and %s", n.Name(), i.Mode, i.Protocol, want, rev)
						}
					}
				})
			})
		}
	}
}

// RA-15 and RA-16: an address that differs from ours in the nonce only, and one
// among several of which the msgr2 one counts.
func TestRaceIsDecidedByTheMsgr2AddressAndItsNonce(t *testing.T) {
	for _, several := range []bool{false, true} {
		for _, peerWins := range []bool{true, false} {
			t.Run(title("several", several, "peerWins", peerWins), func(t *testing.T) {
				everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
					s := playTo(t, ctx, v, "LP", peerWins)
					s.addr = wire.Addr{Type: wire.AddrMsgr2, Nonce: 2, AddrPort: s.node.Addr.AddrPort}
					b := s.node.Probe.Arm(msgrtest.SocketConnecting(), 1, msgrtest.Block())
					if _, err := s.node.Connect(s.addr, wire.OSD); err != nil {
						t.Fatal(err)
					}
					s.node.Hit(ctx, b)
					p := s.dial()
					p.Handshake()
					ci := p.ClientIdent(clientCookie, 1)
					if several {
						// By its nonce this one would decide the other way round.
						legacy := s.addr.WithType(wire.AddrLegacy)
						legacy.Nonce = map[bool]uint32{true: 9, false: 0}[peerWins]
						ci.Addrs = wire.AddrVec{s.addr, legacy} // the order of real daemons
					}
					p.SendPayload(frame.TagClientIdent, ci)
					if peerWins {
						p.ExpectServerIdent()
						s.must(p)
						s.node.Await(ctx, "established C(1,0,0,0) A(0,0,0,1)", "replaced A(1,1,0,0)")
						return
					}
					p.Expect(frame.TagWait)
					s.must(p)
					p.Close()
					s.node.Await(ctx, "connecting C(1,0,0,0)", "closed A(1,1,0,0)")
				})
			})
		}
	}
}
