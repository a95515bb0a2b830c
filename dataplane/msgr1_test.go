package dataplane

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// plain1 is what two recent peers speak without signatures.
var plain1 = msgr1Modes[0]

func (b *bed) conn1(opt OpenOptions) *conn {
	b.t.Helper()
	return b.connMode(opt, plain1)
}

// tags1 are the tags of msgr1 in what the handler has sent since the last take, in hex.
func (c *conn) tags1() (s string) {
	c.t.Helper()
	for _, f := range c.take() {
		s += map[frame.Tag]string{tagPing: "ping ", tagPong: "pong ", tagAck: "ack ", tagMsg: "msg "}[f.tag]
	}
	return s
}

// A queue that never empties must not keep the acks back: the peer would run into its
// bounds.
// Matrix: V1-07
func TestEveryWriteOfMsgr1HasItsAck(t *testing.T) {
	c := newBed(t, nil).conn1(OpenOptions{})
	c.sock.Park = true
	for range 3000 { // several writes
		must(t, c.h.Send(&Message{Front: make([]byte, 100)}))
	}
	c.settle()
	for seq := uint64(1); seq <= 3; seq++ {
		c.arrive(c.peer.message(seq, 0, &Message{}))
		c.finish(0)
	}
	c.finish(0)
	if st := c.h.statistics(c.c); st.AcksOut != 3 || st.Queued == 0 {
		t.Errorf("%d acks while %d messages are queued, want 3", st.AcksOut, st.Queued)
	}
	if frames := c.take(); frames[len(frames)-1].tag != tagAck {
		t.Errorf("the write ends with %v", frames[len(frames)-1].tag)
	}
}

// Matrix: V1-07
func TestEveryTagOfMsgr1(t *testing.T) {
	stamp := Timestamp{1, 2}.payload()
	b := newBed(t, nil)
	for tag := range 256 {
		tag := frame1.Tag(tag)
		c := b.conn1(OpenOptions{})
		freed := 0
		for range 3 {
			must(t, c.h.Send(&Message{Free: func(*Message) { freed++ }}))
		}
		c.h.Keepalive()
		c.settle()
		c.arrive(c.peer.message(1, 0, &Message{}))
		c.take()
		switch tag {
		case frame1.TagMessage:
			c.sock.Arrive(c.peer.message(2, 0, &Message{}))
		case frame1.TagAck:
			c.sock.Arrive(frame1.AppendAck(nil, 2))
		case frame1.TagKeepalive2Ack:
			c.sock.Arrive(frame1.AppendKeepaliveAck(nil, c.h.seen.Sent.payload()))
		case frame1.TagKeepalive, frame1.TagClose:
			c.sock.Arrive([]byte{byte(tag)})
		default:
			c.sock.Arrive(append([]byte{byte(tag)}, stamp[:]...))
		}
		c.settle()
		sent, received := "", 1
		var fault error
		switch tag {
		case frame1.TagMessage:
			sent, received = "ack ", 2
		case frame1.TagKeepalive2:
			sent = "pong "
			if c.h.seen.Received != (Timestamp{1, 2}) {
				t.Errorf("%v: received %v", tag, c.h.seen.Received)
			}
		case frame1.TagKeepalive2Ack:
			if len(c.own.acks) != 1 || c.h.seen.Acked != c.h.seen.Sent {
				t.Errorf("%v: %d answers", tag, len(c.own.acks))
			}
		case frame1.TagAck:
			if freed != 2 {
				t.Errorf("%v of 2 frees %d messages", tag, freed)
			}
		case frame1.TagKeepalive:
		case frame1.TagClose:
			fault = ErrCloseReceived
		default:
			fault = frame.ErrTag
		}
		if err := c.own.fault(); !errors.Is(err, fault) {
			t.Errorf("%v: fault %v, want %v", tag, err, fault)
		}
		if got := c.tags1(); got != sent || len(c.own.list()) != received {
			t.Errorf("%v: sent %q, want %q; %d messages", tag, got, sent, len(c.own.list()))
		}
		c.closeHandler()
	}
}

// CLOSE says that the session is over, so what stands before it still counts.
// Matrix: V1-07
func TestCloseIsHeardBehindWhatAThrottleHoldsBack(t *testing.T) {
	th := loop.NewThrottle(1)
	c := newBed(t, nil).conn1(OpenOptions{Throttles: &loop.Throttles{Frames: th}})
	kept := c.keep()
	c.arrive(slices.Concat(c.peer.message(1, 0, &Message{}), c.peer.message(2, 0, &Message{}), []byte{byte(frame1.TagClose)}))
	if c.own.fault() != nil || len(*kept) != 1 {
		t.Fatalf("fault %v, %d messages", c.own.fault(), len(*kept))
	}
	(*kept)[0].Release()
	c.settle()
	if !errors.Is(c.own.fault(), ErrCloseReceived) || len(*kept) != 2 {
		t.Errorf("fault %v, %d messages", c.own.fault(), len(*kept))
	}
	(*kept)[1].Release()
}

// The answer to a KEEPALIVE does not exist, so that none must be missed.
// Matrix: V1-07
func TestAPeerWithoutKeepalive2IsSentWhatItKnows(t *testing.T) {
	old := wireMode{name: "old", msgr1: &frame1.Config{Form: frame1.Form{OldKeepalive: true}}}
	c := newBed(t, nil).connMode(OpenOptions{IdleAfter: time.Hour, KeepaliveEvery: time.Second, KeepaliveTimeout: 2 * time.Second}, old)
	for range 10 {
		c.after(time.Second)
	}
	if !bytes.Equal(c.sock.Sent, bytes.Repeat([]byte{byte(frame1.TagKeepalive)}, 10)) || c.own.fault() != nil {
		t.Errorf("sent %x, fault %v", c.sock.Sent, c.own.fault())
	}
	c.sock.Arrive(frame1.AppendKeepaliveAck(nil, c.h.seen.Sent.payload())) // made up: it was not asked
	c.settle()
	if len(c.own.acks) != 0 || c.h.stats.unaskedAcks != 1 {
		t.Errorf("%d answers to what was not asked", len(c.own.acks))
	}
	now := newBed(t, nil).conn1(OpenOptions{KeepaliveEvery: time.Second, KeepaliveTimeout: 2 * time.Second})
	for range 10 {
		now.after(time.Second)
	}
	if now.sock.Sent[0] != byte(frame1.TagKeepalive2) || !errors.Is(now.own.fault(), errKeepaliveTimeout) {
		t.Errorf("sent %x, fault %v", now.sock.Sent, now.own.fault())
	}
}

func TestAMessageOfMsgr1SaysWhoSendsIt(t *testing.T) {
	c := newBed(t, nil).conn1(OpenOptions{})
	c.send(&Message{TID: 9, Type: 8, Version: 7, CompatVersion: 6, DataOff: 5, Front: []byte("front"), Middle: []byte("mid"), Data: []byte("d")})
	got := c.take()[0].hd1
	want := frame1.Header{
		Seq: 1, TID: 9, Type: 8, Priority: PriorityDefault, Version: 7, FrontLen: 5, MiddleLen: 3, DataLen: 1, DataOff: 5,
		SrcType: 4, SrcNum: 17, CompatVersion: 6, CRC: got.CRC,
	}
	if got != want {
		t.Errorf("header %+v, want %+v", got, want)
	}
}

// Matrix: V1-11
func TestASessionBeginsBehindTheNumberThatItIsGiven(t *testing.T) {
	c := newBed(t, nil).conn1(OpenOptions{})
	c.send(&Message{})
	c.h.BeginAfter(500) // too late: a message has its number
	c.send(&Message{})
	if f := c.take(); len(f) != 2 || f[1].hd.Seq != 2 {
		t.Fatalf("%d messages, the last with %d", len(f), f[len(f)-1].hd.Seq)
	}
	c.hangUp()
	c.h.ResetSession(true)
	c.h.BeginAfter(1<<31 - 1)
	c.h.RequeueSentUpTo(0) // the exchange of sequences: the peer has nothing
	c.openMode(OpenOptions{}, plain1)
	must(t, c.h.Send(&Message{}))
	c.send(&Message{})
	if f := c.take(); len(f) != 2 || f[0].hd.Seq != 1<<31 || f[1].hd.Seq != 1<<31+1 {
		t.Errorf("%d messages from %d on", len(f), f[0].hd.Seq)
	}
	c.arrive(frame1.AppendAck(nil, 1<<31+1))
	if n, _ := c.h.QueuedOut(); n != 0 {
		t.Errorf("%d messages are not acknowledged", n)
	}
}

// The frames of msgr1 stop at break points under the names that msgr2 has for them.
// Matrix: V1-10
func TestAFrameOfMsgr1IsHeldAtABreakPoint(t *testing.T) {
	stamp := Timestamp{1, 2}.payload()
	for _, one := range []struct {
		tag   frame.Tag
		write bool
	}{{tagMsg, false}, {tagAck, false}, {tagPing, false}, {tagPong, false}, {tagMsg, true}, {tagAck, true}, {tagPing, true}, {tagPong, true}} {
		t.Run(fmt.Sprintf("%v write=%v", one.tag, one.write), func(t *testing.T) {
			asked := 0
			c := newBed(t, nil).conn1(OpenOptions{Probe: probed(func(tag frame.Tag, write bool) error {
				if tag != one.tag || write != one.write {
					return nil
				}
				if asked++; asked > 1 {
					return nil
				}
				return probe.ErrHold
			})})
			must(t, c.h.Send(&Message{TID: 1}))
			c.h.Keepalive()
			c.arrive(slices.Concat(c.peer.message(1, 0, &Message{TID: 1}), frame1.AppendAck(nil, 1), c.peer.frame(tagPing, stamp[:]), c.peer.frame(tagPong, stamp[:])))
			c.arrive(c.peer.message(2, 0, &Message{TID: 2}))
			done := func() bool {
				st := c.h.statistics(c.c)
				return st.MessagesIn == 2 && st.AcksIn == 1 && st.UnaskedAcks == 1 && st.MessagesOut == 1 && st.AckLag == 0 && st.Queued == 0 && !c.h.ping && !c.h.pong
			}
			if asked != 1 || c.own.fault() != nil || done() {
				t.Fatalf("asked %d times, fault %v, all done: %v", asked, c.own.fault(), done())
			}
			c.h.Resume()
			c.settle()
			if !done() || c.own.fault() != nil {
				t.Errorf("after Resume: %+v, fault %v", c.h.statistics(c.c), c.own.fault())
			}
		})
	}
}

// Matrix: V1-12
func TestAHandlerHasSocketsOfBothProtocolsOneAfterTheOther(t *testing.T) {
	c := newBed(t, nil).conn1(OpenOptions{})
	for i, mode := range slices.Concat(allModes, allModes) {
		if i > 0 {
			c.h.ResetSession(true)
			c.openMode(OpenOptions{}, mode)
		}
		must(t, c.h.Send(&Message{TID: uint64(i)}))
		c.arrive(c.peer.message(1, 0, &Message{TID: uint64(i)}))
		if list := c.own.list(); len(list) != i+1 || list[i].tid != uint64(i) {
			t.Fatalf("%s: %d messages, fault %v", mode.name, len(list), c.own.fault())
		}
		if f := c.take(); f[0].hd.TID != uint64(i) {
			t.Fatalf("%s: sent %v", mode.name, tags(f))
		}
		c.hangUp()
	}
}

// A socket that was lossless leaves acks owed to a lossy one, which has none.
// Matrix: SE-29
func TestALossySocketOfMsgr1AcknowledgesNothingOfAnEarlierOne(t *testing.T) {
	c := newBed(t, nil).conn1(OpenOptions{})
	c.sock.Park = true
	c.send(&Message{})
	c.arrive(c.peer.message(1, 0, &Message{}))
	c.hangUp()
	if c.h.unacked != 1 {
		t.Fatalf("%d acks are owed", c.h.unacked)
	}
	c.openMode(OpenOptions{Lossy: true}, plain1)
	c.send(&Message{})
	if got := c.tags1(); got != "msg " || c.h.unacked != 0 {
		t.Errorf("sent %q, %d acks are owed", got, c.h.unacked)
	}
}

// Whatever the sizes, what is copied stays in the memory of its write, and there is room
// for the ack; the probe is asked once for each message.
func TestAWriteOfMsgr1FillsItsSlabAndNotMore(t *testing.T) {
	for _, mode := range msgr1Modes {
		for _, size := range []int{69, 60, 500, 1886} { // of 69 bytes 512 fill it to the last byte
			asked := 0
			c := newBed(t, nil).connMode(OpenOptions{Probe: probed(func(tag frame.Tag, write bool) error {
				if write && tag == tagMsg {
					asked++
				}
				return nil
			})}, mode)
			c.sock.Park = true
			c.send(&Message{})
			b, err := c.c.Lend(loop.SlabBytes)
			must(t, err)
			room := cap(b.Bytes()) // the pool rounds up
			c.c.TakeBack(b)
			const n = 2 * loop.SlabBytes / 60
			for range n {
				must(t, c.h.Send(&Message{Front: make([]byte, size)}))
			}
			writes, most := 0, 0
			for seq := uint64(1); c.sock.InFlight != nil; seq++ {
				if c.h.queue.n > 0 {
					c.sock.Arrive(c.peer.message(seq, 0, &Message{}))
				}
				c.settle()
				c.finish(0)
				if v := c.sock.InFlight; v != nil {
					writes, most = writes+1, max(most, v.Size())
				}
				if seq > 2*n {
					t.Fatal("the queue does not empty")
				}
			}
			if most > room || most < room-size-600 || asked != n+1 || len(c.take()) != n+1+int(c.h.stats.acksOut) {
				t.Errorf("%s, %d bytes: the largest of %d writes has %d of %d, asked %d times for %d messages", mode.name, size, writes, most, room, asked, n+1)
			}
			c.close()
		}
	}
}
