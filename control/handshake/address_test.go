package handshake

import (
	"errors"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

func addr(t testing.TB, s string) wire.Addr {
	t.Helper()
	a, err := wire.ParseAddr(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestLearnClassic(t *testing.T) {
	for _, c := range []struct{ own, seen, want string }{
		{"-", "v2:10.0.0.2:45678/0", "any:10.0.0.2:0/0"},
		{"any:-/99", "v2:10.0.0.2:45678/7", "any:10.0.0.2:0/99"},
		{"any:0.0.0.0:0/99", "v2:10.0.0.2:45678/7", "any:10.0.0.2:0/99"},
		{"v2:0.0.0.0:6800/99", "v2:10.0.0.2:45678/7", "v2:10.0.0.2:6800/99"},
		{"v2:[::]:6800/99", "v2:[2001:db8::2]:45678/7", "v2:[2001:db8::2]:6800/99"},
		{"any:10.0.0.2:0/99", "v2:10.9.9.9:1/7", "any:10.0.0.2:0/99"}, // later peers change nothing
		{"any:-/99", "v2:0.0.0.0:1/7", "any:-/99"},                    // nothing to learn
	} {
		if got := LearnClassic(addr(t, c.own), addr(t, c.seen)); got.String() != c.want {
			t.Errorf("%s seen as %s: %v, want %s", c.own, c.seen, got, c.want)
		}
	}
}

func TestLearnSharded(t *testing.T) {
	for _, c := range []struct {
		own   string
		known bool
		seen  string
		want  string // "": fault
	}{
		{"any:-/99", false, "v2:10.0.0.2:45678/7", "any:10.0.0.2:0/99"},
		{"any:-/99", false, "any:10.0.0.2:45678/7", "any:10.0.0.2:0/99"}, // the type is forced
		{"any:-/99", false, "v1:10.0.0.2:45678/7", ""},
		{"v2:0.0.0.0:6800/99", false, "v2:10.0.0.2:45678/7", "v2:10.0.0.2:6800/99"},
		{"v2:0.0.0.0:6800/99", false, "v2:[2001:db8::2]:45678/7", ""},
		{"v1:0.0.0.0:6800/99", false, "v2:10.0.0.2:45678/7", ""},
		{"v2:10.0.0.2:6800/99", true, "v2:10.0.0.2:45678/7", "v2:10.0.0.2:6800/99"},
		{"any:10.0.0.2:0/99", true, "v2:10.0.0.2:45678/7", "any:10.0.0.2:0/99"},
		{"any:10.0.0.2:0/99", true, "v2:10.0.0.3:45678/7", ""},
		{"any:10.0.0.2:0/99", true, "v2:[2001:db8::2]:45678/7", ""},
		{"v1:10.0.0.2:0/99", true, "v2:10.0.0.2:45678/7", ""},
	} {
		got, err := LearnSharded(addr(t, c.own), addr(t, c.seen), c.known)
		switch {
		case c.want == "" && (!errors.Is(err, ErrAddress) || got.String() != c.own):
			t.Errorf("%s seen as %s: %v, %v", c.own, c.seen, got, err)
		case c.want != "" && (err != nil || got.String() != c.want):
			t.Errorf("%s seen as %s: %v, %v, want %s", c.own, c.seen, got, err, c.want)
		}
	}
}

func TestCheckTarget(t *testing.T) {
	for _, c := range []struct {
		own, target string
		ok          bool
	}{
		{"v2:10.0.0.1:6800/99", "v2:10.0.0.1:6800/99", true},
		{"v2:10.0.0.1:6800/99", "v2:10.0.0.1:6800/98", false},
		{"v2:10.0.0.1:6800/99", "v2:10.0.0.1:6801/99", false},
		{"v2:10.0.0.1:6800/99", "v1:10.0.0.1:6800/99", false},
		{"v2:10.0.0.1:6800/99", "v2:10.0.0.2:6800/99", false},
		{"v2:10.0.0.1:6800/99", "v2:[::ffff:10.0.0.1]:6800/99", false},
		{"v2:0.0.0.0:6800/99", "v2:10.0.0.1:1/2", true}, // own IP not known yet
	} {
		if err := CheckTarget(addr(t, c.own), addr(t, c.target)); c.ok != (err == nil) || !c.ok && !errors.Is(err, ErrAddress) {
			t.Errorf("%s, target %s: %v", c.own, c.target, err)
		}
	}
}
