package dataplane

import (
	"bytes"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// turn waits for a task of the core.
func turn(t testing.TB, c *loop.Core) {
	t.Helper()
	await(t, func(done func()) { must(t, c.Do(func(*loop.Core) { done() })) })
}

// A core leaves only when everything has left it: links and handlers are waited
// for, new ones are refused.
func TestARemovedCoreWaitsForWhatItHas(t *testing.T) {
	p := newPlane(t, loop.Config{Cores: 3, Driver: uring.Config{Backend: uring.Epoll}})
	la, lb := linkPair(t, p.Core(0), p.Core(1))
	gone := p.Core(0)
	h := NewHandler(p.Core(1), HandlerConfig{Owner: &recorder{}})
	await(t, func(done func()) { h.Move(gone, MoveCause{}, done) })
	removed := make(chan error, 1)
	go func() { removed <- p.RemoveCore(deadline(t), gone) }()
	for gone.State() != loop.CoreDraining {
		runtime.Gosched()
	}
	if gone.Healthy() {
		t.Error("a core that is being removed is healthy")
	}
	if st := stats(t, gone); st.State != "draining" {
		t.Errorf("state %s", st.State)
	}
	if _, err := gone.Dial(deadline(t), loopback, lb.LocalAddr(), uring.SocketOptions{}); !errors.Is(err, loop.ErrStopped) {
		t.Errorf("dialled from it: %v", err)
	}
	must(t, la.Write(deadline(t), []byte("hello")))
	must(t, lb.ReadFull(deadline(t), make([]byte, 5)))
	la.Close()
	turn(t, gone)
	select {
	case err := <-removed:
		t.Fatalf("gone with a handler: %v", err)
	default:
	}
	migrate(t, h, p.Core(2))
	must(t, <-removed)
	if gone.State() != loop.CoreStopped {
		t.Errorf("state %v", gone.State())
	}
	if p.Cores() != 2 || p.Core(0) != nil {
		t.Error("the core is still there")
	}
}

func TestStatsOfAHandlerFailAtOnceInItsDispatch(t *testing.T) {
	p := newPlane(t, loop.Config{Cores: 2, Driver: uring.Config{Backend: uring.Epoll}})
	got := make(chan error, 1)
	own := &recorder{onMessage: func(h *Handler, _ *Message) { _, err := h.Stats(); got <- err }}
	_, peer := couple(t, p.Core(0), p.Core(1), own, &recorder{}, OpenOptions{})
	must(t, peer.Send(&Message{}))
	select {
	case err := <-got:
		if !errors.Is(err, loop.ErrOnCore) {
			t.Errorf("stats: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the dispatch waits for itself")
	}
}

// What a link has taken and what it has queued is the handler's, in order.
// Matrix: HS-16, RP-01
func TestAHandlerTakesOverWhatItsLinkHasReadAndQueued(t *testing.T) {
	b := newBed(t, nil)
	l, f := b.link()
	peer := newPeer(t, wireModes[1])
	list := messagesOf([][3]int{{10, 0, 0}, {700, 5, 0}})
	f.Arrive(append([]byte("handshake"), peer.stream(list[:1])...))
	b.settle()
	must(t, b.During(func() error { return l.ReadFull(deadline(t), make([]byte, 9)) }))
	more := peer.message(2, 0, list[1])
	f.Arrive(more[:50]) // behind what the link has taken
	b.settle()
	f.Park = true
	must(t, b.During(func() error { // leaves a write in flight
		l.Queue([]byte("welcome"))
		return l.Await(deadline(t), func(unread []byte) bool { return len(unread) > 50 })
	}))
	l.Queue([]byte(", at last"))
	own := &recorder{}
	h := NewHandler(b.c, HandlerConfig{Owner: own})
	h.Open(l, OpenOptions{Lossy: true, Codec: peer.ours()})
	must(t, h.Send(&Message{TID: 1, Front: []byte("text")}))
	f.Arrive(more[50:])
	b.settle()
	for range 3 {
		if f.InFlight != nil {
			f.Finish(0)
			b.settle()
		}
	}
	checkReceived(t, own.list(), list)
	hello := []byte("welcome, at last")
	if !bytes.HasPrefix(f.Sent, hello) {
		t.Fatalf("sent %q first", f.Sent[:min(len(f.Sent), 20)])
	}
	if got := peer.decode(f.Sent[len(hello):]); len(got) != 1 || string(got[0].seg[1]) != "text" {
		t.Errorf("behind it %d frames", len(got))
	}
	if own.fault() != nil {
		t.Error(own.fault())
	}
}

// Matrix: IO-07, INV-07
func TestCloseWithEverythingInFlightLeavesNothing(t *testing.T) {
	overBackends(t, func(t *testing.T, cfg loop.Config) {
		cfg.Cores = 2
		newPlane(t, cfg).Close() // skips if refused
		drivertest.CheckLeaks(t, func() {
			p, err := loop.New(cfg)
			must(t, err)
			oa, ob := &recorder{}, &recorder{discard: true}
			var kept atomic.Int64
			ob.onMessage = func(*Handler, *Message) {
				if kept.Add(1) == 50 {
					ob.told()
				}
			}
			ts := &loop.Throttles{Bytes: loop.NewThrottle(1 << 20)}
			ha, _ := couple(t, p.Core(0), p.Core(1), oa, ob, OpenOptions{Throttles: ts, IdleAfter: time.Hour, KeepaliveEvery: time.Hour})
			_, err = p.Core(0).Listen(loopback, uring.ListenOptions{}, func(*loop.Link) {})
			must(t, err)
			linkPair(t, p.Core(1), p.Core(0))
			for range 200 {
				must(t, ha.Send(&Message{Front: make([]byte, 100), Data: make([]byte, 100000)}))
			}
			until(t, ob, "some of the messages", func() bool { return kept.Load() >= 50 })
			p.Close()
			p.Close() // once more does nothing
			// The core that ends later may see the other's end as that of the peer.
			if oa.fault() == nil || ob.fault() == nil || !errors.Is(oa.fault(), loop.ErrStopped) && !errors.Is(ob.fault(), loop.ErrStopped) {
				t.Errorf("faults %v and %v", oa.fault(), ob.fault())
			}
			if ts.Bytes.Used() != 0 {
				t.Errorf("%d bytes of the throttle are held", ts.Bytes.Used())
			}
		})
	})
}

func TestMessagesOutliveThePlane(t *testing.T) {
	overBackends(t, func(t *testing.T, cfg loop.Config) {
		cfg.Cores = 2
		newPlane(t, cfg).Close()
		drivertest.CheckLeaks(t, func() {
			p, err := loop.New(cfg)
			must(t, err)
			own := &recorder{discard: true}
			kept := make(chan *Message, 10)
			own.onMessage = func(_ *Handler, m *Message) { m.Retain(); kept <- m }
			ts := &loop.Throttles{Frames: loop.NewThrottle(100)}
			ha, _ := couple(t, p.Core(0), p.Core(1), &recorder{}, own, OpenOptions{Throttles: ts})
			for i := range 10 {
				must(t, ha.Send(&Message{TID: uint64(i), Front: payload(i, 500), Data: payload(i, i*30000)}))
			}
			var list []*Message
			for range 10 {
				list = append(list, <-kept)
			}
			p.Close()
			for i, m := range list {
				if m.TID != uint64(i) || !bytes.Equal(m.Front, payload(i, 500)) || !bytes.Equal(m.Data, payload(i, i*30000)) {
					t.Errorf("message %d has changed", i)
				}
				m.Release()
			}
			if ts.Frames.Used() != 0 || p.Core(1).Snapshot().PoolInUse != 0 {
				t.Errorf("%d messages, %d bytes are held", ts.Frames.Used(), p.Core(1).Snapshot().PoolInUse)
			}
		})
	})
}

// What is closed on a core that is gone is closed all the same.
func TestAHandlerOfAStoppedCoreCloses(t *testing.T) {
	p := newPlane(t, loop.Config{Cores: 1, Driver: uring.Config{Backend: uring.Epoll}})
	h := NewHandler(p.Core(0), HandlerConfig{Owner: &recorder{}})
	freed := make(chan struct{}, 2)
	m := &Message{Free: func(*Message) { freed <- struct{}{} }}
	must(t, h.Send(m))
	p.Close()
	must(t, h.Send(&Message{Free: func(*Message) { freed <- struct{}{} }}))
	await(t, h.Close)
	for range cap(freed) {
		select {
		case <-freed:
		case <-time.After(patience):
			t.Fatal("a message is not released")
		}
	}
}

// Matrix: RP-14, RL-08, IO-08
func TestACompletionOfAnEarlierSocketReachesNobody(t *testing.T) {
	c := newBed(t, nil).conn(OpenOptions{})
	old := c.sock.User
	c.delay()
	c.open(OpenOptions{})
	if uint32(c.sock.User) != uint32(old) || c.sock.User == old {
		t.Fatal("the slot was not used again")
	}
	c.d.Queue = append(c.d.Queue, uring.Completion{Kind: uring.KindSend, User: old, Res: -5})
	c.settle()
	if c.own.fault() != nil || c.c.Counts().Stray != 1 {
		t.Errorf("fault %v, %d stray", c.own.fault(), c.c.Counts().Stray)
	}
}

// exchange sends so many messages of all sizes both ways, and waits until all have
// arrived unchanged and are acknowledged. during, if not nil, runs until sent says twice that
// a side has sent all.
func exchange(t *testing.T, count int, ha, hb *Handler, oa, ob *recorder, during func(sent <-chan struct{})) {
	t.Helper()
	var sizes [][3]int
	for i := range count {
		sizes = append(sizes, [3]int{i * 37 % 5000, i % 3 * 50, (i % 10 / 9) * i * 3001 % (1 << 20)})
	}
	lists := [2][]*Message{messagesOf(sizes), messagesOf(sizes)}
	sent := make(chan struct{}, 2)
	for i, h := range []*Handler{ha, hb} {
		go func() {
			defer func() { sent <- struct{}{} }()
			for n, m := range lists[i] {
				if err := h.Send(m); err != nil {
					t.Error(err)
				}
				if n%10 == 0 {
					_, _ = h.Stats() // a pause, in which something else happens
				}
			}
		}()
	}
	if during != nil {
		during(sent)
	}
	for i, own := range []*recorder{ob, oa} {
		until(t, own, "all messages", func() bool { return len(own.list()) == len(sizes) })
		checkReceived(t, own.list(), lists[i])
	}
	for _, h := range []*Handler{ha, hb} {
		until(t, oa, "the acks", func() bool { n, _ := h.QueuedOut(); _, _ = h.Stats(); oa.told(); return n == 0 })
	}
}

// Both ends are ours, over every engine and in both protocols: many messages of all sizes both ways, acknowledged.
// Also while the connection changes cores, again and again, with its sockets in the middle of everything: no byte is
// lost, doubled or reordered, data begins on a page, and neither end sees a fault.
// Matrix: FR-25, V1-06
func TestTwoHandlersExchangeEverythingWhereverTheyAre(t *testing.T) {
	overBackends(t, func(t *testing.T, cfg loop.Config) {
		cfg.Cores, cfg.Spin = 3, 20*time.Microsecond
		for _, mode := range slices.Concat([]wireMode{plain2}, msgr1Modes) {
			for _, kind := range []string{"", "lossy", "moves", "moves, lossy"} {
				t.Run(mode.name+" "+kind, func(t *testing.T) {
					exchangeOn(t, newPlane(t, cfg), mode, strings.HasSuffix(kind, "lossy"), strings.HasPrefix(kind, "moves"))
				})
			}
		}
	})
}

func exchangeOn(t *testing.T, p *loop.Plane, mode wireMode, lossy, moves bool) {
	oa, ob := &recorder{}, &recorder{}
	ha, hb := NewHandler(p.Core(0), HandlerConfig{Owner: oa}), NewHandler(p.Core(1), HandlerConfig{Owner: ob})
	checkAligned(t, oa, pageSize)
	checkAligned(t, ob, pageSize)
	joinMode(t, ha, hb, OpenOptions{
		Lossy: lossy, AlignFrom: pageSize, KeepaliveEvery: time.Millisecond, IdleAfter: time.Hour,
		Throttles: &loop.Throttles{Frames: loop.NewThrottle(20), Bytes: loop.NewThrottle(1 << 20), Shared: loop.NewThrottle(1 << 20)},
	}, mode)
	exchange(t, 150, ha, hb, oa, ob, func(sent <-chan struct{}) {
		for i, left := 0, 2; moves && left > 0; i++ {
			select {
			case <-sent:
				left--
			default:
			}
			migrate(t, ha, p.Core(i%3))
			migrate(t, hb, p.Core((i/2+1)%3))
		}
	})
	var in, out uint64
	live := int64(0)
	for _, c := range p.All() {
		st := stats(t, c)
		in, out, live = in+st.MessagesIn, out+st.MessagesOut, live+st.Handlers
		if st.Handlers != st.Sockets {
			t.Errorf("core %d: %d sockets, %d handlers", c.ID(), st.Sockets, st.Handlers)
		}
	}
	if in != 300 || out != 300 || live != 2 {
		t.Errorf("%d messages came, %d were sent, %d handlers have a socket", in, out, live)
	}
	for _, r := range []*recorder{oa, ob} {
		if log := r.log(); r.fault() != nil || (len(log) > 0) != moves || moves && !slices.ContainsFunc(log, func(s string) bool { return strings.HasPrefix(s, "moved from") }) {
			t.Errorf("fault %v, events %v", r.fault(), log)
		}
	}
}
