package wire1

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// sent is what one side has written in one step.
type sent struct {
	Name, Dir string
	Hex       linktest.Hex
}

// recorded are handshakes between real processes: first their banners and addresses,
// then connect messages, replies and sequences.
func recorded(t testing.TB) (r struct {
	Hellos     []sent
	Handshakes []struct {
		Name  string
		Steps []sent
	}
}) {
	t.Helper()
	linktest.Load(t, "handshakes.json", &r)
	if len(r.Hellos) != 8 || len(r.Handshakes) != 6 {
		t.Fatalf("%d hellos, %d handshakes", len(r.Hellos), len(r.Handshakes))
	}
	return r
}

func TestRecordedHellosReencodeIdentically(t *testing.T) {
	for _, s := range recorded(t).Hellos {
		var got []byte
		if s.Dir == "s2c" {
			h, err := DecodeAcceptorHello(s.Hex)
			if err != nil || h.Own.Type != wire.AddrLegacy || h.Seen.AddrPort.Port() == 0 {
				t.Errorf("%s: %+v, %v", s.Name, h, err)
			}
			got = h.AppendTo(nil)
		} else {
			h, err := DecodeConnectorHello(s.Hex)
			if err != nil || h.Own.Nonce == 0 {
				t.Errorf("%s: %+v, %v", s.Name, h, err)
			}
			got = h.AppendTo(nil)
		}
		if !bytes.Equal(got, s.Hex) {
			t.Errorf("%s %s:\n got %x\nwant %x", s.Name, s.Dir, got, []byte(s.Hex))
		}
	}
}

func TestRecordedAddressesMeanWhatTheySay(t *testing.T) {
	r := recorded(t)
	h, _ := DecodeAcceptorHello(r.Hellos[0].Hex)
	c, _ := DecodeConnectorHello(r.Hellos[1].Hex)
	if got := fmt.Sprint(h.Own, h.Seen, c.Own); got != "v1:127.0.0.1:13441/0 v1:127.0.0.1:36836/0 v1:127.0.0.1:0/16909060" {
		t.Error(got)
	}
}

// next takes one value off the front of what was sent, and returns it as text and
// encoded again with what follows it.
func next(dir string, first bool, p []byte) (text string, again, rest []byte, err error) {
	switch {
	case dir == "c2s" && len(p) >= ConnectSize:
		c, err := DecodeConnect(p[:ConnectSize])
		if err != nil || len(p) < ConnectSize+int(c.AuthorizerLen) {
			return "", nil, nil, errors.Join(err, wire.ErrTruncated)
		}
		end := ConnectSize + int(c.AuthorizerLen)
		return c.String(), append(c.AppendTo(nil), p[ConnectSize:end]...), p[end:], nil
	case dir == "s2c" && first:
		a, err := DecodeReply(p[:ReplySize])
		if err != nil || len(p) < ReplySize+int(a.AuthorizerLen) {
			return "", nil, nil, errors.Join(err, wire.ErrTruncated)
		}
		end := ReplySize + int(a.AuthorizerLen)
		return a.String(), append(a.AppendTo(nil), p[ReplySize:end]...), p[end:], nil
	}
	s, err := DecodeSeq(p)
	return s.String(), s.AppendTo(nil), p[min(SeqSize, len(p)):], err
}

func TestRecordedHandshakesReencodeIdenticallyAndRead(t *testing.T) {
	var b strings.Builder
	for _, h := range recorded(t).Handshakes {
		fmt.Fprintf(&b, "%s\n", h.Name)
		for _, s := range h.Steps {
			var again []byte
			for p := []byte(s.Hex); len(p) > 0; {
				text, part, rest, err := next(s.Dir, len(again) == 0, p)
				if err != nil {
					t.Fatalf("%s: %v", h.Name, err)
				}
				fmt.Fprintf(&b, "  %s %s\n", s.Dir, text)
				again, p = append(again, part...), rest
			}
			if !bytes.Equal(again, s.Hex) {
				t.Errorf("%s:\n got %x\nwant %x", h.Name, again, []byte(s.Hex))
			}
		}
	}
	want, err := os.ReadFile("testdata/handshakes.golden")
	drivertest.Must(t, err)
	if b.String() != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}

func TestFeaturesOfRecordedConnect(t *testing.T) {
	c, err := DecodeConnect(recorded(t).Handshakes[0].Steps[0].Hex)
	if err != nil || c.Features != wire.FeaturesPacific || !c.Lossy() {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestBit63StandsForTheHistoricFeatures(t *testing.T) {
	c, err := DecodeConnect(Connect{Features: 1<<63 | 1<<42}.AppendTo(nil))
	a, err2 := DecodeReply(Reply{Tag: TagReady, Features: 1 << 63}.AppendTo(nil))
	if c.Features != 0x1ffffffff || a.Features != 0x1ffffffff || err != nil || err2 != nil {
		t.Errorf("%v, %v, %v, %v", c.Features, a.Features, err, err2)
	}
}

func TestEveryTruncationIsAnError(t *testing.T) {
	r := recorded(t)
	check := func(name string, p []byte, decode func(p []byte) error) {
		if err := decode(p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for n := range p {
			if err := decode(p[:n]); !errors.Is(err, wire.ErrTruncated) {
				t.Errorf("%s cut to %d of %d bytes: %v", name, n, len(p), err)
			}
		}
	}
	check("acceptor hello", r.Hellos[0].Hex, func(p []byte) error { _, err := DecodeAcceptorHello(p); return err })
	check("connector hello", r.Hellos[1].Hex, func(p []byte) error { _, err := DecodeConnectorHello(p); return err })
	check("connect", Connect{}.AppendTo(nil), func(p []byte) error { _, err := DecodeConnect(p); return err })
	check("reply", Reply{Tag: TagWait}.AppendTo(nil), func(p []byte) error { _, err := DecodeReply(p); return err })
	check("seq", Seq{}.AppendTo(nil), func(p []byte) error { _, err := DecodeSeq(p); return err })
}

// V1-08: the length of an authorizer is bounded before memory is taken for it.
func TestAnnouncedAuthorizersAreBounded(t *testing.T) {
	for n, ok := range map[uint32]bool{0: true, MaxAuthorizer: true, MaxAuthorizer + 1: false, 1<<32 - 1: false} {
		if _, err := DecodeConnect(Connect{AuthorizerLen: n}.AppendTo(nil)); (err == nil) != ok || !ok && !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("authorizer of %d: %v", n, err)
		}
	}
	for n, ok := range map[uint32]bool{0: true, 4095: true, 4096: false, 1<<32 - 1: false} {
		if _, err := DecodeReply(Reply{Tag: TagReady, AuthorizerLen: n}.AppendTo(nil)); (err == nil) != ok || !ok && !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("authorizer reply of %d: %v", n, err)
		}
	}
	for i := 9; i < 12; i++ { // of the type
		p := Connect{HostType: wire.Client}.AppendTo(nil)
		p[i] = 1
		if _, err := DecodeConnect(p); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("type with byte %d: %v", i-8, err)
		}
	}
	p := Connect{AuthorizerLen: 1<<32 - 1}.AppendTo(nil)
	if n := linktest.Allocated(func() { _, _ = DecodeConnect(p) }); n > 64<<10 {
		t.Errorf("%d bytes allocated for an announced authorizer", n)
	}
}

func TestTagsOfReplies(t *testing.T) {
	known := map[Tag]bool{1: true, 2: true, 3: true, 4: true, 5: true, 10: true, 11: true, 12: true, 13: true, 16: true}
	for tag := range 256 {
		a, err := DecodeReply(Reply{Tag: Tag(tag)}.AppendTo(nil))
		if known[Tag(tag)] != (err == nil) || err == nil && a.Tag != Tag(tag) {
			t.Errorf("%v: %v", Tag(tag), err)
		}
	}
	if got := fmt.Sprint(TagSeq, TagChallengeAuthorizer, Tag(6)); got != "SEQ CHALLENGE_AUTHORIZER tag(6)" {
		t.Error(got)
	}
}

func TestBannerIsRefusedAtItsFirstWrongByte(t *testing.T) {
	for banner, looks := range map[string]string{
		"ceph v2\n\x10": "msgr2", "GET / HTT": "http", "\x16\x03\x01": "tls", "SSH-2.0-x": "ssh", "ceph v028": "other", "xxx": "other",
	} {
		wrong := 0
		for wrong < len(banner) && banner[wrong] == wire2.Msgr1Banner[wrong] {
			wrong++
		}
		for n := range len(banner) + 1 {
			if err := CheckBanner([]byte(banner[:n])); (err != nil) != (n > wrong) || err != nil && !errors.Is(err, wire.ErrBadBanner) {
				t.Errorf("%q: %v", banner[:n], err)
			}
		}
		if err := CheckBanner([]byte(banner)); err == nil || !strings.HasSuffix(err.Error(), "looks like "+looks) {
			t.Errorf("%q: %v, want %s", banner, err, looks)
		}
	}
	if err := CheckBanner([]byte("ceph v027anything")); err != nil {
		t.Error(err)
	}
}

func TestAddressFormsOfTheHandshake(t *testing.T) {
	blank, err := DecodeAddr(make([]byte, AddrSize))
	if err != nil || blank != (wire.Addr{}) {
		t.Errorf("no family: %v, %v", blank, err)
	}
	a6, err := wire.ParseAddr("v1:[fe80::1%3]:6789/7")
	drivertest.Must(t, err)
	if got, err := DecodeAddr(a6.AppendLegacyTo(nil)); err != nil || got != a6 {
		t.Errorf("IPv6: %v, %v", got, err)
	}
	for _, form := range []byte{1, 2, 255} {
		p := a6.AppendLegacyTo(nil)
		p[0] = form
		if _, err := DecodeAddr(p); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("form %d: %v", form, err)
		}
	}
}

func TestProtocolVersions(t *testing.T) {
	for _, c := range []struct {
		from, to wire.EntityType
		want     uint32
	}{
		{wire.Client, wire.Mon, 15}, {wire.OSD, wire.Mon, 15}, {wire.Mon, wire.Mon, 13},
		{wire.Client, wire.OSD, 24}, {wire.Mon, wire.OSD, 24}, {wire.OSD, wire.OSD, 10},
		{wire.Client, wire.MDS, 32}, {wire.MDS, wire.MDS, 36},
		{wire.Client, wire.Mgr, 0}, {wire.Mgr, wire.Mgr, 0}, {wire.OSD, wire.Client, 0},
	} {
		if got := Protocol(c.from, c.to); got != c.want {
			t.Errorf("%v to %v: %d, want %d", c.from, c.to, got, c.want)
		}
	}
}

func FuzzHello(f *testing.F) {
	for _, s := range recorded(f).Hellos {
		f.Add([]byte(s.Hex))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if h, err := DecodeAcceptorHello(p); err == nil {
			if again, err := DecodeAcceptorHello(h.AppendTo(nil)); err != nil || again != h {
				t.Fatalf("%v, encoded and decoded %v, %v", h, again, err)
			}
		}
		if h, err := DecodeConnectorHello(p); err == nil {
			if again, err := DecodeConnectorHello(h.AppendTo(nil)); err != nil || again != h {
				t.Fatalf("%v, encoded and decoded %v, %v", h, again, err)
			}
		}
	})
}

func FuzzConnect(f *testing.F) {
	for _, h := range recorded(f).Handshakes {
		for _, s := range h.Steps {
			f.Add([]byte(s.Hex))
		}
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		historic := func(p []byte) bool { return p[7]&0x80 != 0 }
		if c, err := DecodeConnect(p); err == nil && !historic(p) && !bytes.Equal(c.AppendTo(nil), p[:ConnectSize]) {
			t.Fatalf("%x, encoded %x", p[:ConnectSize], c.AppendTo(nil))
		}
		if a, err := DecodeReply(p); err == nil && !historic(p[1:]) && !bytes.Equal(a.AppendTo(nil), p[:ReplySize]) {
			t.Fatalf("%x, encoded %x", p[:ReplySize], a.AppendTo(nil))
		}
		if s, err := DecodeSeq(p); err == nil && !bytes.Equal(s.AppendTo(nil), p[:SeqSize]) {
			t.Fatalf("%x, encoded %x", p[:SeqSize], s.AppendTo(nil))
		}
	})
}
