package dataplane

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// throttledConns are connections of one core that share throttles; every
// message is kept until it is released.
type throttledConns struct {
	*bed
	conns []*conn
	kept  []*Message
	order []uint64 // TIDs in the order of dispatch
}

func newThrottledConns(t *testing.T, n int, ts *loop.Throttles) *throttledConns {
	tc := &throttledConns{bed: newBed(t, nil)}
	for range n {
		tc.add(tc.conn(OpenOptions{Throttles: ts}))
	}
	return tc
}

func (tc *throttledConns) add(c *conn) {
	c.own.onMessage = func(_ *Handler, m *Message) {
		m.Retain()
		tc.kept, tc.order = append(tc.kept, m), append(tc.order, m.TID)
	}
	tc.conns = append(tc.conns, c)
}

// release gives back the oldest message.
func (tc *throttledConns) release() {
	m := tc.kept[0]
	tc.kept = tc.kept[1:]
	m.Release()
	tc.settle()
}

// arrival is a message for one of several connections.
type arrival struct {
	conn int
	tid  uint64
	size int // front, middle and data together
}

// Matrix: TH-01, TH-02, TH-04
func TestConnectionsWaitInLineForAThrottle(t *testing.T) {
	for _, one := range []struct {
		name   string
		frames bool // it counts messages, else bytes
		limit  int64
		come   []arrival
		closed []int      // connections that end before the first release
		order  [][]uint64 // the messages that come, at first and with each release of the oldest one
	}{
		{"messages count", true, 3, []arrival{{0, 1, 60}, {0, 2, 60}, {0, 3, 60}, {0, 4, 60}, {0, 5, 60}}, nil,
			[][]uint64{{1, 2, 3}, {4}, {5}, {}}},
		{"bytes count", false, 600, []arrival{{0, 1, 600}, {0, 2, 1}}, nil, [][]uint64{{1}, {2}}},
		{"a large message is not passed", false, 100, []arrival{{0, 1, 10}, {1, 10, 96}, {0, 2, 10}, {0, 3, 10}}, nil,
			[][]uint64{{1}, {10}, {2, 3}}},
		{"one that was woken in vain keeps its place", false, 100, []arrival{{0, 1, 50}, {0, 2, 50}, {1, 3, 90}, {2,
			4, 90}}, nil, [][]uint64{{1, 2}, {}, {3}, {4}}},
		{"the next one hears of what the first leaves", false, 100, []arrival{{0, 1, 100}, {1, 2, 40}, {1, 3, 90}, {2,
			4, 10}}, nil, [][]uint64{{1}, {2, 4}, {3}, {}}},
		{"the end of those in line passes the wake-up on", true, 1, []arrival{{0, 1, 6}, {1, 2, 6}, {2, 3, 6}, {3, 4,
			6}}, []int{1, 2}, [][]uint64{{1}, {4}}},
	} {
		t.Run(one.name, func(t *testing.T) {
			th, ts := loop.NewThrottle(one.limit), &loop.Throttles{}
			if ts.Bytes = th; one.frames {
				ts.Bytes, ts.Frames = nil, th
			}
			tc, seqs := newThrottledConns(t, 4, ts), [4]uint64{}
			for _, a := range one.come {
				c := tc.conns[a.conn]
				seqs[a.conn]++
				c.sock.Arrive(c.peer.message(seqs[a.conn], 0, &Message{
					TID: a.tid, Front: make([]byte, a.size/6), Middle: make([]byte, a.size/3), Data: make([]byte,
						a.size-a.size/6-a.size/3)}))
				tc.settle()
			}
			for _, i := range one.closed {
				tc.conns[i].closeHandler()
			}
			var want []uint64
			for i, more := range one.order {
				if i > 0 {
					tc.release()
				}
				if want = append(want, more...); !slices.Equal(tc.order, want) || th.Used() > one.limit {
					t.Fatalf("behind %d releases %v have come, want %v; %d are held", i, tc.order, want, th.Used())
				}
				stopped := int64(0)
				for _, c := range tc.conns {
					if c.h.statistics(tc.c).Throttled {
						stopped++
					}
				}
				if th.Waiting() != stopped || (stopped == 0) != (len(want) == len(one.come)-len(one.closed)) {
					t.Errorf("behind %d releases %d wait, and %d are throttled", i, th.Waiting(), stopped)
				}
			}
			if tc.releaseEach(&tc.kept); th.Used() != 0 {
				t.Errorf("%d units are lost", th.Used())
			}
		})
	}
}

// Matrix: TH-12
func TestLimitsChangeAtRunTime(t *testing.T) {
	th := loop.NewThrottle(4)
	tc := newThrottledConns(t, 1, &loop.Throttles{Frames: th})
	c := tc.conns[0]
	for seq := uint64(1); seq <= 20; seq++ {
		c.sock.Arrive(c.peer.message(seq, 0, &Message{TID: seq}))
	}
	tc.settle()
	th.SetLimit(2)
	tc.settle()
	if len(tc.kept) != 4 {
		t.Fatalf("%d messages held", len(tc.kept))
	}
	for _, want := range []int{4, 4, 4, 5, 6} { // drains to 2 held, then one for one
		if len(tc.order) != want {
			t.Fatalf("%d messages dispatched, want %d", len(tc.order), want)
		}
		tc.release()
	}
	th.SetLimit(5)
	tc.settle()
	if th.Used() != 5 {
		t.Fatalf("raised to 5: %d held", th.Used())
	}
	th.SetLimit(0)
	tc.settle()
	if len(tc.order) != 20 || th.Waiting() != 0 {
		t.Fatalf("unlimited: %d of 20 messages, %d wait", len(tc.order), th.Waiting())
	}
}

// Wherever the socket ends, what the message held of the throttles and of memory comes back,
// also if its data might have been for a posting.
// Matrix: RP-03, TH-05, INV-06
func TestUnitsReturnWhereverTheSocketEnds(t *testing.T) {
	for first, mode := range allModes {
		t.Run(mode.name, func(t *testing.T) {
			for _, large := range []int{100, 1 << 20} {
				msg := &Message{TID: 7, Front: payload(1, 20), Middle: payload(2, 5), Data: payload(3, 350)}
				size := len(newPeer(t, mode).message(1, 0, msg))
				b := newPostBed(t, loop.ReceiveReady, large)
				for cut := first; cut <= size; cut = max(cut+1, min(cut+7, size)) { // all modes together: every byte
					for i, way := range []string{"hang-up", "close", "old", "refused"} {
						ts := &loop.Throttles{Frames: loop.NewThrottle(5), Bytes: loop.NewThrottle(1000), Shared: loop.NewThrottle(1000)}
						c := b.conn(OpenOptions{Throttles: ts}, mode)
						if (cut+i)%2 == 0 {
							c.post(8, 400)
						}
						if way == "old" {
							c.h.inSeq = 7
						}
						wire := c.peer.message(1, 0, msg)
						c.arrive(wire[:cut])
						switch way {
						case "close":
							c.h.Close(nil)
						case "refused":
							c.h.Refuse()
							fallthrough
						case "old":
							c.sock.Arrive(wire[cut:])
						}
						c.settle()
						if way == "hang-up" {
							c.hangUp()
						}
						where := fmt.Sprintf("%s at %d of %d", way, cut, size)
						if got := len(c.own.list()); got > 1 || got == 1 && cut < size {
							t.Fatalf("%s: %d messages", where, got)
						}
						nothingHeld(t, c, ts, where)
						c.closeHandler()
					}
				}
			}
		})
	}
}

// aborted is a message frame that its sender gave up.
func (p *peerCodec) aborted(seq uint64, m *Message) []byte {
	hd := frame.MessageHeader{Seq: seq}
	var seg0 [frame.MessageHeaderSize]byte
	hd.Put(&seg0)
	lens := [4]int{len(seg0), len(m.Front), len(m.Middle), len(m.Data)}
	var segs [4][]byte
	for i := 1; i < 4; i++ {
		segs[i] = make([]byte, lens[i])
	}
	return abortedFrame(p.enc, frame.TagMessage, seg0[:], segs)
}

// abortedFrame is a frame whose late status says that its sender gave it up. It has
// more than one segment, or is of revision 0: others have no late status.
func abortedFrame(enc *frame.Encoder, tag frame.Tag, seg0 []byte, segs [4][]byte) []byte {
	b := enc.AppendOpen(nil, tag, seg0, [4]int{len(seg0), len(segs[1]), len(segs[2]), len(segs[3])})
	for _, s := range segs[1:] {
		b = append(b, s...)
	}
	late := len(b)
	b = enc.AppendClose(b, segs)
	b[late] = 1 // aborted, in both revisions
	return b
}

// Matrix: TH-11
func TestReplayedMessagesAreChargedAgainOnlyWhenTheyCome(t *testing.T) {
	th := loop.NewThrottle(10)
	c := newBed(t, nil).conn(OpenOptions{Throttles: &loop.Throttles{Frames: th}})
	kept := c.keep()
	for seq := uint64(1); seq <= 3; seq++ {
		c.sock.Arrive(c.peer.message(seq, 0, &Message{}))
	}
	c.settle()
	c.hangUp()
	c.open(OpenOptions{Throttles: &loop.Throttles{Frames: th}})
	for seq := uint64(1); seq <= 4; seq++ { // three of them once more
		c.sock.Arrive(c.peer.message(seq, 0, &Message{}))
	}
	c.settle()
	if th.Used() != 4 || len(*kept) != 4 {
		t.Fatalf("%d units for %d messages", th.Used(), len(*kept))
	}
	for _, m := range *kept {
		m.Release()
	}
	if th.Used() != 0 {
		t.Fatalf("%d units are lost", th.Used())
	}
}

// Matrix: TH-08
func TestAThrottledConnectionDoesNotReadOnAndSeesItsEndAfterTheRelease(t *testing.T) {
	th := loop.NewThrottle(1)
	tc := newThrottledConns(t, 1, &loop.Throttles{Frames: th})
	c := tc.conns[0]
	for seq := uint64(1); seq <= 3; seq++ {
		c.sock.Arrive(c.peer.message(seq, 0, &Message{TID: seq}))
	}
	tc.settle()
	c.sock.HangUp()
	tc.settle()
	reads, turns := c.sock.Reads, tc.c.Counts().Turns
	for range 10 {
		tc.after(time.Second)
	}
	if c.sock.Reads != reads {
		t.Errorf("%d reads while throttled", c.sock.Reads-reads)
	}
	if spins := tc.c.Counts().Turns - turns; spins > 40 {
		t.Errorf("%d turns while throttled", spins)
	}
	if c.own.fault() != nil {
		t.Error("faulted before what had arrived was delivered")
	}
	for range 3 {
		tc.release()
	}
	if len(tc.order) != 3 || c.own.fault() == nil {
		t.Errorf("dispatched %v, fault %v", tc.order, c.own.fault())
	}
}

// The task of the first call reaches the core that the handler has left, and comes to
// the new one behind that of the second call.
func TestTheLastOfPauseAndResumeHoldsWhileTheHandlerMoves(t *testing.T) {
	for _, pause := range []bool{true, false} {
		a, b := twoBeds(t, nil)
		c := a.conn(OpenOptions{})
		first, last := c.h.Resume, c.h.Pause
		if !pause {
			first, last = last, first
		}
		arrived := false
		between := loop.Task{Run: func(*loop.Core) {
			if c.h.Core() != b.c {
				t.Error("the handler is still on the old core")
			}
			last()
		}}
		c.h.Migrate(b.c, func() { arrived = true })
		a.c.Post(&between)
		first()
		moveSock(t, a, b, c, func() bool { return arrived })
		b.settle()
		c.sock.Arrive(c.peer.message(1, 0, &Message{TID: 1}))
		b.settle()
		if got := len(c.own.list()); (got == 0) != pause || c.own.fault() != nil {
			t.Errorf("last called pause: %v, and %d messages came, %v", pause, got, c.own.fault())
		}
		b.close()
		a.close()
	}
}
