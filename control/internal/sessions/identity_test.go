package sessions

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

func addrOf(t *testing.T, s string) wire.Addr {
	t.Helper()
	a, err := wire.ParseAddr(s)
	must(t, err)
	return a
}

func TestOnlyTheIPOfAnAddressIsLearned(t *testing.T) {
	for _, one := range []struct {
		name    string
		have    []string
		local   string // our end of the socket
		seen    string
		want    string
		changed bool
	}{
		{"a client knows none", nil, "10.0.0.3:45678", "v2:10.0.0.2:45678/7", "any:10.0.0.2:0/99", false},
		{"nothing to learn", nil, "10.0.0.3:45678", "v2:0.0.0.0:45678/7", "", false},
		{"bound to all addresses", []string{"v2:0.0.0.0:6800/99"}, "10.0.0.2:6800", "v2:6.6.6.6:6800/99", "v2:10.0.0.2:6800/99", true},
		{"of all families", []string{"v2:0.0.0.0:6800/99"}, "[::ffff:10.0.0.2]:6800", "v2:6.6.6.6:6800/99", "v2:10.0.0.2:6800/99", true},
		{"of a zone", []string{"v2:[::]:6800/99"}, "[fe80::2%eth0]:6800", "v2:6.6.6.6:6800/99", "v2:[fe80::2]:6800/99", true},
		{"the kernel does not know", []string{"v2:0.0.0.0:6800/99"}, "", "v2:10.0.0.2:45678/7", "v2:10.0.0.2:6800/99", true},
		{"of another family", []string{"v2:0.0.0.0:6800/99"}, "[2001:db8::2]:6800", "v2:[2001:db8::2]:45678/7", "v2:0.0.0.0:6800/99", false},
		{"known", []string{"v2:10.0.0.1:6800/99"}, "10.0.0.2:6800", "v2:10.0.0.2:45678/7", "v2:10.0.0.1:6800/99", false},
	} {
		id := identity{nonce: 99}
		for _, a := range one.have {
			id.addrs = append(id.addrs, addrOf(t, a))
		}
		before := id.addrs
		told := slices.Clone(before)
		local, _ := netip.ParseAddrPort(one.local)
		changed := id.learn(local, addrOf(t, one.seen))
		got := ""
		if len(id.addrs) > 0 {
			got = id.addrs[0].String()
		}
		if got != one.want || changed != one.changed {
			t.Errorf("%s: %s, changed %v", one.name, got, changed)
		}
		if !slices.Equal(before, told) {
			t.Errorf("%s: what peers were told has changed under their hands: %v", one.name, before)
		}
	}
}

func TestAnotherPlaceIsTheSameIPWithAnotherPort(t *testing.T) {
	var id identity
	if at, _ := id.elsewhere(bpf.PortRange{}, nil); at != nil {
		t.Errorf("not bound, and %v", at)
	}
	id.nonce = 5
	id.settle(wire.AddrVec{addrOf(t, "v2:0.0.0.0:6800/0")})
	id.learn(netip.MustParseAddrPort("10.0.0.2:6800"), wire.Addr{})
	from := bpf.PortRange{First: 6800, Last: 6900}
	at, ports := id.elsewhere(from, []uint16{6801})
	if len(at) != 1 || at[0].AddrPort != netip.MustParseAddrPort("0.0.0.0:0") || ports.From != from || !ports.Avoid[6800] || !ports.Avoid[6801] || len(ports.Avoid) != 2 {
		t.Errorf("%v, %+v", at, ports)
	}
	// What was learned stays, at the new port and under the new nonce.
	id.renew(5)
	id.settle(wire.AddrVec{addrOf(t, "v2:0.0.0.0:6802/0")})
	if got := id.addrs.String(); got != "v2:10.0.0.2:6802/6" && got != "[v2:10.0.0.2:6802/6]" {
		t.Errorf("now %s", got)
	}
	// Behind a hand-over only the addresses are known.
	id.places = nil
	if at, _ := id.elsewhere(from, nil); len(at) != 1 || at[0].AddrPort != netip.MustParseAddrPort("10.0.0.2:0") {
		t.Errorf("%v", at)
	}
}

func TestAnAddressIsOursByWhatWeToldByTheSocketOrByPortAndNonceOfAWildcard(t *testing.T) {
	for _, one := range []struct {
		name   string
		bound  string
		target string
		local  string // our end of the socket
		want   bool
	}{
		{"told", "v2:10.0.0.1:6800/99", "v2:10.0.0.1:6800/99", "", true},
		{"another IP", "v2:10.0.0.1:6800/99", "v2:10.0.0.2:6800/99", "10.0.0.1:6800", false},
		{"another IP, which is that of the socket", "v2:10.0.0.1:6800/99", "v2:10.0.0.2:6800/99", "10.0.0.2:6800", true},
		{"translated", "v2:0.0.0.0:6800/99", "v2:10.0.0.2:6800/99", "10.0.0.1:6800", true},
		{"another nonce", "v2:0.0.0.0:6800/99", "v2:10.0.0.2:6800/98", "10.0.0.2:6800", false},
		{"another port", "v2:0.0.0.0:6800/99", "v2:10.0.0.2:6801/99", "10.0.0.2:6800", false},
		{"another type", "v2:0.0.0.0:6800/99", "v1:10.0.0.2:6800/99", "10.0.0.2:6800", false},
		{"no IP", "v2:0.0.0.0:6800/99", "v2:0.0.0.0:6800/99", "10.0.0.2:6800", false},
		{"a nonce that others have, too", "v2:0.0.0.0:6800/0", "v2:10.0.0.2:6800/0", "10.0.0.3:6800", false},
		{"such a nonce, and the socket", "v2:0.0.0.0:6800/0", "v2:10.0.0.2:6800/0", "[::ffff:10.0.0.2]:6800", true},
		{"of a zone", "v2:[::]:6800/0", "v2:[fe80::2]:6800/0", "[fe80::2%eth0]:6800", true},
	} {
		bound := addrOf(t, one.bound)
		id := identity{nonce: bound.Nonce}
		id.settle(wire.AddrVec{bound})
		id.learn(netip.MustParseAddrPort("10.9.9.9:6800"), wire.Addr{}) // from somebody else
		local, _ := netip.ParseAddrPort(one.local)
		if got := id.ours(addrOf(t, one.target), local); got != one.want {
			t.Errorf("%s: %v", one.name, got)
		}
	}
}
