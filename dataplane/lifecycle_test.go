package dataplane

import (
	"bytes"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/planetest"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// turn waits for a task of the core.
func turn(t testing.TB, c *loop.Core) {
	t.Helper()
	ran := make(chan struct{})
	must(t, c.Do(func(*loop.Core) { close(ran) }))
	<-ran
}

// A core leaves only when everything has left it: links and handlers are waited
// for, new ones are refused.
func TestARemovedCoreWaitsForWhatItHas(t *testing.T) {
	p := newPlane(t, loop.Config{Cores: 3, Driver: uring.Config{Backend: uring.Epoll}})
	la, lb := linkPair(t, p.Core(0), p.Core(1))
	h := NewHandler(p.Core(0), HandlerConfig{Owner: &recorder{}})
	gone := p.Core(0)
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
	planetest.CheckCores(t, p, 1, 2)
}

func TestLoadCountsTheHandlersOfACore(t *testing.T) {
	p := newPlane(t, loop.Config{Cores: 2, Driver: uring.Config{Backend: uring.Epoll}})
	loads := func() [2]int { return [2]int{p.Core(0).Load(), p.Core(1).Load()} }
	expect := func(when string, want [2]int) {
		t.Helper()
		if got := loads(); got != want {
			t.Errorf("%s: loads %v, want %v", when, got, want)
		}
	}
	a := NewHandler(p.Core(0), HandlerConfig{Owner: &recorder{}})
	b := NewHandler(p.Core(0), HandlerConfig{Owner: &recorder{}})
	expect("two made", [2]int{2, 0})
	a.Delay(false, nil)
	a.Move(p.Core(1), MoveCause{}, nil)
	over := make(chan struct{})
	a.Close(func() { close(over) })
	b.Move(p.Core(0), MoveCause{}, nil)
	<-over
	turn(t, p.Core(0))
	expect("one moved and closed", [2]int{1, 0})
}

func TestStatsOfAHandlerDoNotHangOnACoreThatStalls(t *testing.T) {
	p := newPlane(t, loop.Config{Cores: 1, StallAfter: 10 * time.Millisecond, Driver: uring.Config{Backend: uring.Epoll}})
	h := NewHandler(p.Core(0), HandlerConfig{Owner: &recorder{}})
	end := make(chan struct{})
	must(t, p.Core(0).Do(func(*loop.Core) { <-end }))
	defer close(end)
	for p.Core(0).Healthy() {
		runtime.Gosched()
	}
	if _, err := h.Stats(); !errors.Is(err, loop.ErrStalled) {
		t.Errorf("stats of a handler on it: %v", err)
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
