package dataplane

import (
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

// Matrix: SE-29
func TestFreeLearnsThatTheSocketOfALossySessionTookAMessage(t *testing.T) {
	c, got := newBed(t, nil).conn(OpenOptions{Lossy: true}), outcomes{}
	c.send(got.message(1))
	got.check(t, outcomes{1: OutcomeWritten})
}

func TestFreeTellsAcknowledgedFromDropped(t *testing.T) {
	c, got := newBed(t, nil).conn(OpenOptions{}), outcomes{}
	for tid := range uint64(3) {
		must(t, c.h.Send(got.message(tid+1)))
	}
	c.settle()
	got.check(t, outcomes{})
	c.arrive(c.peer.ack(2))
	got.check(t, outcomes{1: OutcomeAcknowledged, 2: OutcomeAcknowledged})
	c.delay()
	must(t, c.h.Send(got.message(4))) // never written
	c.h.ResetSession(true)
	c.settle()
	got.check(t, outcomes{1: OutcomeAcknowledged, 2: OutcomeAcknowledged, 3: OutcomeDropped, 4: OutcomeDropped})
}

// What the peer reports in a reconnect is an acknowledgement like any other.
func TestFreeLearnsOfAnAcknowledgementThatTheReconnectBrings(t *testing.T) {
	c, got := newBed(t, nil).conn(OpenOptions{}), outcomes{}
	must(t, c.h.Send(got.message(1)))
	c.send(got.message(2))
	c.h.Delay(false, nil)
	c.h.RequeueSentUpTo(1)
	c.settle()
	got.check(t, outcomes{1: OutcomeAcknowledged})
}

func TestFreeLearnsThatAClosedConnectionDroppedAMessage(t *testing.T) {
	for _, handed := range []bool{false, true} {
		c, got := newBed(t, nil).conn(OpenOptions{}), outcomes{}
		c.send(got.message(1))
		must(t, c.h.Send(got.message(2))) // in the inbox when the handler closes
		want := OutcomeDropped
		if handed {
			c.h.HandedOver()
			want = OutcomeHandedOver
		}
		c.closeHandler()
		got.check(t, outcomes{1: want, 2: want})
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

func TestATrackerLearnsThatAnotherProcessHasItsMessage(t *testing.T) {
	c, got := newBed(t, nil).conn(OpenOptions{}), outcomes{}
	c.delay()
	var f follower
	must(t, c.h.SendTracked(got.message(1), &f))
	c.h.HandedOver()
	c.closeHandler()
	f.check(t, OutcomeHandedOver)
}

func TestFreeLearnsThatAMessageWasWithdrawn(t *testing.T) {
	c, got := newBed(t, nil).conn(OpenOptions{}), outcomes{}
	c.delay()
	m := got.message(1)
	must(t, c.h.SendTracked(m, &follower{}))
	c.h.Do(func(*loop.Core) { c.h.Withdraw(m) })
	c.settle()
	got.check(t, outcomes{1: OutcomeDropped})
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
