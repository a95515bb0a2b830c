package dataplane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// header1 is the tag and the header of a message, whatever it says.
func header1(hd frame1.Header) []byte {
	return frame1.NewEncoder(frame1.Config{}, nil, [136]byte{}).AppendHeader(nil, &hd)
}

// What no message may have is refused when its header is there, and what one may have
// takes nothing before its bytes come.
// Matrix: V1-08
func TestAnnouncedLengthsOfMsgr1TakeNoMemory(t *testing.T) {
	lim := frame.DefaultLimits()
	for _, one := range []struct {
		name string
		hd   frame1.Header
		want error
	}{
		{"front", frame1.Header{Seq: 1, FrontLen: lim.Front + 1}, frame.ErrTooLarge},
		{"middle", frame1.Header{Seq: 1, MiddleLen: lim.Middle + 1}, frame.ErrTooLarge},
		{"data", frame1.Header{Seq: 1, DataLen: lim.Data + 1}, frame.ErrTooLarge},
		{"all", frame1.Header{Seq: 1, FrontLen: 1<<32 - 1, MiddleLen: 1<<32 - 1, DataLen: 1<<32 - 1, DataOff: 1<<16 - 1}, frame.ErrTooLarge},
		{"the most", frame1.Header{Seq: 1, FrontLen: lim.Front, MiddleLen: lim.Middle, DataLen: lim.Data, DataOff: 1<<16 - 1}, nil},
	} {
		for _, receive := range receiveModes {
			ts := &loop.Throttles{Bytes: loop.NewThrottle(1 << 20), Shared: loop.NewThrottle(1 << 20)}
			c := newBed(t, receiving(receive)).conn(OpenOptions{Throttles: ts}, plain1)
			lent := c.c.Snapshot().PoolLent
			c.arrive(header1(one.hd))
			if err := c.own.fault(); !errors.Is(err, one.want) {
				t.Errorf("%s: fault %v, want %v", one.name, err, one.want)
			}
			if one.want != nil && c.c.Snapshot().PoolLent != lent || ts.Bytes.Used()+ts.Shared.Used() != 0 {
				t.Errorf("%s: %d buffers, %d units", one.name, c.c.Snapshot().PoolLent-lent, ts.Bytes.Used()+ts.Shared.Used())
			}
			c.close()
		}
	}
}

// Whatever the decoder was told to accept: the sum of three lengths must not wrap.
// Matrix: V1-08
func TestLengthsOfMsgr1WithoutLimitsDoNotWrap(t *testing.T) {
	const most = 1<<32 - 1
	for _, hd := range []frame1.Header{{Seq: 1, FrontLen: most, MiddleLen: 1, DataLen: most}, {Seq: 1, FrontLen: most, DataLen: 1}} { // the second to 0
		c := newBed(t, nil).conn(OpenOptions{}, plain1)
		c.h.framer.(*framer1).dec = frame1.NewDecoder(frame1.Config{}, nil, frame.Limits{Front: most, Middle: most, Data: most})
		c.arrive(header1(hd))
		if !errors.Is(c.own.fault(), frame.ErrTooLarge) {
			t.Errorf("fault %v", c.own.fault())
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
		changed = binary.LittleEndian.AppendUint32(changed, frame1.SegmentCRC(0, changed[1:]))
		return frame1.NewEncoder(frame1.Config{}, nil, [136]byte{}).AppendFooter(changed, &frame1.Header{}, frame1.Sums{})
	})
}

// The units are taken in the order of the protocol text, all before the message is
// dispatched: the first throttle that is full is the one that is waited for.
func TestAMessageOfMsgr1WaitsForTheFirstThrottleThatIsFull(t *testing.T) {
	for full := range 3 {
		ts := &loop.Throttles{Frames: loop.NewThrottle(3), Bytes: loop.NewThrottle(3000), Shared: loop.NewThrottle(3000)}
		list := []*loop.Throttle{ts.Frames, ts.Bytes, ts.Shared}
		list[full].SetLimit(1)
		c := newBed(t, nil).conn(OpenOptions{Throttles: ts}, plain1)
		kept := c.keep()
		for seq := uint64(1); seq <= 2; seq++ {
			c.arrive(c.peer.message(seq, 0, &Message{Front: make([]byte, 1000)}))
		}
		for i, th := range list {
			if want := map[bool]int64{true: 1}[i == full]; th.Waiting() != want {
				t.Errorf("throttle %d of the order is full: %d wait for throttle %d", full, th.Waiting(), i)
			}
		}
		if ts.Frames.Used() != 1 || ts.Bytes.Used() != 1000 || ts.Shared.Used() != 1000 {
			t.Errorf("%d, %d and %d are held by one message", ts.Frames.Used(), ts.Bytes.Used(), ts.Shared.Used())
		}
		(*kept)[0].Release()
		c.settle()
		if len(*kept) != 2 {
			t.Errorf("throttle %d: the second message does not come", full)
		}
		(*kept)[1].Release()
	}
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
