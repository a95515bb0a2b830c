package scope

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

var errUnknown = errors.New("no such host")

// book is a name service.
func book(_ context.Context, host string) ([]netip.Addr, error) {
	switch host {
	case "mon-a.example.com":
		return []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("::ffff:10.0.0.7"), netip.MustParseAddr("10.0.0.8")}, nil
	case "six", "mon-v2":
		return []netip.Addr{netip.MustParseAddr("fd00::6")}, nil
	case "none":
		return nil, nil
	}
	return nil, errUnknown
}

func TestAddressesAreReadAsPeopleWriteThem(t *testing.T) {
	for text, want := range map[string]string{
		"v2:10.0.0.1:6800/77":         "v2:10.0.0.1:6800/77",
		"10.0.0.1:6800/77":            "v2:10.0.0.1:6800/77",
		"v2:10.0.0.1:6800":            "v2:10.0.0.1:6800/0",
		"v2:10.0.0.1/5":               "v2:10.0.0.1:3300/5",
		"v2:10.0.0.1":                 "v2:10.0.0.1:3300/0",
		"10.0.0.1":                    "v2:10.0.0.1:3300/0",
		"localhost":                   "v2:127.0.0.1:3300/0",
		"v2:localhost:6800/1":         "v2:127.0.0.1:6800/1",
		"mon-a.example.com":           "v2:10.0.0.7:3300/0",
		"v2:mon-a.example.com:3301/9": "v2:10.0.0.7:3301/9",
		"six:6800":                    "v2:[fd00::6]:6800/0",
		"[fd00::2]:6800/3":            "v2:[fd00::2]:6800/3",
		"v2:[fd00::2]:6800":           "v2:[fd00::2]:6800/0",
		"[fd00::2]":                   "v2:[fd00::2]:3300/0",
		"fd00::2":                     "v2:[fd00::2]:3300/0",
		"v2:fd00::2/4":                "v2:[fd00::2]:3300/4",
		"[fe80::1%3]:6800":            "v2:[fe80::1%3]:6800/0",
		"[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]": "v2:10.0.0.1:3300/0",
		"[v1:10.0.0.1:6789/0,v2:10.0.0.1:3300/8]": "v2:10.0.0.1:3300/8",
	} {
		a, err := AddressReader{Lookup: book}.Parse(t.Context(), text)
		if err != nil || a.String() != want {
			t.Errorf("%q: %v, %v; want %s", text, a, err, want)
		}
	}
}

func TestWhatIsWrongWithAnAddressIsSaid(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "the host is missing",
		"v2:":                      "the host is missing",
		"v1:10.0.0.1:6789":         "only v2",
		"any:10.0.0.1:6789/0":      "only v2",
		"[v1:10.0.0.1:6789/0]":     "only v2",
		"v2:10.0.0.1:0":            "the port is 0",
		"10.0.0.1:65536":           `the port "65536"`,
		"10.0.0.1:http":            `the port "http"`,
		"10.0.0.1:":                "the port is missing",
		"10.0.0.1:3300/x":          "the nonce",
		"10.0.0.1:3300/4294967296": "the nonce",
		"0.0.0.0:3300":             "a wildcard",
		"[::]:3300":                "a wildcard",
		"10.0.0":                   "neither an IP address nor a host name",
		"10.0.0.256":               "neither an IP address nor a host name",
		"3300":                     "neither an IP address nor a host name",
		"two words":                "neither an IP address nor a host name",
		"fd00::2::6800":            "brackets",
		"v3:10.0.0.1:3300":         "there is no protocol v3; want v2:",
		"[fe80::1%eth0]:6800":      "zone",
	} {
		_, err := AddressReader{Proto: "v2", Lookup: book}.Parse(t.Context(), text)
		if !cli.IsUsage(err) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "want "+form2) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestAnUnknownHostIsNoWrongSyntax(t *testing.T) {
	if _, err := (AddressReader{Lookup: book}).Parse(t.Context(), "v2:somewhere:3300"); !errors.Is(err, errUnknown) || cli.IsUsage(err) {
		t.Error(err)
	}
	if _, err := (AddressReader{Lookup: book}).Parse(t.Context(), "v2:none:3300"); err == nil || cli.IsUsage(err) {
		t.Error(err)
	}
}

func TestAddressesOfMsgr1AreReadWhereTheyAreWanted(t *testing.T) {
	for _, one := range []struct{ proto, text, want string }{
		{"", "v1:10.0.0.1:6800/77", "v1:10.0.0.1:6800/77"},
		{"", "v1:10.0.0.1", "v1:10.0.0.1:6789/0"},
		{"", "[v1:10.0.0.1:6790/0]", "v1:10.0.0.1:6790/0"},
		{"", "v1:mon-v2:6790", "v1:[fd00::6]:6790/0"},
		{"v1", "mon-a.example.com", "v1:10.0.0.7:6789/0"},
		{"v1", "[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]", "v1:10.0.0.1:6789/0"},
		{"v1", "v2:10.0.0.1:3300", ""},
	} {
		a, err := AddressReader{Proto: one.proto, Lookup: book}.Parse(t.Context(), one.text)
		if err == nil && a.String() != one.want {
			t.Errorf("%+v: %v", one, a)
		}
		if (err == nil) != (one.want != "") {
			t.Errorf("%+v: %v", one, err)
		}
	}
}
