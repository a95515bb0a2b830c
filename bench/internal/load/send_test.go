package load

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

// socketPair returns two connected non-blocking sockets with small buffers.
func socketPair(t *testing.T) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	clitest.Must(t, err)
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	clitest.Must(t, unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_SNDBUF, 8192))
	return fds[0], fds[1]
}

// sendAll flushes s into one socket and reads the other until both are empty.
func sendAll(t *testing.T, s *sender, from, to int) []byte {
	t.Helper()
	var got []byte
	buf := make([]byte, 1500)
	for {
		clitest.Must(t, s.flush(from))
		n, err := unix.Read(to, buf)
		if err == unix.EAGAIN {
			if s.pending() {
				continue
			}
			return got
		}
		clitest.Must(t, err)
		got = append(got, buf[:n]...)
	}
}

// ends are the two ends of a connection in msgr2, in msgr1, and in mode secure, and what they send.
func ends(t *testing.T, size int, do func(s *sender, in inbound)) {
	t.Helper()
	for _, tmpl := range testTemplates(t, size) {
		in := newReceiver(tmpl, false, 1)
		do(&sender{t: tmpl, tid: 1}, &in)
	}
	s, o := sealedPair(t, size)
	do(s, o)
}

func TestRequestsArriveWholeAndInOrderThroughAFullSocket(t *testing.T) {
	for _, size := range []int{1, 100, copyBelow, 50000} {
		ends(t, size, func(s *sender, in inbound) {
			from, to := socketPair(t)
			n := 0
			for range 4 {
				for range 5 {
					s.request()
				}
				if err := in.take(sendAll(t, s, from, to), 0, func(time.Duration) { n++ }); err != nil {
					t.Fatalf("size %d: %v", size, err)
				}
			}
			if n != 20 {
				t.Fatalf("size %d: %d requests arrived", size, n)
			}
		})
	}
}

func TestWithdrawTakesBackWhatWasNotBegun(t *testing.T) {
	ends(t, 100000, func(s *sender, in inbound) {
		from, to := socketPair(t)
		for range 4 {
			s.request()
		}
		clitest.Must(t, s.flush(from)) // a part of the first one
		begun := gatherEach
		if s.enc != nil {
			begun = 1
		}
		if n := s.withdraw(); n != 4-begun {
			t.Fatalf("%d taken back, want %d", n, 4-begun)
		}
		s.request() // the numbers go on
		n := 0
		clitest.Must(t, in.take(sendAll(t, s, from, to), 0, func(time.Duration) { n++ }))
		if n != begun+1 {
			t.Fatalf("%d requests arrived, want %d", n, begun+1)
		}
	})
}

func testTemplate(t *testing.T, size int) *template { return testTemplates(t, size)[0] }

// testTemplates are that of msgr2, and that of msgr1.
func testTemplates(t *testing.T, size int) (list []*template) {
	t.Helper()
	for _, msgr1 := range []bool{false, true} {
		tmpl, err := newTemplate(size, msgr1)
		clitest.Must(t, err)
		list = append(list, tmpl)
	}
	return list
}

// replies returns n correct replies, tids counting from tid.
func replies(tmpl *template, n int, tid uint64) []byte {
	var p []byte
	for i := range n {
		start := len(p)
		p = append(p, tmpl.frame...)
		tmpl.number(p[start:], uint64(i+1), tid+uint64(i))
	}
	return p
}

// feed passes p on in pieces of random lengths and returns the number of complete replies.
func feed(r *receiver, p []byte, rng *rand.Rand) (n int, err error) {
	for len(p) > 0 {
		k := min(1+rng.IntN(1+rng.IntN(4096)), len(p))
		// The receiver may not rely on its input after the call.
		piece := append([]byte(nil), p[:k]...)
		if err := r.take(piece, time.Second, func(time.Duration) { n++ }); err != nil {
			return n, err
		}
		clear(piece)
		p = p[k:]
	}
	return n, nil
}

func TestRepliesAreFoundHoweverTheStreamIsCut(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, tmpl := range slices.Concat(testTemplates(t, 1), testTemplates(t, 64), testTemplates(t, 5000)) {
		size := len(tmpl.payload)
		for range 20 {
			r := newReceiver(tmpl, false, 9)
			if n, err := feed(&r, replies(tmpl, 200, 9), rng); n != 200 || err != nil {
				t.Fatalf("size %d: %d replies, %v", size, n, err)
			}
			raw := newReceiver(tmpl, true, 9)
			var p []byte
			for range 200 {
				p = append(p, tmpl.frame...)
			}
			if n, err := feed(&raw, p, rng); n != 200 || err != nil {
				t.Fatalf("raw, size %d: %d replies, %v", size, n, err)
			}
		}
	}
}

func TestControlFramesBetweenRepliesAreSkipped(t *testing.T) {
	for _, tmpl := range testTemplates(t, 100) {
		skipsControlFrames(t, tmpl)
	}
}

func skipsControlFrames(t *testing.T, tmpl *template) {
	rng := rand.New(rand.NewPCG(1, 2))
	e := frame.NewEncoder(frame.Rev1)
	one := replies(tmpl, 3, 1)
	var p []byte
	for i := range 3 {
		if tmpl.msgr1 {
			p = frame1.Form{}.AppendKeepalive(p, [8]byte{})
			p = frame1.AppendKeepaliveAck(p, [8]byte{})
			p = frame1.AppendAck(p, 8)
		} else {
			for _, tag := range []frame.Tag{frame.TagKeepalive2, frame.TagKeepalive2Ack, frame.TagAck} {
				p, _ = e.AppendFrame(p, tag, make([]byte, 8))
			}
		}
		p = append(p, one[i*len(tmpl.frame):(i+1)*len(tmpl.frame)]...)
	}
	for range 50 {
		r := newReceiver(tmpl, false, 1)
		if n, err := feed(&r, p, rng); n != 3 || err != nil {
			t.Fatalf("%d replies, %v", n, err)
		}
	}
}

func TestEveryKindOfWrongReplyIsNoticed(t *testing.T) {
	other, err := frame.NewEncoder(frame.Rev1).AppendFrame(nil, frame.TagWait)
	clitest.Must(t, err)
	templates := testTemplates(t, 100)
	noticesWrongReplies(t, templates[0], other, "WAIT", "preamble")
	noticesWrongReplies(t, templates[1], []byte{byte(frame1.TagClose)}, "CLOSE", "")
	tmpl := templates[1]
	longer := replies(tmpl, 1, 1)
	longer[tmpl.lead+tmpl.lensEnd-4]++
	tmpl.number(longer, 1, 1) // with the crc of that
	r := newReceiver(tmpl, false, 1)
	if err := r.take(longer, 0, func(time.Duration) {}); !errors.Is(err, ErrReply) || !strings.Contains(err.Error(), "lengths") {
		t.Errorf("another length: %v", err)
	}
}

func noticesWrongReplies(t *testing.T, tmpl *template, other []byte, tag, lead string) {
	t.Helper()
	size := len(tmpl.frame)
	for name, c := range map[string]struct {
		stream []byte
		want   string
	}{
		"preamble":       {flip(replies(tmpl, 2, 1), size+min(3, tmpl.lead-1)), lead},
		"header":         {flip(replies(tmpl, 2, 1), size+tmpl.lead), "header crc"},
		"epilogue":       {flip(replies(tmpl, 2, 1), 2*size-1), "epilogue"},
		"lost message":   {replies(tmpl, 2, 1)[size:], "sequence 2 after 0"},
		"wrong order":    {replies(tmpl, 1, 2), "transaction"},
		"unknown frame":  {other, tag},
		"sampled bytes":  {flip(replies(tmpl, 1, 64), tmpl.headLen()+50), "bytes differ"},
		"twice the same": {append(replies(tmpl, 1, 1), replies(tmpl, 1, 1)...), "sequence 1 after 1"},
	} {
		tid := uint64(1)
		if name == "sampled bytes" {
			tid = 64
		}
		r := newReceiver(tmpl, false, tid)
		err := r.take(c.stream, 0, func(time.Duration) {})
		if !errors.Is(err, ErrReply) || !strings.Contains(strings.ToUpper(err.Error()), strings.ToUpper(c.want)) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	raw := newReceiver(tmpl, true, 1)
	if err := raw.take(flip(append([]byte(nil), tmpl.frame...), 0), 0, func(time.Duration) {}); !errors.Is(err, ErrReply) {
		t.Errorf("raw: error %v", err)
	}
}

func flip(p []byte, i int) []byte {
	p[i] ^= 1
	return p
}

// sealedPair returns both ends of a connection that echoes to itself: one encrypts, the other
// decrypts.
func sealedPair(t *testing.T, size int) (*sender, *opener) {
	t.Helper()
	enc, dec := frame.NewEncoder(frame.Rev1), frame.NewDecoder(frame.Rev1, frame.DefaultLimits())
	key, nonce := [16]byte{1, 2, 3}, [12]byte{4, 5, 6}
	clitest.Must(t, errors.Join(enc.Secure(key, nonce), dec.Secure(key, nonce)))
	tmpl := testTemplate(t, size)
	tmpl.wire = enc.FrameSize(headerLen, 0, 0, size)
	return &sender{t: tmpl, enc: enc, tid: 1}, &opener{t: tmpl, frames: frames{dec: dec}, order: order{tid: 1}}
}

// encrypted takes everything that s has to send.
func encrypted(t *testing.T, s *sender) (p []byte) {
	t.Helper()
	for s.pending() {
		clitest.Must(t, s.begin())
		p = append(p, s.out...)
		s.left = nil
	}
	return p
}

func TestEncryptedRepliesAreTheSameWhereverTheStreamIsCut(t *testing.T) {
	for _, size := range []int{1, 100, 5000, 300000} {
		for seed := range uint64(5) {
			rng := rand.New(rand.NewPCG(seed, uint64(size)))
			s, o := sealedPair(t, size)
			for range 7 {
				s.request()
			}
			stream := encrypted(t, s)
			// Control frames, which a server may send at any time.
			for _, payload := range []int{8, 200} {
				var err error
				stream, err = s.enc.AppendFrame(stream, frame.TagAck, make([]byte, payload))
				clitest.Must(t, err)
			}
			s.request()
			stream = append(stream, encrypted(t, s)...)
			n := 0
			for len(stream) > 0 {
				k := min(1+rng.IntN(1<<(1+rng.IntN(18))), len(stream))
				if err := o.take(append([]byte(nil), stream[:k]...), 0, func(time.Duration) { n++ }); err != nil {
					t.Fatalf("size %d: %v", size, err)
				}
				stream = stream[k:]
			}
			if n != 8 {
				t.Fatalf("size %d: %d replies", size, n)
			}
		}
	}
}

func TestWrongEncryptedRepliesAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(p []byte){
		"damage in the data": func(p []byte) { p[len(p)/2] ^= 1 },
		"damage in the head": func(p []byte) { p[5] ^= 1 },
		"wrong transaction":  nil,
	} {
		s, o := sealedPair(t, 500)
		if spoil == nil {
			s.tid = 7
		}
		s.request()
		p := encrypted(t, s)
		if spoil != nil {
			spoil(p)
		}
		if err := o.take(p, 0, func(time.Duration) {}); !errors.Is(err, ErrReply) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, kind := range []frame.Tag{frame.TagWait, frame.TagMessage} {
		s, o := sealedPair(t, 500)
		p, err := s.enc.AppendFrame(nil, kind, make([]byte, headerLen), nil, nil, make([]byte, 600))
		clitest.Must(t, err)
		if err := o.take(p, 0, func(time.Duration) {}); !errors.Is(err, ErrReply) {
			t.Errorf("%v: %v", kind, err)
		}
	}
}
