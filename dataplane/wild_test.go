package dataplane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Frames that are whole, with checksums that are right, and content that is not.

// pair is two connections of one core: one for what is wild, one that must not
// notice.
type pair struct {
	*bed
	wild, good *conn
	sent       uint64
}

func newPair(t testing.TB, m wireMode) *pair {
	t.Helper()
	b := newBed(t, nil)
	return &pair{bed: b, wild: b.conn(OpenOptions{}, m), good: b.conn(OpenOptions{}, m)}
}

// check has the good connection get a message, and looks for memory that was lost
// with the wild one.
func (p *pair) check(what string) {
	p.t.Helper()
	p.sent++
	p.good.sock.Arrive(p.good.peer.message(p.sent, 0, &Message{TID: p.sent, Front: payload(1, 10)}))
	p.settle()
	if list := p.good.own.list(); uint64(len(list)) != p.sent || p.good.own.fault() != nil {
		p.t.Fatalf("%s: the other connection has %d messages of %d, fault %v", what, len(list), p.sent, p.good.own.fault())
	}
	if p.wild.own.fault() != nil && p.c.Snapshot().PoolInUse != 0 {
		p.t.Fatalf("%s: %d bytes are lent", what, p.c.Snapshot().PoolInUse)
	}
}

// Every field of every frame of the data phase with every wild value.
// Matrix: HI-01
func TestAnyWildFieldOfADataFrameIsAFaultOrHarmless(t *testing.T) {
	for _, m := range wireModes {
		t.Run(m.name, func(t *testing.T) {
			var header [frame.MessageHeaderSize]byte
			(&frame.MessageHeader{Seq: 1, TID: 2, Type: 3, Priority: 4, Version: 5}).Put(&header)
			for tag, body := range map[frame.Tag][]byte{
				frame.TagMessage: header[:], frame.TagAck: make([]byte, 8),
				frame.TagKeepalive2: make([]byte, 8), frame.TagKeepalive2Ack: make([]byte, 8),
			} {
				b := newBed(t, nil)
				good := b.conn(OpenOptions{}, m)
				p := &pair{bed: b, good: good}
				p.wildFields(tag, m, body, func(changed []byte) []byte { return p.wild.peer.frame(tag, changed) })
				b.close()
			}
		})
	}
}

// wildFields has body arrive with every wild value in every field, each on a connection of its
// own. framed makes the bytes on the wire.
func (p *pair) wildFields(what any, m wireMode, body []byte, framed func(changed []byte) []byte) {
	p.t.Helper()
	for _, width := range []int{1, 2, 4, 8} {
		for at := 0; at+width <= len(body); at++ {
			for _, v := range []uint64{0, 1, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 63, 1<<64 - 1} {
				var wild [8]byte
				binary.LittleEndian.PutUint64(wild[:], v)
				changed := bytes.Clone(body)
				copy(changed[at:], wild[:width])
				p.wild = p.bed.conn(OpenOptions{}, m)
				p.wild.sock.Arrive(framed(changed))
				p.settle()
				p.wild.h.Close(nil)
				p.settle()
			}
		}
		p.check(fmt.Sprintf("%v, fields of %d bytes", what, width))
	}
}

// wildFrame is a frame with a right checksum and a random tag, sizes and bytes.
func (p *peerCodec) wildFrame(rng *rand.Rand) []byte {
	tag := frame.Tag(rng.IntN(24))
	segs := make([][]byte, rng.IntN(4)+1)
	if rng.IntN(2) == 0 {
		tag, segs = frame.TagMessage, make([][]byte, 4)
	}
	for i := range segs {
		if rng.IntN(3) > 0 {
			segs[i] = make([]byte, rng.IntN(1<<rng.IntN(18)))
			for k := range segs[i] {
				segs[i][k] = byte(rng.Uint32())
			}
		}
	}
	if tag == frame.TagMessage && rng.IntN(4) > 0 {
		segs[0] = make([]byte, frame.MessageHeaderSize)
		for k := range segs[0] {
			segs[0][k] = byte(rng.Uint64() & (rng.Uint64() >> 8)) // most bits are 0
		}
	}
	out, err := p.enc.AppendFrame(nil, tag, segs...)
	if err != nil {
		return nil // more than a frame can say
	}
	return out
}

// wildStream sends frames of a seed until the connection ends.
func wildStream(t testing.TB, m wireMode, seed uint64, frames int) {
	rng := rand.New(rand.NewPCG(seed, 24))
	p := newPair(t, m)
	defer p.close()
	for range frames {
		p.wild.sock.Arrive(p.wild.peer.wildFrame(rng))
		p.settle()
		if p.wild.own.fault() != nil {
			break
		}
	}
	p.wild.sock.HangUp()
	p.settle()
	p.check(fmt.Sprintf("seed %d", seed))
}

// Whole frames with right checksums that say anything.
// Matrix: HI-24
func FuzzWildFrames(f *testing.F) {
	for seed := range uint64(600) {
		f.Add(seed, uint8(seed%4), uint8(20))
	}
	f.Fuzz(func(t *testing.T, seed uint64, mode, frames uint8) {
		wildStream(t, wireModes[int(mode)%len(wireModes)], seed, int(frames))
	})
}

// An encrypted frame counts at its place of its connection only, and whole.
// Matrix: HI-22
func TestEncryptedFramesOutOfTheirPlaceAreFaults(t *testing.T) {
	overSecureModes(t, func(t *testing.T, m wireMode) {
		for name, mix := range map[string]struct {
			stream func(a, b, c, other []byte) []byte
			want   int
		}{
			"repeated":                    {func(a, _, _, _ []byte) []byte { return slices.Concat(a, a) }, 1},
			"swapped":                     {func(a, b, c, _ []byte) []byte { return slices.Concat(a, c, b) }, 1},
			"left out":                    {func(_, b, _, _ []byte) []byte { return b }, 0},
			"cut, and the next behind":    {func(a, b, _, _ []byte) []byte { return slices.Concat(a[:len(a)-16], b, b) }, 0},
			"two merged":                  {func(a, b, c, _ []byte) []byte { return slices.Concat(a, b[:len(b)/2], c[len(c)/2:]) }, 1},
			"one of another connection":   {func(a, _, _, o []byte) []byte { return slices.Concat(a, o) }, 1},
			"a frame that was not closed": {func(a, _, _, _ []byte) []byte { return append(bytes.Clone(a), make([]byte, 4096)...) }, 1},
		} {
			p := newPair(t, m)
			message := func(c *conn, n uint64) []byte {
				return c.peer.message(n, 0, &Message{TID: n, Front: payload(int(n), 500)})
			}
			other := p.bed.conn(OpenOptions{}, m)
			other.peer.keys[1].Key[0]++
			other.peer.enc = frame.NewEncoder(m.rev)
			must(t, other.peer.enc.Secure(other.peer.keys[1].Key, other.peer.keys[1].TxNonce))
			message(other, 1)
			p.wild.sock.Arrive(mix.stream(message(p.wild, 1), message(p.wild, 2), message(p.wild, 3), message(other, 2)))
			p.settle()
			if n := len(p.wild.own.list()); n != mix.want || !errors.Is(p.wild.own.fault(), frame.ErrFrame) {
				t.Errorf("%s: %d messages, fault %v", name, n, p.wild.own.fault())
			}
			p.check(name)
			p.close()
		}
	})
}

// Frames that cost next to nothing to send have their turn like any other.
// Matrix: HI-16, TH-06
func TestTinyFramesWithoutEndHaveTheirTurnOnly(t *testing.T) {
	for name, one := range map[string]func(c *conn, n uint64) []byte{
		"acks":             func(c *conn, _ uint64) []byte { return c.peer.frame(frame.TagAck, make([]byte, 8)) },
		"keepalives":       func(c *conn, _ uint64) []byte { return c.peer.frame(frame.TagKeepalive2, make([]byte, 8)) },
		"empty messages":   func(c *conn, n uint64) []byte { return c.peer.message(n, 0, &Message{}) },
		"repeated message": func(c *conn, _ uint64) []byte { return c.peer.message(1, 0, &Message{}) },
	} {
		t.Run(name, func(t *testing.T) {
			loud := besideAQuietOne(t, 20_000, one)
			if len(loud.sock.Whole) == 0 {
				t.Error("everything was read in four turns: nothing is shown")
			}
			loud.settle()
			must(t, loud.own.fault())
		})
	}
}

// What a tag cannot hold, and what has no place in the data phase, is refused when its head is there: no byte of the
// body comes, and no buffer is taken for it.
// Matrix: HI-08, HI-09
func TestWhatHasNoPlaceIsRefusedFromItsHeadBeforeAnyMemory(t *testing.T) {
	overSome(t, wireModes, func(t *testing.T, m wireMode, receive loop.ReceiveMode) {
		b := newBed(t, receiving(receive))
		for tag := range frame.Tag(30) {
			most := int(tag.Bound().Max)
			for _, n := range []int{most, most + 1, 1 << 20} {
				want := frame.ErrTooLarge
				switch {
				case !tag.Known():
					want = frame.ErrTag
				case n > most:
				case inDataPhase(tag) == nil:
					continue
				default:
					want = errUnexpectedFrame
				}
				c := b.conn(OpenOptions{}, m)
				asked := c.c.Snapshot().PoolLent
				c.arrive(c.peer.frame(tag, make([]byte, n))[:c.peer.dec.HeadSize()])
				if err := c.own.fault(); !errors.Is(err, want) {
					t.Errorf("%v of %d bytes: fault %v, want %v", tag, n, err, want)
				}
				if st := c.c.Snapshot(); st.PoolLent != asked || st.PoolInUse != 0 {
					t.Errorf("%v of %d bytes: %d buffers, %d bytes lent", tag, n, st.PoolLent-asked, st.PoolInUse)
				}
			}
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
			c.alive("at the bound of ", tag)
		}
		if n := b.c.Snapshot().PoolInUse; n == 0 || n > peers*4096 {
			t.Errorf("%d unfinished %v hold %d bytes", peers, tag, n)
		}
	}
}

// Matrix: FR-27
func TestControlFramesOfANewerPeerAreUnderstood(t *testing.T) {
	overSome(t, wireModes, func(t *testing.T, m wireMode, receive loop.ReceiveMode) {
		c := newBed(t, receiving(receive)).conn(OpenOptions{}, m)
		stamp := Timestamp{7, 8}.payload()
		c.arrive(c.peer.frame(frame.TagKeepalive2, append(stamp[:], make([]byte, frame.TagKeepalive2.Bound().Max-8)...)))
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
	none := OpenOptions{IdleAfter: -1, LeastRate: -1, MessageGrace: -1}
	if got, free := paceOf(&OpenOptions{}), paceOf(&none); got != byDefault || free != (pace{controlRate: DefaultControlRate}) {
		t.Errorf("by default %+v, without bounds %+v", got, free)
	}
	c := newBed(t, nil)
	zero, unbound := c.handler(HandlerConfig{}), c.handler(HandlerConfig{QueueBytes: -1, QueueMessages: -1})
	if q := &zero.h.held; q.bytes.limit != DefaultQueueBytes || q.messages.limit != DefaultQueueMessages {
		t.Errorf("by default %d messages with %d bytes", q.messages.limit, q.bytes.limit)
	}
	if q := &unbound.h.held; q.bytes.limit != 0 || q.messages.limit != 0 {
		t.Errorf("without bounds %d messages with %d bytes", q.messages.limit, q.bytes.limit)
	}
}

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

// allow sets the rate of useless frames.
func (c *conn) allow(rate int) *conn {
	p := *c.h.pace
	p.controlRate = rate
	c.h.pace = &p
	return c
}

// flooded is a connection whose peer has sent a message, n useless frames, and another
// message behind them.
func flooded(t *testing.T, m wireMode, useless func(c *conn, i int) []byte, n int) *conn {
	t.Helper()
	c := newBed(t, nil).conn(OpenOptions{}, m).allow(floodRate)
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
	t.Run("keepalives without an answer", func(t *testing.T) {
		readMoreRarely(t, plain1, func(*conn, int) []byte { return []byte{byte(frame1.TagKeepalive)} })
	})
}

func readMoreRarely(t *testing.T, m wireMode, useless func(c *conn, i int) []byte) {
	const seconds = 10
	c := flooded(t, m, useless, floodRate*(1+seconds))
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
	c := newBed(t, nil).conn(OpenOptions{}).allow(floodRate)
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
	c := newBed(t, nil).conn(OpenOptions{KeepaliveEvery: time.Second}).allow(1)
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
	c := flooded(t, plain2, uselessFrames["keepalives"], 10*floodRate)
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
	c := flooded(t, plain2, uselessFrames["keepalives"], 10*floodRate)
	c.delay()
	if c.after(time.Second); c.h.sock != nil || c.h.state != stateDelay || c.h.progress.Armed() {
		t.Errorf("state %v, timer armed %v", c.h.state, c.h.progress.Armed())
	}
}

func TestAPeerThatHangsUpInAPauseIsReadToItsEndAndLetGo(t *testing.T) {
	overProtocols(t, func(t *testing.T, m wireMode) {
		for name, useless := range uselessFrames {
			c := flooded(t, m, useless, 100*floodRate)
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
		c := flooded(t, m, again, 100*floodRate)
		c.arrive(uselessFrames["keepalives"](c, 7))
		if got := c.h.seen.Received; got != (Timestamp{7, 0}) || c.h.stats.duplicates != 100*floodRate || len(c.own.list()) != 2 {
			t.Errorf("keepalive %v, %d duplicates, %d messages", got, c.h.stats.duplicates, len(c.own.list()))
		}
	})
}
