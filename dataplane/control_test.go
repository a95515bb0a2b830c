package dataplane

import (
	"errors"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// uselessFrames are frames that bring nothing, each made for a number.
var uselessFrames = map[string]func(c *conn, i int) []byte{
	"keepalives": func(c *conn, i int) []byte {
		return c.peer.stamped(frame.TagKeepalive2, Timestamp{uint32(i), 0})
	},
	"acks of nothing": func(c *conn, _ int) []byte {
		return c.peer.ack(0)
	},
	"answers to nothing": func(c *conn, i int) []byte {
		return c.peer.stamped(frame.TagKeepalive2Ack, Timestamp{uint32(i), 0})
	},
}

// floodRate is that of the tests.
const floodRate = 16

// flooded is a connection whose peer has sent a message, n useless frames, and another
// message behind them.
func flooded(t *testing.T, m wireMode, rate int, useless func(c *conn, i int) []byte, n int) *conn {
	t.Helper()
	c := newBed(t, nil).conn(OpenOptions{ControlRate: rate}, m)
	all := c.peer.message(1, 0, &Message{TID: 1})
	for i := range n {
		all = append(all, useless(c, i)...)
	}
	c.arrive(append(all, c.peer.message(2, 0, &Message{TID: 2})...))
	return c
}

// Matrix: HI-14, AIM-05
func TestAConnectionThatBringsNothingIsReadMoreRarely(t *testing.T) {
	overProtocols(t, func(t *testing.T, m wireMode) {
		for name, useless := range uselessFrames {
			t.Run(name, func(t *testing.T) { readMoreRarely(t, m, useless) })
		}
	})
}

func readMoreRarely(t *testing.T, m wireMode, useless func(c *conn, i int) []byte) {
	const seconds = 10
	c := flooded(t, m, floodRate, useless, floodRate*(1+seconds))
	taken := c.c.Counts().FramesIn
	if most := uint64(floodRate + 2); taken > most {
		t.Fatalf("%d frames at once, want at most %d", taken, most)
	}
	for second := range seconds + 2 {
		before := c.c.Counts().FramesIn
		for range 100 {
			c.after(10 * time.Millisecond)
		}
		got := c.c.Counts().FramesIn - before
		if got > floodRate+2 || second < seconds-1 && got < floodRate-8 {
			t.Errorf("second %d: %d frames", second, got)
		}
	}
	if n := len(c.own.list()); n != 2 || c.own.fault() != nil {
		t.Errorf("%d messages, want 2: %v", n, c.own.fault())
	}
	st := c.h.statistics(c.c)
	if st.ControlPauses == 0 || st.ControlPauses != countsOf(c.c).ControlPauses || c.h.sock.Resting() {
		t.Errorf("%d pauses, %d of the core", st.ControlPauses, countsOf(c.c).ControlPauses)
	}
}

func TestAMessageBetweenFramesWithoutUseKeepsTheConnectionReading(t *testing.T) {
	c := newBed(t, nil).conn(OpenOptions{ControlRate: floodRate})
	for seq := range 20 {
		var all []byte
		for i := range floodRate {
			all = append(all, uselessFrames["keepalives"](c, i)...)
		}
		c.arrive(append(all, c.peer.message(uint64(seq+1), 0, &Message{})...))
	}
	if n := len(c.own.list()); n != 20 || c.h.stats.controlPauses != 0 {
		t.Errorf("%d messages of 20, %d pauses", n, c.h.stats.controlPauses)
	}
}

func TestAcksAndAnswersThatAreAwaitedAreNoFramesWithoutUse(t *testing.T) {
	c := newBed(t, nil).conn(OpenOptions{ControlRate: 1, KeepaliveEvery: time.Second})
	for i := range 20 {
		c.send(&Message{})
		c.arrive(c.peer.ack(uint64(i + 1)))
	}
	for range 20 {
		for _, at := range c.asked(1) {
			c.answered(at)
		}
	}
	if c.h.sent.n != 0 || c.h.stats.controlPauses != 0 {
		t.Errorf("%d messages wait for their ack, %d pauses", c.h.sent.n, c.h.stats.controlPauses)
	}
}

// Hold goes before the pause: a connection that the user has paused is not read when
// the pause is over, and a pause that the user ends is over.
func TestAUsersPauseLastsLongerThanOneForFramesWithoutUse(t *testing.T) {
	c := flooded(t, plain2, floodRate, uselessFrames["keepalives"], 10*floodRate)
	if !c.h.sock.Resting() {
		t.Fatal("no pause")
	}
	c.h.Pause()
	c.settle()
	before := c.c.Counts().FramesIn
	c.after(time.Minute)
	if got := c.c.Counts().FramesIn; got != before || !c.h.sock.Stopped() {
		t.Errorf("%d frames while the user has paused it", got-before)
	}
	c.h.Resume()
	for range 1000 {
		c.after(10 * time.Millisecond)
	}
	if n := len(c.own.list()); n != 2 {
		t.Errorf("%d messages of 2 behind the pause", n)
	}
}

func TestAConnectionThatEndsInAPauseIsNotTouched(t *testing.T) {
	c := flooded(t, plain2, floodRate, uselessFrames["keepalives"], 10*floodRate)
	c.delay()
	if c.after(time.Second); c.h.sock != nil || c.h.state != stateDelay || c.h.progress.Armed() {
		t.Errorf("state %v, timer armed %v", c.h.state, c.h.progress.Armed())
	}
}

func TestAPeerThatHangsUpInAPauseIsReadToItsEndAndLetGo(t *testing.T) {
	overProtocols(t, func(t *testing.T, m wireMode) {
		for name, useless := range uselessFrames {
			c := flooded(t, m, floodRate, useless, 100*floodRate)
			if !c.h.sock.Resting() {
				t.Fatalf("%s: no pause", name)
			}
			c.sock.HangUp()
			for range 100 {
				c.after(10 * time.Millisecond)
			}
			if n := len(c.own.list()); n != 2 || !errors.Is(c.own.fault(), loop.ErrPeerClosed) || c.h.sock != nil {
				t.Errorf("%s: %d messages of 2 a second after the peer has left, %v", name, n, c.own.fault())
			}
		}
	})
}

func TestAKeepaliveBehindMessagesThatAreHereIsAnsweredAtOnce(t *testing.T) {
	overProtocols(t, func(t *testing.T, m wireMode) {
		again := func(c *conn, _ int) []byte { return c.peer.message(1, 0, &Message{TID: 1}) }
		c := flooded(t, m, floodRate, again, 100*floodRate)
		c.arrive(uselessFrames["keepalives"](c, 7))
		if got := c.h.seen.Received; got != (Timestamp{7, 0}) || c.h.stats.duplicates != 100*floodRate || len(c.own.list()) != 2 {
			t.Errorf("keepalive %v, %d duplicates, %d messages", got, c.h.stats.duplicates, len(c.own.list()))
		}
	})
}
