package wire2

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// codec decodes one value and encodes it again; the table drives the tests that are
// the same for every type.
type codec struct {
	name   string
	decode func(p []byte) (interface{ AppendTo([]byte) []byte }, error)
	sample []byte // a well-formed encoding that uses every field
}

func codecOf[T interface{ AppendTo([]byte) []byte }](name string, decode func([]byte) (T, error), sample T) codec {
	return codec{name: name, sample: sample.AppendTo(nil), decode: func(p []byte) (interface{ AppendTo([]byte) []byte }, error) {
		return decode(p)
	}}
}

// reads is a decoder of a value that a reader reads.
func reads[T any](read func(*wire.Reader) T) func([]byte) (T, error) {
	return func(p []byte) (T, error) {
		r := wire.NewReader(p)
		v := read(r)
		return v, r.Err()
	}
}

func codecs(t testing.TB) []codec {
	v2, err := wire.ParseAddr("v2:10.1.2.3:6800/77")
	drivertest.Must(t, err)
	v6, err := wire.ParseAddr("v2:[fe80::1%3]:6801/78")
	drivertest.Must(t, err)
	vec := wire.AddrVec{v2, v6}
	return []codec{
		codecOf("HELLO", DecodeHello, Hello{wire.Mon, v2}),
		codecOf("AUTH_REQUEST", DecodeAuthRequest, AuthRequest{2, []uint32{2, 1}, []byte("payload")}),
		codecOf("AUTH_BAD_METHOD", DecodeAuthBadMethod, AuthBadMethod{2, -95, []uint32{1}, []uint32{2, 1}}),
		codecOf("AUTH_REPLY_MORE", DecodeAuthMore, AuthMore{[]byte("challenge")}),
		codecOf("AUTH_REQUEST_MORE", DecodeAuthMore, AuthMore{[]byte("proof")}),
		codecOf("AUTH_DONE", DecodeAuthDone, AuthDone{4115, 2, []byte("ticket")}),
		codecOf("AUTH_SIGNATURE", DecodeAuthSignature, AuthSignature{1, 2, 31: 3}),
		codecOf("CLIENT_IDENT", DecodeClientIdent, ClientIdent{vec, v6, -1, 7, wire.FeaturesPacific, wire.FeatureMsgAddr2, wire.IdentLossy, 99}),
		codecOf("SERVER_IDENT", DecodeServerIdent, ServerIdent{vec, 3, 7, wire.FeaturesPacific, wire.FeatureMsgAddr2, wire.IdentLossy, 99}),
		codecOf("IDENT_MISSING_FEATURES", DecodeIdentMissingFeatures, IdentMissingFeatures{wire.FeatureServerJewel}),
		codecOf("SESSION_RECONNECT", DecodeSessionReconnect, SessionReconnect{vec, 1, 2, 3, 4, 5}),
		codecOf("SESSION_RESET", DecodeSessionReset, SessionReset{true}),
		codecOf("SESSION_RETRY", DecodeSessionRetry, SessionRetry{8}),
		codecOf("SESSION_RETRY_GLOBAL", DecodeSessionRetryGlobal, SessionRetryGlobal{9}),
		codecOf("SESSION_RECONNECT_OK", DecodeSessionReconnectOK, SessionReconnectOK{10}),
		codecOf("COMPRESSION_REQUEST", DecodeCompressionRequest, CompressionRequest{true, []uint32{1, 3}}),
		codecOf("COMPRESSION_DONE", DecodeCompressionDone, CompressionDone{true, 3}),
		codecOf("address", wire.DecodeAddr, v6),
		codecOf("address vector", reads((*wire.Reader).AddrVec), vec),
		codecOf("entity name", reads((*wire.Reader).EntityName), wire.EntityName{Type: wire.Client, ID: "admin"}),
	}
}

var unhex = linktest.Unhex

// Matrix: HS-08, IN-06
func TestRecordedPayloadsReencodeIdenticallyAndRead(t *testing.T) {
	byName := map[string]codec{}
	for _, c := range codecs(t) {
		byName[c.name] = c
	}
	var recorded []struct {
		Vector, Dir, Frame string
		Payload            linktest.Hex
	}
	linktest.Load(t, "payloads.json", &recorded)
	seen := map[string]bool{}
	var read strings.Builder
	for _, r := range recorded {
		if r.Frame == "WAIT" {
			if len(r.Payload) > 0 {
				t.Errorf("WAIT has a payload: %x", []byte(r.Payload))
			}
			continue
		}
		c, ok := byName[r.Frame]
		if !ok {
			t.Fatalf("no codec for %s", r.Frame)
		}
		v, err := c.decode(r.Payload)
		if err != nil {
			t.Errorf("%s %s: %v", r.Vector, r.Frame, err)
			continue
		}
		if got := v.AppendTo(nil); !bytes.Equal(got, r.Payload) {
			t.Errorf("%s %s:\n got %x\nwant %x", r.Vector, r.Frame, got, []byte(r.Payload))
		}
		seen[r.Frame] = true
		text, err := json.Marshal(v)
		fmt.Fprintf(&read, "%s %s %s\n", r.Vector, r.Frame, text)
		if err != nil {
			t.Error(err)
		}
	}
	if want, err := os.ReadFile("testdata/payloads.golden"); err != nil || read.String() != string(want) {
		t.Errorf("%v, got:\n%s", err, &read)
	}
	if len(seen) < 15 {
		t.Errorf("only %d kinds of frames were recorded: %v", len(seen), seen)
	}
}

// A payload that ends too early is an error, bytes behind it are none, and an encoding goes behind
// what is there.
// Matrix: FR-27, FR-28
func TestTruncationIsAnErrorAndSurplusIsNone(t *testing.T) {
	for _, c := range codecs(t) {
		for n := range c.sample {
			if _, err := c.decode(c.sample[:n]); !errors.Is(err, wire.ErrTruncated) || !errors.Is(err, wire.ErrMalformed) {
				t.Errorf("%s cut to %d of %d bytes: %v", c.name, n, len(c.sample), err)
			}
		}
		v, err := c.decode(append(bytes.Clone(c.sample), "surplus"...))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got, want := v.AppendTo([]byte("head")), append([]byte("head"), c.sample...); !bytes.Equal(got, want) {
			t.Errorf("%s:\n got %x\nwant %x", c.name, got, want)
		}
	}
}

// Matrix: HI-02
func TestWildCountsDoNotAllocate(t *testing.T) {
	for _, c := range codecs(t) {
		n := uint64(0)
		took := linktest.Allocated(func() {
			linktest.Spoiled(c.sample, func(p []byte) { n++; _, _ = c.decode(p) })
		})
		if mean := took / n; mean > 4<<10 { // one that took what a huge count says would show in the mean
			t.Errorf("%s: %d bytes for each of %d", c.name, mean, n)
		}
	}
}

// Matrix: HS-01
func TestBanner(t *testing.T) {
	want := unhex(t, "636570682076320a100001000000000000000000000000000000")
	b := Banner{Supported: wire.BannerRevision1}
	p := b.AppendTo(nil)
	if !bytes.Equal(p, want) || len(p) != BannerSize {
		t.Fatalf("got %x", p)
	}
	n, err := ParseBannerPrefix(p[:BannerPrefixSize])
	if err != nil || n != BannerPayloadSize {
		t.Fatal(n, err)
	}
	if got, err := DecodeBanner(append(p[BannerPrefixSize:], 1, 2, 3)); err != nil || got != b {
		t.Errorf("got %+v, %v", got, err)
	}
	for n := range BannerPayloadSize {
		if _, err := DecodeBanner(p[BannerPrefixSize:][:n]); !errors.Is(err, wire.ErrTruncated) {
			t.Errorf("%d payload bytes: %v", n, err)
		}
	}
	if _, err := ParseBannerPrefix([]byte("ceph v2\n\x10")); !errors.Is(err, wire.ErrTruncated) {
		t.Errorf("without the length: %v", err)
	}
}

func FuzzDecoders(f *testing.F) {
	table := codecs(f)
	for i, c := range table {
		f.Add(uint8(i), c.sample)
	}
	f.Fuzz(func(t *testing.T, which uint8, p []byte) {
		c := table[int(which)%len(table)]
		v, err := c.decode(p)
		if err != nil {
			if !errors.Is(err, wire.ErrMalformed) {
				t.Fatalf("%s: %v", c.name, err)
			}
			return
		}
		// What was decoded survives a round trip, and encodes the same ever after.
		first := v.AppendTo(nil)
		again, err := c.decode(first)
		if err != nil {
			t.Fatalf("%s: own encoding %x: %v", c.name, first, err)
		}
		if second := again.AppendTo(nil); !bytes.Equal(first, second) {
			t.Fatalf("%s:\n%x\n%x", c.name, first, second)
		}
	})
}

func TestTheFirstWrongByteTellsWhatAPeerSpeaks(t *testing.T) {
	for _, c := range []struct {
		said  string
		wrong int // index of the first wrong byte
		want  Speech
	}{
		{"ceph v027" + strings.Repeat("\x00", 300), 6, SpeechMsgr1},
		{"GET / HTTP/1.1\r\n\r\n", 0, SpeechHTTP}, {"POST /x HTTP/1.0\r\n", 0, SpeechHTTP}, {"PUT / HTTP/1.1\r\n", 0, SpeechHTTP},
		{"HEAD / HTTP/1.1\r\n", 0, SpeechHTTP}, {"OPTIONS * HTTP/1.1\r\n", 0, SpeechHTTP}, {"DELETE /x HTTP/1.1\r\n", 0, SpeechHTTP},
		{"CONNECT a:1 HTTP/1.1\r\n", 0, SpeechHTTP}, {"TRACE / HTTP/1.1\r\n", 0, SpeechHTTP}, {"PATCH / HTTP/1.1\r\n", 0, SpeechHTTP},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, SpeechHTTP}, {"HTTP/1.1 400 Bad Request\r\n", 0, SpeechHTTP},
		{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 0, SpeechTLS}, {"\x15\x03\x03\x00\x02\x02\x46", 0, SpeechTLS},
		{"SSH-2.0-OpenSSH_9.2\r\n", 0, SpeechSSH},
		{strings.Repeat("\x00", 40), 0, SpeechOther}, {strings.Repeat("\xff", 40), 0, SpeechOther}, {"USER anonymous\r\n", 0, SpeechOther},
	} {
		for n := 1; n <= len(c.said); n++ {
			want := c.want
			if n <= c.wrong {
				want = SpeechBanner
			}
			if got := MatchBanner([]byte(c.said[:n])); got != want {
				t.Errorf("%q: %q, want %q", c.said[:n], got, want)
			}
		}
	}
	for _, c := range []struct {
		said string
		want Speech
	}{
		{"ceph v3\n", SpeechOther}, {"ceph v026", SpeechOther}, {"ceph v1", SpeechOther}, {"ceph v2\x00", SpeechOther}, {"Ceph v2\n", SpeechOther},
		{"GARBAGE", SpeechOther}, {"\x16\x04", SpeechOther}, {"SSL", SpeechOther}, {"ceph v02", SpeechMsgr1}, {"HTTP/", SpeechHTTP},
	} {
		if got := MatchBanner([]byte(c.said)); got != c.want {
			t.Errorf("%q: %q, want %q", c.said, got, c.want)
		}
	}
}

func TestABannerErrorNamesTheBytesAndWhatTheyLookLike(t *testing.T) {
	said := []byte("GET / HTTP/1.1\r\n")
	err := CheckBanner(said)
	e, ok := errors.AsType[*BannerError](err)
	if !ok || e.Speech != SpeechHTTP || string(e.Got) != "GET / HTTP" || !errors.Is(err, wire.ErrBadBanner) || errors.Is(err, wire.ErrV1Peer) {
		t.Fatalf("%#v", err)
	}
	for _, part := range []string{"bad banner", `"GET / HTTP"`, "http"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	said[0] = 'X'
	if e.Got[0] != 'G' {
		t.Error("the error keeps the bytes of the caller")
	}
	if err := CheckBanner([]byte("ceph v0")); !errors.Is(err, wire.ErrV1Peer) || !errors.Is(err, wire.ErrBadBanner) {
		t.Error(err)
	}
}

// FuzzMatchBanner holds the match against the parser of whole prefixes, and byte
// against byte: what is wrong once stays wrong.
func FuzzMatchBanner(f *testing.F) {
	for _, s := range []string{"ceph v2\n\x10\x00", "ceph v2\n\x00\x00", "ceph v2\n\xff\xff", "ceph v027", "GET / HTTP/1.1", "\x16\x03\x01", "SSH-2.0", "ceph v2\x00", ""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		right := 0
		for right < len(p) && right < len(bannerMagic) && p[right] == bannerMagic[right] {
			right++
		}
		for n := range min(len(p), 2*BannerPrefixSize) + 1 {
			got := MatchBanner(p[:n])
			if good := n <= right || right == len(bannerMagic); good != (got == SpeechBanner) {
				t.Fatalf("%q: %q", p[:n], got)
			}
			if (CheckBanner(p[:n]) == nil) != (got == SpeechBanner) {
				t.Fatalf("%q: %v", p[:n], CheckBanner(p[:n]))
			}
		}
		if len(p) < BannerPrefixSize {
			return
		}
		_, err := ParseBannerPrefix(p)
		if (err == nil) != bytes.HasPrefix(p, []byte(bannerMagic)) || errors.Is(err, wire.ErrV1Peer) != bytes.HasPrefix(p, []byte(Msgr1Banner)) {
			t.Fatalf("%q: %v", p, err)
		}
	})
}
