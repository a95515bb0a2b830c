package dataplane

import (
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// asked sends n keepalives, a second apart, and returns their stamps.
func (c *conn) asked(n int) (list []Timestamp) {
	for range n {
		c.after(time.Second)
		for _, f := range c.take() {
			if f.tag == frame.TagKeepalive2 {
				at := timestampOf([8]byte(f.seg[0]))
				list = append(list, at)
			}
		}
	}
	if len(list) != n {
		c.t.Fatalf("%d keepalives, want %d", len(list), n)
	}
	return list
}

// answered has the peer send an ack and tells whether it was believed.
func (c *conn) answered(at Timestamp) bool {
	c.t.Helper()
	believed, unasked := len(c.own.acks), c.h.stats.unaskedAcks
	c.arrive(c.peer.stamped(frame.TagKeepalive2Ack, at))
	if c.own.fault() != nil {
		c.t.Fatal(c.own.fault())
	}
	yes := len(c.own.acks) == believed+1
	if yes && (c.own.acks[believed] != at || c.h.seen.Acked != at) {
		c.t.Fatalf("stamp %v: %v, seen %v", at, c.own.acks[believed], c.h.seen.Acked)
	}
	if n := c.h.statistics(c.c).UnaskedAcks - unasked; yes != (n == 0) || n > 1 {
		c.t.Fatalf("stamp %v: believed %v, counted %d as unasked", at, yes, n)
	}
	return yes
}

var everySecond = OpenOptions{KeepaliveEvery: time.Second}

// Matrix: OB-02, HI-19
func TestAnAckThatNobodyAskedForIsIgnoredAndCounted(t *testing.T) {
	c := newBed(t, nil).conn(everySecond)
	in2106 := Timestamp{1<<32 - 1, 5}
	if c.answered(in2106) || c.answered(Timestamp{}) {
		t.Error("believed before a keepalive was sent")
	}
	sent := c.asked(1)[0]
	for _, at := range []Timestamp{in2106, {}, {sent.Sec + 1, sent.Nsec}, {sent.Sec, sent.Nsec + 1}, {sent.Sec - 1, sent.Nsec}} {
		if c.answered(at) {
			t.Errorf("stamp %v believed, %v was sent", at, sent)
		}
	}
	if !c.h.seen.Acked.Time().IsZero() {
		t.Errorf("last answer at %v", c.h.seen.Acked.Time())
	}
	if !c.answered(sent) || c.answered(sent) {
		t.Error("the answer does not count, or counts twice")
	}
}

func TestAPeerMayAnswerOnlyTheLatestKeepalive(t *testing.T) {
	for n := 1; n <= 3*keptStamps; n++ {
		c := newBed(t, nil).conn(everySecond)
		sent := c.asked(n)
		if !c.answered(sent[n-1]) {
			t.Errorf("answer to the last of %d ignored", n)
		}
		for _, at := range sent {
			if c.answered(at) {
				t.Errorf("late answer to %v of %d believed", at, n)
			}
		}
		if !c.answered(c.asked(1)[0]) {
			t.Error("no answer counts any more")
		}
		c.close()
	}
}

// Matrix: KA-02
func TestAnAnswerToAnOlderKeepaliveCounts(t *testing.T) {
	c := newBed(t, nil).conn(everySecond)
	sent := c.asked(4)
	if !c.answered(sent[1]) || c.answered(sent[0]) || !c.answered(sent[2]) || !c.answered(sent[3]) {
		t.Error("an answer in its order was ignored, or one behind its order believed")
	}
}

// A peer far behind still gets something believed now and then, and the memory
// for what is out is fixed.
func TestAPeerFarBehindIsBelieved(t *testing.T) {
	const behind = 3 * keptStamps
	c := newBed(t, nil).conn(OpenOptions{KeepaliveEvery: time.Second, KeepaliveTimeout: 30 * time.Second})
	sent := c.asked(behind)
	if !c.answered(sent[0]) {
		t.Error("answer to the oldest ignored")
	}
	for i := 1; i < 100; i++ {
		sent = append(sent, c.asked(1)...)
		c.answered(sent[i])
	}
	if c.own.fault() != nil || len(c.h.unanswered) > keptStamps {
		t.Errorf("fault %v, %d stamps", c.own.fault(), len(c.h.unanswered))
	}
}

func TestAnAnswerToAKeepaliveOfAnEarlierSocketIsIgnored(t *testing.T) {
	c := newBed(t, nil).conn(everySecond)
	old := c.asked(1)[0]
	c.delay()
	c.open(everySecond, frame.Rev1, false)
	if c.answered(old) {
		t.Error("believed on another socket")
	}
	if !c.answered(c.asked(1)[0]) {
		t.Error("no answer counts on the new socket")
	}
}

func TestKeepalivesOfTheSameMomentAreAnsweredOneByOne(t *testing.T) {
	var s stamps
	at := Timestamp{1, 2}
	s.add(at)
	s.add(at)
	for nth, want := range []bool{true, true, false} {
		if s.answer(at) != want {
			t.Errorf("answer %d of two keepalives with one stamp: %v", nth+1, !want)
		}
	}
}
