package loop

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/fakedriver"
	"github.com/ringmsgr/ringmsgr/uring"
)

// lengths is a protocol that knows nothing of how its frames are gathered: four bytes of
// length, then the payload. It answers each frame with itself.
type lengths struct {
	got   []byte // all that was taken
	calls int    // of Feed
	kept  int    // frames whose bytes the loop had gathered
	stop  bool   // behind each frame
	eager bool   // with Gather, behind a stop
	out   []held
	ended error
	// For those that answer later.
	later bool
	owes  int
}

// held is an answer.
type held struct {
	*Buffer
	n int
}

func (l *lengths) Feed(s *Socket, p []byte) (t Taken) {
	l.calls++
	for t.Need = 4; len(p)-t.Bytes >= t.Need && s.Reading(); {
		if t.Need = 4 + int(binary.BigEndian.Uint32(p[t.Bytes:])); len(p)-t.Bytes < t.Need {
			break
		}
		t.Bytes, t.Frames, t.Need = t.Bytes+t.Need, t.Frames+1, 4
		if l.stop {
			s.Hold()
		}
	}
	if t.Bytes == 0 {
		return t
	}
	l.got = append(l.got, p[:t.Bytes]...)
	var lent *Buffer
	if s.part != nil {
		lent = s.part.lent
	}
	b, err := s.Keep(p[:t.Bytes])
	if err != nil {
		s.Fault(err)
		return t
	}
	if b == lent && lent != nil {
		l.kept++
	}
	l.out = append(l.out, held{b, t.Bytes})
	if l.later {
		l.owes++
	} else {
		s.Mark()
	}
	return t
}

func (l *lengths) Pending(*Socket) bool { return len(l.out) > 0 && !l.later }

func (l *lengths) Gather(s *Socket, w *Write) error {
	for ; len(l.out) > 0 && !w.Full() && w.Room() >= 100; l.out = l.out[1:] {
		h := l.out[0]
		if p := h.Bytes()[:h.n]; h.n < 100 {
			w.Out = append(w.Out, p...)
			h.LetGo()
		} else {
			w.Refer(p)
			w.Hold(h)
		}
	}
	if l.eager {
		s.Release()
	}
	return nil
}

func (l *lengths) Ended(_ *Socket, err error) {
	l.ended = err
	for _, h := range l.out {
		h.LetGo()
	}
}

// lengthsOf is a stream of frames with payloads of these sizes.
func lengthsOf(sizes ...int) (stream []byte) {
	fill := rand.NewChaCha8([32]byte{1})
	for _, n := range sizes {
		at := len(stream) + 4
		stream = append(binary.BigEndian.AppendUint32(stream, uint32(n)), make([]byte, n)...)
		_, _ = fill.Read(stream[at:]) // never fails
	}
	return stream
}

// carried is a fake socket that l serves.
func carried(b *bed, l Framer) (*Socket, *fakedriver.Sock) {
	link, f := b.link()
	s := link.sock
	must(b.t, link.Carry(l))
	return s, f
}

// However the stream of a protocol is cut, each frame comes once, is counted, and costs no
// memory behind its answer. Stops, and moves to another core in the middle of a frame, change
// nothing.
// Matrix: IO-24
func TestTheLoopGathersTheFramesOfAnyProtocol(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var sizes []int
		for range 1 + rng.IntN(40) {
			sizes = append(sizes, rng.IntN(1<<rng.IntN(19)))
		}
		stream := lengthsOf(sizes...)
		b := newBed(t, func(cfg *Config, d *fakedriver.Driver) { d.Multishot = seed%3 == 0; cfg.LargeFrom = 16 << 10 })
		l := &lengths{stop: seed%5 == 0}
		s, f := carried(b, l)
		for rest := stream; len(rest) > 0; {
			n := min(1+rng.IntN(1<<rng.IntN(18)), len(rest))
			f.Arrive(rest[:n])
			rest = rest[n:]
			b.settle()
			for s.Stopped() && rng.IntN(4) > 0 {
				s.Release()
				b.settle()
			}
			if rng.IntN(4) == 0 {
				stopped := s.Stopped()
				var moved *Detached
				s.Detach(func(_ *Core, d *Detached) { moved = d })
				b.settle()
				if moved == nil {
					t.Fatalf("seed %d: the socket does not leave", seed)
				}
				var err error
				s, err = b.c.Attach(moved, l)
				must(t, err)
				s.Continue()
				if stopped && !s.Stopped() {
					t.Fatalf("seed %d: it goes on behind its move", seed)
				}
				s.Mark()
				b.settle()
			}
		}
		for s.Stopped() {
			s.Release()
			b.settle()
		}
		if !bytes.Equal(l.got, stream) || !bytes.Equal(f.Sent, stream) {
			t.Fatalf("seed %d: %d bytes came, and %d went, of %d", seed, len(l.got), len(f.Sent), len(stream))
		}
		if n := b.c.stats.FramesIn; n != uint64(len(sizes)) {
			t.Errorf("seed %d: %d frames counted, want %d", seed, n, len(sizes))
		}
		if b.c.pool.inUse != 0 || l.ended != nil || f.Crossed != 0 {
			t.Errorf("seed %d: %d bytes are lent, ended with %v, %d reads beside a receive", seed, b.c.pool.inUse, l.ended, f.Crossed)
		}
	}
}

// leavingLengths leaves its core as soon as bytes come, or with its answers.
type leavingLengths struct {
	laterLengths
	parts bool // with its answers
	asked bool
	left  *Detached
}

func (l *leavingLengths) leave(s *Socket, now bool) {
	if now && !l.asked {
		l.asked = true
		s.Detach(func(_ *Core, d *Detached) { l.left = d })
	}
}

func (l *leavingLengths) Feed(s *Socket, p []byte) Taken {
	l.leave(s, len(p) > 0 && !l.parts)
	return l.lengths.Feed(s, p)
}

func (l *leavingLengths) Gather(s *Socket, w *Write) error {
	l.leave(s, l.parts)
	return l.lengths.Gather(s, w)
}

// What Feed leaves, and what Gather gives, is not lost with nothing in flight on the socket.
// Matrix: IO-24
func TestAFramerMayLeaveItsCoreInItsCalls(t *testing.T) {
	stream := lengthsOf(10, 200)
	for name, one := range map[string]struct{ ends, half, parts bool }{
		"with the last bytes of a receive": {ends: true}, "half-closed": {half: true}, "with its answers": {half: true, parts: true},
	} {
		b := newBed(t, func(cfg *Config, d *fakedriver.Driver) { cfg.Receive, d.Multishot = ReceiveBuffers, true })
		l := &leavingLengths{laterLengths: laterLengths{lengths{later: !one.parts}}, parts: one.parts}
		s, f := carried(b, l)
		if one.half {
			s.Hold()
		}
		if f.Arrive(stream); one.ends {
			b.d.Queue[len(b.d.Queue)-1].Flags &^= uring.More
			f.Receiving = false
		}
		if one.half {
			f.HangUp()
			b.settle()
			s.Release()
		}
		b.settle()
		if l.left == nil || !bytes.Equal(append(l.got, l.left.backlog...), stream) || one.parts && !bytes.Equal(f.Sent, stream) {
			t.Errorf("%s: left %v, %d of %d bytes taken, %d sent", name, l.left != nil, len(l.got), len(stream), len(f.Sent))
		}
		if b.c.stats.Sockets != 0 || l.ended != nil {
			t.Errorf("%s: %d sockets, ended with %v", name, b.c.stats.Sockets, l.ended)
		}
	}
}

// leavesInGather leaves its core with its first answer.
type leavesInGather struct {
	lengths
	left chan *Detached
}

func (l *leavesInGather) Gather(s *Socket, w *Write) error {
	s.Detach(func(_ *Core, d *Detached) { l.left <- d })
	return l.lengths.Gather(s, w)
}

// A small write has no completion of its own, so that its end wakes no core which sleeps.
// Matrix: IO-24
func TestACoreDoesNotSleepOverTheLastWriteOfASocketThatLeaves(t *testing.T) {
	overPlanes(t, 2, func(t *testing.T, p *Plane) {
		link, peer := linkPair(t, p.Core(0), p.Core(1))
		l := &leavesInGather{left: make(chan *Detached, 1)}
		must(t, p.Core(0).call(func(*Core) { _ = link.Carry(l) }))
		must(t, peer.Write(deadline(t), lengthsOf(10)))
		await(t, l.left).close()
	})
}

// The peer may take the answers with which a socket leaves only after we have read its own.
// Matrix: IO-24
func TestASocketThatLeavesWithItsAnswersReadsUntilTheyAreSent(t *testing.T) {
	b := newBed(t, nil)
	l := &leavingLengths{parts: true}
	_, f := carried(b, l)
	f.Park = true
	stream := lengthsOf(10, 200)
	f.Arrive(stream[:14])
	b.settle()
	f.Arrive(stream[14:])
	b.settle()
	if l.left != nil || !bytes.Equal(l.got, stream) {
		t.Fatalf("left: %v, %d of %d bytes are read", l.left != nil, len(l.got), len(stream))
	}
	f.Finish(int32(f.InFlight.Size()))
	if b.settle(); l.left == nil || l.ended != nil {
		t.Errorf("left: %v, ended with %v", l.left != nil, l.ended)
	}
}

// Matrix: IO-24
func TestAFrameThatIsNotCompleteEndsWithItsSocket(t *testing.T) {
	for _, one := range []struct {
		name string
		end  func(*Socket, *fakedriver.Sock)
		want error
	}{
		{"hung up", func(_ *Socket, f *fakedriver.Sock) { f.HangUp() }, ErrPeerClosed},
		{"reset", func(_ *Socket, f *fakedriver.Sock) { f.Errno = unix.ECONNRESET; f.Edge(0) }, unix.ECONNRESET},
		{"ended by us", func(s *Socket, _ *fakedriver.Sock) { s.Fault(ErrReset) }, ErrReset},
	} {
		b := newBed(t, nil)
		l := &lengths{}
		s, f := carried(b, l)
		f.Arrive(lengthsOf(100_000)[:50_000])
		b.settle()
		if b.c.pool.inUse == 0 {
			t.Fatalf("%s: no memory is lent for the frame", one.name)
		}
		one.end(s, f)
		b.settle()
		if f.WasReset != (one.want == ErrReset) {
			t.Errorf("%s: the driver resets: %v", one.name, f.WasReset)
		}
		if !errors.Is(l.ended, one.want) || b.c.pool.inUse != 0 || len(l.got) != 0 {
			t.Errorf("%s: ended with %v, %d bytes are lent, %d taken", one.name, l.ended, b.c.pool.inUse, len(l.got))
		}
	}
}

// A large frame is read into its place, a MiB at a time, and its answer is not copied.
// Matrix: IO-24
func TestALargeFrameOfAnyProtocolIsReadIntoItsPlace(t *testing.T) {
	b := newBed(t, func(_ *Config, d *fakedriver.Driver) { d.Multishot = true })
	l := &lengths{}
	s, f := carried(b, l)
	stream := lengthsOf(4<<20, 4<<20, 4<<20)
	f.Whole = bytes.Clone(stream)
	f.Edge(0)
	b.settle()
	if !bytes.Equal(f.Sent, stream) || l.kept != 3 {
		t.Fatalf("%d bytes came back of %d, %d of 3 frames without a copy", len(f.Sent), len(stream), l.kept)
	}
	if f.Reads > 3*7 {
		t.Errorf("%d reads for three frames of 4 MiB", f.Reads)
	}
	if n := f.Behind; n > 3*LookAhead {
		t.Errorf("%d bytes were read elsewhere, and copied", n)
	}
	if mode, why := s.Receives(); mode != ReceiveReady || why != WhyBegun {
		t.Errorf("receives by %s, as %s", mode, why)
	}
}

// idler takes the first bytes, and then none. It says that it needs these.
type idler struct {
	lengths
	first, need int
}

func (l *idler) Feed(_ *Socket, p []byte) Taken {
	if len(p) == 0 {
		return Taken{}
	}
	if l.calls++; l.calls == 1 {
		return Taken{Bytes: l.first, Need: l.need}
	}
	return Taken{Need: l.need}
}

// A framer that takes nothing, and waits for no further bytes, ends its socket: the core would
// ask it again without end.
// Matrix: IO-24
func TestAFramerThatTakesNothingEndsItsSocketAndNotItsCore(t *testing.T) {
	for _, one := range []idler{
		{need: 0}, {need: 50}, {need: 100}, // of the 100 bytes that have come
		{first: 10}, {first: 10, need: 90},
		{need: 150}, // of bytes that the loop has gathered
	} {
		b := newBed(t, nil)
		_, f := carried(b, &one)
		f.Arrive(make([]byte, 100))
		b.settle()
		f.Arrive(make([]byte, 100))
		b.settle()
		if !errors.Is(one.ended, errTookNothing) || b.c.pool.inUse != 0 {
			t.Errorf("need %d behind %d bytes: ended with %v after %d calls, %d bytes are lent", one.need, one.first, one.ended, one.calls, b.c.pool.inUse)
		}
	}
}

// lines is a protocol whose frames end with a newline, so that it does not know their size.
type lines struct {
	lengths
	looked int // bytes
}

func (l *lines) Feed(_ *Socket, p []byte) (t Taken) {
	l.calls++
	l.looked += len(p)
	for range bytes.Count(p, []byte("\n")) {
		t.Bytes, t.Frames = t.Bytes+bytes.IndexByte(p[t.Bytes:], '\n')+1, t.Frames+1
	}
	l.got = append(l.got, p[:t.Bytes]...)
	if rest := len(p) - t.Bytes; rest > 0 {
		t.Need = rest + 1
	}
	return t
}

// A line that comes in two parts is looked through twice, and not once for each of its bytes.
// Matrix: IO-24
func TestAFrameOfUnknownSizeIsGatheredAsItComes(t *testing.T) {
	for _, large := range []int{64 << 10, 100} {
		for _, cut := range []int{1, 10, 8000, 8001} {
			b := newBed(t, func(cfg *Config, d *fakedriver.Driver) { d.Multishot = true; cfg.LargeFrom = large })
			l := &lines{}
			_, f := carried(b, l)
			stream := append(bytes.Repeat([]byte("x"), 8000), "\nmore\n\nand"...)
			f.Arrive(stream[:cut])
			b.settle()
			f.Arrive(stream[cut:])
			b.settle()
			if want := stream[:len(stream)-3]; !bytes.Equal(l.got, want) || l.looked > 3*len(stream) || l.ended != nil {
				t.Errorf("cut at %d: %d bytes taken of %d, %d calls looked at %d bytes, ended with %v", cut, len(l.got), len(want), l.calls, l.looked, l.ended)
			}
		}
	}
}

// The framer need not count anything for that.
// Matrix: IO-24
func TestSmallFramesOfAnyProtocolComeThroughTheBuffersOfTheRing(t *testing.T) {
	b := newBed(t, func(_ *Config, d *fakedriver.Driver) { d.Multishot = true })
	s, f := carried(b, &lengths{})
	frames := lengthsOf(60)
	for range 10_000 {
		f.Arrive(frames)
		b.settle()
	}
	st := b.c.Snapshot()
	if mode, why := s.Receives(); mode != ReceiveBuffers || why != WhySmall || st.TookBuffers != 1 || st.LeftBuffers != 0 || st.FramesIn != 10_000 {
		t.Errorf("%d frames; receives by %s, as %s; went to the buffers %d times, and back %d times", st.FramesIn, mode, why, st.TookBuffers, st.LeftBuffers)
	}
	f.Arrive(lengthsOf(200_000)[:100_000])
	b.settle()
	if mode, why := s.Receives(); mode != ReceiveReady || why != WhyLarge {
		t.Errorf("with a large frame it receives by %s, as %s", mode, why)
	}
}

// laterLengths answers when the test says so.
type laterLengths struct{ lengths }

func (l *laterLengths) HalfClosed(s *Socket) bool {
	writing, _ := s.Writing()
	return l.owes > 0 || l.Pending(s) || writing > 0
}

// leaver ends with its peer.
type leaver struct{ lengths }

func (*leaver) HalfClosed(*Socket) bool { return false }

// A peer that has said all that it has to say still gets its answers.
// Matrix: IO-25
func TestAHalfClosedSocketGetsItsAnswers(t *testing.T) {
	question := lengthsOf(10, 70_000)
	for _, multishot := range []bool{false, true} {
		for _, one := range []struct {
			name string
			stop bool
			ask  func(b *bed, s *Socket, f *fakedriver.Sock)
		}{
			{"with the last bytes", false, func(b *bed, _ *Socket, f *fakedriver.Sock) { f.Arrive(question); f.HangUp(); b.settle() }},
			{"before the answer is written", false, func(b *bed, _ *Socket, f *fakedriver.Sock) {
				f.Park = true
				f.Arrive(question)
				b.settle()
				f.HangUp()
				b.settle()
				f.Park = false
				for f.InFlight != nil {
					f.Finish(0)
					b.settle()
				}
			}},
			{"while each answer stops it", true, func(b *bed, _ *Socket, f *fakedriver.Sock) {
				f.Arrive(question)
				f.HangUp()
				b.settle()
			}},
			{"while it is stopped", false, func(b *bed, s *Socket, f *fakedriver.Sock) {
				s.Hold()
				f.Arrive(question)
				f.HangUp()
				b.settle()
				s.Release()
				b.settle()
			}},
		} {
			b := newBed(t, func(cfg *Config, d *fakedriver.Driver) {
				if d.Multishot = multishot; multishot {
					cfg.Receive = ReceiveBuffers
				}
			})
			l := &lengths{eager: true, stop: one.stop}
			s, f := carried(b, l)
			one.ask(b, s, f)
			if !bytes.Equal(f.Sent, question) || !errors.Is(l.ended, ErrPeerClosed) || f.CloseCalls != 1 || b.c.pool.inUse != 0 {
				t.Errorf("%s, multishot %v: %d of %d bytes came back; ended with %v, closed %d times, %d bytes are lent",
					one.name, multishot, len(f.Sent), len(question), l.ended, f.CloseCalls, b.c.pool.inUse)
			}
		}
	}
}

// A framer whose answers come later says so, and is asked again behind each write.
// Matrix: IO-25
func TestAFramerKeepsAHalfClosedSocketForAnswersThatComeLater(t *testing.T) {
	b := newBed(t, nil)
	l := &laterLengths{lengths{later: true}}
	s, f := carried(b, l)
	question := lengthsOf(10)
	f.Arrive(question)
	f.HangUp()
	b.settle()
	if l.ended != nil || len(f.Sent) != 0 {
		t.Fatalf("ended with %v before the answer, %d bytes sent", l.ended, len(f.Sent))
	}
	l.later, l.owes = false, 0
	s.Mark()
	b.settle()
	if !bytes.Equal(f.Sent, question) || !errors.Is(l.ended, ErrPeerClosed) {
		t.Errorf("%d bytes sent, ended with %v", len(f.Sent), l.ended)
	}

	l = &laterLengths{lengths{later: true}}
	_, f = carried(b, l)
	f.Arrive(question)
	f.HangUp()
	b.settle()
	f.Edge(unix.POLLHUP | unix.POLLERR) // a reset: it cannot read an answer any more
	b.settle()
	if !errors.Is(l.ended, ErrPeerClosed) || f.CloseCalls != 1 || b.c.pool.inUse != 0 {
		t.Errorf("a peer that is gone: ended with %v, closed %d times, %d bytes are lent", l.ended, f.CloseCalls, b.c.pool.inUse)
	}

	gone := &leaver{}
	_, f = carried(b, gone)
	f.Park = true
	f.Arrive(question)
	b.settle()
	f.HangUp()
	b.settle()
	if !errors.Is(gone.ended, ErrPeerClosed) || f.CloseCalls != 1 {
		t.Errorf("a protocol that ends with its peer: %v, closed %d times", gone.ended, f.CloseCalls)
	}
}
