package wire

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
)

type addrVector struct {
	Type, Nonce    uint32
	IP             string
	Port           uint16
	Encoded, Image linktest.Hex
}

func (v addrVector) addr(t testing.TB) Addr {
	ip, err := netip.ParseAddr(v.IP)
	if err != nil {
		t.Fatal(err)
	}
	return Addr{AddrType(v.Type), v.Nonce, netip.AddrPortFrom(ip, v.Port)}
}

// Matrix: HS-17
func TestAddressVectors(t *testing.T) {
	var data struct {
		Addresses []addrVector
		Sorted    [][]any
	}
	linktest.Load(t, "addresses.json", &data)
	var all []Addr
	for _, v := range data.Addresses {
		a := v.addr(t)
		if got := a.AppendTo(nil); !bytes.Equal(got, v.Encoded) {
			t.Errorf("%v: encoded %x, want %x", a, got, []byte(v.Encoded))
		}
		if got := a.image(); !bytes.Equal(got[:], v.Image) {
			t.Errorf("%v: image %x, want %x", a, got, []byte(v.Image))
		}
		back, err := DecodeAddr(v.Encoded)
		if err != nil || back != a {
			t.Errorf("%v: decoded %v, %v", a, back, err)
		}
		all = append(all, a)
	}
	slices.SortFunc(all, Addr.Compare)
	if len(all) != len(data.Sorted) || len(all) == 0 {
		t.Fatalf("%d addresses, %d sorted", len(all), len(data.Sorted))
	}
	for i, want := range data.Sorted {
		got := fmt.Sprint([]any{float64(all[i].Type), float64(all[i].Nonce), all[i].AddrPort.Addr(), float64(all[i].AddrPort.Port())})
		if got != fmt.Sprint(want) {
			t.Errorf("place %d: %s, want %v", i, got, want)
		}
	}
}

// Matrix: RA-15, RA-16
func TestCompareStartsAtTheLeastSignificantByteOfTheNonce(t *testing.T) {
	a := Addr{Type: AddrMsgr2, AddrPort: netip.MustParseAddrPort("10.0.0.1:6800")}
	low, high := a.WithNonce(0x100), a.WithNonce(1)
	if low.Compare(high) != -1 || high.Compare(low) != 1 || low.Compare(low) != 0 || low.Equal(high) {
		t.Error("numeric order instead of the order of the image")
	}
}

// sockaddrAddr builds a versioned address around a raw socket address.
func sockaddrAddr(sa []byte) []byte {
	p := []byte{addrMarkerVersioned}
	p, env := BeginEnvelope(p, 1, 1)
	p = le.AppendUint32(p, uint32(AddrMsgr2))
	p = le.AppendUint32(p, 7)
	return EndEnvelope(AppendBlob(p, sa), env)
}

// Matrix: HI-04, HI-28
func TestSockaddrLengthRules(t *testing.T) {
	in := func(n int) []byte { return append([]byte{2, 0, 0x1a, 0x90, 10, 0, 0, 1}, make([]byte, 128)...)[:n] }
	in6 := func(n int) []byte {
		return append([]byte{10, 0, 0x1a, 0x90, 0, 0, 0, 0, 0x20, 1, 22: 0, 23: 9}, make([]byte, 128)...)[:n]
	}
	for _, c := range []struct {
		name string
		sa   []byte
		want string // "" means rejected
	}{
		{"nothing is blank", nil, "v2:-/7"},
		{"one byte", []byte{2}, ""},
		{"family only", in(2), "v2:0.0.0.0:0/7"},
		{"cut behind the ip", in(8), "v2:10.0.0.1:6800/7"},
		{"IPv4", in(16), "v2:10.0.0.1:6800/7"},
		{"IPv4 with 17", in(17), ""},
		{"IPv4 with 28", in(28), ""},
		{"IPv4 with 128", in(128), ""},
		{"IPv6", in6(28), "v2:[2001::9]:6800/7"},
		{"IPv6 cut to 16", in6(16), "v2:[2001::]:6800/7"},
		{"IPv6 with 29", in6(29), ""},
		{"unknown family", append([]byte{1, 0}, make([]byte, 26)...), "v2:-/7"},
		{"unknown family too long", append([]byte{1, 0}, make([]byte, 27)...), ""},
		{"IPv4 family in the wrong byte order", append([]byte{0, 2}, in(16)[2:]...), "v2:-/7"},
	} {
		a, err := DecodeAddr(sockaddrAddr(c.sa))
		switch {
		case c.want == "" && !errors.Is(err, ErrMalformed):
			t.Errorf("%s: %v, %v", c.name, a, err)
		case c.want != "" && (err != nil || a.String() != c.want):
			t.Errorf("%s: %v, %v, want %s", c.name, a, err, c.want)
		}
	}
}

func TestLegacyFormIsAccepted(t *testing.T) {
	for _, s := range []string{"v1:10.0.0.1:6789/42", "v1:[2001:db8::1]:6789/42", "v1:[fe80::1%2]:6789/0", "v1:-/3"} {
		want, err := ParseAddr(s)
		if err != nil {
			t.Fatal(err)
		}
		p := want.AppendLegacyTo(nil)
		if len(p) != 136 {
			t.Errorf("%s: %d bytes", s, len(p))
		}
		p[1], p[3] = 0xaa, 0xbb // ignored
		if got, err := DecodeAddr(p); err != nil || got != want {
			t.Errorf("%s: %v, %v", s, got, err)
		}
		if got, err := decodeAddrVec(p); err != nil || !got.Equal(AddrVec{want}) {
			t.Errorf("%s as a vector: %v, %v", s, got, err)
		}
		for n := range p {
			if _, err := DecodeAddr(p[:n]); !errors.Is(err, ErrTruncated) {
				t.Errorf("%s cut to %d: %v", s, n, err)
			}
		}
	}
	p := Addr{AddrPort: netip.MustParseAddrPort("1.2.3.4:258")}.AppendLegacyTo(nil)
	if want := []byte{0, 2, 1, 2, 1, 2, 3, 4}; !bytes.Equal(p[8:16], want) {
		t.Errorf("legacy sockaddr % x, want % x", p[8:16], want)
	}
}

func TestVectorMarkers(t *testing.T) {
	a, _ := ParseAddr("v2:10.0.0.1:6800/1")
	if v, err := decodeAddrVec(a.AppendTo(nil)); err != nil || !v.Equal(AddrVec{a}) {
		t.Errorf("bare address: %v, %v", v, err)
	}
	if v, err := decodeAddrVec([]byte{2, 0, 0, 0, 0}); err != nil || len(v) != 0 {
		t.Errorf("empty vector: %v, %v", v, err)
	}
	for _, marker := range []byte{3, 4, 0xff} {
		if _, err := decodeAddrVec(append([]byte{marker}, make([]byte, 200)...)); !errors.Is(err, ErrMalformed) {
			t.Errorf("marker %d: %v", marker, err)
		}
	}
	for _, marker := range []byte{2, 3, 0xff} {
		if _, err := DecodeAddr(append([]byte{marker}, make([]byte, 200)...)); !errors.Is(err, ErrMalformed) || errors.Is(err, ErrTruncated) {
			t.Errorf("address marker %d: %v", marker, err)
		}
	}
	p := a.AppendTo(nil)
	p[2] = 2
	if _, err := DecodeAddr(p); !errors.Is(err, ErrVersion) {
		t.Errorf("compat 2: %v", err)
	}
}

// Matrix: HS-17
func TestVectorLookups(t *testing.T) {
	v, err := ParseAddrVec("[v1:10.0.0.1:6789/1,v2:10.0.0.1:3300/1,v2:[::1]:3300/1]")
	if err != nil {
		t.Fatal(err)
	}
	if v.Front() != v[0] || v.V1() != v[0] || v.V2() != v[1] {
		t.Error(v.Front(), v.V1(), v.V2())
	}
	if !v.Contains(v[2]) || v.Contains(v[2].WithNonce(2)) || v.Contains(v[0].WithType(AddrMsgr2)) {
		t.Error("Contains must compare every field")
	}
	if a := (AddrVec{}).Front(); a != (Addr{}) || (AddrVec{v[0]}).V2() != (Addr{}) {
		t.Error("no blank address for a missing one")
	}
}

func TestBlankAndSameHost(t *testing.T) {
	for s, want := range map[string]bool{
		"-": true, "v2:-/5": true, "v2:0.0.0.0:6800/0": true, "v2:[::]:6800/0": true,
		"v2:127.0.0.1:0/0": false, "any:[::1]:0/0": false,
	} {
		a, err := ParseAddr(s)
		if err != nil {
			t.Fatal(err)
		}
		if a.IsBlank() != want {
			t.Errorf("%s: blank is %v", s, !want)
		}
	}
	a, _ := ParseAddr("v2:127.0.0.1:1/1")
	c, _ := ParseAddr("v2:[::ffff:127.0.0.1]:1/1")
	if a.Equal(c) {
		t.Error("the family is part of the address")
	}
}

func TestAddressText(t *testing.T) {
	for in, want := range map[string]string{
		"v2:127.0.0.1:3300/0":     "",
		"v1:[2001:db8::1]:6789/7": "",
		"any:10.0.0.1:0/99":       "",
		"v2:[fe80::1%3]:6800/1":   "",
		"-":                       "",
		"v2:-/3":                  "",
		"none:1.2.3.4:5/6":        "",
		"4:1.2.3.4:5/6":           "",
		"127.0.0.1:3300":          "v2:127.0.0.1:3300/0",
		"[::1]:3300":              "v2:[::1]:3300/0",
		"v1:127.0.0.1:6789":       "v1:127.0.0.1:6789/0",
		"v2:[fe80::1%03]:6800/1":  "v2:[fe80::1%3]:6800/1",
	} {
		if want == "" {
			want = in
		}
		a, err := ParseAddr(in)
		if err != nil || a.String() != want {
			t.Errorf("%q: %q, %v", in, a, err)
		}
		v, err := ParseAddrVec(in)
		if err != nil || len(v) != 1 || v[0] != a {
			t.Errorf("%q as a vector: %v, %v", in, v, err)
		}
	}
	for _, in := range []string{"", "v2", "v2:", "v3:1.2.3.4:5/6", "1.2.3.4", "v2:1.2.3.4/5", "v2:1.2.3.4:70000/0", "v2:1.2.3.4:5/-1",
		"v2:1.2.3.4:5/4294967296", "v2:[fe80::1%eth0]:1/1", "v2:[fe80::1%0]:1/1", "v2:localhost:3300/0", "1:1.2.3.4:5/6"} {
		if a, err := ParseAddr(in); !errors.Is(err, errSyntax) {
			t.Errorf("%q: %v, %v", in, a, err)
		}
	}
	for _, in := range []string{"[v2:1.2.3.4:5/6", "[v2:1.2.3.4:5/6,]", "[,]"} {
		if v, err := ParseAddrVec(in); !errors.Is(err, errSyntax) {
			t.Errorf("%q: %v, %v", in, v, err)
		}
	}
}

func FuzzParseAddrVec(f *testing.F) {
	for _, s := range []string{"-", "[]", "v2:-/3", "[v2:127.0.0.1:3300/0,v1:[::1%3]:6789/7]", "any:1.2.3.4:0", "4:1.2.3.4:5/6"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := ParseAddrVec(s)
		if err != nil {
			return
		}
		again, err := ParseAddrVec(v.String())
		if err != nil || !slices.Equal(v, again) {
			t.Fatalf("%q: %v, then %v, %v", s, v, again, err)
		}
		if w, err := decodeAddrVec(v.AppendTo(nil)); err != nil || !slices.Equal(v, w) {
			t.Fatalf("%q: %v, decoded %v, %v", s, v, w, err)
		}
	})
}

func ExampleParseAddrVec() {
	v, err := ParseAddrVec("[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(v.V2())
	fmt.Println(v.Front().AddrPort.Port())
	// Output:
	// v2:10.0.0.1:3300/0
	// 3300
}
