package wire2

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

func TestABannerMatchesWithEachOfItsBytes(t *testing.T) {
	p := Banner{Supported: wire.BannerRevision1}.AppendTo(nil)
	for _, length := range []byte{0, 16, 255} {
		p[8], p[9] = length, length
		for n := range len(p) + 1 {
			if got := MatchBanner(p[:n]); got != SpeechBanner || CheckBanner(p[:n]) != nil {
				t.Errorf("%q: %v", p[:n], got)
			}
		}
	}
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
	for _, s := range []string{"ceph v2\n\x10\x00", "ceph v027", "GET / HTTP/1.1", "\x16\x03\x01", "SSH-2.0", "ceph v2\x00", ""} {
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
