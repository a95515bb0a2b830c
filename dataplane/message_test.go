package dataplane

import (
	"bytes"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// panics says whether f does.
func panics(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}

func TestFreeMayUseTheMessageAgain(t *testing.T) {
	var pool []*Message
	m := &Message{}
	m.Free = func(m *Message) { pool = append(pool, m) }
	for range 3 {
		m.Retain()
		m.Release()
		m.Release()
		if len(pool) != 1 {
			t.Fatal("not freed")
		}
		m, pool = pool[0], nil
	}
}

func TestReleasingOnceTooOftenPanics(t *testing.T) {
	m := NewMessage(1, nil, nil)
	m.Release()
	if !panics(m.Release) {
		t.Error("nobody notices")
	}
}

func TestAMessageIsValidOnlyDuringItsDispatch(t *testing.T) {
	c := newBed(t, nil).conn(OpenOptions{})
	payload := bytes.Repeat([]byte{0x5a}, 64)
	var seen []byte
	c.own.onMessage = func(_ *Handler, m *Message) {
		if !bytes.Equal(m.Front, payload) {
			t.Error("payload differs during the dispatch")
		}
		seen = m.Front
	}
	c.arrive(c.peer.message(1, 0, &Message{Front: payload}))
	if invariants.Enabled && bytes.Contains(seen, []byte{0x5a}) {
		t.Error("the payload survives its dispatch unpoisoned")
	}
}

func TestRetainMovesASmallPayloadOutOfTheReceiveBuffer(t *testing.T) {
	c := newBed(t, nil).conn(OpenOptions{})
	var kept *Message
	front, data := bytes.Repeat([]byte{1}, 300), bytes.Repeat([]byte{2}, 700)
	c.own.onMessage = func(_ *Handler, m *Message) {
		before := &m.Front[0]
		m.Retain()
		if &m.Front[0] == before {
			t.Error("a retained payload stays in the receive buffer")
		}
		m.Retain() // a second one moves nothing
		m.Release()
		kept = m
	}
	c.arrive(c.peer.message(1, 0, &Message{TID: 9, Front: front, Data: data}))
	c.own.onMessage = nil
	for seq := uint64(2); seq < 50; seq++ {
		c.arrive(c.peer.message(seq, 0, &Message{Front: bytes.Repeat([]byte{3}, 1000)}))
	}
	if !bytes.Equal(kept.Front, front) || !bytes.Equal(kept.Data, data) || kept.Middle != nil || kept.TID != 9 {
		t.Error("what was retained has changed")
	}
	used := c.c.Snapshot().PoolInUse
	kept.Release()
	c.settle()
	if c.c.Snapshot().PoolInUse >= used {
		t.Error("the buffer of a released message did not come back")
	}
}

// Matrix: XC-13
func TestReceivedMessagesReturnToTheirCoreFromAnyGoroutine(t *testing.T) {
	overPlanes(t, 2, func(t *testing.T, p *loop.Plane) {
		const messages = 500
		ob := &recorder{discard: true}
		var releasing sync.WaitGroup
		releasing.Add(messages)
		kept := make(chan *Message, messages)
		ob.onMessage = func(_ *Handler, m *Message) { m.Retain(); kept <- m }
		ha, _ := couple(t, p.Core(0), p.Core(1), &recorder{}, ob, OpenOptions{})
		for range 4 {
			go func() {
				for m := range kept {
					if len(m.Front) != 700 || m.Front[0] != byte(m.TID) || m.Front[699] != byte(m.TID) {
						t.Error("a kept payload has changed")
					}
					m.Release()
					releasing.Done()
				}
			}()
		}
		for i := range messages {
			must(t, ha.Send(&Message{TID: uint64(i), Front: bytes.Repeat([]byte{byte(i)}, 700)}))
		}
		releasing.Wait()
		close(kept)
		// The core takes them up in its next turns.
		for i := 0; ; i++ {
			if st := stats(t, p.Core(1)); st.PoolInUse == 0 || i > 1000 {
				if st.PoolInUse != 0 {
					t.Errorf("%d bytes are still lent", st.PoolInUse)
				}
				break
			}
		}
	})
}

func TestAMessageIsReleasedElsewhereWhileItsCoreOpensAConnection(t *testing.T) {
	b := newBed(t, nil)
	c := b.conn(OpenOptions{})
	var kept *Message
	c.own.onMessage = func(_ *Handler, m *Message) { m.Retain(); kept = m }
	c.arrive(c.peer.message(1, 0, &Message{Type: 5, Front: []byte("kept")}))
	var releasing sync.WaitGroup
	// With the race detector: nothing orders the two.
	releasing.Go(kept.Release)
	b.conn(OpenOptions{})
	releasing.Wait()
	b.settle()
	if n := b.c.Snapshot().PoolInUse; n != 0 {
		t.Errorf("%d bytes are still lent", n)
	}
}

func TestConcurrentReleasesFreeOnce(t *testing.T) {
	for range 200 {
		var freed atomic.Int32
		m := &Message{Free: func(*Message) { freed.Add(1) }}
		const holders = 8
		for range holders {
			m.Retain()
		}
		var all sync.WaitGroup
		for range holders + 1 {
			all.Go(m.Release)
		}
		all.Wait()
		if freed.Load() != 1 {
			t.Fatalf("freed %d times", freed.Load())
		}
	}
}

// The ack that a message carries may run user code that closes the connection.
// The message is then neither dispatched nor acknowledged: never just one of both.
func TestAMessageIsAcknowledgedIfAndOnlyIfItIsDispatched(t *testing.T) {
	c := newBed(t, nil).conn(OpenOptions{})
	sent := NewMessage(1, nil, nil)
	sent.Free = func(*Message) { c.h.Refuse() }
	c.send(sent)
	c.arrive(c.peer.message(1, 1, &Message{TID: 7}))
	dispatched, acknowledged := len(c.own.messages) > 0, c.h.inSeq == 1
	if dispatched != acknowledged || dispatched {
		t.Errorf("dispatched %v, acknowledged %v", dispatched, acknowledged)
	}
}

func TestAMessageThatNoWriteCarriesIsRefusedBySend(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		return // there are no such slices
	}
	// Address space only: nobody looks at the bytes.
	huge, err := unix.Mmap(-1, 0, int(uint64(math.MaxUint32)+1), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	must(t, err)
	defer func() { _ = unix.Munmap(huge) }()
	h := NewHandler(&loop.Core{}, HandlerConfig{})
	for _, m := range []*Message{{Data: huge}, {Data: huge[:MaxMessage+1]}, {Front: huge[:1], Data: huge[:MaxMessage]}} {
		if err := h.Send(m); !errors.Is(err, ErrTooLarge) {
			t.Errorf("got %v", err)
		}
	}
	charged(t, h, 0, 0)
	if tooLarge(&Message{Data: huge[:MaxMessage]}) {
		t.Error("the largest message is refused")
	}
}

// outcomes has Free note what became of each message.
type outcomes map[uint64]Outcome

func (o outcomes) message(tid uint64) *Message {
	return &Message{TID: tid, Free: func(m *Message) { o[m.TID] = m.Outcome() }}
}

func (o outcomes) check(t *testing.T, want outcomes) {
	t.Helper()
	if len(o) != len(want) {
		t.Errorf("freed %v, want %v", o, want)
	}
	for tid, w := range want {
		if o[tid] != w {
			t.Errorf("message %d: %v, want %v", tid, o[tid], w)
		}
	}
}

// follower notes that its message has left the queue, and how.
type follower struct{ left []Outcome }

func (*follower) Taken()           {}
func (f *follower) Left(o Outcome) { f.left = append(f.left, o) }

func (f *follower) check(t *testing.T, want ...Outcome) {
	t.Helper()
	if !slices.Equal(f.left, want) {
		t.Errorf("the tracker heard %v, want %v", f.left, want)
	}
}

// Messages 1 and 2 are sent at once, 3 on a socket that is gone; 4 has a Tracker, and is sent like 3.
// Matrix: SE-29
func TestFreeAndTrackersLearnWhatBecomesOfAMessage(t *testing.T) {
	const written, acked, dropped, handed = OutcomeWritten, OutcomeAcknowledged, OutcomeDropped, OutcomeHandedOver
	for _, one := range []struct {
		name  string
		lossy bool
		do    func(c *conn, tracked *Message)
		freed outcomes
		left  []Outcome // as the Tracker hears it
	}{
		{"the socket of a lossy session takes them", true, nil, outcomes{1: written, 2: written}, nil},
		{"nothing has become of them", false, nil, outcomes{}, nil},
		{"an ack on another socket", false, func(c *conn, _ *Message) {
			c.open(OpenOptions{})
			c.arrive(c.peer.ack(1))
		}, outcomes{1: acked}, []Outcome{written}},
		{"what a reconnect brings is an ack", false, func(c *conn, _ *Message) { c.h.RequeueSentUpTo(1) },
			outcomes{1: acked}, nil},
		{"a full reset, which an unwritten message with a Tracker outlives", false, func(c *conn,
			_ *Message) {
			c.h.ResetSession(true)
		},
			outcomes{1: dropped, 2: dropped, 3: dropped}, nil},
		{"the end", false, func(c *conn, _ *Message) { c.h.Close(nil) }, outcomes{1: dropped, 2: dropped, 3: dropped,
			4: dropped}, []Outcome{dropped}},
		{"a hand-over", false, func(c *conn, _ *Message) { c.h.HandedOver(); c.h.Close(nil) },
			outcomes{1: handed, 2: handed, 3: handed, 4: handed}, []Outcome{handed}},
		{"a withdrawal", false, func(c *conn, m *Message) { c.h.Do(func(*loop.Core) { c.h.Withdraw(m) }) },
			outcomes{4: dropped}, []Outcome{dropped}},
	} {
		c, got, f := newBed(t, nil).conn(OpenOptions{Lossy: one.lossy}), outcomes{}, follower{}
		must(t, c.h.Send(got.message(1)))
		c.send(got.message(2))
		c.delay()
		tracked := got.message(4)
		c.send(got.message(3))
		must(t, c.h.SendTracked(tracked, &f)) // in the inbox
		if one.do != nil {
			one.do(c, tracked)
		}
		c.settle()
		if !maps.Equal(got, one.freed) || !slices.Equal(f.left, one.left) {
			t.Errorf("%s: freed %v, want %v; the Tracker heard %v, want %v", one.name, got, one.freed, f.left, one.left)
		}
	}
}

// A full reset drops a message that was written, though the new session could replay it:
// the peer may have it.
func TestATrackedMessageOutlivesAResetUnlessItWasWritten(t *testing.T) {
	c, got := newBed(t, nil).conn(OpenOptions{}), outcomes{}
	var written, waits, last follower
	must(t, c.h.SendTracked(got.message(1), &written))
	c.settle()
	written.check(t, OutcomeWritten)
	c.h.Delay(false, nil)
	c.h.RequeueSent()
	must(t, c.h.SendTracked(got.message(2), &waits))
	c.send(got.message(3))
	must(t, c.h.SendTracked(got.message(4), &last)) // in the inbox when the session ends
	c.h.ResetSession(true)
	c.settle()
	got.check(t, outcomes{1: OutcomeDropped, 3: OutcomeDropped})
	waits.check(t)
	last.check(t)
	if held, _ := c.h.QueuedOut(); held != 2 || c.h.queue.n != 2 || c.h.queue.peek().TID != 2 {
		t.Errorf("%d messages are held, %d queued, want 2 with the older one first", held, c.h.queue.n)
	}
	c.closeHandler()
	waits.check(t, OutcomeDropped)
	last.check(t, OutcomeDropped)
}

func TestAMessageThatIsSentAgainHasNoOutcomeMeanwhile(t *testing.T) {
	c := newBed(t, nil).conn(OpenOptions{Lossy: true})
	m := NewMessage(1, nil, nil)
	m.Retain()
	c.send(m)
	if m.Outcome() != OutcomeWritten {
		t.Errorf("%v", m.Outcome())
	}
	c.delay()
	c.send(m)
	if m.Outcome() != OutcomeNone {
		t.Errorf("queued again: %v", m.Outcome())
	}
}
