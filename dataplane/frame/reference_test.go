package frame

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"testing"
)

// A second encoder, written from the protocol text alone and sharing no code with
// the package: slow, allocating, one function per part. What the Encoder emits must be
// the same, byte for byte, and what this builds, broken on demand, must be handled by
// the Decoder.

// refCRC is a shift register, one bit at a time.
func refCRC(seed uint32, p []byte) uint32 {
	reg := seed
	for _, c := range p {
		for bit := range 8 {
			in := uint32(c>>bit) & 1
			if (reg^in)&1 == 1 {
				reg = reg>>1 ^ 0x82F63B78
			} else {
				reg >>= 1
			}
		}
	}
	return reg
}

func refPutLE(v uint64, size int) []byte {
	p := make([]byte, size)
	for i := range p {
		p[i] = byte(v >> (8 * i))
	}
	return p
}

// refCrypt is the encryption state of one direction.
type refCrypt struct {
	rev   Revision
	key   []byte
	nonce []byte
}

func (c *refCrypt) gcm() cipher.AEAD {
	block, err := aes.NewCipher(c.key)
	if err != nil {
		panic(err)
	}
	g, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return g
}

func (c *refCrypt) step() {
	from, to := 4, 12
	if c.rev == Rev0 {
		from, to = 0, 4
	}
	for i := from; i < to; i++ {
		c.nonce[i]++
		if c.nonce[i] != 0 {
			return // no carry
		}
	}
}

func (c *refCrypt) seal(p []byte) []byte {
	out := c.gcm().Seal(nil, c.nonce, p, nil)
	c.step()
	return out
}

// refFrame is a frame with everything that a sender can choose.
type refFrame struct {
	tag, num byte
	lens     [4]uint32
	align    [4]uint16
	flags    byte
	reserved byte
	segs     [4][]byte
	late     byte
	badCRC   bool    // of the preamble
	crcXor   [4]byte // damages the crcs of segments
	spareCRC uint32  // written to unused crc slots
	padding  byte    // instead of zero
}

// newRefFrame is a well-formed one.
func newRefFrame(rev Revision, tag Tag, segs ...[]byte) refFrame {
	f := refFrame{tag: byte(tag), num: 1, late: 0x0E}
	if rev == Rev0 {
		f.late = 0
	}
	for i, s := range segs {
		f.segs[i] = s
		f.lens[i] = uint32(len(s))
		if len(s) > 0 {
			f.num = byte(i + 1)
		}
	}
	for i := range int(f.num) {
		f.align[i] = []uint16{8, 8, 8, 4096}[i]
	}
	return f
}

func (f *refFrame) preamble() []byte {
	p := []byte{f.tag, f.num}
	for i := range 4 {
		p = append(p, refPutLE(uint64(f.lens[i]), 4)...)
		p = append(p, refPutLE(uint64(f.align[i]), 2)...)
	}
	p = append(p, f.flags, f.reserved)
	crc := refCRC(0, p)
	if f.badCRC {
		crc ^= 0x100
	}
	return append(p, refPutLE(uint64(crc), 4)...)
}

func (f *refFrame) crc(i int) []byte {
	c := f.spareCRC
	if i < int(f.num) {
		c = refCRC(0xFFFFFFFF, f.segs[i]) ^ uint32(f.crcXor[i])<<7
	}
	return refPutLE(uint64(c), 4)
}

func (f *refFrame) padded(p []byte, size int) []byte {
	out := bytes.Clone(p)
	for len(out)%size != 0 {
		out = append(out, f.padding)
	}
	return out
}

// wire is f on the wire; c is nil in crc mode.
func (f *refFrame) wire(rev Revision, c *refCrypt) []byte {
	late := append([]byte{f.late}, bytes.Repeat([]byte{f.padding}, 15)...)
	out := f.preamble()
	switch {
	case c == nil && rev == Rev0:
		for _, s := range f.segs {
			out = append(out, s...)
		}
		out = append(out, f.late)
		for i := range 4 {
			out = append(out, f.crc(i)...)
		}
	case c == nil:
		out = append(out, f.segs[0]...)
		if len(f.segs[0]) > 0 {
			out = append(out, f.crc(0)...)
		}
		if f.num == 1 {
			return out
		}
		out = append(out, bytes.Join([][]byte{f.segs[1], f.segs[2], f.segs[3], {f.late}}, nil)...)
		for i := 1; i < 4; i++ {
			out = append(out, f.crc(i)...)
		}
	case rev == Rev0:
		for _, s := range f.segs {
			out = append(out, f.padded(s, 16)...)
		}
		out = c.seal(append(out, late...))
	default:
		inline, more := f.segs[0], []byte(nil)
		if len(inline) > 48 {
			inline, more = inline[:48], inline[48:]
		}
		a := append(out, inline...)
		for len(a) < 80 {
			a = append(a, f.padding)
		}
		out = c.seal(a)
		if len(more) > 0 {
			out = append(out, c.seal(f.padded(more, 16))...)
		}
		if f.num > 1 {
			body := []byte{}
			for _, s := range f.segs[1:] {
				body = append(body, f.padded(s, 16)...)
			}
			out = append(out, c.seal(append(body, late...))...)
		}
	}
	return out
}

// wireOf is the only form in which a sender may write a frame; packed, with its segments compressed.
func wireOf(t testing.TB, rev Revision, c *refCrypt, tag Tag, packed bool, segs [4][]byte) []byte {
	t.Helper()
	for i, s := range segs {
		if packed && len(s) > 0 {
			small, err := (&runLength{}).Compress(nil, s)
			must(t, err)
			segs[i] = small
		}
	}
	f := newRefFrame(rev, tag, segs[:]...)
	if packed {
		f.flags = FlagCompressed
	}
	return f.wire(rev, c)
}
