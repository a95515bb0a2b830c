package dataplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/fakedriver"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// wireMode is one framing.
type wireMode struct {
	name   string
	rev    frame.Revision
	secure bool
	msgr1  *frame1.Config // nil: msgr2
	signed bool           // msgr1
}

func (m wireMode) signer() frame1.Signer {
	if m.signed {
		return mixed{}
	}
	return nil
}

var wireModes = []wireMode{
	{name: "rev0 crc", rev: frame.Rev0},
	{name: "rev1 crc", rev: frame.Rev1},
	{name: "rev0 secure", rev: frame.Rev0, secure: true},
	{name: "rev1 secure", rev: frame.Rev1, secure: true},
}

// msgr1Modes are the framings of msgr1, allModes those of both protocols.
var (
	msgr1Modes = []wireMode{
		{name: "msgr1", msgr1: &frame1.Config{}},
		{name: "msgr1 signed", msgr1: &frame1.Config{}, signed: true},
		{name: "msgr1 old", msgr1: &frame1.Config{Form: frame1.Form{OldHeader: true, OldFooter: true, OldKeepalive: true}}},
	}
	allModes = slices.Concat(wireModes, msgr1Modes)
	// What two recent peers speak without encryption and signatures.
	plain2, plain1 = wireModes[1], msgr1Modes[0]
)

// overProtocols runs f for a mode of each protocol.
func overProtocols(t *testing.T, f func(t *testing.T, m wireMode)) {
	for _, m := range []wireMode{plain2, plain1} {
		t.Run(m.name, func(t *testing.T) { f(t, m) })
	}
}

// overModes runs f over every framing and receive mode.
func overModes(t *testing.T, f func(t *testing.T, m wireMode, receive loop.ReceiveMode)) {
	overSome(t, allModes, f)
}

// receiveModes are all there are.
var receiveModes = []loop.ReceiveMode{loop.ReceiveAuto, loop.ReceiveReady, loop.ReceiveBuffers}

func overSome(t *testing.T, modes []wireMode, f func(t *testing.T, m wireMode, receive loop.ReceiveMode)) {
	for _, m := range modes {
		for _, receive := range receiveModes {
			t.Run(m.name+"/"+string(receive), func(t *testing.T) { f(t, m, receive) })
		}
	}
}

// coarse is the step of a test that cuts a stream everywhere: by readiness each byte is a
// place of its own, while the other modes are about to receive so for a few frames.
func coarse(mode loop.ReceiveMode) int {
	if mode == loop.ReceiveReady {
		return 1
	}
	return 5
}

func receiving(mode loop.ReceiveMode) func(*loop.Config, *fakedriver.Driver) {
	return func(cfg *loop.Config, d *fakedriver.Driver) {
		cfg.Receive = mode
		d.Multishot = mode != loop.ReceiveReady
	}
}

// payload is n bytes that no other place in a stream has.
func payload(tag, n int) []byte {
	if n == 0 {
		return nil
	}
	p := make([]byte, n)
	done := min(n, 64<<10) // then it repeats itself
	for i := range p[:done] {
		p[i] = byte(tag*31 + i*7 + i>>8)
	}
	for done < n {
		done += copy(p[done:], p[:done])
	}
	return p
}

// messagesOf makes a message for each size of front, middle and data.
func messagesOf(sizes [][3]int) []*Message {
	var list []*Message
	for i, s := range sizes {
		list = append(list, &Message{
			TID: uint64(i + 100), Type: uint16(i), Front: payload(i, s[0]), Middle: payload(i+1, s[1]), Data: payload(i+2, s[2]),
		})
	}
	return list
}

// stream encodes messages, with a control frame between them now and then.
func (p *peerCodec) stream(list []*Message) []byte {
	var out []byte
	for i, m := range list {
		if i%3 == 1 {
			out = append(out, p.stamped(frame.TagKeepalive2Ack, Timestamp{uint32(i), 1})...)
		}
		out = append(out, p.message(uint64(i+1), 0, m)...)
	}
	return out
}

func checkReceived(t *testing.T, got []received, want []*Message) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d messages, want %d", len(got), len(want))
	}
	for i, m := range want {
		g := got[i]
		if g.tid != m.TID || g.typ != m.Type || g.seq != uint64(i+1) ||
			!bytes.Equal(g.front, m.Front) || !bytes.Equal(g.middle, m.Middle) || !bytes.Equal(g.data, m.Data) {
			t.Fatalf("message %d differs: tid %d seq %d, sizes %d %d %d", i, g.tid, g.seq, len(g.front), len(g.middle), len(g.data))
		}
	}
}

var smallSizes = [][3]int{{0, 0, 0}, {1, 0, 0}, {0, 0, 5}, {7, 3, 16}, {0, 9, 0}, {47, 0, 49}}

// Matrix: FR-24, FT-30
func TestFramesAreTheSameWhereverTheStreamIsCut(t *testing.T) {
	overModes(t, func(t *testing.T, m wireMode, receive loop.ReceiveMode) {
		list := messagesOf(smallSizes)
		size := len(newPeer(t, m).stream(list))
		b := newBed(t, receiving(receive))
		for at := 0; at <= size; at += coarse(receive) {
			c := b.conn(OpenOptions{Lossy: true}, m)
			all := c.peer.stream(list)
			c.arrive(all[:at])
			if at < size {
				c.arrive(all[at:])
			}
			checkReceived(t, c.own.list(), list)
			if got := c.h.stats.unaskedAcks; got != 2 {
				t.Fatalf("cut at %d: %d control frames, want 2", at, got)
			}
			c.closeHandler()
		}
	})
}

// testLargeFrom is the LargeFrom of these tests; the sizes lie on both sides of every boundary.
const testLargeFrom = 16 << 10

func onPage(p []byte) bool { return reflect.ValueOf(p).Pointer()%pageSize == 0 }

func boundarySizes() (sizes [][3]int) {
	for _, n := range []int{pageSize - 1, pageSize, pageSize + 1, testLargeFrom - 1, testLargeFrom, testLargeFrom + 1,
		loop.ReceiveBytes - 200, loop.ReceiveBytes, loop.ReceiveBytes + 1, pieceBytes - 1, pieceBytes, pieceBytes + 1, 1 << 20} {
		sizes = append(sizes, [3]int{0, 0, n}, [3]int{13, 0, 0}, [3]int{100, 5, n}, [3]int{n % 5000, 0, 1})
	}
	return append(sizes, [3]int{loop.ReceiveBytes + 5, 70000, 3}, [3]int{200000, 0, 100000})
}

func TestLargeFramesAreTheSameWhereverTheStreamIsCut(t *testing.T) {
	overModes(t, func(t *testing.T, m wireMode, receive loop.ReceiveMode) {
		list := messagesOf(boundarySizes())
		turn := slices.IndexFunc(allModes, func(o wireMode) bool { return o.name == m.name })
		for seed := range uint64(3) {
			reads := seed == 2 // it is about reads; under the race detector the modes take the others by turns
			if reads && receive != loop.ReceiveReady || !reads && invariants.Enabled && seed != uint64(turn%2) {
				continue
			}
			rng := rand.New(rand.NewPCG(seed, 4))
			from := testLargeFrom
			if seed == 0 {
				from = pageSize // as servers want it that write what they receive to files
			}
			b := newBed(t, func(cfg *loop.Config, d *fakedriver.Driver) {
				receiving(receive)(cfg, d)
				cfg.LargeFrom = from
			})
			opt, aligned := OpenOptions{Lossy: true}, from
			if seed == 1 {
				opt.AlignFrom, aligned = pageSize, pageSize
			}
			c := b.conn(opt, m)
			checkAligned(t, c.own, aligned)
			all := c.peer.stream(list)
			if seed == 2 {
				c.sock.Whole = all // every read finds as much as it asks for
				c.sock.Edge(0)
				c.settle()
			} else {
				c.arriveInPieces(rng, all)
			}
			must(t, c.own.fault())
			checkReceived(t, c.own.list(), list)
			if c.c.Snapshot().PoolInUse != 0 || c.d.Lent != c.d.Released {
				t.Errorf("%d bytes are lent, %d of %d receive buffers came back", c.c.Snapshot().PoolInUse, c.d.Released, c.d.Lent)
			}
			if receive == loop.ReceiveBuffers && (c.sock.Receiving || !c.sock.Armed) {
				t.Error("a large segment did not end the receive into buffers")
			}
		}
	})
}

func TestAShortReadDoesNotHideTheEndThatCameWithIt(t *testing.T) {
	for _, one := range []struct {
		name string
		mask int32
		with func(*fakedriver.Sock)
	}{
		{"end", unix.POLLRDHUP, func(f *fakedriver.Sock) { f.End = true }},
		{"hang-up", unix.POLLHUP, func(f *fakedriver.Sock) { f.End = true }},
		{"reset", unix.POLLERR, func(f *fakedriver.Sock) { f.Errno = unix.ECONNRESET }},
	} {
		t.Run(one.name, func(t *testing.T) {
			c := newBed(t, nil).conn(OpenOptions{Lossy: true})
			c.sock.Whole = c.peer.message(1, 0, &Message{TID: 1})
			one.with(c.sock)
			c.sock.Edge(one.mask) // the only edge that there will be
			c.settle()
			if len(c.own.list()) != 1 || c.own.fault() == nil {
				t.Fatalf("%d messages, fault %v", len(c.own.list()), c.own.fault())
			}
		})
	}
}

// Matrix: V1-05
func TestDamageEndsOnlyItsConnection(t *testing.T) {
	for _, m := range allModes {
		for _, size := range []int{3000, 200 << 10} { // the second in a large segment, read into its place
			t.Run(fmt.Sprint(m.name, size), func(t *testing.T) {
				b := newBed(t, nil)
				good, bad := b.conn(OpenOptions{}, m), b.conn(OpenOptions{}, m)
				list := messagesOf([][3]int{{100, 20, 80000}, {0, 0, size}})
				all := bad.peer.stream(list)
				all[len(all)-2000] ^= 0x10 // in the data of the last frame
				bad.sock.Whole = all
				bad.sock.Edge(0)
				good.arrive(good.peer.stream(list))
				checkReceived(t, good.own.list(), list)
				checkReceived(t, bad.own.list(), list[:1])
				if err := bad.own.fault(); !errors.Is(err, frame.ErrFrame) || bad.sock.CloseCalls != 1 {
					t.Errorf("fault %v, want a bad frame; closed %d times", err, bad.sock.CloseCalls)
				}
				if err := good.own.fault(); err != nil || b.c.Snapshot().PoolInUse != 0 {
					t.Errorf("the other connection: %v; %d bytes are lent", err, b.c.Snapshot().PoolInUse)
				}
			})
		}
	}
}

func TestAnAbortedControlFrameNeverHappened(t *testing.T) {
	c := newBed(t, nil).conn(OpenOptions{}, wireModes[0])
	c.arrive(c.peer.abort(c.peer.stamped(frame.TagKeepalive2, Timestamp{1, 2}), 0))
	if c.own.fault() != nil || len(c.take()) != 0 || countsOf(c.c).Aborted != 1 {
		t.Errorf("fault %v, %d aborted", c.own.fault(), countsOf(c.c).Aborted)
	}
}

// A peer may begin with any number, and skip some. What it sends twice is dropped, and not
// acknowledged once more.
// Matrix: SE-26, SE-27, SE-33, OB-02, V1-11
func TestDuplicatesAreDroppedAndGapsTolerated(t *testing.T) {
	for _, one := range []struct {
		seqs, want       []uint64
		duplicates, gaps uint64
	}{
		{[]uint64{1, 1, 3, 2, 3, 7, 1, 8}, []uint64{1, 3, 7, 8}, 4, 2},
		{[]uint64{1 << 30, 1 << 30, 5, 1<<30 + 1, 1<<30 + 7, 1<<30 + 6}, []uint64{1 << 30, 1<<30 + 1, 1<<30 + 7}, 3, 2},
	} {
		for _, mode := range []wireMode{plain2, plain1} {
			c := newBed(t, nil).conn(OpenOptions{}, mode)
			var got, acks []uint64
			for _, seq := range one.seqs {
				c.arrive(c.peer.message(seq, 0, &Message{TID: seq, Data: make([]byte, 10)}))
				for _, f := range c.take() {
					acks = append(acks, sequenceOf([8]byte(f.seg[0])))
				}
			}
			for _, m := range c.own.list() {
				got = append(got, m.seq)
			}
			if !slices.Equal(got, one.want) || !slices.Equal(acks, one.want) {
				t.Errorf("%s: dispatched %v, acknowledged %v, want %v", mode.name, got, acks, one.want)
			}
			if st := c.h.statistics(c.c); st.Duplicates != one.duplicates || st.Gaps != one.gaps || st.InSeq != one.want[len(one.want)-1] {
				t.Errorf("%s: %d duplicates, %d gaps, in-seq %d", mode.name, st.Duplicates, st.Gaps, st.InSeq)
			}
		}
	}
}

func TestControlFramesThatAreTooShortAreFaults(t *testing.T) {
	for _, tag := range []frame.Tag{frame.TagAck, frame.TagKeepalive2, frame.TagKeepalive2Ack} {
		c := newBed(t, nil).conn(OpenOptions{})
		c.arrive(c.peer.frame(tag, make([]byte, 7)))
		if !errors.Is(c.own.fault(), errUnexpectedFrame) {
			t.Errorf("%v of 7 bytes: fault %v", tag, c.own.fault())
		}
	}
}

// anySizes are the sizes of many messages: of any size, small with a large one now and then, or large ones like the
// last.
func anySizes(rng *rand.Rand, kind int) (sizes [][3]int) {
	repeated := [][3]int{{0, 0, 70000}, {0, 0, 70000}, {5, 0, 70000}, {0, 0, 10}, {}, {100, 0, 0}, {70000, 0, 0}}
	for len(sizes) < 30 {
		one := [3]int{rng.IntN(2000), rng.IntN(100), rng.IntN(1 << rng.IntN(18))}
		switch {
		case kind == 1 && rng.IntN(12) > 0:
			one = [3]int{0, 0, rng.IntN(600)}
		case kind == 2:
			if one = repeated[rng.IntN(len(repeated))]; len(sizes) > 0 && rng.IntN(2) == 0 {
				one = sizes[len(sizes)-1]
			}
		}
		sizes = append(sizes, one)
	}
	return sizes
}

// Cuts, stops, slow dispatchers, shortages of receive buffers, and memory that is posted and withdrawn, at any moment:
// each message comes once, in its order, and does not change while it is kept. Then the end is seen, and nothing is
// held.
// Matrix: IO-23, V1-13
func TestAStreamComesWholeWhateverDisturbsIt(t *testing.T) {
	var took, left, posted int
	overModes(t, func(t *testing.T, mode wireMode, receive loop.ReceiveMode) {
		seeds := 10
		if mode.name == plain2.name { // it guesses, too
			seeds = 40
		}
		for seed := range seeds {
			rng := rand.New(rand.NewPCG(uint64(seed), 31))
			one := func(n int) bool { return rng.IntN(n) == 0 }
			large := 0
			if one(3) {
				large = 300
			}
			b := newPostBed(t, receive, large)
			c, ts, kept := b.poster(mode)
			ts.Frames.SetLimit(rng.Int64N(7))
			ts.Bytes.SetLimit(rng.Int64N(3) * 70 << 10)
			ts.Shared.SetLimit(rng.Int64N(2) * 70 << 10)
			late, posts := one(4), seed%2 == 0
			c.own.onMessage = func(_ *Handler, m *Message) {
				if late {
					b.Time += turnTime
				}
				if rng.IntN(3) > 0 {
					*kept = append(*kept, forgetful(m))
				}
			}
			list := messagesOf(anySizes(rng, seed%3))
			armed, free := map[uint64]*target{}, []*target{}
			all, ends, at := []byte(nil), []int(nil), 0
			for i, m := range list {
				all = append(all, c.peer.message(uint64(i+1), 0, m)...)
				ends = append(ends, len(all))
			}
			for at < len(all) || len(*kept) > 0 {
				if next := min(at+1+rng.IntN(1<<(4+rng.IntN(15))), len(all)); at < len(all) && !one(3) {
					if i, _ := slices.BinarySearch(ends, next); one(2) {
						next = ends[i]
					}
					c.sock.Arrive(all[at:next])
					at = next
				}
				switch rng.IntN(12) {
				case 0:
					c.sock.RunOut()
				case 1:
					must(t, b.By.Turn())
				default:
					c.settle()
				}
				for posts && one(2) {
					m := list[rng.IntN(len(list))]
					switch g := armed[m.TID]; {
					case g == nil:
						g = newTarget(m.TID, 1+rng.IntN(max(2*len(m.Data), 1)))
						must(t, c.h.AddPosting(&g.Posting))
						armed[g.TID] = g
					case c.h.RemovePosting(c.c, &g.Posting):
						g.fill()
						free = append(free, g)
						fallthrough
					default:
						delete(armed, g.TID)
						posted += g.used
						if !g.fenced() {
							t.Fatalf("seed %d: the fence of %d bytes was written", seed, len(g.Buffer))
						}
					}
				}
				for len(*kept) > 0 && (one(2) || at == len(all)) {
					m := (*kept)[0]
					if want := list[m.Seq()-1]; !bytes.Equal(m.Front, want.Front) || !bytes.Equal(m.Middle, want.Middle) ||
						!bytes.Equal(m.Data, want.Data) {
						t.Fatalf("seed %d: message %d changed while it was kept", seed, m.Seq())
					}
					m.Release()
					*kept = (*kept)[1:]
				}
			}
			c.sock.HangUp()
			c.settle()
			c.releaseEach(kept)
			checkReceived(t, c.own.list(), list)
			for _, g := range free {
				if !g.untouched() {
					t.Fatalf("seed %d: memory was touched after it was withdrawn", seed)
				}
			}
			nothingHeld(t, c, ts, fmt.Sprintf("seed %d", seed))
			if !errors.Is(c.own.fault(), io.EOF) || c.d.Lent != c.d.Released {
				t.Fatalf("seed %d: fault %v, %d of %d buffers came back", seed, c.own.fault(), c.d.Released, c.d.Lent)
			}
			st := c.c.Snapshot()
			took, left = took+int(st.TookBuffers), left+int(st.LeftBuffers)
			b.close()
		}
	})
	if took < 15 || left < 40 || posted < 20 {
		t.Errorf("it went to the buffers %d times, and back %d times; %d postings were used", took, left, posted)
	}
}

// besideAQuietOne opens a connection that so many frames have arrived for, each made
// by one, and one that gets a message behind the first turn, which it has
// received after three more.
func besideAQuietOne(t *testing.T, frames uint64, one func(c *conn, n uint64) []byte) (loud *conn) {
	t.Helper()
	b := newBed(t, nil)
	loud, quiet := b.conn(OpenOptions{Lossy: true}), b.conn(OpenOptions{Lossy: true})
	var stream []byte
	for n := range frames {
		stream = append(stream, one(loud, n+1)...)
	}
	loud.sock.Whole = stream
	loud.sock.Edge(0)
	must(t, b.By.Turn())
	quiet.sock.Arrive(quiet.peer.message(1, 0, &Message{}))
	for range 3 {
		must(t, b.By.Turn())
	}
	if len(quiet.own.list()) != 1 {
		t.Error("the quiet connection waits")
	}
	return loud
}

// probed is a socket whose probe answers for each frame by a rule.
func probed(rule func(tag frame.Tag, write bool) error) *probe.Socket {
	return probe.NewSocket(probe.Func(func(_ context.Context, e probe.Event) error {
		return rule(e.Tag, e.Step == probe.FrameWrite)
	}), 1, false, nil)
}

func TestAnErrorOfTheProbeIsAFault(t *testing.T) {
	own := errors.New("as the test wishes")
	for _, one := range []struct {
		write         bool
		answer, fault error
	}{{false, own, own}, {true, own, own}, {false, probe.ErrReset, loop.ErrReset}, {true, probe.ErrReset, loop.ErrReset}} {
		write := one.write
		c := newBed(t, nil).conn(OpenOptions{Probe: probed(func(_ frame.Tag, w bool) error {
			if w == write {
				return one.answer
			}
			return nil
		})})
		if write {
			must(t, c.h.Send(&Message{}))
		} else {
			c.sock.Arrive(c.peer.message(1, 0, &Message{}))
		}
		c.settle()
		if !errors.Is(c.own.fault(), one.fault) || len(c.own.list()) != 0 || len(c.sock.Sent) != 0 {
			t.Errorf("write=%v: fault %v, %d messages, %d bytes sent", write, c.own.fault(), len(c.own.list()), len(c.sock.Sent))
		}
	}
}
