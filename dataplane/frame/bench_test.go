package frame

import (
	"crypto/aes"
	"crypto/cipher"
	"fmt"
	"testing"
)

var benchSizes = []int{64, 4 << 10, 64 << 10, 4 << 20}

func sizeName(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprint(n>>20, "MiB")
	case n >= 1<<10:
		return fmt.Sprint(n>>10, "KiB")
	}
	return fmt.Sprint(n, "B")
}

// BenchmarkTransfer encodes and decodes messages with a data segment.
func BenchmarkTransfer(b *testing.B) {
	for _, m := range modes {
		for _, n := range benchSizes {
			b.Run(m.name+"/"+sizeName(n), func(b *testing.B) {
				p, data := newPipe(b, m, n), pattern(n, 1)
				b.ReportAllocs()
				b.SetBytes(int64(n))
				for b.Loop() {
					if _, err := p.transfer(1, nil, data); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkEncode is the sending half of BenchmarkTransfer.
func BenchmarkEncode(b *testing.B) {
	for _, m := range modes {
		for _, n := range benchSizes {
			b.Run(m.name+"/"+sizeName(n), func(b *testing.B) {
				p, data := newPipe(b, m, n), pattern(n, 1)
				b.ReportAllocs()
				b.SetBytes(int64(n))
				for b.Loop() {
					if _, err := p.enc.AppendFrame(p.buf[:0], TagMessage, p.hdr[:], nil, nil, data); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkPlainGCM is what the library needs for sealing alone, and for
// sealing and opening: the bound for BenchmarkEncode and BenchmarkTransfer.
func BenchmarkPlainGCM(b *testing.B) {
	block, err := aes.NewCipher(testKey[:])
	if err != nil {
		b.Fatal(err)
	}
	g, err := cipher.NewGCM(block)
	if err != nil {
		b.Fatal(err)
	}
	for _, open := range []bool{false, true} {
		for _, n := range benchSizes {
			b.Run(fmt.Sprintf("open=%v/%s", open, sizeName(n)), func(b *testing.B) {
				src, nonce := pattern(n, 1), make([]byte, 12)
				dst := make([]byte, 0, n+tagSize)
				b.ReportAllocs()
				b.SetBytes(int64(n))
				for b.Loop() {
					out := g.Seal(dst, nonce, src, nil)
					if open {
						if _, err := g.Open(out[:0], nonce, out, nil); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}
