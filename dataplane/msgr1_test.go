package dataplane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

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
	c := newBed(t, nil).conn(OpenOptions{}, plain1)
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
	b := newBed(t, nil)
	for i := range 256 {
		tag, freed := frame1.Tag(i), 0
		c := b.conn(OpenOptions{}, plain1)
		for range 3 {
			must(t, c.h.Send(&Message{Free: func(*Message) { freed++ }}))
		}
		c.h.Keepalive()
		c.settle()
		c.arrive(c.peer.message(1, 0, &Message{}))
		c.take()
		wire, sent, received, acked, answered, fault := []byte{byte(tag), 1, 0, 0, 0, 2, 0, 0, 0}, "", 1, 0, 0,
			error(nil)
		switch tag {
		case frame1.TagMessage:
			wire, sent, received = c.peer.message(2, 0, &Message{}), "ack ", 2
		case frame1.TagAck:
			wire, acked = c.peer.ack(2), 2
		case frame1.TagKeepalive2:
			sent = "pong "
		case frame1.TagKeepalive2Ack:
			wire, answered = c.peer.stamped(tagPong, c.h.seen.Sent), 1
		case frame1.TagKeepalive:
			wire = wire[:1]
		case frame1.TagClose:
			wire, fault = wire[:1], ErrCloseReceived
		default:
			fault = frame.ErrTag
		}
		c.arrive(wire)
		if err := c.own.fault(); !errors.Is(err, fault) {
			t.Errorf("%v: fault %v, want %v", tag, err, fault)
		}
		if got := c.tags1(); got != sent || len(c.own.list()) != received || freed != acked ||
			len(c.own.acks) != answered {
			t.Errorf("%v: sent %q, want %q; %d messages, %d acknowledged, %d answers", tag, got, sent,
				len(c.own.list()), freed, len(c.own.acks))
		}
		if (c.h.seen.Received == Timestamp{1, 2}) != (tag == frame1.TagKeepalive2) {
			t.Errorf("%v: received %v", tag, c.h.seen.Received)
		}
		c.closeHandler()
	}
}

// CLOSE says that the session is over, so what stands before it still counts.
// Matrix: V1-07
func TestCloseIsHeardBehindWhatAThrottleHoldsBack(t *testing.T) {
	th := loop.NewThrottle(1)
	c := newBed(t, nil).conn(OpenOptions{Throttles: &loop.Throttles{Frames: th}}, plain1)
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
	c := newBed(t, nil).conn(OpenOptions{IdleAfter: time.Hour, KeepaliveEvery: time.Second,
		KeepaliveTimeout: 2 * time.Second}, old)
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
	now := newBed(t, nil).conn(OpenOptions{KeepaliveEvery: time.Second, KeepaliveTimeout: 2 * time.Second}, plain1)
	for range 10 {
		now.after(time.Second)
	}
	if now.sock.Sent[0] != byte(frame1.TagKeepalive2) || !errors.Is(now.own.fault(), errKeepaliveTimeout) {
		t.Errorf("sent %x, fault %v", now.sock.Sent, now.own.fault())
	}
}

func TestAMessageOfMsgr1SaysWhoSendsIt(t *testing.T) {
	c := newBed(t, nil).conn(OpenOptions{}, plain1)
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
	c := newBed(t, nil).conn(OpenOptions{}, plain1)
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
	c.open(OpenOptions{}, plain1)
	must(t, c.h.Send(&Message{}))
	c.send(&Message{})
	if f := c.take(); len(f) != 2 || f[0].hd.Seq != 1<<31 || f[1].hd.Seq != 1<<31+1 {
		t.Errorf("%d messages from %d on", len(f), f[0].hd.Seq)
	}
	c.arrive(frame1.AppendAck(nil, 1<<31+1))
	charged(t, c.h, 0, 0)
}

// Matrix: V1-12
func TestAHandlerHasSocketsOfBothProtocolsOneAfterTheOther(t *testing.T) {
	c := newBed(t, nil).conn(OpenOptions{}, plain1)
	for i, mode := range slices.Concat(allModes, allModes) {
		if i > 0 {
			c.h.ResetSession(true)
			c.open(OpenOptions{}, mode)
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
	c := newBed(t, nil).conn(OpenOptions{}, plain1)
	c.sock.Park = true
	c.send(&Message{})
	c.arrive(c.peer.message(1, 0, &Message{}))
	c.hangUp()
	if c.h.unacked != 1 {
		t.Fatalf("%d acks are owed", c.h.unacked)
	}
	c.open(OpenOptions{Lossy: true}, plain1)
	c.send(&Message{})
	if got := c.tags1(); got != "msg " || c.h.unacked != 0 {
		t.Errorf("sent %q, %d acks are owed", got, c.h.unacked)
	}
}

// header1 is the tag and the header of a message, whatever it says.
func header1(hd frame1.Header) []byte {
	return frame1.NewEncoder(frame1.Config{}, nil, [136]byte{}).AppendHeader(nil, &hd)
}

// What no message may have is refused when its header is there, and what one may have
// takes nothing before its bytes come.
// Matrix: V1-08
func TestAnnouncedLengthsOfMsgr1TakeNoMemory(t *testing.T) {
	const most = 1<<32 - 1
	lim, any := frame.DefaultLimits(), frame.Limits{Front: most, Middle: most, Data: most}
	for _, one := range []struct {
		name string
		hd   frame1.Header
		lim  frame.Limits
		want error
	}{
		{"front", frame1.Header{Seq: 1, FrontLen: lim.Front + 1}, lim, frame.ErrTooLarge},
		{"middle", frame1.Header{Seq: 1, MiddleLen: lim.Middle + 1}, lim, frame.ErrTooLarge},
		{"data", frame1.Header{Seq: 1, DataLen: lim.Data + 1}, lim, frame.ErrTooLarge},
		{"all", frame1.Header{Seq: 1, FrontLen: most, MiddleLen: most, DataLen: most, DataOff: 1<<16 - 1}, lim,
			frame.ErrTooLarge},
		{"a sum that wraps to 0", frame1.Header{Seq: 1, FrontLen: most, DataLen: 1}, any, frame.ErrTooLarge},
		{"a sum that wraps", frame1.Header{Seq: 1, FrontLen: most, MiddleLen: 1, DataLen: most}, any,
			frame.ErrTooLarge},
		{"the most", frame1.Header{Seq: 1, FrontLen: lim.Front, MiddleLen: lim.Middle, DataLen: lim.Data,
			DataOff: 1<<16 - 1}, lim, nil},
	} {
		for _, receive := range receiveModes {
			ts := &loop.Throttles{Bytes: loop.NewThrottle(1 << 20), Shared: loop.NewThrottle(1 << 20)}
			c := newBed(t, receiving(receive)).conn(OpenOptions{Throttles: ts}, plain1)
			c.h.framer.(*framer1).dec = frame1.NewDecoder(frame1.Config{}, nil, one.lim)
			lent := c.c.Snapshot().PoolLent
			c.arrive(header1(one.hd))
			if err := c.own.fault(); !errors.Is(err, one.want) {
				t.Errorf("%s: fault %v, want %v", one.name, err, one.want)
			}
			if one.want != nil && c.c.Snapshot().PoolLent != lent || ts.Bytes.Used()+ts.Shared.Used() != 0 {
				t.Errorf("%s: %d buffers, %d units", one.name, c.c.Snapshot().PoolLent-lent, ts.Bytes.Used()+ts.Shared.Used())
			}
		}
	}
}

// Every field of a header with a right crc and every wild value.
// Matrix: V1-08
func TestAnyWildFieldOfAHeaderOfMsgr1IsAFaultOrHarmless(t *testing.T) {
	b := newBed(t, nil)
	p := &pair{bed: b, good: b.conn(OpenOptions{}, plain1)}
	clean := header1(frame1.Header{Seq: 1, TID: 2, Type: 3, Priority: 4, Version: 5})[:1+frame1.NewHeaderSize-4]
	p.wildFields("header", plain1, clean, func(changed []byte) []byte {
		changed = binary.LittleEndian.AppendUint32(changed, frame.SegmentCRC(0, changed[1:]))
		return frame1.NewEncoder(frame1.Config{}, nil, [136]byte{}).AppendFooter(changed, &frame1.Header{}, frame1.Sums{})
	})
}

// With checks that are switched off the bytes count as they came, and what is passed on
// has the crcs of these bytes.
// Matrix: V1-05
func TestCRCsThatAreSwitchedOffAreNeitherCheckedNorPassedOn(t *testing.T) {
	for _, one := range []struct {
		cfg     frame1.Config
		damaged [3]bool // the segments whose damage passes
	}{
		{frame1.Config{}, [3]bool{}},
		{frame1.Config{NoDataCRC: true}, [3]bool{false, false, true}},
	} {
		for _, size := range []int{100, 70_000} {
			for i, passes := range one.damaged {
				r := newRelay(t, wireMode{msgr1: &one.cfg}, slices.Concat(wireModes[:2], msgr1Modes)...)
				segs := [3][]byte{payload(1, 50), payload(2, 60), payload(3, size)}
				wire := r.in.peer.message(1, 0, &Message{Front: segs[0], Middle: segs[1], Data: segs[2]})
				wire[1+frame1.NewHeaderSize+[3]int{0, 50, 110}[i]] ^= 1
				segs[i] = bytes.Clone(segs[i])
				segs[i][0] ^= 1
				r.in.own.onMessage = func(_ *Handler, m *Message) {
					for _, c := range r.out {
						must(t, c.h.Send(m.Clone()))
					}
				}
				r.in.flow(wire)
				if passes != (r.in.own.fault() == nil) {
					t.Fatalf("%+v, segment %d: fault %v", one.cfg, i, r.in.own.fault())
				}
				if passes {
					for _, c := range r.out {
						f := c.take()
						if len(f) != 1 || !bytes.Equal(f[0].seg[i+1], segs[i]) {
							t.Errorf("%+v, segment %d: %d messages", one.cfg, i, len(f))
						}
					}
				}
			}
		}
	}
}
