package frame

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"math/rand/v2"
	"testing"
)

func testGCM(t testing.TB, key []byte) (cipher.Block, cipher.AEAD) {
	t.Helper()
	block, err := aes.NewCipher(key)
	must(t, err)
	g, err := cipher.NewGCM(block)
	must(t, err)
	return block, g
}

// sealChunks seals text in chunks of these lengths; every other one is in
// place, the rest are read from text.
func sealChunks(t testing.TB, c *chain, nonce *[12]byte, text []byte, lens []int) []byte {
	t.Helper()
	plain := bytes.Clone(text)
	out := bytes.Repeat([]byte{0xAA}, len(text)+tagSize+1)
	c.begin(nonce)
	at := 0
	for i, n := range lens {
		src := text[at : at+n]
		if i%2 == 1 {
			src = out[at : at+n]
			copy(src, text[at:])
		}
		c.seal(out[at:len(out)-1], src)
		at += n
	}
	c.finish(out[at:len(out)-1], at)
	if out[len(out)-1] != 0xAA {
		t.Fatal("written beyond the tag")
	}
	if !bytes.Equal(text, plain) {
		t.Fatal("the plain text was changed")
	}
	return out[:len(out)-1]
}

// Every way to cut a short text at block borders, and what ends in the middle
// of a block.
func TestAChainSealsWhatOnePieceWould(t *testing.T) {
	block, g := testGCM(t, testKey[:])
	c := newChain(block, g)
	for _, size := range []int{0, 1, 15, 16, 17, 96, 97, 111} {
		text := pattern(size, 3)
		want := g.Seal(nil, testNonce[:], text, nil)
		borders := size / blockSize
		for cuts := range 1 << borders {
			var lens []int
			last := 0
			for i := range borders {
				if cuts>>i&1 == 1 {
					at := blockSize * (i + 1)
					lens = append(lens, at-last)
					last = at
				}
			}
			lens = append(lens, size-last) // can be nothing
			if got := sealChunks(t, c, &testNonce, text, lens); !bytes.Equal(got, want) {
				t.Fatalf("%d bytes in chunks of %v:\n%x, want\n%x", size, lens, got, want)
			}
		}
	}
}

// Long chunks: counters beyond a byte and beyond two, under random keys.
func TestAChainOfLongChunks(t *testing.T) {
	rng := rand.NewChaCha8([32]byte{1})
	text := make([]byte, 3<<20)
	_, _ = rng.Read(text)
	for _, lens := range [][]int{
		{1 << 20, 1 << 20, 1 << 20}, {16, 3<<20 - 32, 16}, {3<<20 - 16, 16}, {255 * 16, 16, 2<<20 - 256*16, 1 << 20}, {3 << 20, 0},
	} {
		var key [16]byte
		var nonce [12]byte
		_, _ = rng.Read(key[:])
		_, _ = rng.Read(nonce[:])
		block, g := testGCM(t, key[:])
		got := sealChunks(t, newChain(block, g), &nonce, text, lens)
		if want := g.Seal(nil, nonce[:], text, nil); !bytes.Equal(got, want) {
			t.Fatalf("chunks of %v differ", lens)
		}
	}
}

// zeroBlock encrypts everything to zeros: H has no inverse.
type zeroBlock struct{ cipher.Block }

func (zeroBlock) Encrypt(dst, _ []byte) { clear(dst[:blockSize]) }

func TestNoChainWithoutAnInverse(t *testing.T) {
	block, g := testGCM(t, testKey[:])
	if newChain(zeroBlock{block}, g) != nil {
		t.Fatal("a chain that would encrypt with wrong counters")
	}
}

// aroundChainFrom are the lengths that decide where a segment is encrypted and
// what is left of it.
var aroundChainFrom = []int{0, 5, chainFrom - 1, chainFrom, chainFrom + 17}

// Frames with large segments in every position are those of the reference,
// which seals each operation in one piece; with and without a chain.
// Matrix: INV-10, FR-08
func TestLargeSegmentsAreSealedAsInOnePiece(t *testing.T) {
	for _, m := range []mode{modes[1], modes[3]} {
		t.Run(m.name, func(t *testing.T) {
			enc, plain, ref := m.encoder(t), m.encoder(t), m.crypt()
			if enc.dir.chain == nil {
				t.Fatal("no chain")
			}
			plain.dir.chain = nil
			for i := range 2 * 125 {
				segs := [4][]byte{pattern(41, byte(i))}
				if i >= 125 {
					segs[0] = pattern(chainFrom+i, 1)
				}
				k := i
				for j := 1; j < 4; j++ {
					segs[j] = pattern(aroundChainFrom[k%5], byte(i+j))
					k /= 5
				}
				before := segs
				for j := range before {
					before[j] = bytes.Clone(before[j])
				}
				f := newRefFrame(m.rev, TagMessage, segs[:]...)
				want := f.wire(m.rev, ref)
				dirty := bytes.Repeat([]byte{0xAA}, len(want)+100)
				for name, e := range map[string]*Encoder{"chained": enc, "copied": plain} {
					got, err := e.AppendFrame(dirty[:3], TagMessage, segs[:]...)
					must(t, err)
					if !bytes.Equal(got[3:], want) {
						t.Fatalf("%s: segments of %d, %d, %d and %d bytes differ", name, len(segs[0]), len(segs[1]), len(segs[2]), len(segs[3]))
					}
				}
				if !equalSegs(before, segs) {
					t.Fatal("segments were changed")
				}
			}
			if enc.dir.nonce.b != plain.dir.nonce.b || !bytes.Equal(enc.dir.nonce.b[:], ref.nonce) {
				t.Fatal("nonces went apart")
			}
		})
	}
}

// A refused frame puts nothing into the buffer, least of all plain text.
func TestARefusedLargeFrameWritesNothing(t *testing.T) {
	for _, m := range []mode{modes[1], modes[3]} {
		enc := m.encoder(t)
		room := bytes.Repeat([]byte{0xAA}, chainFrom+1000)
		lastNonces(enc.dir, 0)
		_, err := enc.AppendFrame(room[:0], TagMessage, pattern(41, 1), nil, nil, pattern(chainFrom, 2))
		wantErr(t, err, errNonceExhausted)
		enc.Wipe()
		_, err = enc.AppendFrame(room[:0], TagMessage, pattern(41, 1), nil, nil, pattern(chainFrom, 2))
		wantErr(t, err, ErrKeys)
		if len(bytes.Trim(room, "\xAA")) != 0 {
			t.Fatal("the buffer was written to")
		}
	}
}
