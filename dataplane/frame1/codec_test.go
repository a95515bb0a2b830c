package frame1

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// sum is a signer that any change of what is signed disturbs.
type sum struct{}

func (sum) Sign(s Signed) uint64 {
	x := uint64(14695981039346656037)
	for _, v := range [...]uint64{
		uint64(s.HeaderCRC), uint64(s.FrontCRC), uint64(s.MiddleCRC), uint64(s.DataCRC),
		uint64(s.FrontLen), uint64(s.MiddleLen), uint64(s.DataLen), s.Seq,
	} {
		x = (x ^ v) * 1099511628211
	}
	return x
}

var allForms = []Form{{}, {OldHeader: true}, {OldFooter: true}, {OldHeader: true, OldFooter: true, OldKeepalive: true}}

var peerAddr = [136]byte{1: 3, 4: 1, 9: 2, 10: 0x1a, 135: 0xee}

func sample() Header {
	return Header{
		Seq: 7, TID: 1 << 40, Type: 42, Priority: 127, Version: 8, DataOff: 4093,
		SrcType: 8, SrcNum: -1, CompatVersion: 3, CRC: 9, // of an earlier header
	}
}

func encoded(cfg Config, s Signer, front, middle, data string) ([]byte, Header) {
	h := sample()
	p := NewEncoder(cfg, s, peerAddr).AppendMessage(nil, &h, []byte(front), []byte(middle), []byte(data))
	return p, h
}

// Matrix: V1-06
func TestRoundTripOfEveryForm(t *testing.T) {
	for _, f := range allForms {
		for _, cfg := range []Config{{Form: f}, {Form: f, NoDataCRC: true}} {
			for _, s := range []Signer{nil, sum{}} {
				p, h := encoded(cfg, s, "front", "mid", "the data")
				if got, want := len(p), NewEncoder(cfg, s, peerAddr).Overhead()+16; got != want {
					t.Errorf("%+v: %d bytes, want %d", cfg, got, want)
				}
				m, rest, err := decodeMessage(NewDecoder(cfg, s, frame.DefaultLimits()), p[1:])
				if f.OldHeader {
					h.CompatVersion = 0
				}
				if err != nil || len(rest) != 0 || m.Header != h || string(m.front)+"|"+string(m.middle)+"|"+string(m.data) != "front|mid|the data" {
					t.Errorf("%+v: %+v, %d bytes left, %v", cfg, m, len(rest), err)
				}
			}
		}
	}
}

func TestOldHeaderHasTwoInstancesWithThePeersAddress(t *testing.T) {
	p, h := encoded(Config{Form: Form{OldHeader: true}}, nil, "", "", "")
	instance := append([]byte{8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, peerAddr[:]...)
	head := p[1 : 1+OldHeaderSize]
	if !bytes.Equal(head[36:181], instance) || !bytes.Equal(head[181:326], instance) || !bytes.Equal(head[326:330], make([]byte, 4)) {
		t.Errorf("old header %x", head)
	}
	if crc := frame.SegmentCRC(0, head[:330]); crc != h.CRC {
		t.Errorf("crc %#x, want %#x", h.CRC, crc)
	}
}

// The flags are not signed: somebody on the way can add that the data has no crc. The old footer has no
// signature, and is taken then without a crc of the data.
// Matrix: AU-24
func TestEveryChangedByteOfASignedMessageIsRefused(t *testing.T) {
	for _, f := range allForms {
		p, _ := encoded(Config{Form: f}, sum{}, "front", "mid", "data")
		d := NewDecoder(Config{Form: f}, sum{}, frame.DefaultLimits())
		for _, added := range []byte{0, flagNoDataCRC} {
			for i := 1; i < len(p); i++ {
				for bit := range 8 {
					q := bytes.Clone(p)
					q[len(q)-1] ^= added
					q[i] ^= 1 << bit
					_, _, err := decodeMessage(d, q[1:])
					flag := i == len(p)-1 && bit != 0 && (bit != 2 || f.OldFooter)
					data := i >= len(p)-17 && i < len(p)-13 || i >= len(p)-5 && i < len(p)-1 // and its crc, before an old footer's end
					if err == nil && !flag && !(data && f.OldFooter && added != 0) {
						t.Errorf("bit %d of byte %d was changed, with flag %d, and the message accepted", bit, i, added)
					}
					if err != nil && !errors.Is(err, frame.ErrFrame) {
						t.Errorf("byte %d: %v is not a frame error", i, err)
					}
				}
			}
		}
	}
}

// Matrix: V1-05
func TestWhatIsWrongIsNamed(t *testing.T) {
	good, _ := encoded(Config{}, sum{}, "front", "mid", "data")
	signed := NewDecoder(Config{}, sum{}, frame.Limits{Front: 5, Middle: 3, Data: 4})
	flip := func(at int, bit byte) []byte {
		q := bytes.Clone(good)
		q[(at+len(q))%len(q)] ^= bit
		return q
	}
	unsigned, _ := encoded(Config{}, nil, "front", "mid", "data")
	longer, _ := encoded(Config{}, sum{}, "front", "mid", "data1")
	const body = 1 + NewHeaderSize
	for name, c := range map[string]struct {
		p    []byte
		want error
	}{
		"header":    {flip(1, 1), errHeaderCRC},
		"front":     {flip(body, 1), frame.ErrSegmentCRC},
		"middle":    {flip(body+5, 1), frame.ErrSegmentCRC},
		"data":      {flip(body+8, 1), frame.ErrSegmentCRC},
		"signature": {flip(-2, 1), ErrSignature},
		"aborted":   {flip(-1, flagComplete), errAborted},
		"unsigned":  {unsigned, errUnsigned},
		"too long":  {longer, frame.ErrTooLarge},
	} {
		if _, _, err := decodeMessage(signed, c.p[1:]); !errors.Is(err, c.want) || !errors.Is(err, frame.ErrFrame) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	// One side has no crcs of data, or no signatures.
	for _, c := range []struct {
		name   string
		sent   Config
		signs  Signer
		taken  Config
		checks Signer
		at     int // of the byte that is damaged
		want   error
		flag   byte // that somebody on the way adds
	}{
		{"data", Config{}, nil, Config{}, nil, body + 8, frame.ErrSegmentCRC, 0},
		{"data that is not checked", Config{}, nil, Config{NoDataCRC: true}, nil, body + 8, nil, 0},
		{"data without a crc", Config{NoDataCRC: true}, sum{}, Config{}, sum{}, body + 8, nil, 0},
		{"front beside it", Config{NoDataCRC: true}, sum{}, Config{}, sum{}, body, frame.ErrSegmentCRC, 0},
		{"signature that is not checked", Config{}, sum{}, Config{}, nil, -2, nil, 0},
		{"data with a crc that does not count", Config{}, nil, Config{}, nil, body + 8, nil, flagNoDataCRC},
	} {
		p, _ := encoded(c.sent, c.signs, "front", "mid", "data")
		p[(c.at+len(p))%len(p)] ^= 1
		p[len(p)-1] |= c.flag
		if _, _, err := decodeMessage(NewDecoder(c.taken, c.checks, frame.DefaultLimits()), p[1:]); !errors.Is(err,
			c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	for n := range len(good) - 1 {
		if _, _, err := decodeMessage(signed, good[1:1+n]); !errors.Is(err, frame.ErrTruncated) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
}

func TestSizesOfTags(t *testing.T) {
	old := Form{OldHeader: true}
	for tag := range 256 {
		n, err := Form{}.Size(Tag(tag))
		want := map[Tag]int{TagClose: 0, TagMessage: 53, TagAck: 8, TagKeepalive: 0, TagKeepalive2: 8, TagKeepalive2Ack: 8}
		w, known := want[Tag(tag)]
		if known != (err == nil) || n != w || err != nil && !errors.Is(err, frame.ErrTag) {
			t.Errorf("%v: %d, %v", Tag(tag), n, err)
		}
	}
	if n, _ := old.Size(TagMessage); n != 334 {
		t.Errorf("old header of %d", n)
	}
	if got := fmt.Sprint(TagMessage, TagKeepalive2Ack, Tag(77)); got != "MSG KEEPALIVE2_ACK tag(77)" {
		t.Error(got)
	}
}

func TestControlBytes(t *testing.T) {
	stamp := [8]byte{1, 2, 3, 4, 5, 6, 7, 8}
	for _, c := range []struct {
		got  []byte
		want string
	}{
		{AppendAck(nil, 3), "\x08\x03\x00\x00\x00\x00\x00\x00\x00"},
		{Form{}.AppendKeepalive(nil, stamp), "\x0e\x01\x02\x03\x04\x05\x06\x07\x08"},
		{Form{OldKeepalive: true}.AppendKeepalive(nil, stamp), "\x09"},
		{AppendKeepaliveAck(nil, stamp), "\x0f\x01\x02\x03\x04\x05\x06\x07\x08"},
	} {
		if string(c.got) != c.want {
			t.Errorf("%x, want %x", c.got, c.want)
		}
	}
	for n := range 17 {
		p := make([]byte, n)
		_, err := ParseAck(p)
		_, err2 := ParseKeepalive(p)
		if (n == 8) != (err == nil) || (n == 8) != (err2 == nil) {
			t.Errorf("%d bytes: %v, %v", n, err, err2)
		}
	}
}

func TestACRCIsConvertedBetweenTheProtocols(t *testing.T) {
	p := make([]byte, 70_000)
	for i := range p {
		p[i] = byte(i*i>>3 + i)
	}
	sizes := []int{4095, 4096, 4097, 65_535, 65_536, len(p)}
	for n := range 300 {
		sizes = append(sizes, n)
	}
	for _, n := range sizes {
		one, two := frame.SegmentCRC(0, p[:n]), frame.SegmentCRC(frame.SegmentCRCInit, p[:n])
		if got := Reseed(two, uint32(n)); got != one {
			t.Fatalf("%d bytes: %#x of msgr2 gives %#x, want %#x", n, two, got, one)
		}
		if got := Reseed(one, uint32(n)); got != two {
			t.Fatalf("%d bytes: %#x of msgr1 gives %#x, want %#x", n, one, got, two)
		}
	}
}
