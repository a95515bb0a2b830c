package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pierrec/lz4/v4"

	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// lz4Inputs are originals with long and short literals, near, far and
// overlapping matches, and lengths around those at which they take another byte.
func lz4Inputs() [][]byte {
	rng := rand.New(rand.NewPCG(3, 4))
	noise := make([]byte, 200_000)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	inputs := [][]byte{[]byte(strings.Repeat("a line that repeats; ", 4000)), bytes.Repeat([]byte("ab"), 70_000), make([]byte, 1<<18)}
	for _, n := range []int{1, 4, 14, 15, 16, 18, 19, 20, 269, 270, 271, 273, 274, 275, 65_535, 65_536} {
		one := append(bytes.Clone(noise[:n]), noise[:n]...) // a match of n from n back
		inputs = append(inputs, append(one, make([]byte, n)...), append(bytes.Repeat([]byte{1}, n), noise[:300]...))
	}
	return inputs
}

// Blocks by hand, with what is wrong with them.
func TestBlocksAreDecodedByTheirDefinition(t *testing.T) {
	long := func(head string, n int, tail string) string {
		for ; n >= 255; n -= 255 {
			head += "\xff"
		}
		return head + string([]byte{byte(n)}) + tail
	}
	a300 := strings.Repeat("a", 300)
	for _, c := range []struct {
		name, before, in, want string
		size                   int // of the original, if it does not come out
		bad                    string
	}{
		{name: "literals", in: "\x50hello", want: "hello"},
		{name: "nothing", in: "\x00", want: ""},
		{name: "match", in: "\x40abcd\x04\x00\x10!", want: "abcdabcd!"},
		{name: "match of one byte", in: "\x15a\x01\x00\x00", want: "aaaaaaaaaa"},
		{name: "overlap that is not whole", in: "\x34abc\x03\x00\x00", want: "abcabcabcab"},
		{name: "15 literals", in: long("\xf0", 0, a300[:15]), want: a300[:15]},
		{name: "300 literals", in: long("\xf0", 285, a300), want: a300},
		{name: "270 literals", in: long("\xf0", 255, a300[:270]), want: a300[:270]},
		{name: "match of 300", in: long("\x1fa\x01\x00", 281, "\x00"), want: a300 + "a"},
		{name: "match into what stands before", before: "wxyz", in: "\x04\x04\x00\x20..", want: "wxyzwxyz.."},
		{name: "match from the first byte", before: "wxyz", in: "\x10!\x05\x00\x20..", want: "!wxyz.."},
		{name: "empty", in: "", bad: "ends with a match"},
		{name: "ends with a match", in: "\x40abcd\x04\x00", size: 8, bad: "ends with a match"},
		{name: "distance 0", in: "\x40abcd\x00\x00\x00", size: 8, bad: "from 0 bytes back"},
		{name: "distance of one too many", in: "\x40abcd\x05\x00\x00", size: 8, bad: "from 5 bytes back, there are 4"},
		{name: "distance beyond what stands before", before: "wxyz", in: "\x10!\x06\x00\x00", size: 5, bad: "from 6 bytes back, there are 5"},
		{name: "cut distance", in: "\x40abcd\x04", size: 8, bad: "ends in a distance"},
		{name: "cut literals", in: "\x50hell", size: 5, bad: "literals beyond"},
		{name: "cut length of literals", in: "\xf0\xff", size: 400, bad: "literals beyond"},
		{name: "cut length of a match", in: "\x1fa\x01\x00\xff", size: 400, bad: "match beyond"},
		{name: "too many literals", in: "\x50hello", size: 4, bad: "literals beyond"},
		{name: "too long a match", in: "\x40abcd\x04\x00\x00", size: 7, bad: "match beyond"},
		{name: "too short", in: "\x50hello", size: 6, bad: "ends 1 bytes early"},
		{name: "match that is not there", in: "\x51hello", size: 5, bad: "early"},
		{name: "endless length of literals", in: "\xf0" + strings.Repeat("\xff", 100_000), size: 50, bad: "literals beyond"},
		{name: "endless length of a match", in: "\x1fa\x01\x00" + strings.Repeat("\xff", 100_000), size: 50, bad: "match beyond"},
	} {
		size := len(c.want)
		if c.bad != "" {
			size = c.size
		}
		out := append([]byte(c.before), make([]byte, size)...)
		err := lz4Block(out, len(c.before), []byte(c.in))
		switch {
		case c.bad == "" && (err != nil || string(out) != c.before+c.want):
			t.Errorf("%s: %q, %v; want %q", c.name, out, err, c.before+c.want)
		case c.bad != "" && (!errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.bad)):
			t.Errorf("%s: %v, want %q", c.name, err, c.bad)
		}
	}
}

// FuzzLZ4Block holds the decoder against the library's. What the library's
// encoders, the plain and the thorough one, make of the input must come back; and the input as a block of any
// size, behind any bytes, must give the same with both, or fail.
func FuzzLZ4Block(f *testing.F) {
	for _, p := range lz4Inputs() {
		if len(p) > 1000 {
			p = p[:1000]
		}
		room := make([]byte, lz4.CompressBlockBound(len(p)))
		if n, err := lz4.CompressBlock(p, room, nil); err == nil && n > 0 {
			f.Add(room[:n], uint16(len(p)), uint16(0))
		}
		f.Add(p, uint16(len(p)), uint16(10))
	}
	f.Add([]byte("\x04\x04\x00\x20.."), uint16(10), uint16(4))
	f.Fuzz(func(t *testing.T, p []byte, size, before uint16) {
		room := make([]byte, lz4.CompressBlockBound(len(p)))
		for _, thorough := range []bool{false, true} {
			n, err := lz4.CompressBlock(p, room, nil)
			if thorough {
				n, err = lz4.CompressBlockHC(p, room, lz4.Level9, nil, nil)
			}
			out := make([]byte, len(p))
			if err != nil || n == 0 {
				continue // does not compress
			}
			if err := lz4Block(out, 0, room[:n]); err != nil || !bytes.Equal(out, p) {
				t.Fatalf("%x does not come back, thorough %v: %v", p, thorough, err)
			}
		}
		start := int(before)
		ours := make([]byte, start+int(size))
		for i := range start {
			ours[i] = byte(i * 7)
		}
		prefix := bytes.Clone(ours[:start])
		err := lz4Block(ours, start, p)
		if !bytes.Equal(ours[:start], prefix) {
			t.Fatal("what stood before has changed")
		}
		if size == 0 {
			return // the library has no such blocks
		}
		theirs := make([]byte, size)
		n, err2 := lz4.UncompressBlockWithDict(p, theirs, prefix)
		switch {
		case err == nil && (err2 != nil || n != int(size) || !bytes.Equal(theirs, ours[start:])):
			t.Fatalf("%x decodes here to %x, there to %x, %v", p, ours[start:], theirs[:max(n, 0)], err2)
		case err != nil && err2 == nil && n == int(size) && !strings.Contains(err.Error(), "ends with a match"):
			t.Fatalf("%x decodes there to %x, here: %v", p, theirs, err)
		}
	})
}

// FuzzLZ4 gives whole segments with any lengths to the decompressor.
func FuzzLZ4(f *testing.F) {
	c := new(blocks)
	packed, err := c.Compress(nil, []byte(strings.Repeat("seed ", 40)))
	drivertest.Must(f, err)
	f.Add(packed, 1<<16)
	f.Add(binary.LittleEndian.AppendUint32(nil, 1<<31), 100)
	f.Fuzz(func(t *testing.T, p []byte, limit int) {
		limit &= 1<<16 - 1
		out, err := c.Decompress([]byte("before"), p, limit)
		if err != nil {
			return
		}
		if len(out)-len("before") > limit || string(out[:6]) != "before" {
			t.Fatalf("%d bytes behind %q, limit %d", len(out), out[:6], limit)
		}
	})
}
