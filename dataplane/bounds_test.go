package dataplane

import (
	"errors"
	"testing"

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

// A zero field of a configuration stands for its default, a negative one for no bound, as in
// package control.
func TestAZeroBoundIsTheDefaultAndANegativeOneIsNone(t *testing.T) {
	byDefault := pace{
		idleAfter: DefaultIdleAfter, leastRate: DefaultLeastRate, messageGrace: DefaultMessageGrace,
		controlRate: DefaultControlRate,
	}
	none := OpenOptions{IdleAfter: -1, LeastRate: -1, MessageGrace: -1, ControlRate: -1}
	if got := paceOf(&OpenOptions{}); got != byDefault || paceOf(&none) != (pace{}) {
		t.Errorf("by default %+v, without bounds %+v", got, paceOf(&none))
	}
	c := newBed(t, nil)
	zero, unbound := c.handler(HandlerConfig{}), c.handler(HandlerConfig{QueueBytes: -1, QueueMessages: -1})
	if q := &zero.h.held; q.bytes.limit != DefaultQueueBytes || q.messages.limit != DefaultQueueMessages {
		t.Errorf("by default %d messages with %d bytes", q.messages.limit, q.bytes.limit)
	}
	if q := &unbound.h.held; q.bytes.limit != 0 || q.messages.limit != 0 {
		t.Errorf("without bounds %d messages with %d bytes", q.messages.limit, q.bytes.limit)
	}
	if n := flooded(t, plain2, -1, uselessFrames["keepalives"], 3*DefaultControlRate).h.stats.controlPauses; n != 0 {
		t.Errorf("%d pauses without a rate of control frames", n)
	}
}
