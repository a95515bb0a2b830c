package frame

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// hexBytes is a string of hexadecimal digits in JSON.
type hexBytes []byte

func (h *hexBytes) UnmarshalText(p []byte) error {
	b, err := hex.DecodeString(string(p))
	*h = b
	return err
}

type capture struct {
	Revision Revision
	Mode     string
	AESKey   hexBytes `json:"aes_key"`
	NonceS2C hexBytes `json:"nonce_s2c"`
	NonceC2S hexBytes `json:"nonce_c2s"`
	Frames   []struct {
		Dir       string
		Offset    int
		WireLen   int `json:"wire_len"`
		Tag       Tag
		TagName   string `json:"tag_name"`
		Encrypted bool
		Segments  []hexBytes
	}
}

func loadJSON(t testing.TB, name string, v any) {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	must(t, err)
	must(t, json.Unmarshal(b, v))
}

func loadCaptures(t testing.TB) map[string]capture {
	t.Helper()
	var c map[string]capture
	loadJSON(t, "msgr2-frames.json", &c)
	if len(c) != 14 {
		t.Fatalf("%d captures", len(c))
	}
	return c
}

func loadStream(t testing.TB, name, dir string) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + "." + dir + ".hex")
	must(t, err)
	b, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	must(t, err)
	return b
}

// secret is a connection_secret that yields the keys of the capture.
func (c *capture) secret() []byte {
	s := append(bytes.Clone(c.AESKey), c.NonceS2C...)
	return append(append(s, c.NonceC2S...), make([]byte, 24)...)
}

func (c *capture) receiverKeys(t testing.TB, dir string) Keys {
	t.Helper()
	k, err := KeysFromSecret(c.secret(), dir == "s2c")
	must(t, err)
	return k
}

const bannerSize = 26

// Every captured stream is decoded to its last byte, and every frame encodes to
// the same bytes again.
// Matrix: FR-03, FR-04, FR-05, FR-06, FR-23, IN-06, FR-01
func TestCapturedStreamsDecodeAndReencode(t *testing.T) {
	for name, c := range loadCaptures(t) {
		for _, dir := range []string{"c2s", "s2c"} {
			for _, apart := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/apart=%v", name, dir, apart), func(t *testing.T) {
					replay(t, &c, loadStream(t, name, dir), dir, apart)
				})
			}
		}
	}
}

func replay(t *testing.T, c *capture, stream []byte, dir string, apart bool) {
	dec, enc := NewDecoder(c.Revision, DefaultLimits()), NewEncoder(c.Revision)
	at, encrypted := bannerSize, false
	for i, want := range c.Frames {
		if want.Dir != dir {
			continue
		}
		if want.Encrypted && !encrypted {
			encrypted = true
			rx := c.receiverKeys(t, dir)
			tx := c.receiverKeys(t, map[string]string{"c2s": "s2c", "s2c": "c2s"}[dir])
			if rx.RxNonce != tx.TxNonce {
				t.Fatal("the roles are not crossed")
			}
			must(t, dec.Secure(rx.Key, rx.RxNonce))
			must(t, enc.Secure(tx.Key, tx.TxNonce))
		}
		if at != want.Offset {
			t.Fatalf("frame %d: at offset %d, want %d", i, at, want.Offset)
		}
		f, n, err := decode(dec, stream[at:], apart)
		if err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
		if n != want.WireLen || f.Tag != want.Tag || f.Tag.String() != want.TagName || f.Aborted {
			t.Fatalf("frame %d: %v of %d bytes, want %v of %d", i, f.Tag, n, want.TagName, want.WireLen)
		}
		if f.Num != len(want.Segments) {
			t.Fatalf("frame %d: %d segments, want %d", i, f.Num, len(want.Segments))
		}
		var lens []int
		for j, s := range want.Segments {
			if !bytes.Equal(f.Seg[j], s) {
				t.Fatalf("frame %d, segment %d: %x, want %x", i, j, f.Seg[j], s)
			}
			lens = append(lens, len(s))
		}
		if f.Tag == TagMessage {
			h, err := ParseMessageHeader(f.Seg[0])
			must(t, err)
			var again [MessageHeaderSize]byte
			h.Put(&again)
			if !bytes.Equal(again[:], f.Seg[0]) {
				t.Fatalf("frame %d: message header %x, encoded again %x", i, f.Seg[0], again)
			}
		}
		if got := enc.FrameSize(lens...); got != n {
			t.Fatalf("frame %d: FrameSize %d, want %d", i, got, n)
		}
		again, err := enc.AppendFrame(nil, f.Tag, f.Seg[:]...)
		must(t, err)
		if !bytes.Equal(again, stream[at:at+n]) {
			t.Fatalf("frame %d: encoded again\n%x, want\n%x", i, again, stream[at:at+n])
		}
		at += n
	}
	if at != len(stream) {
		t.Fatalf("%d bytes left over", len(stream)-at)
	}
	if encrypted != (c.Mode == "secure") {
		t.Fatalf("mode %s, but encrypted frames: %v", c.Mode, encrypted)
	}
}

type units struct {
	CRC32C []struct {
		Data     hexBytes
		Zero     string `json:"raw_seed_0"`
		Ones     string `json:"raw_seed_ffffffff"`
		Standard string
	}
	Frames []struct {
		Name     string
		Tag      Tag
		Segments []hexBytes
		Rev1     hexBytes `json:"rev1_crc"`
		Rev0     hexBytes `json:"rev0_crc"`
	}
	Secure []struct {
		Name       string
		Revision   Revision
		Key        hexBytes
		Before     hexBytes `json:"nonce_before"`
		After      hexBytes `json:"nonce_after"`
		Operations uint64   `json:"aead_operations"`
		Tag        Tag
		Segments   []hexBytes
		Wire       hexBytes
	}
}

func loadUnits(t testing.TB) units {
	t.Helper()
	var u units
	loadJSON(t, "msgr2-units.json", &u)
	if len(u.CRC32C) == 0 || len(u.Frames) == 0 || len(u.Secure) == 0 {
		t.Fatal("empty vectors")
	}
	return u
}

func segments(list []hexBytes) [][]byte {
	var segs [][]byte
	for _, s := range list {
		segs = append(segs, s)
	}
	return segs
}

// Matrix: FR-02
func TestCRCVectors(t *testing.T) {
	for _, v := range loadUnits(t).CRC32C {
		if got := fmt.Sprintf("%08x", SegmentCRC(SegmentCRCInit, v.Data)); got != v.Ones {
			t.Errorf("segment crc of %x: %s, want %s", v.Data, got, v.Ones)
		}
		if got := fmt.Sprintf("%08x", preambleCRC(v.Data)); got != v.Zero {
			t.Errorf("preamble crc of %x: %s, want %s", v.Data, got, v.Zero)
		}
		for cut := range len(v.Data) + 1 {
			crc := SegmentCRC(SegmentCRC(SegmentCRCInit, v.Data[:cut]), v.Data[cut:])
			if got := fmt.Sprintf("%08x", crc); got != v.Ones {
				t.Errorf("segment crc of %x cut at %d: %s, want %s", v.Data, cut, got, v.Ones)
			}
		}
	}
}

// Matrix: FR-04, FR-06, FR-21, FR-23
func TestSecureFrameVectorsWithWrappingNonce(t *testing.T) {
	for _, v := range loadUnits(t).Secure {
		t.Run(fmt.Sprint(v.Revision, " ", v.Name), func(t *testing.T) {
			key, before := [16]byte(v.Key), [12]byte(v.Before)
			enc, dec := NewEncoder(v.Revision), NewDecoder(v.Revision, DefaultLimits())
			must(t, enc.Secure(key, before))
			must(t, dec.Secure(key, before))
			got, err := enc.AppendFrame(nil, v.Tag, segments(v.Segments)...)
			if err != nil || !bytes.Equal(got, v.Wire) {
				t.Fatalf("%x (%v), want %x", got, err, []byte(v.Wire))
			}
			f, n, err := decode(dec, v.Wire, false)
			if err != nil || n != len(v.Wire) {
				t.Fatalf("%d bytes, %v", n, err)
			}
			for i, s := range v.Segments {
				if !bytes.Equal(f.Seg[i], s) {
					t.Errorf("segment %d: %x, want %x", i, f.Seg[i], []byte(s))
				}
			}
			if enc.dir.nonce.b != [12]byte(v.After) || dec.dir.nonce.b != [12]byte(v.After) {
				t.Errorf("nonces %x and %x, want %x", enc.dir.nonce.b, dec.dir.nonce.b, []byte(v.After))
			}
			if left := enc.dir.nonce.left(); left != -v.Operations&map[Revision]uint64{Rev0: 1<<32 - 1, Rev1: 1<<64 - 1}[v.Revision] {
				t.Errorf("%d operations left after %d", left, v.Operations)
			}
		})
	}
}
