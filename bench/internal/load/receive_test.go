package load

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

func testTemplate(t testing.TB, size int) *template {
	t.Helper()
	tmpl, err := newTemplate(size)
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

// replies returns n correct replies, tids counting from tid.
func replies(tmpl *template, n int, tid uint64) []byte {
	var p []byte
	for i := range n {
		start := len(p)
		p = append(p, tmpl.frame...)
		number(p[start:start+headLen], uint64(i+1), tid+uint64(i))
	}
	return p
}

// feed passes p on in pieces of random lengths and returns how many replies
// were complete.
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

func TestAFrameOfTheDecoderIsWhatTheTemplateBuilds(t *testing.T) {
	tmpl := testTemplate(t, 1000)
	p := replies(tmpl, 1, 5)
	d := frame.NewDecoder(frame.Rev1, frame.DefaultLimits())
	h, err := d.Open(p[:preambleLen])
	if err != nil {
		t.Fatal(err)
	}
	f, err := d.Finish(h, p[:preambleLen], p[preambleLen:])
	if err != nil {
		t.Fatal(err)
	}
	m, err := frame.ParseMessageHeader(f.Seg[0])
	if err != nil || m.Seq != 1 || m.TID != 5 || m.Type != messageType || len(f.Seg[3]) != 1000 {
		t.Fatalf("%+v, %d bytes of data, %v", m, len(f.Seg[3]), err)
	}
}

func TestRepliesAreFoundHoweverTheStreamIsCut(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, size := range []int{1, 64, 5000} {
		tmpl := testTemplate(t, size)
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
	rng := rand.New(rand.NewPCG(1, 2))
	tmpl := testTemplate(t, 100)
	e := frame.NewEncoder(frame.Rev1)
	one := replies(tmpl, 3, 1)
	var p []byte
	for i := range 3 {
		for _, tag := range []frame.Tag{frame.TagKeepalive2, frame.TagKeepalive2Ack, frame.TagAck} {
			p, _ = e.AppendFrame(p, tag, make([]byte, 8))
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
	tmpl := testTemplate(t, 100)
	size := len(tmpl.frame)
	other, err := frame.NewEncoder(frame.Rev1).AppendFrame(nil, frame.TagWait)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		stream []byte
		want   string
	}{
		"preamble":       {flip(replies(tmpl, 2, 1), size+3), "preamble"},
		"header":         {flip(replies(tmpl, 2, 1), size+seqOffset), "header crc"},
		"epilogue":       {flip(replies(tmpl, 2, 1), 2*size-1), "epilogue"},
		"lost message":   {replies(tmpl, 2, 1)[size:], "sequence 2 after 0"},
		"wrong order":    {replies(tmpl, 1, 2), "transaction"},
		"unknown frame":  {other, "WAIT"},
		"sampled bytes":  {flip(replies(tmpl, 1, 64), headLen+50), "bytes differ"},
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

func TestReceivingDoesNotAllocate(t *testing.T) {
	tmpl := testTemplate(t, 64)
	one := append([]byte(nil), tmpl.frame...)
	r := newReceiver(tmpl, false, 1)
	seq := uint64(0)
	done := func(time.Duration) {}
	n := testing.AllocsPerRun(100, func() {
		seq++
		number(one[:headLen], seq, seq)
		if err := r.take(one, 0, done); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Fatalf("%v allocations per reply", n)
	}
}

func FuzzReceiver(f *testing.F) {
	tmpl, err := newTemplate(64)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(replies(tmpl, 3, 1), uint64(1), false)
	f.Add(tmpl.frame, uint64(2), true)
	ack, _ := frame.NewEncoder(frame.Rev1).AppendFrame(nil, frame.TagAck, make([]byte, 8))
	f.Add(ack, uint64(3), false)
	f.Fuzz(func(t *testing.T, p []byte, seed uint64, raw bool) {
		r := newReceiver(tmpl, raw, 1)
		n, _ := feed(&r, p, rand.New(rand.NewPCG(seed, 0)))
		if n*len(tmpl.frame) > len(p) {
			t.Fatalf("%d replies in %d bytes", n, len(p))
		}
	})
}

func BenchmarkReceive(b *testing.B) {
	tmpl := testTemplate(b, 64)
	const batch = 256
	stream := replies(tmpl, batch, 1)
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	done := func(time.Duration) {}
	for b.Loop() {
		r := newReceiver(tmpl, false, 1)
		if err := r.take(stream, 0, done); err != nil {
			b.Fatal(err)
		}
	}
}
