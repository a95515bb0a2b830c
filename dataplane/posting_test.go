package dataplane

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/fakedriver"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// target is posted memory with a fence on both sides.
type target struct {
	Posting
	all  []byte
	used int
}

const fence = 64

func newTarget(tid uint64, size int) *target {
	g := &target{all: bytes.Repeat([]byte{0xee}, size+2*fence)}
	g.Posting = Posting{TID: tid, Buffer: g.all[fence : fence+size : fence+size], User: g}
	return g
}

func (g *target) Used() { g.used++ }

// post posts memory of so many bytes for the data of a message.
func (c *conn) post(tid uint64, size int) *target {
	c.t.Helper()
	g := newTarget(tid, size)
	must(c.t, c.h.AddPosting(&g.Posting))
	return g
}

// fill is what the owner writes into memory that is his again.
func (g *target) fill() {
	for i := range g.Buffer {
		g.Buffer[i] = 0xa5
	}
}

func (g *target) untouched() bool {
	return bytes.Count(g.Buffer, []byte{0xa5}) == len(g.Buffer) && g.fenced()
}

func (g *target) fenced() bool {
	return bytes.Count(g.all[:fence], []byte{0xee})+bytes.Count(g.all[len(g.all)-fence:], []byte{0xee}) == 2*fence
}

// has says that m lies at the beginning of the memory.
func (g *target) has(m *Message) bool { return len(m.Data) > 0 && &m.Data[0] == &g.Buffer[0] }

// postBed is a connection of a bed of its own.
func postBed(t *testing.T, mode wireMode, receive loop.ReceiveMode, large int) (*conn, *loop.Throttles, *[]*Message) {
	return newPostBed(t, receive, large).poster(mode)
}

func newPostBed(t *testing.T, receive loop.ReceiveMode, large int) *bed {
	return newBed(t, func(cfg *loop.Config, d *fakedriver.Driver) {
		receiving(receive)(cfg, d)
		if large > 0 {
			cfg.LargeFrom = large
		}
	})
}

// poster is a connection with a throttle of each kind, whose messages are kept.
func (b *bed) poster(mode wireMode) (*conn, *loop.Throttles, *[]*Message) {
	ts := &loop.Throttles{Frames: loop.NewThrottle(5), Bytes: loop.NewThrottle(4 << 20), Shared: loop.NewThrottle(4 << 20)}
	c := b.conn(OpenOptions{Throttles: ts}, mode)
	return c, ts, c.keep()
}

// nothingHeld checks that all is given back.
func nothingHeld(t *testing.T, c *conn, ts *loop.Throttles, where string) {
	t.Helper()
	if ts.Frames.Used()+ts.Bytes.Used()+ts.Shared.Used()+ts.Held() != 0 || c.c.Snapshot().PoolInUse != 0 {
		t.Fatalf("%s: %d messages, %d and %d bytes of the throttles, %d of buffers are held", where,
			ts.Frames.Used(), ts.Bytes.Used(), ts.Shared.Used(), c.c.Snapshot().PoolInUse)
	}
}

// cutPosting is a connection with a posting, for which a part of a message has come.
type cutPosting struct {
	*conn
	ts    *loop.Throttles
	kept  *[]*Message
	g     *target
	msg   *Message
	wire  []byte // of msg
	cut   int    // what has come of it
	where string
	mode  wireMode
}

// overCuts has a part of a message arrive, cut anywhere, on a connection of each framing and
// receive mode. Behind run nothing of it is held.
func overCuts(t *testing.T, run func(t *testing.T, c *cutPosting)) {
	overModes(t, func(t *testing.T, mode wireMode, receive loop.ReceiveMode) {
		for _, large := range []int{100, 1 << 20} {
			msg := &Message{TID: 7, DataOff: 9, Front: payload(1, 21), Middle: payload(2, 13), Data: payload(3, 110)}
			size := len(newPeer(t, mode).message(1, 0, msg))
			b := newPostBed(t, receive, large)
			for cut := 0; cut <= size; cut += coarse(receive) + cut%3 {
				c := &cutPosting{msg: msg, cut: cut, mode: mode, where: fmt.Sprintf("cut at %d of %d, large from %d", cut, size, large)}
				c.conn, c.ts, c.kept = b.poster(mode)
				c.g, c.wire = c.post(7, 160), c.peer.message(1, 0, msg)
				c.arrive(c.wire[:cut])
				run(t, c)
				c.releaseEach(c.kept)
				nothingHeld(t, c.conn, c.ts, c.where)
				c.closeHandler()
			}
		}
	})
}

// came wants the message to have come whole, into the posting or elsewhere.
func (c *cutPosting) came(posted bool) {
	c.t.Helper()
	if len(*c.kept) != 1 || c.own.fault() != nil {
		c.t.Fatalf("%s: %d messages, fault %v", c.where, len(*c.kept), c.own.fault())
	}
	m := (*c.kept)[0]
	if m.Posted() != posted || c.g.has(m) != posted || !bytes.Equal(m.Data, c.msg.Data) || !bytes.Equal(m.Front, c.msg.Front) || !bytes.Equal(m.Middle, c.msg.Middle) {
		c.t.Fatalf("%s: posted %v, in place %v", c.where, m.Posted(), c.g.has(m))
	}
}

// Matrix: V1-13
func TestPostedDataLiesInTheMemoryOfTheUserWhereverTheStreamIsCut(t *testing.T) {
	overCuts(t, func(t *testing.T, c *cutPosting) {
		other := c.post(8, 160)
		c.arrive(c.wire[c.cut:])
		c.came(true)
		if c.g.used != 1 || other.used != 0 || !c.g.fenced() || bytes.Count(c.g.Buffer[110:], []byte{0xee}) != 50 {
			t.Fatalf("%s: used %d times, memory behind the data was written", c.where, c.g.used)
		}
		if st := c.h.statistics(c.c); st.Posted != 1 || st.Postings != 1 || c.h.RemovePosting(c.c, &c.g.Posting) {
			t.Fatalf("%s: %+v", c.where, st)
		}
		c.releaseEach(c.kept)
		if !bytes.Equal(c.g.Buffer[:110], c.msg.Data) {
			t.Fatalf("%s: memory of the user's was changed when the message was released", c.where)
		}
	})
}

// A large message in clear is read to where it was posted: what is ours has the rest of it.
// Matrix: V1-13
func TestLargePostedDataIsReadIntoItsPlace(t *testing.T) {
	for _, mode := range slices.Concat(wireModes[:2], msgr1Modes) {
		const size = 1 << 20
		c, _, kept := postBed(t, mode, loop.ReceiveReady, 0)
		g := c.post(7, size)
		wire := c.peer.message(1, 0, &Message{TID: 7, Front: payload(1, 100), Data: payload(3, size)})
		c.arrive(wire[:size/2])
		if n := c.c.Snapshot().PoolInUse; n > 8<<10 {
			t.Errorf("%s: %d bytes of buffers while half is there", mode.name, n)
		}
		c.sock.Reads, c.sock.Whole = 0, wire[size/2:]
		c.sock.Edge(0)
		c.settle()
		if len(*kept) != 1 || !g.has((*kept)[0]) || !bytes.Equal((*kept)[0].Data, payload(3, size)) || c.sock.Behind > 64<<10 || c.sock.Reads > 8 {
			t.Errorf("%s: %d messages in %d reads, %d bytes behind the data; fault %v", mode.name, len(*kept), c.sock.Reads, c.sock.Behind, c.own.fault())
		}
		c.releaseEach(kept)
	}
}

// The memory is the owner's again from the withdrawal on, and the message comes whole.
// Matrix: V1-13
func TestAPostingIsWithdrawnAtEveryByte(t *testing.T) {
	overCuts(t, func(t *testing.T, c *cutPosting) {
		if c.cut == len(c.wire) {
			return // it is used
		}
		if !c.h.RemovePosting(c.c, &c.g.Posting) || c.h.RemovePosting(c.c, &c.g.Posting) {
			t.Fatalf("%s: not once", c.where)
		}
		c.g.fill()
		c.arrive(c.wire[c.cut:])
		c.came(false)
		c.releaseEach(c.kept)
		if c.g.used != 0 || !c.g.untouched() {
			t.Fatalf("%s: memory of the user's was touched", c.where)
		}
	})
}

// The ack in a message frees one of ours, and that runs the user's code, between the last
// byte of the message and its dispatch.
// Matrix: V1-13, SE-28
func TestAPostingIsWithdrawnWhileItsMessageIsHandedOver(t *testing.T) {
	for _, size := range []int{100, 100_000} {
		for _, mode := range wireModes {
			c, ts, kept := postBed(t, mode, loop.ReceiveReady, 0)
			g := c.post(7, size)
			freed := false
			must(t, c.h.Send(&Message{Free: func(*Message) {
				freed = c.h.RemovePosting(c.c, &g.Posting)
				g.fill()
			}}))
			c.settle()
			c.flow(c.peer.message(1, 1, &Message{TID: 7, Front: payload(1, 10), Data: payload(3, size)}))
			if !freed || len(*kept) != 1 || c.own.fault() != nil {
				t.Fatalf("%s: withdrawn %v, %d messages, fault %v", mode.name, freed, len(*kept), c.own.fault())
			}
			if m := (*kept)[0]; m.Posted() || !bytes.Equal(m.Data, payload(3, size)) || !bytes.Equal(m.Front, payload(1, 10)) || !g.untouched() || g.used != 0 {
				t.Errorf("%s: posted %v", mode.name, m.Posted())
			}
			c.releaseEach(kept)
			nothingHeld(t, c, ts, mode.name)
		}
	}
}

// A socket that is lost in the middle leaves the posting to the message that comes again;
// one that comes twice does not touch it.
// Matrix: V1-13
func TestAPostingIsForTheMessageThatComesAgain(t *testing.T) {
	overCuts(t, func(t *testing.T, c *cutPosting) {
		if c.cut == len(c.wire) {
			return // it has come
		}
		c.hangUp()
		nothingHeld(t, c.conn, c.ts, c.where)
		if c.g.used != 0 || !slices.Equal(c.h.Postings(), []*Posting{&c.g.Posting}) {
			t.Fatalf("%s: used %d times, %d armed", c.where, c.g.used, len(c.h.Postings()))
		}
		c.own.faults = nil
		c.open(OpenOptions{Throttles: c.ts}, c.mode)
		c.arrive(c.peer.message(1, 0, c.msg))
		c.came(true)
		c.releaseEach(c.kept)
		again := c.post(7, 160)
		again.fill()
		c.arrive(c.peer.message(1, 0, c.msg))
		if st := c.h.statistics(c.c); st.Duplicates != 1 || again.used != 0 || !again.untouched() || !c.h.RemovePosting(c.c, &again.Posting) {
			t.Fatalf("%s: %d duplicates, used %d times", c.where, st.Duplicates, again.used)
		}
	})
}

func TestWhatDoesNotFitAPostingComesAsUsual(t *testing.T) {
	overModes(t, func(t *testing.T, mode wireMode, receive loop.ReceiveMode) {
		for _, size := range []int{101, 5000, 300_000} {
			c, ts, kept := postBed(t, mode, receive, 0)
			g := c.post(7, 100)
			g.fill()
			c.flow(c.peer.message(1, 0, &Message{TID: 7, Data: payload(3, size)}))
			c.flow(c.peer.message(2, 0, &Message{TID: 7, Front: payload(2, 50)})) // no data
			c.flow(c.peer.message(3, 0, &Message{TID: 6, Data: payload(3, 100)})) // for another one
			if len(*kept) != 3 || c.own.fault() != nil {
				t.Fatalf("%d bytes: %d messages, fault %v", size, len(*kept), c.own.fault())
			}
			for i, m := range *kept {
				if m.Posted() || i == 0 && !bytes.Equal(m.Data, payload(3, size)) {
					t.Errorf("%d bytes: message %d was posted: %v", size, i, m.Posted())
				}
			}
			if st := c.h.statistics(c.c); st.PostingMisses != 1 || st.Posted != 0 || !g.untouched() {
				t.Errorf("%d bytes: %+v", size, st)
			}
			c.flow(c.peer.message(4, 0, &Message{TID: 7, Data: payload(4, 100)})) // to the last byte
			if len(*kept) != 4 || !g.has((*kept)[3]) || !g.fenced() || g.used != 1 {
				t.Errorf("%d bytes: the posting is not used by what fits", size)
			}
			c.releaseEach(kept)
			nothingHeld(t, c, ts, fmt.Sprint(size))
		}
	})
}

// Large data that nobody has posted memory for begins on a page in msgr2, and in msgr1 where the
// header says that it does in its page. Postings of others change nothing.
func TestLargeDataLiesInItsPageAsItsProtocolSays(t *testing.T) {
	overModes(t, func(t *testing.T, mode wireMode, receive loop.ReceiveMode) {
		b := newPostBed(t, receive, 0)
		for i, off := range []uint16{0, 1, 511, 4093, 4095, 4096, 4097, 65535} {
			c, _, kept := b.poster(mode)
			if i%2 == 0 {
				c.post(8, 10)
			}
			for seq, sizes := range [][2]int{{5000, 70_000}, {0, 300_000}, {1, 100_000}} {
				c.flow(c.peer.message(uint64(seq+1), 0, &Message{TID: 7, DataOff: off, Front: payload(1, sizes[0]),
					Data: payload(3, sizes[1])}))
				want := uintptr(0)
				if mode.msgr1 != nil {
					want = uintptr(off) % pageSize
				}
				m := (*kept)[seq]
				if at := reflect.ValueOf(m.Data).Pointer() % pageSize; at != want || !bytes.Equal(m.Data, payload(3,
					sizes[1])) || !bytes.Equal(m.Front, payload(1, sizes[0])) {
					t.Errorf("offset %d: data of %d bytes behind %d begins at byte %d of a page, want %d", off,
						sizes[1], sizes[0], at, want)
				}
			}
			c.releaseEach(kept)
			c.closeHandler()
		}
	})
}

// Nothing that was not checked is taken for a message, nor ends a posting.
func TestADamagedOrAbortedMessageLeavesItsPostingArmed(t *testing.T) {
	for _, mode := range allModes[:6] {
		for _, size := range []int{300, 100_000} {
			msg := &Message{TID: 7, Front: payload(1, 21), Data: payload(3, size)}
			c, ts, kept := postBed(t, mode, loop.ReceiveReady, 0)
			g := c.post(7, size)
			wire := c.peer.message(1, 0, msg)
			wire[len(wire)-40-size/2] ^= 1 // in the data
			c.flow(wire)
			if len(*kept) != 0 || c.own.fault() == nil || g.used != 0 || len(c.h.Postings()) != 1 {
				t.Fatalf("%s: %d messages, fault %v", mode.name, len(*kept), c.own.fault())
			}
			if mode.secure && bytes.Count(g.Buffer, []byte{0xee}) != len(g.Buffer) {
				t.Errorf("%s: bytes that were not authenticated lie in memory of the user's", mode.name)
			}
			nothingHeld(t, c, ts, mode.name)
			c.open(OpenOptions{Throttles: ts}, mode)
			if mode.msgr1 == nil && !mode.secure {
				c.flow(c.peer.abort(c.peer.message(1, 0, msg), 0))
			}
			if g.used != 0 || len(c.h.Postings()) != 1 || len(*kept) != 0 {
				t.Fatalf("%s: an aborted message ends the posting", mode.name)
			}
			c.flow(c.peer.message(1, 0, msg))
			if len(*kept) != 1 || !g.has((*kept)[0]) || !bytes.Equal((*kept)[0].Data, msg.Data) {
				t.Errorf("%s: %d messages, fault %v", mode.name, len(*kept), c.own.fault())
			}
			c.releaseEach(kept)
			nothingHeld(t, c, ts, mode.name)
		}
	}
}

// halves compresses by leaving out what runs of one byte repeat.
type halves struct{}

func (halves) Compress(dst, src []byte) ([]byte, error) {
	for len(src) > 0 {
		n := 1
		for n < len(src) && n < 255 && src[n] == src[0] {
			n++
		}
		dst, src = append(dst, byte(n), src[0]), src[n:]
	}
	return dst, nil
}

func (halves) Decompress(dst, src []byte, _ int) ([]byte, error) {
	for ; len(src) > 1; src = src[2:] {
		dst = append(dst, bytes.Repeat(src[1:2], int(src[0]))...)
	}
	return dst, nil
}

// Matrix: V1-13
func TestCompressedDataIsCopiedToItsPosting(t *testing.T) {
	for _, mode := range wireModes {
		for _, size := range []int{2000, 300_000} {
			c, ts, kept := postBed(t, mode, loop.ReceiveReady, 0)
			c.h.rx.dec.Decompress(halves{})
			c.peer.enc.Compress(halves{}, 10)
			g := c.post(7, size)
			wire := c.peer.message(1, 0, &Message{TID: 7, Data: make([]byte, size)})
			if len(wire) > size/2 {
				t.Fatal("it was not compressed")
			}
			c.flow(wire[:70])
			c.flow(wire[70:])
			if len(*kept) != 1 || !g.has((*kept)[0]) || bytes.Count(g.Buffer, []byte{0}) != size || !g.fenced() {
				t.Fatalf("%s: %d messages, fault %v", mode.name, len(*kept), c.own.fault())
			}
			c.releaseEach(kept)
			nothingHeld(t, c, ts, mode.name)
		}
	}
}

// A connection changes cores in the middle of a message, with what is there of it. A posting goes along, or is
// withdrawn before, between the cores, or behind it.
// Matrix: V1-13
func TestAPostingGoesAlongToAnotherCore(t *testing.T) {
	overModes(t, func(t *testing.T, mode wireMode, receive loop.ReceiveMode) {
		for _, when := range []string{"none", "never", "before", "leaving", "between", "behind", "another"} {
			for cut := 0; cut < 400; cut += 7 + 4*coarse(receive) {
				large := 100 + cut%2<<20
				a, b := newPostBed(t, receive, large), newPostBed(t, receive, large)
				c := a.conn(OpenOptions{}, mode)
				kept := c.keep()
				g := newTarget(7, 110)
				if when == "another" { // the data lies in memory of the core's
					g.TID = 8
				}
				if when != "none" {
					must(t, c.h.AddPosting(&g.Posting))
				}
				withdraw := func(now string, c0 *loop.Core) {
					if when == now && !c.h.RemovePosting(c0, &g.Posting) {
						t.Errorf("%s: nothing to withdraw", when)
					}
					if when == now {
						g.fill()
					}
				}
				msg := &Message{TID: 7, DataOff: 7, Front: payload(1, 30), Data: payload(2, 110)}
				wire := c.peer.message(1, 0, msg)
				cut := min(cut, len(wire)-1)
				c.arrive(wire[:cut])
				withdraw("before", a.c)
				c.own.onMoving = func() { withdraw("leaving", a.c) }
				c.own.onMoved = func(*Handler) { withdraw("between", b.c) }
				c.leave(b)()
				withdraw("behind", b.c)
				c.arrive(wire[cut:])
				if len(*kept) != 1 || !bytes.Equal((*kept)[0].Data, msg.Data) || !bytes.Equal((*kept)[0].Front, msg.Front) {
					t.Fatalf("%s, cut at %d: %d messages, fault %v", when, cut, len(*kept), c.own.fault())
				}
				if when == "never" != g.has((*kept)[0]) || (*kept)[0].Posted() != g.has((*kept)[0]) {
					t.Fatalf("%s, cut at %d: posted %v", when, cut, (*kept)[0].Posted())
				}
				c.releaseEach(kept)
				stays := when == "never" || when == "another" || when == "none"
				if !stays && !g.untouched() || a.c.Snapshot().PoolInUse+b.c.Snapshot().PoolInUse != 0 {
					t.Fatalf("%s, cut at %d: memory was touched, or %d and %d bytes of buffers are held", when, cut, a.c.Snapshot().PoolInUse, b.c.Snapshot().PoolInUse)
				}
				b.close()
				a.close()
			}
		}
	})
}

// The session leaves for another process with half of a message: the memory is not read
// into any more, and is given back by who closes the handler.
// Matrix: V1-13
func TestAPostingStaysBehindWhenItsSessionIsHandedOver(t *testing.T) {
	for _, mode := range allModes {
		c, ts, _ := postBed(t, mode, loop.ReceiveReady, 0)
		g := c.post(7, 100_000)
		c.flow(c.peer.message(1, 0, &Message{TID: 7, Data: payload(3, 100_000)})[:60_000])
		c.frozen()
		nothingHeld(t, c, ts, mode.name)
		g.fill()
		if !slices.Equal(c.h.Postings(), []*Posting{&g.Posting}) || !c.h.RemovePosting(c.c, &g.Posting) || !g.untouched() {
			t.Errorf("%s: %d postings", mode.name, len(c.h.Postings()))
		}
		c.closeHandler()
		if err := c.h.AddPosting(&g.Posting); !errors.Is(err, ErrDropped) {
			t.Errorf("%s: a closed handler takes a posting: %v", mode.name, err)
		}
	}
}

func TestAPostingNeedsAnIDOfItsOwnAndMemory(t *testing.T) {
	c := newBed(t, nil).conn(OpenOptions{})
	if c.h.Postings() != nil {
		t.Error("there are postings")
	}
	c.post(7, 10)
	for _, one := range []struct {
		p    Posting
		want error
	}{{Posting{TID: 7, Buffer: make([]byte, 1)}, ErrPostingTID}, {Posting{Buffer: make([]byte, 1)}, errPostingBuffer}, {Posting{TID: 8}, errPostingBuffer}} {
		if err := c.h.AddPosting(&one.p); !errors.Is(err, one.want) || c.h.RemovePosting(c.c, &one.p) {
			t.Errorf("got %v, want %v", err, one.want)
		}
	}
}
