package dataplane

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/fakedriver"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

const kib = 1 << 10

// budgetConns are connections that share a dispatch budget; every message is
// kept.
func budgetConns(t *testing.T, n int, limit, share int64) (*throttledConns, *loop.Throttle) {
	th := loop.NewThrottle(limit)
	tc := newThrottledConns(t, 0, nil)
	for range n {
		tc.add(tc.conn(OpenOptions{Throttles: &loop.Throttles{Shared: th, Share: share}}))
	}
	return tc, th
}

// part has the first bytes of a message arrive, and returns the others.
func (c *conn) part(tid uint64, size, arrived int) (rest []byte) {
	b := c.peer.message(1, 0, &Message{TID: tid, Data: bytes.Repeat([]byte{byte(tid)}, size)})
	c.flow(b[:arrived])
	return b[arrived:]
}

// flow has bytes arrive, some at a time.
func (c *conn) flow(p []byte) {
	for ; len(p) > 0; p = p[min(len(p), 32*kib):] {
		c.sock.Arrive(p[:min(len(p), 32*kib)])
	}
	c.settle()
}

// Matrix: HI-08
func TestAnAnnouncedLengthTakesNothingOfTheBudget(t *testing.T) {
	tc, th := budgetConns(t, 3, 100*kib, 0)
	tc.conns[0].part(1, 16*kib*kib, 77)
	tc.conns[1].part(2, 9*kib*kib, 77)
	if th.Used() > 200 {
		t.Errorf("two messages of which 154 bytes have come hold %d bytes", th.Used())
	}
	tc.conns[2].flow(tc.conns[2].part(3, 90*kib, 0))
	if len(tc.order) != 1 || tc.order[0] != 3 {
		t.Errorf("dispatched %v beside what was only announced", tc.order)
	}
	c := tc.conn(OpenOptions{Throttles: &loop.Throttles{Bytes: loop.NewThrottle(kib * kib)}})
	c.part(4, 300*kib, 300*kib+90)
	if c.part(5, 300*kib, frame.PreambleSize); c.c.Snapshot().Paused != 0 {
		t.Error("a preamble like the last one, without a byte behind it, stops the connection")
	}
}

// Matrix: HI-29, RL-04
func TestUnfinishedMessagesThatHoldTheWholeBudgetEndOneAfterTheOther(t *testing.T) {
	const size = 300 * kib
	tc, th := budgetConns(t, 4, 256*kib, 0)
	var rests [][]byte
	for i, c := range tc.conns[:3] {
		rests = append(rests, c.part(uint64(i), size, 128*kib))
	}
	for i, c := range tc.conns[:3] {
		c.flow(rests[i])
	}
	// Nothing is released, so one of them can go on and no more.
	if len(tc.order) != 1 {
		t.Fatalf("dispatched %v, %d bytes are held, %d wait", tc.order, th.Used(), th.Waiting())
	}
	if most := int64(256*kib + size + pieceBytes + loop.ReceiveBytes); th.Used() > most {
		t.Fatalf("%d bytes are held of %d, more than one message beyond", th.Used(), th.Limit())
	}
	tc.conns[3].flow(tc.conns[3].part(3, 10, 0))
	if len(tc.order) != 1 {
		t.Fatal("a message passed those that wait")
	}
	for range 4 {
		tc.release()
	}
	if len(tc.order) != 4 || th.Used() != 0 || th.Waiting() != 0 || th.Unfinished() != 0 {
		t.Fatalf("dispatched %v, %d bytes are held, %d of them unfinished, %d wait", tc.order, th.Used(), th.Unfinished(), th.Waiting())
	}
	// Another one can go on beyond the limit from here on.
	tc.conns[0].flow(tc.conns[0].peer.message(2, 0, &Message{TID: 4, Data: make([]byte, 300*kib)}))
	if len(tc.order) != 5 {
		t.Fatalf("dispatched %v, %d bytes are held, %d wait", tc.order, th.Used(), th.Waiting())
	}
	tc.release()
	for i, c := range tc.conns {
		if held := c.h.throttles.Held(); held != 0 {
			t.Errorf("connection %d holds %d bytes", i, held)
		}
	}
}

// Matrix: HI-29
func TestTheEndOfOneUnfinishedMessageLetsTheNextGoOn(t *testing.T) {
	tc, th := budgetConns(t, 3, 100*kib, 0)
	for i, c := range tc.conns {
		c.flow(c.part(uint64(i), 300*kib, 90*kib)[:32*kib])
	}
	going := func() (on []*conn) {
		for _, c := range tc.conns {
			if s := c.h.sock; s != nil && !s.Throttled() {
				on = append(on, c)
			}
		}
		return on
	}
	first := going()
	if len(first) != 1 {
		t.Fatalf("%d go on: %d of %d bytes, %d wait", len(first), th.Used(), th.Limit(), th.Waiting())
	}
	first[0].h.sock.Fault(io.EOF)
	tc.settle()
	if next := going(); len(next) == 0 || next[0] == first[0] {
		t.Error("one connection ended, and nobody goes on in its place")
	}
}

// Matrix: RL-04
func TestASmallMessagePassesInTheShareOfItsConnection(t *testing.T) {
	tc, th := budgetConns(t, 2, 100*kib, 8*kib)
	hog, other := tc.conns[0], tc.conns[1]
	hog.flow(hog.part(1, 200*kib, 0))
	if len(tc.order) != 1 || th.Used() != 200*kib {
		t.Fatalf("dispatched %v, %d bytes are held", tc.order, th.Used())
	}
	send := func(seq uint64) {
		other.sock.Arrive(other.peer.message(seq, 0, &Message{TID: 10 + seq, Front: make([]byte, 3*kib)}))
		tc.settle()
	}
	send(1)
	send(2)
	if len(tc.order) != 3 {
		t.Fatalf("dispatched %v: the share of the other connection was taken", tc.order)
	}
	send(3)
	if len(tc.order) != 3 || !other.h.sock.Throttled() {
		t.Fatal("a connection got more than its share of a full budget")
	}
	// A message of its own comes back: that is enough.
	tc.kept[1].Release()
	tc.settle()
	if len(tc.order) != 4 {
		t.Errorf("dispatched %v behind the release of a share", tc.order)
	}
}

// Matrix: KA-05, HI-19
func TestASlowMessageEndsItsConnection(t *testing.T) {
	bounds := OpenOptions{LeastRate: 10 * kib, MessageGrace: 10 * time.Second}
	for _, one := range []struct {
		name  string
		mode  wireMode
		rate  int  // bytes a second that come
		press bool // others wait
		opt   OpenOptions
		want  time.Duration
	}{
		{"at half the rate", plain2, 5 * kib, false, bounds, 21 * time.Second},
		{"at half the rate, in msgr1", plain1, 5 * kib, false, bounds, 21 * time.Second},
		{"above the rate", plain2, 11 * kib, false, bounds, 0},
		{"above the rate, but others wait", plain2, 11 * kib, true, bounds, 2 * time.Second},
		{"at half the rate, without grace", plain2, 5 * kib, false, OpenOptions{LeastRate: 10 * kib,
			MessageGrace: -1}, time.Second},
		{"at any rate", plain2, 5 * kib, false, OpenOptions{LeastRate: -1, MessageGrace: 10 * time.Second}, 0},
	} {
		t.Run(one.name, func(t *testing.T) {
			th := loop.NewThrottle(1)
			b := newBed(t, nil)
			one.opt.Throttles = &loop.Throttles{Shared: th}
			c := b.conn(one.opt, one.mode)
			other := b.conn(OpenOptions{Throttles: &loop.Throttles{Shared: th}})
			rest := c.part(1, 1<<20, 100)
			if one.press {
				other.sock.Arrive(other.peer.message(1, 0, &Message{Front: make([]byte, 300)}))
				b.settle()
			}
			var ended time.Duration
			for now := time.Second; now <= 40*time.Second && ended == 0; now += time.Second {
				c.sock.Arrive(rest[:one.rate])
				rest = rest[one.rate:]
				b.after(time.Second)
				if c.own.fault() != nil {
					ended = now
				}
			}
			if ended != one.want {
				t.Errorf("ended after %v, want %v", ended, one.want)
			}
			if one.want > 0 && (!errors.Is(c.own.fault(), errTooSlow) || countsOf(b.c).TooSlow != 1 || th.Unfinished() != 0) {
				t.Errorf("fault %v, counted %d, %d bytes are held", c.own.fault(), countsOf(b.c).TooSlow, th.Unfinished())
			}
		})
	}
}

func TestTimeInWhichWeDidNotReadIsNotTheMessagesFault(t *testing.T) {
	th := loop.NewThrottle(150 * kib)
	tc := newThrottledConns(t, 0, nil)
	for range 2 {
		tc.add(tc.conn(OpenOptions{Throttles: &loop.Throttles{Shared: th}, LeastRate: 10 * kib, MessageGrace: 10 * time.Second, Lossy: true}))
	}
	tc.conns[0].flow(tc.conns[0].part(1, 140*kib, 0))
	rest := tc.conns[1].part(2, 200*kib, 90*kib)
	paused := tc.conn(OpenOptions{LeastRate: 10 * kib, MessageGrace: 10 * time.Second})
	paused.part(3, 200*kib, 90*kib)
	paused.h.Pause()
	for range 100 {
		tc.after(time.Second)
	}
	paused.h.Resume()
	for range 19 { // it may take 19 s, of which the pause is no part
		paused.alive("paused before")
		tc.after(time.Second)
	}
	if err := paused.own.fault(); !errors.Is(err, errTooSlow) {
		t.Errorf("fault %v of a connection that was paused", err)
	}
	if err := tc.conns[1].own.fault(); err != nil || !tc.conns[1].h.sock.Throttled() {
		t.Fatalf("fault %v of a connection that waits", err)
	}
	tc.release()
	tc.after(time.Second)
	tc.conns[1].flow(rest)
	if err := tc.conns[1].own.fault(); err != nil || len(tc.kept) != 1 {
		t.Errorf("fault %v, %d messages", err, len(tc.kept))
	}
}

func TestAStoppedSocketIsGivenUpWhileAcksMayWaitBehindIt(t *testing.T) {
	for _, one := range []struct {
		name               string
		lossy, sends, want bool
	}{
		{"lossless, with messages to be acknowledged", false, true, true},
		{"lossless, with nothing sent", false, false, false},
		{"lossy", true, true, false},
	} {
		t.Run(one.name, func(t *testing.T) {
			ts := &loop.Throttles{Frames: loop.NewThrottle(1)}
			tc := newThrottledConns(t, 1, ts)
			c := tc.conns[0]
			c.h.Delay(false, nil)
			var gaps []time.Duration
			for range 3 {
				c.own.faults = nil
				c.open(OpenOptions{Throttles: ts, Lossy: one.lossy})
				if one.sends {
					must(t, c.h.Send(NewMessage(1, nil, nil)))
				}
				c.numbered(1, 3)
				begun := tc.Time
				for range 20 {
					tc.after(time.Second)
					if c.own.fault() != nil {
						gaps = append(gaps, tc.Time-begun)
						break
					}
				}
				if err := c.own.fault(); one.want != errors.Is(err, errGivenUp) {
					t.Fatalf("fault %v behind %v", err, tc.Time-begun)
				}
				if !one.want {
					return
				}
			}
			if gaps[0] != 3*time.Second || gaps[1] != 6*time.Second || gaps[2] != 12*time.Second || countsOf(tc.c).GivenUp != 3 {
				t.Errorf("given up after %v, counted %d", gaps, countsOf(tc.c).GivenUp)
			}
			c.h.RequeueSentUpTo(1) // what the reconnect tells
			tc.settle()
			if c.h.givenUp != 0 {
				t.Error("an ack does not bring the patience back")
			}
		})
	}
}

// Matrix: TH-08
func TestAStoppedConnectionNoticesThatItsPeerIsGone(t *testing.T) {
	for _, one := range []struct {
		name  string
		gone  func(f *fakedriver.Sock)
		after time.Duration
	}{
		{"reset", func(f *fakedriver.Sock) { f.Edge(unix.POLLERR | unix.POLLHUP) }, 0},
		{"end of the stream", func(f *fakedriver.Sock) { f.HangUp() }, hungUpFor},
	} {
		t.Run(one.name, func(t *testing.T) {
			tc := newThrottledConns(t, 1, &loop.Throttles{Frames: loop.NewThrottle(1)})
			c := tc.conns[0]
			c.sock.Arrive(c.peer.message(1, 0, &Message{}), c.peer.message(2, 0, &Message{}))
			tc.settle()
			one.gone(c.sock)
			tc.settle()
			for waited := time.Duration(0); waited < one.after; waited += time.Second {
				c.alive("after ", waited)
				tc.after(time.Second)
			}
			if !errors.Is(c.own.fault(), io.EOF) {
				t.Errorf("fault %v", c.own.fault())
			}
		})
	}
}

// Matrix: RL-07
func TestTheSendBudgetBoundsAllAndLeavesEachItsShare(t *testing.T) {
	b := NewSendBudget(1000, 100)
	var all [4]queueGauge
	for i := range all {
		all[i].total = b
	}
	hog, other, third, fourth := &all[0], &all[1], &all[2], &all[3]
	if !hog.reserve(1000) {
		t.Fatal("refused within the bound")
	}
	if hog.reserve(1) {
		t.Error("a connection holds more than the bound")
	}
	if !other.reserve(60) || !other.reserve(40) || other.reserve(1) {
		t.Error("a connection has not just its share of a full budget")
	}
	// The shares of all come out of one reserve.
	if !third.reserve(100) || !fourth.reserve(50) || fourth.reserve(1) || b.Used() != 1250 {
		t.Errorf("%d bytes are held, the reserve is %d", b.Used(), b.Reserve())
	}
	third.release(100)
	if !fourth.reserve(50) || fourth.reserve(1) {
		t.Error("there is no share after one came back, or more than one")
	}
	fourth.releaseAll(2, 100)
	room, more := other.room(), third.room()
	again := other.reserve(1)
	if again || other.reserve(1) || third.reserve(101) || len(b.queues) != 2 {
		t.Errorf("more than the share, or %d connections wait", len(b.queues))
	}
	select {
	case <-room:
		t.Error("room is told of too early")
	default:
	}
	hog.release(1000)
	<-room
	<-more
	if len(b.queues) > 0 || !third.reserve(800) || b.Used() != 900 {
		t.Errorf("%d bytes are held", b.Used())
	}
	third.release(800)
	other.release(60)
	other.release(40)
	if b.Used() != 0 {
		t.Errorf("%d bytes are lost", b.Used())
	}
	for i := range all {
		if n := all[i].messages.used.Load(); n != 0 {
			t.Errorf("connection %d: %d messages that were refused are counted", i, n)
		}
	}
}

// forgetful does not release what it has retained.
func forgetful(m *Message) *Message {
	m.Retain()
	return m
}

// Nothing else shows that a program forgets to release: the connection stays ready.
func TestTheLogSaysThatMessagesWhichAreNotReleasedStopConnections(t *testing.T) {
	var log bytes.Buffer
	b := newBed(t, func(cfg *loop.Config, _ *fakedriver.Driver) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	th := loop.NewThrottle(100 * kib)
	var kept []*Message
	var conns []*conn
	for range 3 {
		c := b.conn(OpenOptions{Throttles: &loop.Throttles{Shared: th}, Lossy: true})
		c.own.onMessage = func(_ *Handler, m *Message) { kept = append(kept, forgetful(m)) }
		conns = append(conns, c)
	}
	conns[0].flow(conns[0].part(1, 90*kib, 0))
	lines := func() int { return strings.Count(log.String(), "received messages are not released") }
	for i, c := range conns {
		c.flow(c.peer.message(uint64(2-min(i, 1)), 0, &Message{Data: make([]byte, 50*kib)}))
	}
	for range 4 {
		b.after(time.Second)
	}
	if n := lines(); n != 0 {
		t.Errorf("%d lines within 4 s", n)
	}
	for range 40 {
		b.after(time.Second)
	}
	if n := lines(); n != 1 || !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("%d lines in 44 s about three connections of one core: %s", n, log.String())
	}
	if who := "held=\"1 with 92160 bytes: dataplane.forgetful (budget_test.go:"; strings.Contains(log.String(), who) != invariants.Holding {
		t.Errorf("%s, of who holds the messages: %v in %s", who, !invariants.Holding, log.String())
	}
	for range 60 {
		b.after(time.Second)
	}
	if n := lines(); n != 2 {
		t.Errorf("%d lines in 104 s, want one a minute", n)
	}
	b.releaseEach(&kept)
}

// A peer has to take messages whose memory others wait for, as fast as it has to bring them; a
// lossless session keeps them until an ack, whatever becomes of the socket.
// Matrix: ST-15
func TestAPeerThatDoesNotTakeWhatOthersWaitForIsEnded(t *testing.T) {
	opt := OpenOptions{LeastRate: 10 * kib, MessageGrace: 10 * time.Second}
	const size = 320 * kib // worth 2 seconds, behind one of grace
	for _, one := range []struct {
		name     string
		lossless bool
		rate     int64
		wanted   bool
		want     time.Duration
	}{
		{"others wait", false, 0, true, 4 * time.Second},
		{"nobody waits", false, 0, false, 0},
		{"any rate will do", false, -1, true, 0},
		{"lossless", true, 0, true, 0},
	} {
		t.Run(one.name, func(t *testing.T) {
			b := newBed(t, nil)
			opt := opt
			opt.Lossy, opt.LeastRate = !one.lossless, cmp.Or(one.rate, opt.LeastRate)
			c := b.conn(opt)
			c.sock.Park = true
			freed := 0
			for range 2 { // the second write is another one, with a time of its own
				m := NewMessage(1, nil, make([]byte, size))
				m.BoundElsewhere(true)
				m.Free = func(*Message) { freed++ }
				must(t, c.h.Send(m))
				b.settle()
				if freed == 0 && one.want > 0 {
					b.after(2 * time.Second)
					c.sock.Finish(int32(c.sock.InFlight.Size()))
					b.settle()
				}
			}
			var ended time.Duration
			for now := time.Second; now <= 20*time.Second && ended == 0; now += time.Second {
				b.after(time.Second)
				if one.wanted {
					c.h.Wanted()
					b.settle()
				}
				if c.own.fault() != nil {
					ended = now
				}
			}
			if ended != one.want {
				t.Errorf("ended after %v, want %v: %v", ended, one.want, c.own.fault())
			}
			if one.want == 0 {
				return
			}
			if err := c.own.fault(); !errors.Is(err, errTooSlow) || !strings.Contains(err.Error(), "has not taken 327770 bytes in 4s") || countsOf(b.c).TooSlow != 1 {
				t.Errorf("%v, %d counted", err, countsOf(b.c).TooSlow)
			}
			c.h.Close(nil)
			if b.settle(); freed != 2 {
				t.Errorf("%d messages are freed", freed)
			}
		})
	}
}
