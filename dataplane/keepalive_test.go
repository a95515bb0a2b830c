package dataplane

import (
	"errors"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// answerAll answers every keepalive that the connection has sent and returns
// their number.
func (c *conn) answerAll() (n int) {
	for _, f := range c.take() {
		if f.tag == frame.TagKeepalive2 {
			n++
			c.sock.Arrive(c.peer.frame(frame.TagKeepalive2Ack, f.seg[0][:8]))
		}
	}
	c.settle()
	return n
}

// Matrix: KA-03, HI-18
func TestTrafficEitherWayKeepsAConnectionAlive(t *testing.T) {
	for _, out := range []bool{false, true} {
		c := newBed(t, nil).conn(OpenOptions{IdleAfter: time.Second, Lossy: true})
		for seq := uint64(1); seq <= 10; seq++ {
			if out {
				must(t, c.h.Send(&Message{}))
			} else {
				c.sock.Arrive(c.peer.message(seq, 0, &Message{}))
			}
			c.settle()
			c.after(700 * time.Millisecond)
		}
		c.alive("after traffic, out: ", out)
		c.after(300 * time.Millisecond)
		if !errors.Is(c.own.fault(), errIdle) {
			t.Fatalf("out=%v: %v", out, c.own.fault())
		}
	}
}

// Matrix: KA-03
func TestKeepalivesKeepAnIdleConnectionAlive(t *testing.T) {
	c := newBed(t, nil).conn(OpenOptions{IdleAfter: time.Second, KeepaliveEvery: 400 * time.Millisecond})
	pings := 0
	for range 25 {
		c.after(100 * time.Millisecond)
		pings += c.answerAll()
	}
	if c.own.fault() != nil || pings != 6 {
		t.Fatalf("%d keepalives in 2.5 s, fault %v", pings, c.own.fault())
	}
	if len(c.own.acks) != pings || c.h.seen.Acked != c.own.acks[pings-1] {
		t.Errorf("%d answers, last %v", len(c.own.acks), c.h.seen.Acked)
	}
	if got := c.h.seen.Acked.Time(); !got.Equal(time.Unix(1000, 5).Add(2400 * time.Millisecond)) {
		t.Errorf("the last answer is to the keepalive of %v", got)
	}
}

// Matrix: KA-02, KA-06, HI-18
func TestAnUnansweredKeepaliveEndsTheConnectionAfterItsTimeout(t *testing.T) {
	for _, timeout := range []time.Duration{300 * time.Millisecond, time.Second, 3500 * time.Millisecond} {
		c := newBed(t, nil).conn(OpenOptions{KeepaliveEvery: time.Second, KeepaliveTimeout: timeout})
		for range 3 { // answered
			c.after(time.Second)
			if c.answerAll() != 1 {
				t.Fatal("no keepalive")
			}
		}
		c.after(time.Second) // sent, and from here on unanswered
		for waited := time.Duration(0); waited < timeout; waited += 50 * time.Millisecond {
			c.alive(waited, " of a timeout of ", timeout)
			c.after(50 * time.Millisecond)
		}
		c.after(time.Millisecond)
		if !errors.Is(c.own.fault(), errKeepaliveTimeout) {
			t.Fatalf("timeout %v: %v", timeout, c.own.fault())
		}
	}
}

// Matrix: TH-07
func TestAStoppedConnectionIsNotIdle(t *testing.T) {
	for i := range 4 {
		paused, opt, shortly := i%2 > 0, OpenOptions{Lossy: true, IdleAfter: time.Second}, 930*time.Millisecond
		if i < 2 {
			opt.KeepaliveEvery, opt.KeepaliveTimeout, shortly = 500*time.Millisecond, 500*time.Millisecond, 430*time.Millisecond
		}
		opt.Throttles = &loop.Throttles{Frames: loop.NewThrottle(1)}
		c := newBed(t, nil).conn(opt)
		c.sock.Park = true // nothing that we send counts as life
		kept := c.keep()
		if paused {
			c.h.Pause()
		} else {
			c.sock.Arrive(c.peer.message(1, 0, &Message{}), c.peer.message(2, 0, &Message{}))
		}
		for range 100 {
			c.after(100 * time.Millisecond)
		}
		c.alive(i, ": while we did not read")
		c.after(shortly) // before its timer fires
		if paused {
			c.h.Resume()
		} else {
			(*kept)[0].Release()
		}
		c.settle()
		c.after(300 * time.Millisecond)
		c.alive(i, ": right after we read again")
		c.after(time.Second)
		if c.own.fault() == nil {
			t.Fatal("never idle again")
		}
	}
}

// Matrix: RP-12
func TestANewConnectionStartsItsTimersAnew(t *testing.T) {
	c := newBed(t, nil).conn(OpenOptions{KeepaliveEvery: time.Second, KeepaliveTimeout: time.Second})
	c.after(1100 * time.Millisecond)
	c.delay()
	c.after(10 * time.Second)
	if _, armed := c.By.Deadline(); c.own.fault() != nil || armed {
		t.Fatalf("a closed connection: fault %v, a timer is armed: %v", c.own.fault(), armed)
	}
	c.open(OpenOptions{KeepaliveEvery: time.Second, KeepaliveTimeout: time.Second})
	c.answerAll()
	c.after(900 * time.Millisecond)
	c.alive("behind the connection before")
}

// A process that stood still finds its timers due: each fires once. Without a limit there is none.
// Matrix: KA-10, IO-19
func TestAPauseOfTheProcessMakesNoStorm(t *testing.T) {
	for every, want := range map[time.Duration]int{time.Second: 1, 0: 0} {
		c := newBed(t, nil).conn(OpenOptions{IdleAfter: -1, KeepaliveEvery: every})
		if _, armed := c.By.Deadline(); armed != (want > 0) {
			t.Errorf("every %v: a timer is armed: %v", every, armed)
		}
		c.after(time.Hour)
		for range 5 {
			c.settle() // a turn each
		}
		if n := c.answerAll(); n != want {
			t.Errorf("every %v: %d keepalives after an hour's pause", every, n)
		}
	}
}

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
	must(c.t, c.own.fault())
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

// An answer counts for its keepalive, and those before it have none any more. A peer may answer each
// one in its order, only the latest, or be far behind: the memory for stamps is bounded.
// Matrix: KA-02
func TestAnAnswerCountsForAKeepaliveThatHasNone(t *testing.T) {
	const kept, most = keptStamps, 3 * keptStamps
	for _, one := range []struct {
		name    string
		sent    int
		answers []int // the keepalives that the peer answers, from 0; believed, unless negative
	}{
		{"in their order", 4, []int{0, 1, 2, 3}},
		{"one is left out", 4, []int{1, -1, -2, 2, 3, -4}},
		{"the last that fits", kept, []int{kept - 1, -kept, -1}},
		{"the latest of too many", kept + 1, []int{kept, -kept}},
		{"the latest of far too many", most, []int{most - 1, -1, -kept}},
		{"the oldest of far too many", most, []int{0, 1, kept - 2, -kept, most - 1}},
	} {
		c := newBed(t, nil).conn(OpenOptions{KeepaliveEvery: time.Second, KeepaliveTimeout: time.Minute})
		sent := c.asked(one.sent)
		for _, i := range one.answers {
			if believed := c.answered(sent[max(i, -i-1)]); believed != (i >= 0) || len(c.h.unanswered) > keptStamps {
				t.Errorf("%s: answer %d believed: %v; %d stamps", one.name, i, believed, len(c.h.unanswered))
			}
		}
		old := c.asked(1)[0]
		c.delay()
		c.open(everySecond)
		if c.answered(old) || !c.answered(c.asked(1)[0]) {
			t.Errorf("%s: the answer to a keepalive of another socket is believed, or that of the new socket is not",
				one.name)
		}
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

// The answer to a keepalive comes behind the message that the peer is sending, however long that takes. A peer
// that stops within a message is still given up.
// Matrix: KA-05, KA-12
func TestAPeerThatSendsALargeMessageNeedNotAnswerMeanwhile(t *testing.T) {
	const timeout = 2 * time.Second
	for _, stops := range []bool{false, true} {
		c := newBed(t, nil).conn(OpenOptions{KeepaliveEvery: time.Second, KeepaliveTimeout: timeout})
		stream := c.peer.message(1, 0, &Message{Front: make([]byte, 100), Data: make([]byte, 1<<20)})
		half := len(stream) / 2
		for ; len(stream) > half; stream = stream[min(1<<16, len(stream)):] { // 128 KiB in a second
			c.arrive(stream[:min(1<<16, len(stream))])
			c.after(time.Second / 2)
		}
		c.alive("within a message")
		if stops {
			if c.after(timeout); !errors.Is(c.own.fault(), errKeepaliveTimeout) {
				t.Errorf("%v after the peer has stopped", c.own.fault())
			}
			continue
		}
		c.arrive(stream)
		if c.answerAll() == 0 || len(c.own.list()) != 1 {
			t.Error("no keepalive, or no message")
		}
		if c.after(timeout - time.Second/2); c.own.fault() != nil {
			t.Error(c.own.fault())
		}
		if c.after(2 * timeout); !errors.Is(c.own.fault(), errKeepaliveTimeout) {
			t.Errorf("%v without an answer to a later one", c.own.fault())
		}
	}
}

// A keepalive leaves behind the message that is being written, and its answer comes after that: the limit counts from
// the last time that the peer has taken a part. A peer that takes no more, or too little, is given up, as is one that
// has all bytes before the keepalive.
// Matrix: KA-05, KA-12
func TestAPeerThatTakesALargeMessageNeedNotAnswerMeanwhile(t *testing.T) {
	const size, limit, step = 4 << 20, 2 * time.Second, time.Second / 2
	keepalives := OpenOptions{KeepaliveEvery: time.Second, KeepaliveTimeout: limit}
	idle := OpenOptions{IdleAfter: limit}
	for _, one := range []struct {
		name  string
		opt   OpenOptions
		each  int // bytes that the peer takes in a step
		until int // bytes after which it takes no more
		err   error
		after time.Duration // from the begin, or up to two seconds later
	}{
		{"all of it", keepalives, 128 << 10, size, nil, 0},
		{"all of it, and is silent then", keepalives, 128 << 10, size, errKeepaliveTimeout, 16*time.Second + limit},
		{"a half", keepalives, 128 << 10, size / 2, errKeepaliveTimeout, 8*time.Second + limit},
		{"nothing", keepalives, 0, 0, errKeepaliveTimeout, time.Second + limit},
		{"less than the least rate", keepalives, 1 << 10, size, errKeepaliveTimeout, 74*time.Second + limit},
		{"all of it, without keepalives", idle, 128 << 10, size, nil, 0},
		{"a half, without keepalives", idle, 128 << 10, size / 2, errIdle, 8*time.Second + limit},
	} {
		t.Run(one.name, func(t *testing.T) {
			c := newBed(t, nil).conn(one.opt)
			c.sock.Park = true
			must(t, c.h.Send(&Message{Data: make([]byte, size)}))
			c.settle()
			took := time.Duration(0)
			pass := func() {
				if c.after(step); c.own.fault() == nil {
					took += step
				}
			}
			for c.sock.Taken < one.until && c.own.fault() == nil {
				c.sock.Taken += one.each
				pass()
			}
			if c.sock.Taken >= size && c.own.fault() == nil {
				c.sock.Park = false
				c.sock.Finish(0)
				c.settle()
			}
			for range 4 * limit / step {
				if one.err == nil {
					c.sock.Arrive(c.peer.stamped(frame.TagKeepalive2, Timestamp{1, 2}))
					c.answerAll()
				}
				pass()
			}
			if err := c.own.fault(); !errors.Is(err, one.err) {
				t.Fatalf("it ends with %v, want %v", err, one.err)
			}
			if one.err != nil && (took < one.after-step || took > one.after+2*time.Second) {
				t.Errorf("given up after %v, want %v or a little more", took, one.after)
			}
		})
	}
}
