package frame

import (
	"bytes"
	"testing"
)

func TestMessageHeaderLayout(t *testing.T) {
	h := MessageHeader{
		Seq: 0x0807060504030201, TID: 0x100F0E0D0C0B0A09, Type: 0x1211, Priority: 0x1413, Version: 0x1615,
		DataOff: 0x1C1B, AckSeq: 0x24232221201F1E1D, Flags: 0x25, CompatVersion: 0x2726,
	}
	b := [MessageHeaderSize]byte{22: 0xFF, 25: 0xFF, 39: 0xFF, 40: 0xFF}
	h.Put(&b)
	want := make([]byte, MessageHeaderSize)
	for i := range 39 {
		if i < 22 || i > 25 { // no padding before the data
			want[i] = byte(i + 1)
		}
	}
	if !bytes.Equal(b[:], want) {
		t.Fatalf("%x, want %x", b, want)
	}
	got, err := ParseMessageHeader(append(b[:], 1, 2, 3))
	if err != nil || got != h {
		t.Fatalf("%+v, %v", got, err)
	}
	for n := range MessageHeaderSize {
		wantErr(t, errOf(ParseMessageHeader(b[:n])), ErrTruncated)
	}
}

// Matrix: FR-01
func TestParsePreambleLengths(t *testing.T) {
	var b [PreambleSize]byte
	h := Header{Tag: TagAck, Num: 1, Len: [4]uint32{8, 9}}
	putPreamble(&b, &h)
	for n := range PreambleSize {
		wantErr(t, errOf(ParsePreamble(b[:n])), ErrTruncated)
	}
	got, err := ParsePreamble(b[:])
	if want := (Header{Tag: TagAck, Num: 1, Len: [4]uint32{8}}); err != nil || got != want {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestNames(t *testing.T) {
	for tag := range 256 {
		name := Tag(tag).String()
		if known := tag >= 1 && tag <= 22; Tag(tag).Known() != known || name == "" || bytes.HasPrefix([]byte(name), []byte("tag ")) == known {
			t.Errorf("tag %d: %q", tag, name)
		}
	}
	for want, got := range map[string]string{
		"WAIT":             TagWait.String(),
		"COMPRESSION_DONE": TagCompressionDone.String(),
		"tag 23":           Tag(23).String(),
		"msgr2.0":          Rev0.String(),
		"msgr2.1":          Rev1.String(),
		"msgr2 revision 7": Revision(7).String(),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if NewEncoder(7).layout.rev != Rev1 || NewDecoder(7, Limits{}).Rev() != Rev1 {
		t.Error("unknown revisions are framed like revision 1")
	}
}
