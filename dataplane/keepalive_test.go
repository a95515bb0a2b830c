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
		if c.own.fault() != nil {
			t.Fatalf("out=%v: %v after traffic", out, c.own.fault())
		}
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
			if c.own.fault() != nil {
				t.Fatalf("timeout %v: %v after %v", timeout, c.own.fault(), waited)
			}
			c.after(50 * time.Millisecond)
		}
		c.after(time.Millisecond)
		if !errors.Is(c.own.fault(), errKeepaliveTimeout) {
			t.Fatalf("timeout %v: %v", timeout, c.own.fault())
		}
	}
}

// Matrix: TH-07
func TestAThrottledConnectionIsNotIdle(t *testing.T) {
	ts := &loop.Throttles{Frames: loop.NewThrottle(1)}
	c := newBed(t, nil).conn(OpenOptions{
		Lossy: true, Throttles: ts, IdleAfter: time.Second, KeepaliveEvery: 500 * time.Millisecond, KeepaliveTimeout: 500 * time.Millisecond,
	})
	c.sock.Park = true // nothing that we send counts as life
	kept := c.keep()
	c.sock.Arrive(c.peer.message(1, 0, &Message{}), c.peer.message(2, 0, &Message{}))
	for range 100 {
		c.after(100 * time.Millisecond)
	}
	if c.own.fault() != nil {
		t.Fatalf("%v while we did not read", c.own.fault())
	}
	c.after(430 * time.Millisecond) // shortly before its timer fires
	(*kept)[0].Release()
	c.settle()
	c.after(300 * time.Millisecond)
	if c.own.fault() != nil {
		t.Fatalf("%v right after we read again", c.own.fault())
	}
	c.after(time.Second)
	if c.own.fault() == nil {
		t.Fatal("never idle again")
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
	c.open(OpenOptions{KeepaliveEvery: time.Second, KeepaliveTimeout: time.Second}, frame.Rev1, false)
	c.answerAll()
	c.after(900 * time.Millisecond)
	if c.own.fault() != nil {
		t.Fatalf("%v of the connection before", c.own.fault())
	}
}

func TestNoTimerWithoutALimit(t *testing.T) {
	c := newBed(t, nil).conn(OpenOptions{IdleAfter: -1})
	if _, ok := c.By.Deadline(); ok {
		t.Error("a timer is armed for nothing")
	}
}

// A process that stood still finds its timers due: each is handled once.
// Matrix: KA-10, IO-19
func TestAPauseOfTheProcessMakesNoStorm(t *testing.T) {
	c := newBed(t, nil).conn(OpenOptions{IdleAfter: -1, KeepaliveEvery: time.Second})
	c.after(time.Hour)
	if n := c.answerAll(); n != 1 {
		t.Errorf("%d keepalives after an hour's pause", n)
	}
}
