package frame1

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// stream is one direction of an open connection between real processes.
type stream struct {
	Name      string
	Dir       string
	OldFooter bool `json:"old_footer"`
	Signed    []recordedSignature
	Hex       hexBytes
}

// recordedSignature is what a signature was made of: 32 bytes in its second form, 29
// in its first.
type recordedSignature struct {
	Input     hexBytes
	Signature string
}

type hexBytes []byte

func (h *hexBytes) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

func streams(t testing.TB) (all []stream) {
	t.Helper()
	p, err := os.ReadFile("testdata/streams.json")
	must(t, err)
	must(t, json.Unmarshal(p, &all))
	if len(all) != 11 {
		t.Fatalf("%d streams", len(all))
	}
	return all
}

func (s *stream) config() Config { return Config{Form: Form{OldFooter: s.OldFooter}} }

func (s *stream) signer(t testing.TB) Signer {
	if len(s.Signed) == 0 {
		return nil
	}
	return &replay{t: t, list: s.Signed}
}

// replay is a signer that knows the recorded signatures alone. Package cephx has the
// tests of how they are computed.
type replay struct {
	t    testing.TB
	list []recordedSignature
}

func (r *replay) Sign(s Signed) uint64 {
	r.t.Helper()
	if len(r.list) == 0 {
		r.t.Fatal("more signatures than were recorded")
	}
	next := r.list[0]
	r.list = r.list[1:]
	var got []byte
	if len(next.Input) == 32 {
		for _, v := range [...]uint32{s.HeaderCRC, s.FrontCRC, s.FrontLen, s.MiddleCRC, s.MiddleLen, s.DataCRC, s.DataLen, uint32(s.Seq)} {
			got = binary.LittleEndian.AppendUint32(got, v)
		}
	} else {
		got = append(got, next.Input[:13]...)
		for _, v := range [...]uint32{s.HeaderCRC, s.FrontCRC, s.MiddleCRC, s.DataCRC} {
			got = binary.LittleEndian.AppendUint32(got, v)
		}
	}
	if !bytes.Equal(got, next.Input) {
		r.t.Errorf("signed are %x, want %x", got, []byte(next.Input))
	}
	v, err := strconv.ParseUint(next.Signature, 0, 64)
	must(r.t, err)
	return v
}

// message is one of a stream.
type message struct {
	Header
	front, middle, data []byte
}

// decodeMessage takes a message, without its tag, off the front of p, the way a
// receiver does it.
func decodeMessage(d *Decoder, p []byte) (m message, rest []byte, err error) {
	n := d.Form().HeaderSize()
	if len(p) < n {
		return m, nil, frame.ErrTruncated
	}
	if m.Header, err = d.Header(p[:n]); err != nil {
		return m, nil, err
	}
	p = p[n:]
	foot := d.Form().FooterSize()
	if uint64(len(p)) < m.PayloadSize()+uint64(foot) {
		return m, nil, frame.ErrTruncated
	}
	m.front, p = p[:m.FrontLen], p[m.FrontLen:]
	m.middle, p = p[:m.MiddleLen], p[m.MiddleLen:]
	m.data, p = p[:m.DataLen], p[m.DataLen:]
	return m, p[foot:], d.Footer(m.Header, p[:foot], SumsOf(m.front, m.middle, m.data))
}

// reencode decodes a stream and encodes it again.
func reencode(d *Decoder, e *Encoder, p []byte) (out []byte, tags map[Tag]int, err error) {
	tags = make(map[Tag]int)
	for len(p) > 0 {
		tag := Tag(p[0])
		n, err := d.Form().Size(tag)
		if err != nil {
			return out, tags, err
		}
		tags[tag]++
		p = p[1:]
		if tag == TagMessage {
			m, rest, err := decodeMessage(d, p)
			if err != nil {
				return out, tags, err
			}
			h := m.Header
			out = e.AppendMessage(out, &h, m.front, m.middle, m.data)
			p = rest
			continue
		}
		if len(p) < n {
			return out, tags, frame.ErrTruncated
		}
		switch tag {
		case TagAck:
			seq, _ := ParseAck(p[:n])
			out = AppendAck(out, seq)
		case TagKeepalive2:
			stamp, _ := ParseKeepalive(p[:n])
			out = Form{}.AppendKeepalive(out, stamp)
		case TagKeepalive2Ack:
			stamp, _ := ParseKeepalive(p[:n])
			out = AppendKeepaliveAck(out, stamp)
		case TagKeepalive:
			out = Form{OldKeepalive: true}.AppendKeepalive(out, [8]byte{})
		default:
			out = append(out, byte(tag))
		}
		p = p[n:]
	}
	return out, tags, nil
}

// Matrix: V1-06
func TestRecordedStreamsReencodeIdentically(t *testing.T) {
	total := map[Tag]int{}
	for _, s := range streams(t) {
		d := NewDecoder(s.config(), s.signer(t), frame.DefaultLimits())
		e := NewEncoder(s.config(), s.signer(t), [136]byte{})
		out, tags, err := reencode(d, e, s.Hex)
		if err != nil {
			t.Errorf("%s %s: %v behind %d bytes", s.Name, s.Dir, err, len(out))
			continue
		}
		if at := firstDifference(out, s.Hex); at >= 0 && !(s.OldFooter && s.Dir == "s2c") {
			t.Errorf("%s %s: byte %d of %d differs, encoded are %d", s.Name, s.Dir, at, len(s.Hex), len(out))
		}
		for tag, n := range tags {
			total[tag] += n
		}
	}
	if total[TagMessage] < 30 || total[TagKeepalive2] == 0 || total[TagKeepalive2Ack] == 0 {
		t.Errorf("the streams have only %v", total)
	}
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	if len(a) != len(b) {
		return min(len(a), len(b))
	}
	return -1
}

// Daemons say that they have signed a message even if its footer has no room for the
// signature. We do not, and take it for what it is.
// Matrix: AU-24
func TestDaemonsFlagOldFootersAsSigned(t *testing.T) {
	for _, s := range streams(t) {
		if !s.OldFooter || s.Dir != "s2c" {
			continue
		}
		out, _, err := reencode(NewDecoder(s.config(), sum{}, frame.DefaultLimits()), NewEncoder(s.config(), sum{}, [136]byte{}), s.Hex)
		at := firstDifference(out, s.Hex)
		if err != nil || len(out) != len(s.Hex) || out[at] != flagComplete || s.Hex[at] != flagComplete|flagSigned {
			t.Errorf("byte %d differs, %v", at, err)
		}
	}
}

func TestRecordedHeaderMeansWhatItSays(t *testing.T) {
	s := streams(t)[2]
	d := NewDecoder(s.config(), nil, frame.DefaultLimits())
	m, _, err := decodeMessage(d, s.Hex[1:])
	must(t, err)
	want := Header{
		Seq: 1, TID: 101, Type: 42, Priority: 127, Version: 8, FrontLen: 216, DataLen: 4096,
		SrcType: 8, SrcNum: 4175, CompatVersion: 3, CRC: 0x8232b10d,
	}
	if m.Header != want {
		t.Errorf("got  %+v\nwant %+v", m.Header, want)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// FuzzStream takes whatever a peer may send apart. What is accepted and has only known
// bits is encoded to the same bytes.
func FuzzStream(f *testing.F) {
	for _, s := range streams(f) {
		f.Add(s.OldFooter, false, []byte(s.Hex))
	}
	p, _ := encoded(Config{Form: Form{OldHeader: true}}, nil, "front", "mid", "data")
	f.Add(false, true, append(AppendAck(p, 3), byte(TagKeepalive), byte(TagClose)))
	f.Fuzz(func(t *testing.T, oldFooter, oldHeader bool, p []byte) {
		cfg := Config{Form: Form{OldFooter: oldFooter, OldHeader: oldHeader}}
		lim := frame.Limits{Front: 1 << 16, Middle: 1 << 16, Data: 1 << 16}
		out, _, err := reencode(NewDecoder(cfg, nil, lim), NewEncoder(cfg, nil, [136]byte{}), p)
		if err != nil && !errors.Is(err, frame.ErrFrame) {
			t.Fatalf("%v is not a frame error", err)
		}
		if err == nil && len(out) != len(p) {
			t.Fatalf("%d bytes, encoded to %d", len(p), len(out))
		}
	})
}
