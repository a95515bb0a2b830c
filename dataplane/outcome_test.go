package dataplane

import (
	"maps"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

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
