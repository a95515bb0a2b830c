package dataplane

import (
	"errors"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// What a tag cannot hold is refused when its head is there: no byte of the body
// comes, and no buffer is taken for it.
// Matrix: HI-08
func TestEveryFrameAboveItsBoundIsRefusedBeforeAnyMemory(t *testing.T) {
	overSome(t, wireModes, func(t *testing.T, m wireMode, receive loop.ReceiveMode) {
		b := newBed(t, receiving(receive))
		for tag := frame.TagHello; tag.Known(); tag++ {
			for _, n := range []int{int(tag.Bound().Max) + 1, 1 << 20} {
				c := b.conn(OpenOptions{}, m)
				asked := c.c.Snapshot().PoolLent
				wire := c.peer.frame(tag, make([]byte, n))
				c.arrive(wire[:c.peer.dec.HeadSize()])
				if err := c.own.fault(); !errors.Is(err, frame.ErrTooLarge) {
					t.Errorf("%v of %d bytes: fault %v", tag, n, err)
				}
				if c.c.Snapshot().PoolLent != asked || c.c.Snapshot().PoolInUse != 0 {
					t.Errorf("%v of %d bytes: %d buffers asked for, %d bytes lent", tag, n, c.c.Snapshot().PoolLent-asked, c.c.Snapshot().PoolInUse)
				}
			}
		}
	})
}

// Matrix: HI-09
func TestEveryFrameOfAHandshakeIsRefusedFromItsPreambleInTheDataPhase(t *testing.T) {
	overSome(t, wireModes, func(t *testing.T, m wireMode, receive loop.ReceiveMode) {
		for tag := range frame.Tag(30) {
			want := errUnexpectedFrame
			switch {
			case tag == frame.TagMessage, tag == frame.TagAck, tag == frame.TagKeepalive2, tag == frame.TagKeepalive2Ack:
				continue
			case !tag.Known():
				want = frame.ErrTag
			}
			c := newBed(t, receiving(receive)).conn(OpenOptions{}, m)
			asked := c.c.Snapshot().PoolLent
			c.arrive(c.peer.frame(tag, make([]byte, tag.Bound().Max))[:c.peer.dec.HeadSize()])
			if err := c.own.fault(); !errors.Is(err, want) || c.c.Snapshot().PoolLent != asked {
				t.Errorf("%v: fault %v, %d buffers asked for", tag, err, c.c.Snapshot().PoolLent-asked)
			}
			c.close()
		}
	})
}

// Control frames do not pass the throttles, so what they can hold is all that
// bounds the memory of unfinished ones.
// Matrix: RL-01
func TestUnfinishedControlFramesHoldFewBytes(t *testing.T) {
	for _, tag := range []frame.Tag{frame.TagKeepalive2, frame.TagKeepalive2Ack, frame.TagAck} {
		b := newBed(t, nil)
		const peers = 32
		for range peers {
			c := b.conn(OpenOptions{})
			wire := c.peer.frame(tag, make([]byte, tag.Bound().Max))
			c.sock.Arrive(wire[:len(wire)-1])
			b.settle()
			if err := c.own.fault(); err != nil {
				t.Fatalf("%v at its bound: %v", tag, err)
			}
		}
		if n := b.c.Snapshot().PoolInUse; n == 0 || n > peers*4096 {
			t.Errorf("%d unfinished %v hold %d bytes", peers, tag, n)
		}
		b.close()
	}
}

// Matrix: FR-27
func TestControlFramesOfANewerPeerAreUnderstood(t *testing.T) {
	overSome(t, wireModes, func(t *testing.T, m wireMode, receive loop.ReceiveMode) {
		c := newBed(t, receiving(receive)).conn(OpenOptions{}, m)
		stamp := Timestamp{7, 8}.payload()
		c.arrive(c.peer.frame(frame.TagKeepalive2, append(stamp[:], make([]byte, frame.ControlSlack)...)))
		got := c.take()
		if c.own.fault() != nil || len(got) != 1 || got[0].tag != frame.TagKeepalive2Ack || string(got[0].seg[0]) != string(stamp[:]) {
			t.Errorf("fault %v, %d frames", c.own.fault(), len(got))
		}
	})
}

// A zero field of a configuration stands for its default, a negative one for no
// bound, as in package control.

func TestAZeroQueueBoundIsTheDefaultAndANegativeOneIsNone(t *testing.T) {
	b := newBed(t, nil)
	piece := make([]byte, 1<<20) // all messages share it
	for _, one := range []struct {
		name     string
		messages int // held before
		bytes    int64
		cfg      HandlerConfig
		refused  bool
	}{
		{"room for one message more", DefaultQueueMessages - 1, 0, HandlerConfig{}, false},
		{"zero number", DefaultQueueMessages, 0, HandlerConfig{}, true},
		{"negative number", DefaultQueueMessages, 0, HandlerConfig{QueueMessages: -1}, false},
		{"room for its bytes", 1, DefaultQueueBytes - 1<<20, HandlerConfig{}, false},
		{"zero bytes", 1, DefaultQueueBytes, HandlerConfig{}, true},
		{"negative bytes", 1, DefaultQueueBytes, HandlerConfig{QueueBytes: -1}, false},
	} {
		one.cfg.Owner = &recorder{}
		h := NewHandler(b.c, one.cfg)
		for range one.messages {
			h.held.add(one.bytes)
		}
		err := h.Send(&Message{Data: piece})
		if want := one.refused; errors.Is(err, ErrQueueFull) != want || (err == nil) == want {
			t.Errorf("%s: got %v, refused should be %v", one.name, err, want)
		}
		h.Close(nil)
		b.settle()
	}
}

func TestAZeroIdleLimitIsTheDefaultAndANegativeOneIsNever(t *testing.T) {
	b := newBed(t, nil)
	zero, none := b.conn(OpenOptions{}), b.conn(OpenOptions{IdleAfter: -1})
	b.after(DefaultIdleAfter - time.Second)
	if err := zero.own.fault(); err != nil {
		t.Fatalf("%v before the default", err)
	}
	b.after(2 * time.Second)
	if err := zero.own.fault(); !errors.Is(err, errIdle) {
		t.Errorf("fault %v after the default", err)
	}
	if err := none.own.fault(); err != nil {
		t.Errorf("%v without a limit", err)
	}
}

func TestAZeroLeastRateIsTheDefaultAndANegativeOneIsAnyRate(t *testing.T) {
	b := newBed(t, nil)
	zero, none := b.conn(OpenOptions{}), b.conn(OpenOptions{LeastRate: -1})
	noGrace := b.conn(OpenOptions{MessageGrace: -1})
	conns := []*conn{zero, none, noGrace}
	var ended [3]time.Duration
	for _, c := range conns {
		c.part(1, 1<<20, 2*DefaultLeastRate) // worth just below two seconds: the preamble does not count
	}
	for now := time.Second; now <= 60*time.Second; now += time.Second {
		b.after(time.Second)
		for i, c := range conns {
			if ended[i] == 0 && errors.Is(c.own.fault(), errTooSlow) {
				ended[i] = now
			}
		}
	}
	const worth = 2 * time.Second
	if want := DefaultMessageGrace + worth; ended[0] != want {
		t.Errorf("of the zero options: too slow after %v, want %v", ended[0], want)
	}
	if ended[1] != 0 {
		t.Errorf("without a least rate: too slow after %v", ended[1])
	}
	if ended[2] != worth {
		t.Errorf("without a grace: too slow after %v, want %v", ended[2], worth)
	}
}
