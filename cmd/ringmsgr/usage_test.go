package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
)

const somewhere = "v2:127.0.0.1:1"

func TestWrongCallsAreUsageErrors(t *testing.T) {
	keyring := filepath.Join(t.TempDir(), "keyring")
	clitest.Must(t, os.WriteFile(keyring, []byte("[client.other]\n\tkey = "+clientKey+"\n"), 0o600))
	for _, c := range []struct{ args, says string }{
		{"", "no command"},
		{"sned", `no command "sned": did you mean send?`},
		{"ping " + somewhere + " " + somewhere, "usage: ringmsgr ping ADDR"},
		{"ping --peer auth " + somewhere, `--peer "auth"`},
		{"ping --proto v2 v1:127.0.0.1:6789", "only v2 addresses"},
		{"ping v2:127.0.0.1:0", "the port is 0; want v2:HOST:PORT/NONCE"},
		{"ping --policy stateful-server " + somewhere, "never dials"},
		{"ping --auth cephx " + somewhere, "needs --keyring"},
		{"ping --auth cephx --keyring " + keyring + " " + somewhere, "no key of client.admin"},
		{"ping --keyring " + keyring + " " + somewhere, "needs --auth cephx"},
		{"ping --mode secure " + somewhere, "needs --auth cephx"},
		{"ping --listen any:127.0.0.1:0 " + somewhere, "only v2"},
		{"ping --listen v2:0.0.0.0:0 " + somewhere, "IP address"},
		{"ping --proto v1 " + somewhere, "only v1 addresses"},
		{"ping --proto msgr1 " + somewhere, "want v1 or v2"},
		{"ping --auth cephx --listen v2:127.0.0.1:0 --name client.other --keyring " + keyring + " " + somewhere, "cannot accept with cephx"},
		{"serve " + somewhere, "usage: ringmsgr serve"},
		{"serve --proto v1 --listen vm:x", "want v1:HOST"}, // the host is no protocol
		{"serve --listen v2:127.0.0.1:0/1 --listen v2:127.0.0.1:0/2", "same nonce"},
		{"serve --name client.other --auth cephx --keyring " + keyring, "cannot accept with cephx"},
		{"send --size 65MiB " + somewhere, "want at most 64 MiB"}, // no peer takes more
		{"send --policy stateless-server " + somewhere, "never dials"},
		{"send --conns 2 --policy lossless-peer --listen v2:127.0.0.1:0 " + somewhere, "exclude each other"},
		{"send --conns 2 --policy lossless-client --name mon.b " + somewhere, "--name mon.b, whose nonce is 0, and --conns 2 exclude each other"},
		{"top 1", "no terminal"},
		{"doctor --auth none", "no flag --auth"},
	} {
		t.Run(c.args, func(t *testing.T) {
			r := ringmsgr(t, strings.Fields(c.args)...).want(t, cli.Usage)
			if r.stdout != "" || !strings.Contains(r.stderr, c.says) {
				t.Errorf("stdout %q, stderr %q; want the latter to say %q", r.stdout, r.stderr, c.says)
			}
		})
	}
}

func TestHelpIsAsDocumented(t *testing.T) {
	for _, args := range [][]string{{"-h"}, {"--help"}, {"help"}} {
		golden(t, "help", ringmsgr(t, args...).want(t, cli.OK).stdout)
	}
	for _, c := range []string{"ping", "serve", "send", "doctor", "top", "version", "decode"} {
		golden(t, "help-"+c, ringmsgr(t, c, "-h").want(t, cli.OK).stdout)
		golden(t, "help-"+c, ringmsgr(t, c, somewhere, "--help").want(t, cli.OK).stdout)
	}
}

// A failure caused by a flag names the flag, without the layers between.
func TestAFailureNamesTheFlagThatCausedIt(t *testing.T) {
	s, osd, silent := serve(t), serve(t, "--name", "osd.0"), filepath.Join(t.TempDir(), "pipe")
	clitest.Must(t, syscall.Mkfifo(silent, 0o600))
	for _, c := range []struct{ args, says string }{
		{"ping --timeout 1ms --auth cephx --keyring " + silent + " " + osd.addr, "--keyring " + silent + ": it is not read to its end"},
		{"ping --auth cephx --keyring " + keysOf(t, clientKey) + " --peer osd " + osd.addr, "no valid ticket for osd: monitors give tickets"},
		{"serve --listen " + s.addr, "--listen " + s.addr + ": address already in use: another process has it, which \"ss -tanp\" names"},
		{"serve --listen v2:192.0.2.1:6800", ": cannot assign requested address: this machine does not have that IP address"},
		{"serve --listen nowhere.example", `--listen: "nowhere.example": look up host nowhere.example: no such host`},
		{"serve --stats /nonexistent/x", "--stats /nonexistent/x: no such file or directory"},
		{"serve --stats /dev/null", "--stats /dev/null: listen on /dev/null: it is there, and no socket"},
		{"serve --handover /nonexistent/x", "--handover /nonexistent/x: no such file or directory"},
		{"serve --take-over /nonexistent/x", "--take-over /nonexistent/x: no such file or directory"},
		{"top --once /nonexistent/x", "no statistics at /nonexistent/x: no such file or directory: does"},
		{"top --once @ringmsgr-nobody", "no statistics at @ringmsgr-nobody: connection refused: does"},
		{"ping --via 127.0.0.1:1 " + s.addr, "--via 127.0.0.1:1"},
		{"send --via 127.0.0.1:1 " + s.addr, "--via 127.0.0.1:1"},
	} {
		r := ringmsgr(t, strings.Fields(c.args)...).want(t, cli.Failed)
		if !strings.Contains(r.stderr, c.says) {
			t.Errorf("%s: %q, want %q", c.args, r.stderr, c.says)
		}
		for _, internal := range []string{"dial unix", "listen unix", "control:", "dataplane:", "bind:", "ring:", "core 0"} {
			if strings.Contains(r.stderr, internal) {
				t.Errorf("%s: %q tells of %q", c.args, r.stderr, internal)
			}
		}
	}
}

func TestAPortThatNeedsAPrivilegeIsExplained(t *testing.T) {
	l := listenFlag{texts: []string{"v2:127.0.0.1:80"}}
	if err := l.bindError(fmt.Errorf("bind: %w", syscall.EACCES)); !strings.Contains(err.Error(), "permission denied: a port below 1024 needs CAP_NET_BIND_SERVICE") {
		t.Error(err)
	}
}

// One word means one thing: flags of the same name are of the same kind everywhere.
func TestFlagsAreSpelledAlike(t *testing.T) {
	kinds := map[string]string{"timeout": "DURATION", "keyring": "FILE", "trace": "FILE", "keylog": "FILE", "name": "ENTITY", "backend": "ENGINE",
		"mode": "LIST", "rev": "REVISION", "log-level": "LEVEL", "json": ""}
	for _, c := range commands(env{}) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			value, usage := pflag.UnquoteUsage(f)
			if want, ok := kinds[f.Name]; ok && value != want || strings.ToLower(f.Name) != f.Name || strings.Contains(f.Name, "_") || usage == "" {
				t.Errorf("%s --%s %s: %s", c.Name(), f.Name, value, usage)
			}
			if value != strings.ToUpper(value) {
				t.Errorf("%s --%s: its value is %q", c.Name(), f.Name, value)
			}
		})
	}
}

// badValues has calls that are wrong about a flag whose value may be any text, by its name. A name with a
// command before it is for that command alone.
var badValues = map[string]string{
	"handover":        "--handover /nonexistent/x",
	"keylog":          "--keylog /nonexistent/x",
	"keyring":         "--auth cephx --keyring /nonexistent",
	"keys":            "--keys /nonexistent",
	"listen":          "--listen v2:nonsense:x",
	"serve take-over": "--take-over /nonexistent/x",
	"stats":           "--stats /nonexistent/x",
	"trace":           "--trace /nonexistent/x",
}

// operands are the arguments of a command beside its flags.
var operands = map[string]string{"ping": somewhere, "send": somewhere, "top": "--once @ringmsgr-nobody", "decode": recordings + "msgr2.pcap"}

// Every flag of every command that gets a value it cannot take says so by its name, on
// standard error alone, in one line and without the words of packages.
// Matrix: OB-08
func TestEveryFlagIsNamedByWhatItRefuses(t *testing.T) {
	for _, c := range commands(env{}) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			bad := cmp.Or(badValues[c.Name()+" "+f.Name], badValues[f.Name], "--"+f.Name+"=?")
			args := strings.Fields(c.Name() + " " + operands[c.Name()] + " " + bad)
			t.Run(strings.Join(args, " "), func(t *testing.T) {
				refused(t, ringmsgr(t, args...), f.Name)
			})
			if value, _ := pflag.UnquoteUsage(f); value != "" {
				args := []string{c.Name(), "--" + f.Name}
				t.Run(strings.Join(args, " "), func(t *testing.T) {
					refused(t, ringmsgr(t, args...), f.Name)
				})
			}
		})
	}
}

func TestBoundsOfFlagsAreKept(t *testing.T) {
	for _, call := range []string{
		"ping --count 0", "ping --timeout 0s", "ping --keepalive -1s", "ping --cores 1025", "send --conns 0",
		"send --depth 0", "send --messages 0", "send --duration -1s", "serve --drain -1s", "serve --linger -1s",
		"serve --ticket-life -1s", "top --every 0s",
	} {
		args := strings.Fields(call)
		refused(t, ringmsgr(t, append(args, strings.Fields(operands[args[0]])...)...), strings.TrimLeft(args[1], "-"))
	}
}

// refused checks the output of a run that ended because of a flag.
func refused(t *testing.T, r result, name string) {
	t.Helper()
	first, rest, _ := strings.Cut(r.stderr, "\n")
	status := cli.Usage
	if strings.HasSuffix(first, "no such file or directory") && strings.Contains(first, "--"+name+" /nonexistent/x") {
		status = cli.Failed // of a file to write, which the flag may name rightly
	}
	if r.status != status || r.stdout != "" {
		t.Errorf("status %d, want %d, stdout %q", r.status, status, r.stdout)
	}
	if !strings.Contains(first, "--"+name) {
		t.Errorf("%q does not name --%s", first, name)
	}
	if rest != "" && !strings.HasPrefix(rest, "run 'ringmsgr ") {
		t.Errorf("more than one line: %q", r.stderr)
	}
	for _, internal := range []string{"control:", "dataplane:", "uring:", "wire:", "auth:", "cephx:", "flag:", "strconv", "parse error", "invalid syntax", "open /", "listen unix", "dial unix"} {
		if strings.Contains(r.stderr, internal) {
			t.Errorf("%q tells of %q", r.stderr, internal)
		}
	}
}
