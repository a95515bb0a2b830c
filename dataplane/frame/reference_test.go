package frame

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
)

// A second codec, written from the protocol text alone and sharing no code with
// the package: slow, allocating, one function per part. What the Encoder emits
// must be accepted here, and what this builds, broken on demand, must be
// handled by the Decoder.

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

func refLE(p []byte) (v uint64) {
	for i := len(p) - 1; i >= 0; i-- {
		v = v*256 + uint64(p[i])
	}
	return v
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

func (c *refCrypt) open(p []byte) ([]byte, error) {
	plain, err := c.gcm().Open(nil, c.nonce, p, nil)
	c.step()
	return plain, err
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

var errRef = errors.New("reference decoder")

// refRead decodes the first frame of b strictly: everything that the protocol
// fixes for senders is checked, zeros included. It returns what is left of b.
func refRead(b []byte, rev Revision, c *refCrypt) (f refFrame, rest []byte, err error) {
	defer func() {
		if recover() != nil {
			err = fmt.Errorf("%w: too short", errRef)
		}
	}()
	bad := func(what string) error { return fmt.Errorf("%w: %s", errRef, what) }
	up := func(n uint32) int { return (int(n) + 15) / 16 * 16 }

	cut := func(n int) []byte { p := b[:n]; b = b[n:]; return p }
	var pre, inline []byte
	switch {
	case c == nil:
		pre = cut(32)
	case rev == Rev0:
		block, _ := aes.NewCipher(c.key)
		iv := append(bytes.Clone(c.nonce), 0, 0, 0, 2)
		pre = make([]byte, 32)
		cipher.NewCTR(block, iv).XORKeyStream(pre, b[:32])
	default:
		a, err := c.open(cut(96))
		if err != nil {
			return f, nil, bad("tag of A")
		}
		pre, inline = a[:32], a[32:]
	}

	if refCRC(0, pre[:28]) != uint32(refLE(pre[28:])) {
		return f, nil, bad("preamble crc")
	}
	f.tag, f.num, f.flags, f.reserved = pre[0], pre[1], pre[26], pre[27]
	if f.num < 1 || f.num > 4 || f.reserved != 0 {
		return f, nil, bad("preamble")
	}
	for i := range 4 {
		f.lens[i] = uint32(refLE(pre[2+6*i : 6+6*i]))
		f.align[i] = uint16(refLE(pre[6+6*i : 8+6*i]))
		if i >= int(f.num) && (f.lens[i] != 0 || f.align[i] != 0) {
			return f, nil, bad("unused entries")
		}
	}
	if f.num > 1 && f.lens[f.num-1] == 0 {
		return f, nil, bad("last segment empty")
	}

	if c != nil {
		zero := func(p []byte) bool { return len(bytes.Trim(p, "\x00")) == 0 }
		var plain, late []byte
		if rev == Rev0 {
			n := 32 + 16 + 16
			for _, l := range f.lens {
				n += up(l)
			}
			if plain, err = c.open(cut(n)); err != nil {
				return f, nil, bad("tag of frame")
			}
			plain = plain[32:]
		} else {
			if f.lens[0] <= 48 {
				plain = inline
				if !zero(inline[f.lens[0]:]) {
					return f, nil, bad("inline padding")
				}
				plain = inline[:f.lens[0]]
				for len(plain)%16 != 0 {
					plain = append(plain, 0)
				}
			} else {
				more, err := c.open(cut(up(f.lens[0]-48) + 16))
				if err != nil {
					return f, nil, bad("tag of B")
				}
				plain = append(bytes.Clone(inline), more...)
			}
			if f.num > 1 {
				body, err := c.open(cut(up(f.lens[1]) + up(f.lens[2]) + up(f.lens[3]) + 32))
				if err != nil {
					return f, nil, bad("tag of C")
				}
				plain = append(bytes.Clone(plain), body...)
			}
		}
		for i, l := range f.lens {
			f.segs[i] = plain[:l]
			if !zero(plain[l:up(l)]) {
				return f, nil, bad("padding")
			}
			plain = plain[up(l):]
		}
		late = plain
		if len(late) > 0 {
			f.late = late[0]
			if len(late) != 16 || !zero(late[1:]) {
				return f, nil, bad("epilogue block")
			}
		} else {
			f.late = 0x0E
		}
	} else {
		for i, l := range f.lens {
			f.segs[i] = cut(int(l))
			if i == 0 && rev != Rev0 && l > 0 && uint32(refLE(cut(4))) != refCRC(0xFFFFFFFF, f.segs[0]) {
				return f, nil, bad("crc of segment 0")
			}
		}
		f.late = 0x0E
		if rev == Rev0 || f.num > 1 {
			f.late = cut(1)[0]
			first := 1
			if rev == Rev0 {
				first = 0
			}
			for i := first; i < 4; i++ {
				if !bytes.Equal(cut(4), f.crc(i)) {
					return f, nil, bad(fmt.Sprint("crc of segment ", i))
				}
			}
		}
	}
	if rev == Rev0 && f.late != 0 || rev != Rev0 && f.late != 0x0E {
		return f, nil, bad("late status")
	}
	return f, b, nil
}
