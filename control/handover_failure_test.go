package control_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/uring"
)

// handoverServer is a bound echo.
func handoverServer(t *testing.T, backend uring.Backend, cores int) (*control.Messenger, wire.Addr) {
	t.Helper()
	return serveEcho(t, serverConfig(backend, cores))
}

func serveEcho(t *testing.T, cfg control.Config) (*control.Messenger, wire.Addr) {
	t.Helper()
	m := startMessenger(t, cfg, echoAll())
	addrs := bind(t, m, wire.Addr{Type: wire.AddrMsgr2, AddrPort: msgrtest.ReservePort(t)})
	return m, addrs[0]
}

func TestSuccessorThatFailsLeavesThePredecessorServing(t *testing.T) {
	nodetest.CheckLeaks(t)
	spread(t, len(engines), len(engines), func(i int) string { return string(engines[i]) },
		func(t *testing.T, i int) {
			backend := engines[i]
			ctx := deadline(t)
			m, addr := handoverServer(t, backend, 2)
			peer := newStream(t, backend, wire.OSD, control.LosslessPeer(), addr)
			client := newStream(t, backend, wire.MDS, control.LosslessClient(), addr)
			lossy := newStream(t, backend, wire.Client, control.LossyClient(), addr)
			knock := newKnocker(t, addr)
			for step := range control.StopSteps {
				a, b := unixPair(t)
				late, fake := make(chan struct{}), make(chan error, 1)
				go func() { fake <- control.BreakSuccession(ctx, m, b, step, late) }()
				limit := time.Minute
				if step == control.StopSilent {
					limit = time.Second
				}
				handCtx, stop := context.WithTimeout(ctx, limit)
				err := m.HandOver(handCtx, a)
				stop()
				close(late)
				lateErr := <-fake
				if !errors.Is(err, control.ErrHandOver) {
					t.Errorf("step %d: hand-over ends with %v", step, err)
				}
				switch step {
				case control.StopAtReady:
					if !strings.Contains(err.Error(), "no room") {
						t.Errorf("refusal reported as %v", err)
					}
				case control.StopSilent:
					if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(lateErr, syscall.EPIPE) {
						t.Errorf("silent successor: %v; its late commit: %v", err, lateErr)
					}
				}
				peer.progress(50)
				client.progress(50)
				lossy.progress(50)
			}
			knock.end()
			if st, err := m.Stats(); err != nil || st.Counters.IllegalTransitions != 0 {
				t.Errorf("%+v, %v", st.Counters, err)
			}
			next := succeed(t, ctx, m, serverConfig(backend, 2), echoAll())
			defer end(t, next)
			peer.progress(50)
			client.progress(50)
			lossy.progress(50) // by the predecessor
			lossy.end()
			peer.end()
			client.end()
		})
}

func TestPredecessorThatFailsLeavesNothingWithTheSuccessor(t *testing.T) {
	nodetest.CheckLeaks(t)
	m, addr := handoverServer(t, uring.Auto, 2)
	for step := range 5 {
		a, b := unixPair(t)
		fake := async(func() error { return control.BreakPredecession(m, a, step) })
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		next, err := control.TakeOver(ctx, serverConfig(uring.Auto, 2), b, echoAll())
		cancel()
		if next != nil || !errors.Is(err, control.ErrHandOver) {
			t.Errorf("step %d: %v, %v", step, next, err)
		}
		if err := <-fake; err != nil {
			t.Errorf("step %d: %v", step, err)
		}
	}
	s := newStream(t, uring.Auto, wire.OSD, control.LosslessPeer(), addr)
	s.progress(50)
	s.end()
}

func TestMessengerThatIsHandedOver(t *testing.T) {
	nodetest.CheckLeaks(t)
	ctx := deadline(t)
	m, addr := handoverServer(t, uring.Auto, 1)
	s := newStream(t, uring.Auto, wire.OSD, control.LosslessPeer(), addr)
	s.progress(5)
	c := m.Conns()[0]
	posted := make(chan error, 1)
	must(t, c.PostBuffer(&control.Posting{TID: 1 << 40, Buffer: make([]byte, 10), Done: func(_ *control.Posting, err error) { posted <- err }}))
	resets := make(chan struct{}, 1)
	next := succeed(t, ctx, m, serverConfig(uring.Auto, 1), &control.Dispatcher{Reset: func(*control.Conn, bool) { resets <- struct{}{} }}, echoAll())
	defer end(t, next)
	arrives(t, "the end of the connection", c.Closed())
	msg := control.NewMessage(1, nil, nil)
	if err := c.Send(msg); !errors.Is(err, control.ErrHandedOver) || !errors.Is(err, net.ErrClosed) {
		t.Errorf("Send: %v", err)
	}
	if err := c.SendContext(ctx, msg); !errors.Is(err, control.ErrHandedOver) {
		t.Errorf("SendContext: %v", err)
	}
	if err := c.Err(); !errors.Is(err, control.ErrHandedOver) {
		t.Errorf("Err: %v", err)
	}
	if err := <-posted; !errors.Is(err, control.ErrHandedOver) || !errors.Is(err, control.ErrSessionLost) {
		t.Errorf("a posting: %v", err)
	}
	if err := c.PostBuffer(&control.Posting{TID: 1, Buffer: make([]byte, 10)}); !errors.Is(err, control.ErrHandedOver) {
		t.Errorf("PostBuffer: %v", err)
	}
	p := control.LosslessPeer()
	if _, err := m.Connect(s.m.Addrs()[0], wire.OSD, control.WithPolicy(p)); !errors.Is(err, control.ErrHandedOver) {
		t.Errorf("Connect: %v", err)
	}
	a, _ := unixPair(t)
	if err := m.HandOver(ctx, a); !errors.Is(err, control.ErrHandedOver) {
		t.Errorf("second hand-over: %v", err)
	}
	if got := next.Lookup(s.m.Addrs()[0]); got == nil || got.State() == control.StateClosing {
		t.Errorf("the successor does not know %v", s.m.Addrs())
	}
	s.progress(20)
	s.end()
	if len(resets) != 0 {
		t.Error("a session was reset")
	}
}

func TestSteeringIsHandedOver(t *testing.T) {
	nodetest.CheckLeaks(t)
	needSteering(t)
	m, addr := handoverServer(t, uring.Auto, 2)
	st := statsOf(t, m)
	if !st.Steering.Active {
		t.Fatalf("not steered: %+v", st.Steering)
	}
	ctx := deadline(t)
	for _, cores := range []int{2, 3, 1, 2} {
		next := succeed(t, ctx, m, serverConfig(uring.Auto, cores), echoAll())
		defer end(t, next)
		st := statsOf(t, next)
		if st.Steering.Active != (cores > 1) {
			t.Errorf("%d cores: %+v", cores, st.Steering)
		}
		if cores > 1 {
			check(t, next.PinPeer(netip.MustParseAddrPort("127.0.0.1:0"), cores-1))
		}
		s := newStream(t, uring.Auto, wire.Client, control.LossyClient(), addr)
		s.progress(5)
		s.end()
		if c := next.Conns(); len(c) != 1 || c[0].Core().ID() != cores-1 {
			t.Errorf("%d cores: %d connections, the first on core %d", cores, len(c), c[0].Core().ID())
		}
		m = next
	}
}

// nobody is a user that neither we nor root are.
const nobody = 65534

// asNobody runs f as another user: the thread, not the process.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	runtime.LockOSThread()
	become := func(user uintptr) unix.Errno {
		const same = ^uintptr(0)
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, user, same)
		return errno
	}
	own := uintptr(os.Geteuid())
	if errno := become(nobody); errno != 0 {
		runtime.UnlockOSThread()
		t.Skipf("only root can be somebody else: %v", errno)
	}
	defer func() {
		if errno := become(own); errno != 0 {
			t.Fatalf("user %d again: %v", own, errno) // the thread ends with the goroutine
		}
		runtime.UnlockOSThread()
	}()
	f()
}

// meeting is a connection over an abstract socket, which has no permissions of
// its own: the kernel notes who listened and who connected.
func meeting(t *testing.T, listener, connector func(func())) (listened, connected *net.UnixConn) {
	t.Helper()
	at := &unix.SockaddrUnix{Name: fmt.Sprintf("@ringmsgr-test-%d-%s", os.Getpid(), t.Name())}
	socket := func() int {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		return fd
	}
	door, to := socket(), socket()
	defer unix.Close(door)
	var err error
	listener(func() { err = errors.Join(unix.Bind(door, at), unix.Listen(door, 1)) })
	must(t, err)
	connector(func() { err = unix.Connect(to, at) })
	must(t, err)
	from, _, err := unix.Accept4(door, unix.SOCK_CLOEXEC)
	must(t, err)
	var ends [2]*net.UnixConn
	for i, fd := range []int{from, to} {
		f := os.NewFile(uintptr(fd), "meeting")
		c, err := net.FileConn(f)
		_ = f.Close()
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// The other side would go on in both cases: to it we are root, or its own user.
func TestAHandOverIsNotForAnotherUser(t *testing.T) {
	asNobody(t, func() {}) // or skip
	nodetest.CheckLeaks(t)
	ctx := deadline(t)
	m, at := handoverServer(t, uring.Auto, 1)
	s := newStream(t, uring.Auto, wire.OSD, control.LosslessPeer(), at)
	us := func(f func()) { f() }
	them := func(f func()) { asNobody(t, f) }
	for _, c := range []struct {
		name                string
		listener, connector func(func())
		foreignSuccessor    bool
	}{
		{"the successor is another user", us, them, true},
		{"the predecessor is another user", them, us, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			predecessor, successor := meeting(t, c.listener, c.connector)
			handed := async(func() error { return m.HandOver(ctx, predecessor) })
			next, taken := control.TakeOver(ctx, serverConfig(uring.Auto, 1), successor)
			if next != nil {
				end(t, next)
			}
			over := <-handed
			judge, other := over, taken
			if !c.foreignSuccessor {
				judge, other = taken, over
			}
			if !errors.Is(judge, os.ErrPermission) || !errors.Is(judge, control.ErrHandOver) {
				t.Errorf("hand over: %v; take over: %v", over, taken)
			}
			if other == nil {
				t.Error("the other side believes that it went well")
			}
		})
	}
	s.progress(20)
}

// provingServer asks for the proof of names, and proves its own.
func provingServer() control.Config {
	cfg := serverConfig(uring.Auto, 1)
	cfg.Auth.Client, cfg.Auth.Server = chatty{cfg.Name, crcOnly}, &chattyServer{modes: crcOnly}
	return cfg
}

// provenPeer has an OSD dial at, prove its name and say that it is at addr.
func provenPeer(t *testing.T, ctx context.Context, at wire.Addr, id string, number int64, addr wire.Addr) *msgrtest.Peer {
	t.Helper()
	p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{Name: osd(id), Number: number, Addr: addr, AuthClient: chatty{osd(id), crcOnly}}, at)
	t.Cleanup(p.Close)
	p.Handshake()
	must(t, p.Err())
	return p
}

// somewhere is an address at which nobody listens.
func somewhere(t *testing.T) wire.Addr {
	return wire.Addr{Type: wire.AddrMsgr2, AddrPort: msgrtest.ReservePort(t), Nonce: 2}
}

// What we know of a peer counts behind a hand-over what it counted before.
func TestASessionKeepsHowItsPeerIsKnownThroughHandOvers(t *testing.T) {
	nodetest.CheckLeaks(t)
	for _, handOvers := range []int{0, 1, 2} {
		t.Run("accepted, and proven", func(t *testing.T) {
			ctx := deadline(t)
			m, at := serveEcho(t, provingServer())
			y := somewhere(t)
			p := provenPeer(t, ctx, at, "9", 9, y)
			p.SendPayload(frame.TagClientIdent, p.ClientIdent(91, 5))
			p.ExpectServerIdent()
			must(t, p.Err())
			eventually(t, ctx, "the session", func() bool { return m.Lookup(y) != nil })
			for range handOvers {
				m = succeed(t, ctx, m, provingServer(), echoAll())
				defer end(t, m)
			}
			if c := m.Lookup(y); c == nil {
				t.Fatal("the only one who says that it is there is not found")
			}
			// A second name that is proven, and nobody is believed.
			other := provenPeer(t, ctx, at, "2", 2, y)
			other.SendPayload(frame.TagClientIdent, other.ClientIdent(21, 1))
			other.ExpectServerIdent()
			must(t, other.Err())
			eventually(t, ctx, "two sessions", func() bool { return len(m.Conns()) == 2 })
			if c := m.Lookup(y); c != nil {
				t.Errorf("%d hand-overs: %v is believed", handOvers, c.Info().PeerEntity)
			}
		})
		t.Run("dialled, by its name", func(t *testing.T) {
			ctx := deadline(t)
			m, at := serveEcho(t, provingServer())
			cfg := provingServer()
			cfg.Name.ID, cfg.Number = "2", 2
			cfg.Auth.Client = chatty{cfg.Name, crcOnly}
			_, y := serveEcho(t, cfg)
			c := connect(t, m, y, wire.OSD, control.WithEntity(osd("2")))
			must(t, c.WaitReady(ctx))
			for range handOvers {
				m = succeed(t, ctx, m, provingServer(), echoAll())
				defer end(t, m)
			}
			c = m.Lookup(y)
			if _, err := m.Connect(y, wire.MDS); !errors.Is(err, control.ErrWrongPeer) {
				t.Errorf("%d hand-overs: Connect to another type: %v", handOvers, err)
			}
			// Nobody else takes what was dialled, or gets a place beside it.
			liar := provenPeer(t, ctx, at, "9", 2, y)
			liar.SendPayload(frame.TagClientIdent, liar.ClientIdent(91, 6))
			liar.ExpectEnd()
			must(t, liar.Err())
			if again, err := m.Connect(y, wire.OSD); err != nil || c == nil || again != c {
				t.Errorf("%d hand-overs: Connect: %v", handOvers, err)
			}
		})
	}
}

// A peer refuses an attempt whose global_seq is not above that of the one before.
// The margin of a single hand-over would hide that the number was lost.
func TestGlobalSeqRisesThroughHandOvers(t *testing.T) {
	nodetest.CheckLeaks(t)
	ctx := deadline(t)
	nonce := uint32(9)
	cfg := serverConfig(uring.Auto, 1)
	cfg.Nonce = &nonce
	m, at := serveEcho(t, cfg)
	s := newStream(t, uring.Auto, wire.OSD, control.LosslessPeer(), at)
	s.progress(3)
	before := control.GlobalSeq(m)
	for generation := range 3 {
		m = succeed(t, ctx, m, cfg, echoAll())
		defer end(t, m)
		s.progress(3)
		now := control.GlobalSeq(m)
		if now <= before {
			t.Errorf("generation %d begins at %d, the one before was at %d", generation+2, now, before)
		}
		before = now
	}
	s.end()
}

func TestAConnectionWithOneAttemptHasOneAfterAHandOver(t *testing.T) {
	nodetest.CheckLeaks(t)
	for _, once := range []bool{false, true} {
		ctx := deadline(t)
		stateful := control.StatefulServer()
		peerConfig, cfg := serverConfig(uring.Auto, 1), serverConfig(uring.Auto, 1)
		peerConfig.Default, peerConfig.Policies = &stateful, nil
		peerConfig.Name.ID = "5"
		cfg.Timeouts.InitialBackoff, cfg.Timeouts.MaxBackoff = time.Hour, time.Hour
		peer, to := serveEcho(t, peerConfig)
		m, _ := serveEcho(t, cfg)
		opts := []control.ConnectOption{control.WithPolicy(control.LosslessClient())}
		if once {
			opts = append(opts, control.Once())
		}
		c := connect(t, m, to, wire.OSD, opts...)
		must(t, c.WaitReady(ctx))
		must(t, peer.Unbind())
		next := succeed(t, ctx, m, cfg)
		defer end(t, next)
		eventually(t, ctx, "the end of the only attempt", func() bool {
			list := next.Conns()
			if once {
				return len(list) == 0
			}
			return len(list) == 1 && list[0].State() == control.StateWait
		})
	}
}

// A session that stood still for a hand-over which came to nothing says in its
// SESSION_RECONNECT what it had received until then. A number of before would
// have the peer count anew, and what it sends next be taken for duplicates.
func TestAfterAFailedHandOverTheSessionResumesBehindWhatItReceived(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		inside, goOn := make(chan struct{}), make(chan struct{})
		s := stageFor(t, ctx, v, "LLC", withChain(&control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
			if m.TID == 103 {
				close(inside)
				<-goOn
			}
			return false
		}}))
		p, _ := s.serve()
		p.Ignore(frame.TagAck)
		for seq := uint64(1); seq <= 3; seq++ {
			p.SendMessage(frame.MessageHeader{Seq: seq, TID: 100 + seq}, nil, nil, nil)
		}
		<-inside
		// The core does not answer in time.
		a, b := unixPair(t)
		patience, end := context.WithCancel(ctx)
		defer end()
		fake, ended := make(chan error, 1), make(chan error, 1)
		go func() { fake <- control.BreakSuccession(patience, s.node.Messenger, b, control.StopSilent, nil) }()
		go func() { ended <- s.node.HandOver(patience, a) }()
		eventually(t, ctx, "a session that stands still", func() bool { return s.conn.State() == control.StateStandby })
		end()
		if err := <-ended; !errors.Is(err, control.ErrHandOver) {
			t.Errorf("hand-over: %v", err)
		}
		<-fake
		close(goOn)
		p.ExpectEnd()
		s.must(p)
		again := s.accept()
		if sr := again.ExpectReconnect(); sr.MsgSeq != 3 {
			t.Errorf("SESSION_RECONNECT says %d, received were 3: %v", sr.MsgSeq, again.Err())
		}
		again.SendPayload(frame.TagSessionReconnectOK, wire2.SessionReconnectOK{})
		again.SendMessage(frame.MessageHeader{Seq: 4, TID: 104}, nil, nil, nil)
		awaitTID(t, ctx, s.node, 104)
	})
}
