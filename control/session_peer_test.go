package control_test

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// The acceptor's answers, frame by frame, to a peer that plays some rows of
// the tables of package session: those that need the messenger around the machine.

const (
	clientCookie = 0xc11e
	otherCookie  = 0x0dd
)

// peerAddr is an address that nobody listens on: the peer does not want to be
// dialled.
func peerAddr(nonce uint32) wire.Addr {
	return wire.Addr{Type: wire.AddrMsgr2, Nonce: nonce, AddrPort: netip.MustParseAddrPort("127.0.0.1:1")}
}

// stage is a node under test, with peers that send the frames that a test wants. They call
// themselves osd.2 at one address.
type stage struct {
	t    *testing.T
	ctx  context.Context
	v    variant
	node *nodetest.Node
	addr wire.Addr
	by   auth.Server   // of peers that are dialled; nil: none
	l    net.Listener  // of a peer that is dialled; nil: none
	conn *control.Conn // by which it is dialled
}

// playTo makes a stage with a node that is dialled. With peerWins the node has
// the higher address.
func playTo(t *testing.T, ctx context.Context, v variant, policy string, peerWins bool,
	change ...func(*nodetest.NodeConfig)) *stage {
	nonce := uint32(1)
	if peerWins {
		nonce = 3
	}
	node := nodeOf(t, v, "osd.1", policy, nonce, change...)
	return &stage{t: t, ctx: ctx, v: v, node: node, addr: peerAddr(2)}
}

// dial begins a script; it ends with the test at the latest.
func (s *stage) dial() *msgrtest.Peer {
	s.t.Helper()
	p := msgrtest.DialPeer(s.ctx, msgrtest.PeerConfig{
		Name: osd("2"), Number: 2, Addr: s.addr, Rev0: s.v.rev0,
	}, s.node.Addr)
	s.t.Cleanup(p.Close)
	s.must(p)
	return p
}

func (s *stage) must(p *msgrtest.Peer) {
	s.t.Helper()
	if err := p.Err(); err != nil {
		s.t.Fatalf("%v\n%s", err, s.node.Probe.Trace())
	}
}

// establish opens a session.
func (s *stage) establish(cookie, globalSeq uint64) (*msgrtest.Peer, wire2.ServerIdent) {
	s.t.Helper()
	p := s.dial()
	si := p.Establish(cookie, globalSeq)
	s.ready(p)
	return p, si
}

// ready waits until the node is ready, too: before, another socket that comes is told to wait, or to try again.
func (s *stage) ready(p *msgrtest.Peer) {
	s.t.Helper()
	s.must(p)
	eventually(s.t, s.ctx, "the session", func() bool {
		c := s.node.Lookup(s.addr)
		return c == nil || c.State() == control.StateReady
	})
}

// talks checks that the session moves messages both ways; seq is the number of
// the peer's message.
func (s *stage) talks(p *msgrtest.Peer, seq uint64) {
	s.t.Helper()
	s.moves(p, s.node.Lookup(s.addr), seq)
}

// reconnect sends SESSION_RECONNECT on a new socket.
func (s *stage) reconnect(cookie, server, globalSeq, connectSeq, msgSeq uint64) *msgrtest.Peer {
	s.t.Helper()
	p := s.dial()
	p.Handshake()
	p.SendPayload(frame.TagSessionReconnect, p.SessionReconnect(cookie, server, globalSeq, connectSeq, msgSeq))
	s.must(p)
	return p
}

// A CLIENT_IDENT that is held up while the session it asks for is opened on
// another socket, used, and marked down: to open it again would give the peer a
// session under the cookie of the one that it knows, with other sequences.
func TestIdentOfASessionThatHasEndedIsStale(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", false)
		late := s.dial()
		late.Handshake()
		p, si := s.establish(clientCookie, 6)
		s.talks(p, 1)
		s.node.Lookup(s.addr).MarkDown()
		p.ExpectEnd()
		s.must(p)
		for n := range uint64(2) { // other handshakes end
			s.dial().Close()
			eventually(t, ctx, "the failure", func() bool { return failures(s.node) == n+1 })
		}
		late.SendPayload(frame.TagClientIdent, late.ClientIdent(clientCookie, 5))
		late.ExpectEnd()
		s.must(late)

		p = s.reconnect(clientCookie, si.Cookie, 7, 1, 1)
		if full := p.ExpectReset(); !full {
			t.Error("SESSION_RESET(partial) without a session")
		}
		s.must(p)
		fresh, _ := s.establish(clientCookie, 8)
		s.talks(fresh, 1)
	})
}

// The type in HELLO decides about the policy and the session, and is only
// claimed.
// Matrix: HI-12
func TestNobodyActsAsADaemonWithoutProof(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", true)
		for _, c := range []struct {
			claimed wire.EntityType
			proven  wire.EntityName
			ends    bool
		}{
			{wire.OSD, wire.EntityName{Type: wire.Client, ID: "admin"}, true},
			{wire.Mon, wire.EntityName{Type: wire.OSD, ID: "2"}, true},
			{wire.Client, wire.EntityName{Type: wire.Mgr, ID: "x"}, false},
			{wire.OSD, wire.EntityName{Type: wire.OSD, ID: "2"}, false},
		} {
			p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{
				Name: wire.EntityName{Type: c.claimed, ID: "2"}, Number: 2, Addr: s.addr, Rev0: v.rev0,
				AuthClient: none.NewClient(c.proven),
			}, s.node.Addr)
			p.Handshake()
			p.SendPayload(frame.TagClientIdent, p.ClientIdent(clientCookie, 5))
			if c.ends {
				p.ExpectEnd()
			} else {
				p.ExpectServerIdent()
			}
			if p.Err() != nil {
				t.Errorf("HELLO of type %v from %v: %v", c.claimed, c.proven, p.Err())
			}
			p.Close()
			if e := s.node.Lookup(s.addr); e != nil {
				e.MarkDown()
			}
		}
	})
}

// Cookies are never 0 and never used twice, and a lossy session has none
// of the server.
// Matrix: SE-46
func TestCookiesAreNotReused(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		seen := map[uint64]bool{0: true}
		note := func(cookie uint64) {
			if seen[cookie] {
				t.Errorf("cookie %#x comes again, or is none", cookie)
			}
			seen[cookie] = true
		}
		s := playTo(t, ctx, v, "SFS", true)
		for i := range uint64(30) {
			_, si := s.establish(clientCookie+i, 5+i) // each time the peer has forgotten all
			note(si.Cookie)
		}
		for range 20 {
			c := stageFor(t, ctx, v, "LLC")
			p, ci := c.serve()
			note(ci.Cookie)
			c.conn.MarkDown()
			p.ExpectEnd()
		}
		lossy := playTo(t, ctx, v, "SLS", true)
		if _, si := lossy.establish(clientCookie, 5); si.Cookie != 0 || si.Flags&wire.IdentLossy == 0 {
			t.Errorf("a lossy session has %+v", si)
		}
	})
}

// A new socket takes over a session while the old one is in the middle of
// something.

// comeBack resumes the peer's session on a new socket, as the nth time.
func (s *stage) comeBack(si wire2.ServerIdent, nth, got uint64) *msgrtest.Peer {
	s.t.Helper()
	p := s.reconnect(clientCookie, si.Cookie, 5+nth, nth, got)
	p.Ignore(frame.TagAck, frame.TagKeepalive2, frame.TagKeepalive2Ack)
	p.ExpectReconnectOK()
	s.must(p)
	return p
}

// half is the first part of a message's frame, in mode crc.
func half(t *testing.T, v variant, hd frame.MessageHeader, front []byte) []byte {
	t.Helper()
	var b [frame.MessageHeaderSize]byte
	hd.Put(&b)
	f, err := frame.NewEncoder(v.rev()).AppendFrame(nil, frame.TagMessage, b[:], front)
	must(t, err)
	return f[:len(f)-len(front)/2]
}

// A session is taken over, on whatever core, while a callback of
// it runs: the callback ends before anything else of the connection happens.
// Matrix: RP-04, RP-05, XC-10, INV-09
func TestTakeOverWaitsForTheCallbackUnderWay(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		var inside, overlaps atomic.Int32
		enter := func() func() {
			if inside.Add(1) != 1 {
				overlaps.Add(1)
			}
			return func() { inside.Add(-1) }
		}
		entered := make(chan chan struct{})
		s := playTo(t, ctx, v, "SFS", true, func(c *nodetest.NodeConfig) { c.Plane.Cores = 4 },
			withChain(&control.Dispatcher{
				Accept: func(*control.Conn, int, bool) { defer enter()() },
				Move:   func(*control.Conn, int) { defer enter()() },
				Fast: func(_ *control.Conn, m *control.Message) bool {
					defer enter()()
					if m.TID < 500 {
						leave := make(chan struct{})
						entered <- leave
						<-leave
					}
					return true
				},
			}))
		old, si := s.establish(clientCookie, 5)
		for nth := uint64(1); nth <= 8; nth++ {
			old.SendMessage(frame.MessageHeader{Seq: nth, TID: nth}, nil, nil, nil)
			s.must(old)
			leave := <-entered
			goOn := sync.OnceFunc(func() { close(leave) })
			// The new socket may be on the core that the callback holds: then
			// it has to wait, too.
			timer := time.AfterFunc(20*time.Millisecond, goOn)
			old = s.comeBack(si, nth, 0)
			timer.Stop()
			goOn()
		}
		if n := overlaps.Load(); n != 0 {
			t.Errorf("%d callbacks of the connection ran beside another", n)
		}
	})
}

// Who can name the session comes with the highest numbers that are taken. The owner gets in again,
// by SESSION_RECONNECT and by CLIENT_IDENT, as soon as no older handshake can be under way.
// Matrix: HI-13, HI-17
func TestHighNumbersInAnothersNameLockNobodyOut(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		var clock testClock
		s := playTo(t, ctx, v, "SFS", true, clock.young)
		_, si := s.establish(clientCookie, 5)
		attack := s.reconnect(clientCookie, si.Cookie, 1<<62, 1<<62, 0)
		attack.ExpectReconnectOK()
		s.ready(attack)
		clock.pass(handshakeLimit + time.Second)
		owner := s.reconnect(clientCookie, si.Cookie, 6, 1, 0)
		owner.ExpectReconnectOK()
		s.ready(owner)
		s.establish(clientCookie, 1<<62)
		clock.pass(handshakeLimit + time.Second)
		s.establish(clientCookie, 7)
	})
}

// What a connector does with each answer to CLIENT_IDENT and
// SESSION_RECONNECT, told by a peer that plays the acceptor.

const serverCookie = 0x5e4e4

// stageFor is a stage with a node that dials osd.2.
func stageFor(t *testing.T, ctx context.Context, v variant, policy string,
	change ...func(*nodetest.NodeConfig)) *stage {
	t.Helper()
	s := playTo(t, ctx, v, policy, true, change...).listens(nil)
	s.conn = connect(t, s.node, s.addr, wire.OSD)
	return s
}

// listens has osd.2 be at the address that its peers say is theirs.
func (s *stage) listens(by auth.Server) *stage {
	s.t.Helper()
	s.by, s.l = by, hold(s.t, loopback(0))
	s.addr = wire.Addr{Type: wire.AddrMsgr2, Nonce: 2, AddrPort: s.l.Addr().(*net.TCPAddr).AddrPort()}
	return s
}

// accept takes the node's next socket through the handshake.
func (s *stage) accept() *msgrtest.Peer {
	s.t.Helper()
	p := s.accepted()
	p.Handshake()
	s.must(p)
	return p
}

// accepted is the node's next socket.
func (s *stage) accepted() *msgrtest.Peer {
	s.t.Helper()
	return acceptPeer(s.t, s.ctx, s.l, msgrtest.PeerConfig{Name: osd("2"), Number: 2, Addr: s.addr, Rev0: s.v.rev0, AuthServer: s.by})
}

// acceptPeer accepts a connection, for a script that ends with the test at the latest.
func acceptPeer(t *testing.T, ctx context.Context, l net.Listener, cfg msgrtest.PeerConfig) *msgrtest.Peer {
	t.Helper()
	patience, _ := ctx.Deadline()
	must(t, l.(*net.TCPListener).SetDeadline(patience))
	c, err := l.Accept()
	must(t, err)
	p := msgrtest.PeerOn(ctx, cfg, c, wire.Addr{})
	t.Cleanup(p.Close)
	return p
}

// serve opens the session that the node asks for.
func (s *stage) serve() (*msgrtest.Peer, wire2.ClientIdent) {
	s.t.Helper()
	p := s.accept()
	ci := p.ExpectClientIdent()
	p.SendPayload(frame.TagServerIdent, p.ServerIdent(serverCookie, 1))
	s.must(p)
	must(s.t, s.conn.WaitReady(s.ctx))
	return p, ci
}

// A peer that takes every session and hangs up without a message or an ack is dialled at once the
// first time, then after pauses that double, although every attempt succeeds. An ack begins anew.
// Matrix: SE-39, HI-14
func TestASessionThatIsOfNoUseIsDialledWithPauses(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		clock := stillClock()
		s := stageFor(t, ctx, v, "LLC", patient, clock.of)
		p, _ := s.serve()
		send(t, s.conn, 1) // so that it is a session with work to do
		p.Close()
		hangsUp := func() {
			p := s.accept()
			p.ExpectReconnect()
			p.SendPayload(frame.TagSessionReset, wire2.SessionReset{})
			p.ExpectClientIdent()
			p.SendPayload(frame.TagServerIdent, p.ServerIdent(serverCookie, 1))
			p.ExpectMessage()
			s.must(p)
			p.Close()
		}
		pauses := func(n int) {
			t.Helper()
			before := len(clock.pressed())
			var want []time.Duration
			hangsUp() // dialled at once
			for d := firstBackoff; len(want) < n; d = min(2*d, longestBackoff) {
				eventually(t, ctx, "the pause", func() bool { return clock.press(isBackoff) == 1 })
				if want = append(want, d); len(want) < n {
					hangsUp()
				}
			}
			if got := clock.pressed()[before:]; !slices.Equal(got, want) {
				t.Errorf("pauses %v, want %v", got, want)
			}
		}
		pauses(9)
		p = s.accept()
		p.ExpectReconnect()
		p.SendPayload(frame.TagSessionReconnectOK, wire2.SessionReconnectOK{})
		p.ExpectMessage()
		p.Send(frame.TagAck, binary.LittleEndian.AppendUint64(nil, 1))
		s.must(p)
		eventually(t, ctx, "the ack", func() bool { st := connStats(t, s.conn); return st.IO.Sent+st.IO.Queued == 0 })
		send(t, s.conn, 2)
		p.Close()
		hangsUp()
		pauses(2)
	})
}

// Two ends that may both dial. The connection that the lower address dials
// survives; the nonce decides which address is lower.

// everyPoint runs a test for each break point and variant.
func everyPoint(t *testing.T, at []nodetest.Point, run func(t *testing.T, ctx context.Context, v variant, at nodetest.Point)) {
	drivertest.LeavesNothing(t)
	list := variants
	name := func(i int) string { return title(at[i/len(list)], list[i%len(list)]) }
	spread(t, 8, len(at)*len(list), name, func(t *testing.T, i int) {
		run(t, deadline(t), list[i%len(list)], at[i/len(list)])
	})
}

// Both dial. The side that is told to wait gets its messages over the
// other connection, which opens though its own side has nothing to send.
// Matrix: RA-01, RA-08, RA-09, RA-14
func TestWaitingSideIsServedByTheWinner(t *testing.T) {
	everyMode(t, func(t *testing.T, ctx context.Context, v variant) {
		// Who is told to wait does not dial once more while the test takes place.
		patient := func(c *nodetest.NodeConfig) { c.Timeouts.MaxBackoff = time.Hour }
		us, them := nodeOf(t, v, "osd.1", "LP", 1, patient), nodeOf(t, v, "osd.2", "LP", 2, patient)
		b := us.Probe.Arm(nodetest.SocketConnecting(), 1, nodetest.Block())
		winner := us.Dial(them)
		us.Hit(ctx, b)
		told := them.Probe.Arm(nodetest.Read(frame.TagWait), 1, nodetest.Continue())
		probed := them.Probe.Arm(nodetest.Read(frame.TagKeepalive2), 1, nodetest.Continue())
		waiting := them.Dial(us)
		for tid := range uint64(5) {
			send(t, waiting, tid+1)
		}
		them.Hit(ctx, told)
		b.Release()
		them.Hit(ctx, probed) // the winner shows that it lives
		receives(t, ctx, us, 1, 2, 3, 4, 5)
		if n := statsOf(t, us).Counters; n.WaitsSent != 1 || n.Conns != 1 {
			t.Errorf("%+v, want one connection and one WAIT", n)
		}
		if n := connStats(t, winner).Counters; n.Attempts != 1 || n.Idents != 1 || n.Ready != 1 || n.Replaced != 0 {
			t.Errorf("the winner: %+v", n)
		}
		if n := connStats(t, waiting).Counters; n.Attempts != 1 || n.Idents != 1 || n.Ready != 1 || n.Replaced != 1 {
			t.Errorf("the side that waits: %+v", n)
		}
	})
}

// A socket of the peer takes a session over only once the attempt that it overtakes has ended, also if a
// callback of the user ignores the end of its context: each of them could leave one more behind.
func TestATakeOverWaitsForTheAttemptThatItInterrupts(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		late := newSlow(false)
		s := playTo(t, ctx, v, "LP", true, func(c *nodetest.NodeConfig) {
			c.Auth.Client = late.client(none.NewClient(c.Name), wire.OSD, func(*auth.Result) {})
		}).listens(nil)
		s.conn = connect(t, s.node, s.addr, wire.OSD)
		dialled := s.accepted()
		go dialled.Handshake()
		arrives(t, "the callback", late.entered)
		p := s.dial()
		p.Handshake()
		p.SendPayload(frame.TagClientIdent, p.ClientIdent(clientCookie, 5))
		eventually(t, ctx, "the take-over", func() bool { return connStats(t, s.conn).Counters.Replaced == 1 })
		for range 5 { // others may go on meanwhile
			s.dial().Handshake()
		}
		if state := s.conn.State(); state == control.StateReady {
			t.Error("the session goes on beside the attempt")
		}
		close(late.release)
		p.ExpectServerIdent()
		s.must(p)
		must(t, s.conn.WaitReady(ctx))
	})
}
