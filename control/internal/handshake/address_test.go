package handshake

import (
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
