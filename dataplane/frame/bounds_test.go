package frame

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
)

// The bounds, written down a second time: known fields and slack.
var documented = map[Tag]uint32{
	TagHello: 1 + 136 + 1024, TagAuthRequest: 65536, TagAuthBadMethod: 8 + 2*260 + 1024, TagAuthReplyMore: 65536,
	TagAuthRequestMore: 65536, TagAuthDone: 65536, TagAuthSignature: 32 + 1024,
	TagClientIdent: 5 + 32*136 + 136 + 48 + 1024, TagServerIdent: 5 + 32*136 + 48 + 1024, TagIdentMissingFeatures: 8 + 1024,
	TagSessionReconnect: 5 + 32*136 + 40 + 1024, TagSessionReset: 1 + 1024, TagSessionRetry: 8 + 1024,
	TagSessionRetryGlobal: 8 + 1024, TagSessionReconnectOK: 8 + 1024, TagWait: 1024, TagMessage: 41,
	TagKeepalive2: 8 + 1024, TagKeepalive2Ack: 8 + 1024, TagAck: 8 + 1024,
	TagCompressionRequest: 1 + 260 + 1024, TagCompressionDone: 5 + 1024,
}

func forTags(t *testing.T, f func(t *testing.T, m mode, tag Tag)) {
	t.Helper()
	forModes(t, func(t *testing.T, m mode) {
		for tag := TagHello; tag.Known(); tag++ {
			f(t, m, tag)
		}
	})
}

// opens gives Open the head of a frame that announces h, as a peer with the
// right keys would send it. There is nothing behind the head.
func opens(t *testing.T, m mode, d *Decoder, h Header) (Header, error) {
	t.Helper()
	f := refFrame{tag: byte(h.Tag), num: byte(h.Num), lens: h.Len, flags: h.Flags}
	for i := range f.segs {
		f.segs[i] = make([]byte, min(h.Len[i], 100))
	}
	return d.Open(f.wire(m.rev, m.crypt())[:d.HeadSize()])
}

// names checks that an error says what was wrong with which segment of what.
func names(t *testing.T, err error, tag Tag, numbers ...uint64) {
	t.Helper()
	text := err.Error()
	for _, n := range numbers {
		if !strings.Contains(text, fmt.Sprint(n)) {
			t.Fatalf("%q does not say %d", text, n)
		}
	}
	if !strings.Contains(text, tag.String()) {
		t.Fatalf("%q does not name %v", text, tag)
	}
}

// verbatim is a compressor whose output has a prefix, so that it always grows.
type verbatim struct{ prefix int }

func (v verbatim) Compress(dst, src []byte) ([]byte, error) {
	return append(append(dst, make([]byte, v.prefix)...), src...), nil
}

func (v verbatim) Decompress(dst, src []byte, max int) ([]byte, error) {
	if len(src) < v.prefix || len(src)-v.prefix > max {
		return nil, errRunLength
	}
	return append(dst, src[v.prefix:]...), nil
}

// packedFrame is a compressed frame, whether that pays or not.
func packedFrame(m mode, tag Tag, segs ...[]byte) []byte {
	f := newRefFrame(m.rev, tag, segs...)
	f.flags = FlagCompressed
	return f.wire(m.rev, m.crypt())
}

func TestEveryCompressedTagIsBoundedOnTheWireAndInMemory(t *testing.T) {
	forTags(t, func(t *testing.T, m mode, tag Tag) {
		b := tag.Bound()
		room := int(b.Max)/4 + 256
		d := func(prefix int) *Decoder {
			d := m.strict(t)
			d.Decompress(verbatim{prefix})
			return d
		}
		// What grows a little is accepted, up to the last byte that it may grow.
		seg := pattern(int(b.Max), 1)
		grown := append(make([]byte, room), seg...)
		limits := DefaultLimits()
		if f, _, err := decode(d(room), packedFrame(m, tag, grown), false); err != nil || !equalSegs(f.Seg, [4][]byte{seg}) {
			t.Fatalf("%v grown to %d bytes: %v", tag, len(grown), err)
		}
		_, err := opens(t, m, d(0), Header{Tag: tag, Num: 1, Len: [4]uint32{uint32(len(grown)) + 1}, Flags: FlagCompressed})
		wantErr(t, err, ErrTooLarge)
		names(t, err, tag, uint64(len(grown))+1, uint64(len(grown)))
		// A small one that unpacks to more than the tag holds is refused, by the
		// decompressor or, if that does not keep to its limit, behind it.
		bomb := []byte{200, 1}
		for range b.Max / 200 {
			bomb = append(bomb, 200, 1)
		}
		for _, ignore := range []bool{false, true} {
			dec := m.strict(t)
			dec.SetLimits(limits)
			dec.Decompress(&runLength{ignore: ignore})
			_, _, err = decode(dec, packedFrame(m, tag, bomb), false)
			if ignore {
				wantErr(t, err, ErrTooLarge)
				names(t, err, tag, uint64(b.Max))
			} else {
				wantErr(t, err, ErrDecompress)
			}
		}
	})
}

// Matrix: HI-05
func TestACompressedMessageHeaderUnpacksToExactlyItsSize(t *testing.T) {
	forModes(t, func(t *testing.T, m mode) {
		for n := 1; n <= 60; n++ {
			d := m.strict(t)
			d.Decompress(&runLength{})
			_, _, err := decode(d, packedFrame(m, TagMessage, []byte{byte(n), 7}, []byte{9, 9}), false)
			switch {
			case n < MessageHeaderSize:
				wantErr(t, err, ErrTruncated)
			case n > MessageHeaderSize:
				wantErr(t, err, ErrDecompress)
			case err != nil:
				t.Fatal(err)
			}
		}
		d := m.strict(t)
		d.Decompress(&runLength{})
		_, err := opens(t, m, d, Header{Tag: TagMessage, Num: 2, Len: [4]uint32{0, 2}, Flags: FlagCompressed})
		wantErr(t, err, ErrTruncated)
	})
}

// segmentLimits are the limits of FuzzPreamble.
var segmentLimits = [4]uint32{16 << 20, 15 << 20, 14 << 20, 64 << 20}

// FuzzPreamble compares Open with the rules, written down a second time. What it
// accepts has a length that the caller may allocate. Each tag comes at its bound and with one byte more, and with
// more segments than it has, and a message with segments at and above their limits.
// Matrix: FR-26, FR-29, HI-05, HI-10, RL-13
func FuzzPreamble(f *testing.F) {
	f.Add(uint8(0), uint8(17), uint8(4), uint8(0), uint32(41), uint32(1), uint32(0), uint32(1))
	f.Add(uint8(3), uint8(18), uint8(1), uint8(0), uint32(16<<20), uint32(0), uint32(0), uint32(0))
	f.Add(uint8(2), uint8(8), uint8(2), uint8(1), uint32(300), uint32(9), uint32(0), uint32(0))
	f.Add(uint8(1), uint8(200), uint8(1), uint8(0), uint32(8), uint32(0), uint32(0), uint32(0))
	for mode := range uint8(4) {
		for tag := range 256 {
			f.Add(mode, uint8(tag), uint8(1), uint8(0), uint32(8), uint32(0), uint32(0), uint32(0))
			f.Add(mode, uint8(tag), uint8(1), uint8(1), uint32(8), uint32(0), uint32(0), uint32(0))
		}
		for tag, most := range documented {
			for _, n := range []uint32{most, most + 1, 1 << 20, 16 << 20, math.MaxUint32} {
				f.Add(mode, uint8(tag), uint8(1), uint8(0), n, uint32(0), uint32(0), uint32(0))
			}
			f.Add(mode, uint8(tag), uint8(2), uint8(0), most, uint32(1), uint32(0), uint32(0))
			f.Add(mode, uint8(tag), uint8(3), uint8(0), most, uint32(0), uint32(1), uint32(0))
			f.Add(mode, uint8(tag), uint8(4), uint8(0), most, uint32(0), uint32(0), uint32(1))
		}
		for i := range 4 { // no segment is above its limit, or one
			lens := segmentLimits
			if i > 0 {
				lens[i]++
			}
			f.Add(mode, uint8(TagMessage), uint8(4), uint8(0), uint32(MessageHeaderSize), lens[1], lens[2], lens[3])
		}
		for n := range uint32(2 * MessageHeaderSize) {
			f.Add(mode, uint8(TagMessage), uint8(2), uint8(0), n, uint32(10), uint32(0), uint32(0))
		}
	}
	f.Fuzz(func(t *testing.T, mi, tag, num, flags uint8, l0, l1, l2, l3 uint32) {
		m := modes[mi%4]
		d := m.strict(t)
		d.SetLimits(Limits{segmentLimits[0], segmentLimits[1], segmentLimits[2], segmentLimits[3]})
		packed := flags&FlagCompressed != 0
		if mi >= 128 {
			d.Decompress(verbatim{})
		}
		lens := [4]uint32{l0, l1, l2, l3}
		h, err := opens(t, m, d, Header{Tag: Tag(tag), Num: int(num), Len: lens, Flags: flags})
		most, known := documented[Tag(tag)]
		least := uint32(0)
		if Tag(tag) == TagMessage {
			least = 41
		}
		if packed {
			most, least = most+most/4+256, min(least, 1)
		}
		good := known && num >= 1 && num <= 4 && (num == 1 || lens[(num-1)&3] > 0) && (num == 1 || Tag(tag) == TagMessage) &&
			l0 <= most && l0 >= least && (!packed || mi >= 128)
		for i, limit := range segmentLimits {
			good = good && (i >= int(num) || lens[i] <= limit)
		}
		if good != (err == nil) {
			t.Fatalf("%v with %d segments %v, flags %d: %v", Tag(tag), num, lens, flags, err)
		}
		switch clear := known && !packed && err != nil; {
		case clear && num == 1 && l0 > most:
			wantErr(t, err, ErrTooLarge)
			if l0 <= segmentLimits[0] {
				names(t, err, Tag(tag), uint64(l0), uint64(most))
			}
		case clear && num > 1 && num <= 4 && lens[(num-1)&3] > 0 && Tag(tag) != TagMessage:
			wantErr(t, err, errSegmentCount)
			names(t, err, Tag(tag), uint64(num))
		}
		if err == nil && Tag(tag) != TagMessage && d.RestSize(h) > int(most)+100 {
			t.Fatalf("%v: %d bytes to read", Tag(tag), d.RestSize(h))
		}
	})
}

func TestLimitsBeforeAuthenticationRefuseMoreThanOneSegment(t *testing.T) {
	f := newRefFrame(Rev1, TagHello, pattern(8, 0), pattern(1, 0))
	wantErr(t, errOf(NewDecoder(Rev1, PreAuthLimits()).Open(f.preamble())), ErrTooLarge)
	f = newRefFrame(Rev1, TagAuthRequest, make([]byte, 64<<10))
	must(t, errOf(NewDecoder(Rev1, PreAuthLimits()).Open(f.preamble())))
	wantErr(t, errOf(opens(t, modes[2], modes[2].strict(t), Header{Tag: 23, Num: 1})), ErrTag)
}

// Four lengths of 4 GiB do not wrap an int: where they do not fit, Open says so.
// Matrix: HI-03
func TestHugeLengthsDoNotWrap(t *testing.T) {
	all := Limits{math.MaxUint32, math.MaxUint32, math.MaxUint32, math.MaxUint32}
	forModes(t, func(t *testing.T, m mode) {
		f := newRefFrame(m.rev, TagMessage, pattern(1, 0))
		f.num = 4
		f.lens = [4]uint32{math.MaxUint32, math.MaxUint32, math.MaxUint32, math.MaxUint32}
		d := m.decoder(t)
		d.SetLimits(all)
		head := f.wire(m.rev, m.crypt())[:d.HeadSize()]
		h, err := d.Open(head)
		if strconv.IntSize == 32 {
			wantErr(t, err, ErrTooLarge)
			h = Header{Num: 4, Len: f.lens}
		} else if err != nil {
			t.Fatal(err)
		}
		rest := d.RestSize(h)
		prefix, suffix := d.Split(h)
		if rest < math.MaxInt32 || prefix < math.MaxInt32 || suffix < 0 {
			t.Fatalf("rest %d, prefix %d, suffix %d", rest, prefix, suffix)
		}
		if strconv.IntSize == 64 && int64(prefix)+math.MaxUint32+int64(suffix) != int64(rest) {
			t.Fatalf("prefix %d, suffix %d, rest %d", prefix, suffix, rest)
		}
		wantErr(t, errOf(d.Finish(h, head, nil)), ErrTruncated)
	})
}

// Matrix: HI-03
func TestLengthsThatNoFrameCanCarry(t *testing.T) {
	forModes(t, func(t *testing.T, m mode) {
		e := m.encoder(t)
		for _, lens := range [][]int{{-1}, {0, math.MinInt}, {1, 1, 1, 1, 1}} {
			if n := e.FrameSize(lens...); n != -1 {
				t.Errorf("FrameSize%v = %d", lens, n)
			}
		}
		if strconv.IntSize == 64 {
			limit := uint64(math.MaxUint32)
			most, over := int(limit), int(limit+1)
			wantErr(t, new(Header).fill(0, &[4]int{0, over}), ErrTooLarge)
			if n := e.FrameSize(0, over); n != -1 {
				t.Errorf("FrameSize %d", n)
			}
			if n := e.FrameSize(0, most, most, most); n < 3*most {
				t.Errorf("FrameSize %d", n)
			}
		} else {
			most := math.MaxInt
			if n := e.FrameSize(0, most, most, most); n != -1 {
				t.Errorf("FrameSize %d", n)
			}
		}
		dst := []byte("kept")
		got, err := e.AppendFrame(dst, TagAck, nil, nil, nil, nil, []byte("x"))
		wantErr(t, err, errSegmentCount)
		if string(got) != "kept" {
			t.Errorf("dst is %q after an error", got)
		}
	})
}
