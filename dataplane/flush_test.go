package dataplane

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

func tags(frames []parsed) (list []frame.Tag) {
	for _, f := range frames {
		list = append(list, f.tag)
	}
	return list
}

// A write has keepalives, then messages. msgr2 has acks in messages, and an ack of its own where
// there is none; msgr1 has one ack, the last of the write.
// Matrix: KA-12, IO-16, V1-07
func TestOneSweepWritesControlFramesBeforeMessages(t *testing.T) {
	ping := Timestamp{7, 8}.payload()
	for _, one := range []struct {
		name     string
		lossy    bool
		keep     bool   // the user asks for a keepalive
		pinged   bool   // the peer sent one
		received uint64 // and so many messages
		send     int
		want     []frame.Tag
	}{
		{"everything", false, true, true, 2, 2, []frame.Tag{tagPing, tagPong, tagMsg, tagMsg}},
		{"everything, on a lossy connection", true, true, true, 2, 2, []frame.Tag{tagPing, tagPong, tagMsg, tagMsg}},
		{"no message to carry the ack", false, true, true, 1, 0, []frame.Tag{tagPing, tagPong, tagAck}},
		{"a lone ack", false, false, false, 1, 0, []frame.Tag{tagAck}},
		{"nothing is acknowledged on a lossy connection", true, false, true, 1, 0, []frame.Tag{tagPong}},
		{"only messages", false, false, false, 0, 3, []frame.Tag{tagMsg, tagMsg, tagMsg}},
	} {
		for _, mode := range []wireMode{plain2, plain1} {
			t.Run(mode.name+"/"+one.name, func(t *testing.T) {
				c := newBed(t, nil).conn(OpenOptions{Lossy: one.lossy}, mode)
				c.sock.Park = true
				must(t, c.h.Send(&Message{TID: 1})) // a write in flight, so that the rest gathers
				c.settle()
				if one.keep {
					c.h.Keepalive()
				}
				if one.pinged {
					c.sock.Arrive(c.peer.frame(tagPing, ping[:]))
				}
				for seq := range one.received {
					c.sock.Arrive(c.peer.message(seq+1, 0, &Message{}))
				}
				for i := range one.send {
					must(t, c.h.Send(&Message{TID: uint64(2 + i)}))
				}
				c.settle()
				c.sock.Park = false
				c.finish(0)
				want := one.want
				if mode.msgr1 != nil && one.send > 0 && one.received > 0 && !one.lossy {
					want = append(slices.Clone(want), tagAck)
				}
				frames := c.take()[1:]
				if got := tags(frames); !slices.Equal(got, want) || c.sock.Writes != 2 {
					t.Fatalf("%v in %d writes, want %v", got, c.sock.Writes-1, want)
				}
				for i, f := range frames {
					switch {
					case f.tag == tagPong && !bytes.Equal(f.seg[0], ping[:]):
						t.Errorf("the answer carries %x, not the peer's stamp", f.seg[0])
					case f.tag == tagPing && !bytes.Equal(f.seg[0], []byte{0xe8, 3, 0, 0, 5, 0, 0, 0}):
						t.Errorf("the keepalive carries %x, not our wall clock", f.seg[0])
					case f.tag == tagAck && !bytes.Equal(f.seg[0], []byte{byte(one.received), 0, 0, 0, 0, 0, 0, 0}):
						t.Errorf("ack of %x", f.seg[0])
					case f.tag == tagMsg && mode.msgr1 == nil && f.hd.AckSeq != one.received:
						t.Errorf("message %d carries ack %d", i, f.hd.AckSeq)
					}
				}
				if lag := c.h.statistics(c.c).AckLag; lag != 0 {
					t.Errorf("%d messages are still to be acknowledged", lag)
				}
			})
		}
	}
}

// Matrix: KA-01, HI-14
func TestOnlyTheLatestKeepaliveIsAnswered(t *testing.T) {
	c := newBed(t, nil).conn(OpenOptions{})
	var all []byte
	for i := range 5 {
		all = append(all, c.peer.stamped(frame.TagKeepalive2, Timestamp{uint32(i), 0})...)
	}
	c.arrive(all)
	frames := c.take()
	if len(frames) != 1 || frames[0].seg[0][0] != 4 {
		t.Fatalf("answers: %v", frames)
	}
}

func TestLargePayloadIsGatheredAndSmallPayloadCopied(t *testing.T) {
	const from = copyBelow
	c := newBed(t, nil).conn(OpenOptions{Lossy: true})
	c.sock.Park = true
	for _, size := range []int{from - 1, from} {
		freed := 0
		m := &Message{Front: payload(1, size), Middle: payload(2, size), Data: payload(3, size), Free: func(*Message) { freed++ }}
		c.send(m)
		v := c.sock.InFlight
		before := v.AppendTo(nil)
		m.Front[5]++
		m.Middle[5]++
		m.Data[5]++
		changed := 0
		for i, b := range v.AppendTo(nil) {
			if b != before[i] {
				changed++
			}
		}
		gathered := size >= from
		if want := map[bool]int{false: 0, true: 3}[gathered]; changed != want {
			t.Errorf("%d bytes: %d segments are the caller's memory, want %d", size, changed, want)
		}
		if freed != map[bool]int{false: 1, true: 0}[gathered] {
			t.Errorf("%d bytes: freed %d times while the write is in flight", size, freed)
		}
		c.finish(0)
		if freed != 1 {
			t.Errorf("%d bytes: freed %d times after the write", size, freed)
		}
	}
}

// Matrix: FT-31, SE-30, SE-31
func TestALosslessSessionKeepsWhatIsNotAcknowledged(t *testing.T) {
	c := newBed(t, nil).conn(OpenOptions{})
	freed := make([]int, 6)
	for i := 1; i <= 5; i++ {
		must(t, c.h.Send(&Message{Data: make([]byte, i*1500), Free: func(*Message) { freed[i]++ }}))
	}
	c.settle()
	for _, one := range []struct {
		ack  uint64
		want []int
	}{
		{0, []int{0, 0, 0, 0, 0, 0}},
		{2, []int{0, 1, 1, 0, 0, 0}},
		{1, []int{0, 1, 1, 0, 0, 0}}, // late
		{4, []int{0, 1, 1, 1, 1, 0}},
		{999, []int{0, 1, 1, 1, 1, 1}}, // more than was sent
	} {
		c.arrive(c.peer.ack(one.ack))
		if !slices.Equal(freed, one.want) {
			t.Fatalf("ack %d: freed %v, want %v", one.ack, freed, one.want)
		}
	}
	charged(t, c.h, 0, 0)
	// The next number was covered by the last ack, and its message is kept all the same.
	must(t, c.h.Send(&Message{TID: 6}))
	c.settle()
	if f := c.take(); f[len(f)-1].hd.TID != 6 || f[len(f)-1].hd.Seq != 6 {
		t.Errorf("the next message goes out as %+v", f[len(f)-1].hd)
	}
	charged(t, c.h, 1, 0)
}

// Matrix: IO-06
func TestAnAckBeforeTheEndOfTheWriteDoesNotFreeItsMemory(t *testing.T) {
	c := newBed(t, nil).conn(OpenOptions{})
	c.sock.Park = true
	freed := 0
	c.send(&Message{Data: make([]byte, 100000), Free: func(*Message) { freed++ }})
	c.arrive(c.peer.ack(1))
	if freed != 0 {
		t.Fatal("freed while the kernel reads it")
	}
	c.finish(0)
	if freed != 1 {
		t.Fatalf("freed %d times", freed)
	}
}

func TestFreeRunsOnceWhateverBecomesOfAMessage(t *testing.T) {
	ackAll := func(c *conn) {
		c.arrive(c.peer.ack(1 << 40))
	}
	for _, lossy := range []bool{false, true} {
		for _, size := range []int{10, 100000} {
			for _, one := range []struct {
				name string
				run  func(c *conn)
			}{
				{"sent and acknowledged", func(c *conn) { c.settle(); ackAll(c) }},
				{"closed before the sweep", func(c *conn) { c.h.Close(nil) }},
				{"closed after the write", func(c *conn) { c.settle(); c.h.Close(nil) }},
				{"closed in the write", func(c *conn) { c.sock.Park = true; c.settle(); c.h.Close(nil) }},
				{"reset in the write", func(c *conn) {
					c.sock.Park = true
					c.settle()
					c.finish(-int32(unix.ECONNRESET))
					c.h.Close(nil)
				}},
				{"written in part", func(c *conn) {
					c.sock.Park = true
					c.settle()
					c.finish(5)
					c.h.Close(nil)
				}},
				{"full reset of the session", func(c *conn) { c.settle(); c.h.Delay(false, nil); c.h.ResetSession(true) }},
				{"full reset before the sweep", func(c *conn) { c.h.Delay(false, nil); c.h.ResetSession(true) }},
				{"acknowledged by a reconnect", func(c *conn) { c.settle(); c.h.Delay(false, nil); c.h.RequeueSentUpTo(5); c.settle(); c.h.Close(nil) }},
				{"replayed", func(c *conn) {
					c.settle()
					c.h.Delay(false, nil)
					c.h.RequeueSentUpTo(1)
					c.open(OpenOptions{})
					ackAll(c)
				}},
				{"closed before anything", func(c *conn) { c.h.Refuse(); c.h.Close(nil) }},
				{"plane closed before the sweep", func(c *conn) { c.h.Close(nil); c.bed.close() }},
				{"plane closed in the write", func(c *conn) {
					c.sock.Park = true
					c.settle()
					c.own.onFault = func(uint64, error, Snapshot) { c.h.Close(nil) }
					c.bed.close()
				}},
			} {
				t.Run(fmt.Sprintf("%s lossy=%v %d", one.name, lossy, size), func(t *testing.T) {
					c := newBed(t, nil).conn(OpenOptions{Lossy: lossy})
					freed := make([]int, 3)
					for i := range freed {
						must(t, c.h.Send(&Message{Data: make([]byte, size), Free: func(*Message) { freed[i]++ }}))
					}
					one.run(c)
					if !c.d.Closed {
						c.settle()
					}
					if !slices.Equal(freed, []int{1, 1, 1}) {
						t.Errorf("freed %v", freed)
					}
					charged(t, c.h, 0, 0)
					if c.c.Snapshot().PoolInUse != 0 {
						t.Errorf("%d bytes are lent", c.c.Snapshot().PoolInUse)
					}
				})
			}
		}
	}
}

// Small messages fill the memory of a write, and leave room for an ack. The probe is asked once for
// each, even if it has no room in one write and a keepalive goes before it in the next.
func TestAWriteOfSmallMessagesFillsItsSlabAndNotMore(t *testing.T) {
	for _, mode := range allModes {
		for _, size := range []int{69, 60, 500, 1886} { // of 69 bytes 512 fill it to the last byte in msgr1
			asked := 0
			c := newBed(t, nil).conn(OpenOptions{Probe: probed(func(tag frame.Tag, write bool) error {
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
			for i := range n {
				must(t, c.h.Send(&Message{TID: uint64(i + 1), Front: make([]byte, size)}))
			}
			writes, most := 0, 0
			for seq := uint64(1); c.sock.InFlight != nil; seq++ {
				if c.h.queue.n > 0 {
					c.sock.Arrive(c.peer.message(seq, 0, &Message{}))
					c.h.Keepalive()
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
			if most > room || most < room-size-600 || asked != n+1 || !slices.Equal(tids(c.take()), span(0, n)) {
				t.Errorf("%s, %d bytes: the largest of %d writes has %d of %d, asked %d times for %d messages", mode.name, size, writes, most, room, asked, n+1)
			}
			c.close()
		}
	}
}

// Matrix: FR-25, IO-21
func TestFramesAreIntactForEverySize(t *testing.T) {
	for _, m := range allModes {
		t.Run(m.name, func(t *testing.T) {
			c := newBed(t, nil).conn(OpenOptions{Lossy: true}, m)
			var sizes [][3]int
			for _, n := range []int{0, 1, 2047, 2048, 2049, loop.SlabBytes/2 - 200, loop.SlabBytes / 2, loop.SlabBytes, loop.SlabBytes + 9000, 1 << 20} {
				sizes = append(sizes, [3]int{n, 0, 0}, [3]int{0, n, 0}, [3]int{0, 0, n}, [3]int{n, 1, n})
			}
			list := messagesOf(sizes)
			for _, msg := range list {
				must(t, c.h.Send(msg))
			}
			c.settle()
			frames := c.take()
			if len(frames) != len(list) {
				t.Fatalf("%d frames for %d messages", len(frames), len(list))
			}
			for i, f := range frames {
				w := list[i]
				if f.hd.TID != w.TID || !bytes.Equal(f.seg[1], w.Front) || !bytes.Equal(f.seg[2], w.Middle) || !bytes.Equal(f.seg[3], w.Data) {
					t.Fatalf("message %d differs", i)
				}
			}
		})
	}
}

// Matrix: SE-36, RP-02, IO-05, IO-16
func TestAWriteErrorIsAFaultAndNothingIsLost(t *testing.T) {
	for _, res := range []int32{-int32(unix.EPIPE), 17} {
		c := newBed(t, nil).conn(OpenOptions{})
		c.sock.Park = true
		for i := range 5 {
			must(t, c.h.Send(&Message{TID: uint64(i), Data: make([]byte, 3000)}))
		}
		c.settle()
		c.finish(res)
		if !errors.Is(c.own.fault(), unix.EPIPE) {
			t.Fatalf("result %d: fault %v", res, c.own.fault())
		}
		if m := c.own.snapshots[0]; !m.Sent || m.Queued {
			t.Errorf("result %d: snapshot %+v", res, m)
		}
		c.h.RequeueSentUpTo(0)
		c.open(OpenOptions{})
		frames := c.take()
		if len(frames) != 5 || frames[0].hd.Seq != 1 || frames[4].hd.TID != 4 {
			t.Errorf("result %d: %d frames after the reconnect", res, len(frames))
		}
	}
}

// holdProbe holds the frames at some places among those that it is asked for,
// counted from 0, and notes all of them.
type holdProbe struct {
	hold  []int
	asked []frame.Tag
}

// socket is one that the probe is told of.
func (k *holdProbe) socket() *probe.Socket { return probed(k.frame) }

func (k *holdProbe) frame(tag frame.Tag, write bool) error {
	if !write {
		return nil
	}
	k.asked = append(k.asked, tag)
	if slices.Contains(k.hold, len(k.asked)-1) {
		return probe.ErrHold
	}
	return nil
}

const (
	tagPing = frame.TagKeepalive2
	tagPong = frame.TagKeepalive2Ack
	tagAck  = frame.TagAck
	tagMsg  = frame.TagMessage
)

// While a frame is held, others come due that go before it. The probe is asked
// once for each of them, and once for the one that was held: again for the next one of its kind, and on the next
// socket.
func TestAHeldFrameIsAskedForOnceWhateverComesBetween(t *testing.T) {
	ping := Timestamp{7, 8}.payload()
	message := func(tid uint64, priority uint16) func(*conn) {
		return func(c *conn) { must(c.t, c.h.Send(&Message{TID: tid, Priority: priority})) }
	}
	keepalive := func(c *conn) { c.h.Keepalive() }
	pinged := func(c *conn) { c.sock.Arrive(c.peer.frame(tagPing, ping[:])) }
	received := func(c *conn) { c.sock.Arrive(c.peer.message(1, 0, &Message{})) }
	for _, one := range []struct {
		name    string
		hold    []int
		first   func(*conn)
		between []func(*conn)
		resumes int
		asked   []frame.Tag // by the probe, in order
		sent    []frame.Tag
		tids    []uint64
	}{
		{"a keepalive", []int{0}, message(1, 0), []func(*conn){keepalive}, 1,
			[]frame.Tag{tagMsg, tagPing}, []frame.Tag{tagPing, tagMsg}, []uint64{1}},
		{"an answer to a keepalive", []int{0}, message(1, 0), []func(*conn){pinged}, 1,
			[]frame.Tag{tagMsg, tagPong}, []frame.Tag{tagPong, tagMsg}, []uint64{1}},
		{"a keepalive that is held, too", []int{0, 1}, message(1, 0), []func(*conn){keepalive}, 2,
			[]frame.Tag{tagMsg, tagPing}, []frame.Tag{tagPing, tagMsg}, []uint64{1}},
		{"an urgent message", []int{0}, message(1, 0), []func(*conn){message(2, PriorityHighest)}, 1,
			[]frame.Tag{tagMsg, tagMsg}, []frame.Tag{tagMsg, tagMsg}, []uint64{2, 1}},
		{"an urgent message that is held, too", []int{0, 1}, message(1, 0), []func(*conn){message(2, PriorityHighest), keepalive}, 3,
			[]frame.Tag{tagMsg, tagPing, tagMsg}, []frame.Tag{tagPing, tagMsg, tagMsg}, []uint64{2, 1}},
		{"a keepalive before a held answer", []int{0}, pinged, []func(*conn){keepalive, message(1, 0)}, 1,
			[]frame.Tag{tagPong, tagPing, tagMsg}, []frame.Tag{tagPing, tagPong, tagMsg}, []uint64{1}},
		{"a message that carries a held ack", []int{0}, received, []func(*conn){message(1, 0)}, 1,
			[]frame.Tag{tagAck, tagMsg}, []frame.Tag{tagMsg}, []uint64{1}},
	} {
		t.Run(one.name, func(t *testing.T) {
			held := &holdProbe{hold: one.hold}
			c := newBed(t, nil).conn(OpenOptions{Probe: held.socket()})
			one.first(c)
			c.settle()
			for _, f := range one.between {
				f(c)
				c.settle()
			}
			if len(c.sock.Sent) != 0 || len(held.asked) != 1 {
				t.Fatalf("while held: %d bytes sent, asked for %v", len(c.sock.Sent), held.asked)
			}
			for range one.resumes {
				c.h.Resume()
				c.settle()
			}
			frames := c.take()
			if !slices.Equal(held.asked, one.asked) {
				t.Errorf("asked for %v, want %v", held.asked, one.asked)
			}
			if !slices.Equal(tags(frames), one.sent) || !slices.Equal(tids(frames), one.tids) {
				t.Errorf("sent %v, messages %v; want %v, %v", tags(frames), tids(frames), one.sent, one.tids)
			}
			must(t, c.own.fault())
			held.asked, held.hold = nil, []int{1}
			c.arrive(c.peer.message(9, 0, &Message{}))
			c.send(&Message{})
			c.delay()
			c.open(OpenOptions{Probe: held.socket()})
			if want := []frame.Tag{tagAck, tagMsg, tagMsg}; !slices.Equal(held.asked, want) || len(c.take()) != 1 {
				t.Errorf("then asked for %v, want %v", held.asked, want)
			}
		})
	}
}

// A held frame waits for Resume, with all behind it in its direction. The other direction goes on.
// The frames of msgr1 have the names of msgr2.
// Matrix: V1-10
func TestAFrameIsHeldAtABreakPointUntilResume(t *testing.T) {
	for _, m := range allModes {
		for i := range 16 {
			tag, write, size := []frame.Tag{tagMsg, tagAck, tagPing, tagPong}[i%4], i/4%2 == 1, i/8*200<<10
			where, asked := fmt.Sprintf("%s: %v, write=%v, %d bytes", m.name, tag, write, size), 0
			c := newBed(t, nil).conn(OpenOptions{Probe: probed(func(of frame.Tag, w bool) error {
				if of != tag || w != write {
					return nil
				}
				if asked++; asked > 1 {
					return nil
				}
				return probe.ErrHold
			})}, m)
			must(t, c.h.Send(&Message{TID: 1}))
			c.h.Keepalive()
			list := messagesOf([][3]int{{5, 0, size}, {6, 0, size}})
			c.arrive(slices.Concat(c.peer.message(1, 0, list[0]), c.peer.ack(1), c.peer.stamped(tagPing, Timestamp{1,
				2}), c.peer.stamped(tagPong, Timestamp{1, 2})))
			c.arrive(c.peer.message(2, 0, list[1]))
			in := func() bool {
				st := c.h.statistics(c.c)
				return st.MessagesIn == 2 && st.AcksIn == 1 && st.UnaskedAcks == 1
			}
			out := func() bool {
				st := c.h.statistics(c.c)
				return st.MessagesOut == 1 && st.AckLag == 0 && st.Queued == 0 && !c.h.ping && !c.h.pong
			}
			if asked != 1 || c.own.fault() != nil || in() != write || !write && c.h.stats.messagesOut != 1 || write &&
				out() {
				t.Fatalf("%s: asked %d times, fault %v, all received: %v, all sent: %v", where, asked, c.own.fault(),
					in(), out())
			}
			c.h.Resume()
			c.settle()
			if !in() || !out() || c.own.fault() != nil {
				t.Errorf("%s, after Resume: %+v, fault %v", where, c.h.statistics(c.c), c.own.fault())
			}
			checkReceived(t, c.own.list(), list)
		}
	}
}
