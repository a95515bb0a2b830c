package load

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

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
				if stream, err = s.enc.AppendFrame(stream, frame.TagAck, make([]byte, payload)); err != nil {
					t.Fatal(err)
				}
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
