package load

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

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
