package main

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const somewhere = "v2:127.0.0.1:1"

func TestWrongCallsAreUsageErrors(t *testing.T) {
	keyring := filepath.Join(t.TempDir(), "keyring")
	if err := os.WriteFile(keyring, []byte("[client.other]\n\tkey = "+clientKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, says string }{
		{"", "usage:"},
		{"pong", `no command "pong"`},
		{"ping", "want one address"},
		{"ping " + somewhere + " " + somewhere, "want one address"},
		{"ping --count 0 " + somewhere, "--count 0"},
		{"ping --count many " + somewhere, "invalid value"},
		{"ping --peer cat " + somewhere, `--peer "cat"`},
		{"ping --peer auth " + somewhere, `--peer "auth"`},
		{"ping nonsense", "address"},
		{"ping v1:127.0.0.1:6789", "only v2 addresses"},
		{"ping v2:127.0.0.1:0", "want v2:IP:PORT"},
		{"ping v2:0.0.0.0:3300", "want v2:IP:PORT"},
		{"ping --timeout 0 " + somewhere, "--timeout 0s"},
		{"ping --timeout -1s " + somewhere, "--timeout -1s"},
		{"ping --policy best " + somewhere, "--policy"},
		{"ping --policy stateful-server " + somewhere, "never dials"},
		{"ping --name nobody " + somewhere, "--name"},
		{"ping --rev 2 " + somewhere, "--rev 2"},
		{"ping --backend kqueue " + somewhere, `--backend "kqueue"`},
		{"ping --receive fast " + somewhere, "receive mode"},
		{"ping --cores -1 " + somewhere, "cores = -1"},
		{"ping --spin -1s " + somewhere, "spin = -1s"},
		{"ping --log-level loud " + somewhere, `--log-level "loud"`},
		{"ping --auth gss " + somewhere, `--auth "gss"`},
		{"ping --auth cephx " + somewhere, "needs --key or --keyring"},
		{"ping --auth cephx --key nonsense " + somewhere, "--key"},
		{"ping --auth cephx --keyring /nonexistent " + somewhere, "--keyring"},
		{"ping --auth cephx --keyring " + keyring + " " + somewhere, "no key of client.admin"},
		{"ping --auth cephx --keyring " + keyring + " --key " + clientKey + " " + somewhere, "exclude each other"},
		{"ping --key " + clientKey + " " + somewhere, "need --auth cephx"},
		{"ping --mode secure " + somewhere, "needs --auth cephx"},
		{"ping --mode plain " + somewhere, "--mode"},
		{"ping --listen v1:127.0.0.1:0 " + somewhere, "only v2"},
		{"ping --listen v2:0.0.0.0:0 " + somewhere, "IP address"},
		{"ping --nonce -3 " + somewhere, "32 bits"},
		{"ping --proto v1 " + somewhere, "not defined: -proto"},
		{"ping --compress gzip " + somewhere, "--compress"},
		{"ping --auth cephx --listen v2:127.0.0.1:0 --key " + clientKey + " " + somewhere, "cannot accept with cephx"},
		{"ping --via somewhere " + somewhere, "--via"},
		{"ping --via 127.0.0.1:0 " + somewhere, "--via"},
		{"ping --keepalive -1s " + somewhere, "--keepalive -1s"},
		{"serve " + somewhere, "unexpected argument"},
		{"serve --verify --handover path", "exclude each other"},
		{"serve --verify --take-over path", "exclude each other"},
		{"serve --steer sideways", "--steer"},
		{"serve --drain -1s", "--drain"},
		{"serve --listen v2:127.0.0.1:0/1 --listen v2:127.0.0.1:0/2", "same nonce"},
		{"serve --nonce 7 --listen v2:127.0.0.1:0/1", "same nonce"},
		{"serve --name osd.0 --auth cephx --key " + clientKey, "cannot accept with cephx"},
		{"send", "want one address"},
		{"send --messages 0 " + somewhere, "--messages 0"},
		{"send --duration -1s " + somewhere, "--duration -1s"},
		{"send --size -1 " + somewhere, "number of bytes"},
		{"send --size 1TiB " + somewhere, "number of bytes"},
		{"send --size 1GiB " + somewhere, "at most"},
		{"send --depth 0 " + somewhere, "--depth 0"},
		{"send --conns 0 " + somewhere, "--conns 0"},
		{"send --type 65536 " + somewhere, "--type 65536"},
		{"send --policy stateless-server " + somewhere, "never dials"},
		{"send --conns 2 --policy lossless-peer --listen v2:127.0.0.1:0 " + somewhere, "exclude each other"},
		{"doctor now", "unexpected argument"},
		{"doctor --auth none", "not defined: -auth"},
	} {
		t.Run(c.args, func(t *testing.T) {
			r := ringmsgr(t, strings.Fields(c.args)...).want(t, exitUsage)
			if r.stdout != "" || !strings.Contains(r.stderr, c.says) {
				t.Errorf("stdout %q, stderr %q; want the latter to say %q", r.stdout, r.stderr, c.says)
			}
		})
	}
}

func TestHelpIsAsDocumented(t *testing.T) {
	for _, args := range [][]string{{"-h"}, {"--help"}, {"help"}} {
		golden(t, "help", ringmsgr(t, args...).want(t, exitOK).stdout)
	}
	for _, c := range []string{"ping", "serve", "send", "doctor"} {
		golden(t, "help-"+c, ringmsgr(t, c, "-h").want(t, exitOK).stdout)
		golden(t, "help-"+c, ringmsgr(t, c, somewhere, "--help").want(t, exitOK).stdout)
	}
}

func TestFlagsMayStandAnywhere(t *testing.T) {
	for _, c := range []struct {
		args, rest string
		n          int
		b          bool
	}{
		{"", "", 0, false},
		{"a", "a", 0, false},
		{"--n 1 a --b", "a", 1, true},
		{"a -n=2 b --b=false", "a b", 2, false},
		{"--b a --n 3 b", "a b", 3, true},
		{"--n 1 -- --b --n", "--b --n", 1, false},
		{"a -- --n 9", "a --n 9", 0, false},
	} {
		fs := flag.NewFlagSet("", flag.ContinueOnError)
		fs.SetOutput(io.Discard)
		n, b := fs.Int("n", 0, ""), fs.Bool("b", false, "")
		rest, err := parse(fs, strings.Fields(c.args))
		if err != nil || *n != c.n || *b != c.b || !slices.Equal(rest, strings.Fields(c.rest)) {
			t.Errorf("%q: got %v, n %d, b %v, %v", c.args, rest, *n, *b, err)
		}
	}
}

func TestSizesAreReadAndWritten(t *testing.T) {
	for text, want := range map[string]size{
		"0": 0, "64": 64, "64B": 64, "16KiB": 16 << 10, "4MiB": 4 << 20, "1GiB": 1 << 30, "1023GiB": 1023 << 30,
	} {
		var s size
		if err := s.Set(text); err != nil || s != want {
			t.Errorf("%q: got %d, %v", text, s, err)
		}
		var again size
		if err := again.Set(s.String()); err != nil || again != s {
			t.Errorf("%q is written as %q, which reads %d, %v", text, s.String(), again, err)
		}
	}
	for _, text := range []string{"", "KiB", "-1", "1.5MiB", "4MB", "0x10", "99999999999999999999", "2048GiB"} {
		var s size
		if err := s.Set(text); err == nil {
			t.Errorf("%q is read as %d", text, s)
		}
	}
}
