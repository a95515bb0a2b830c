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

// Matrix: TH-01
func TestMessageLimitLeavesTheNextOneUnreadUntilARelease(t *testing.T) {
	const limit, total = 3, 10
	th := loop.NewThrottle(limit)
	tc := newThrottledConns(t, 1, &loop.Throttles{Frames: th})
	c := tc.conns[0]
	for seq := uint64(1); seq <= total; seq++ {
		c.sock.Arrive(c.peer.message(seq, 0, &Message{TID: seq, Front: make([]byte, 1000)}))
	}
	tc.settle()
	for done := limit; ; done++ {
		if len(tc.order) != min(done, total) || th.Used() > limit {
			t.Fatalf("%d messages dispatched, %d held, limit %d", len(tc.order), th.Used(), limit)
		}
		if len(tc.kept) == 0 {
			break
		}
		if want := done < total; (th.Waiting() == 1) != want || c.h.statistics(tc.c).Throttled != want {
			t.Fatalf("after %d: %d wait, throttled=%v", done, th.Waiting(), !want)
		}
		tc.release()
	}
	for i, tid := range tc.order {
		if tid != uint64(i+1) {
			t.Fatalf("order %v", tc.order)
		}
	}
	if th.Used() != 0 {
		t.Errorf("%d units are lost", th.Used())
	}
}

// Matrix: TH-02
func TestByteLimitCountsFrontMiddleAndData(t *testing.T) {
	th := loop.NewThrottle(600)
	tc := newThrottledConns(t, 1, &loop.Throttles{Bytes: th})
	c := tc.conns[0]
	c.sock.Arrive(c.peer.message(1, 0, &Message{Front: make([]byte, 100), Middle: make([]byte, 200), Data: make([]byte, 300)}))
	c.sock.Arrive(c.peer.message(2, 0, &Message{Front: make([]byte, 1)}))
	tc.settle()
	if th.Used() != 600 || len(tc.kept) != 1 {
		t.Fatalf("%d bytes of 600, %d messages", th.Used(), len(tc.kept))
	}
	tc.release()
	if th.Used() != 1 || len(tc.kept) != 1 {
		t.Fatalf("after the release: %d bytes, %d messages", th.Used(), len(tc.kept))
	}
}

// A large message is not passed by small ones that come later, so that it
// finds room in the end.
// Matrix: TH-04
func TestALargeMessageIsNotPassedByThoseBehindIt(t *testing.T) {
	th := loop.NewThrottle(100)
	tc := newThrottledConns(t, 2, &loop.Throttles{Bytes: th})
	small, large := tc.conns[0], tc.conns[1]
	arrive := func(seq uint64) {
		small.sock.Arrive(small.peer.message(seq, 0, &Message{TID: seq, Front: make([]byte, 10)}))
		tc.settle()
	}
	arrive(1)
	large.sock.Arrive(large.peer.message(1, 0, &Message{TID: 1000, Front: make([]byte, 96)}))
	tc.settle()
	for seq := uint64(2); seq <= 10; seq++ {
		arrive(seq)
		if len(tc.order) != 1 || th.Used() != 10 || th.Waiting() != 2 {
			t.Fatalf("dispatched %v, %d of 100 bytes held, %d wait", tc.order, th.Used(), th.Waiting())
		}
	}
	tc.release()
	if !slices.Equal(tc.order, []uint64{1, 1000}) || th.Used() != 96 {
		t.Fatalf("dispatched %v, %d of 100 bytes held, %d wait", tc.order, th.Used(), th.Waiting())
	}
	tc.releaseEach(&tc.kept)
	if th.Used() != 0 || len(tc.order) != 11 {
		t.Errorf("%d bytes are held, dispatched %v", th.Used(), tc.order)
	}
}

func TestAWaiterThatKeepsItsPlaceIsServedBeforeLaterOnes(t *testing.T) {
	th := loop.NewThrottle(100)
	tc := newThrottledConns(t, 3, &loop.Throttles{Bytes: th})
	send := func(i int, tid uint64, size int) {
		c := tc.conns[i]
		c.sock.Arrive(c.peer.message(tid, 0, &Message{TID: tid, Front: make([]byte, size)}))
		tc.settle()
	}
	send(0, 1, 50)
	send(0, 2, 50)
	send(1, 3, 90) // waits, and will be woken once in vain
	send(2, 4, 90)
	tc.release()
	if len(tc.order) != 2 || th.Waiting() != 2 {
		t.Fatalf("dispatched %v, %d wait", tc.order, th.Waiting())
	}
	tc.release()
	if len(tc.order) != 3 || tc.order[2] != 3 {
		t.Fatalf("dispatched %v: the first in line lost its place", tc.order)
	}
}

func TestTheNextInLineHearsOfWhatTheFirstLeaves(t *testing.T) {
	// The first takes its share and then waits again for more than is left;
	// what is left is enough for the second.
	th := loop.NewThrottle(100)
	tc := newThrottledConns(t, 3, &loop.Throttles{Bytes: th})
	send := func(i int, seq, tid uint64, size int) {
		c := tc.conns[i]
		c.sock.Arrive(c.peer.message(seq, 0, &Message{TID: tid, Front: make([]byte, size)}))
	}
	send(0, 1, 1, 100)
	tc.settle()
	send(1, 1, 2, 40)
	tc.settle()
	tc.conns[1].sock.Arrive(tc.conns[1].peer.message(2, 0, &Message{TID: 3, Front: make([]byte, 90)}))
	send(2, 1, 4, 10)
	tc.settle()
	tc.release()
	if len(tc.order) != 3 || tc.order[2] != 4 {
		t.Fatalf("dispatched %v, %d of 100 bytes held, %d wait", tc.order, th.Used(), th.Waiting())
	}
}

func TestADeadWaiterPassesTheWakeUpOn(t *testing.T) {
	th := loop.NewThrottle(1)
	tc := newThrottledConns(t, 4, &loop.Throttles{Frames: th})
	for i, c := range tc.conns {
		c.sock.Arrive(c.peer.message(1, 0, &Message{TID: uint64(i)}))
		tc.settle()
	}
	for _, i := range []int{1, 2} {
		tc.conns[i].h.Close(nil)
		tc.settle()
	}
	tc.release()
	if len(tc.order) != 2 || tc.order[1] != 3 {
		t.Fatalf("dispatched %v: the wake-up died with its connection", tc.order)
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
				size := len(newModeCodec(t, mode).message(1, 0, msg))
				b := newPostBed(t, loop.ReceiveReady, large)
				for cut := first; cut <= size; cut = max(cut+1, min(cut+7, size)) { // all modes together: every byte
					for i, way := range []string{"hang-up", "close", "old", "refused"} {
						ts := &loop.Throttles{Frames: loop.NewThrottle(5), Bytes: loop.NewThrottle(1000), Shared: loop.NewThrottle(1000)}
						c := b.connMode(OpenOptions{Throttles: ts}, mode)
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
	c.open(OpenOptions{Throttles: &loop.Throttles{Frames: th}}, frame.Rev1, false)
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
