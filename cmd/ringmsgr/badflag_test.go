package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

// badValues has for each flag, by its name, a call that is wrong about it. A name with a
// command before it is for that command alone. Flags that are set or not are not in it.
var badValues = map[string]string{
	"auth":            "--auth gss",
	"backend":         "--backend kqueue",
	"ciphers":         "--ciphers aes,des",
	"compress":        "--compress gzip",
	"conns":           "--conns 0",
	"cores":           "--cores 1025",
	"count":           "--count 0",
	"cut":             "--cut many",
	"depth":           "--depth 0",
	"drain":           "--drain -1s",
	"duration":        "--duration -1s",
	"every":           "--every 0s",
	"handover":        "--handover /nonexistent/x",
	"keepalive":       "--keepalive -1s",
	"keylog":          "--keylog /nonexistent/x",
	"keyring":         "--auth cephx --keyring /nonexistent",
	"keys":            "--keys /nonexistent",
	"linger":          "--linger -1s",
	"listen":          "--listen v2:nonsense:x",
	"log-level":       "--log-level loud",
	"messages":        "--messages 0",
	"mode":            "--mode plain",
	"name":            "--name nobody",
	"peer":            "--peer cat",
	"policy":          "--policy best",
	"proto":           "--proto v3",
	"rev":             "--rev 2",
	"serve take-over": "--take-over /nonexistent/x",
	"size":            "--size -1",
	"sort":            "--sort colour",
	"stats":           "--stats /nonexistent/x",
	"steer":           "--steer sideways",
	"ticket-life":     "--ticket-life -1s",
	"timeout":         "--timeout 0s",
	"trace":           "--trace /nonexistent/x",
	"via":             "--via 127.0.0.1:0",
}

// operands are the arguments of a command beside its flags.
var operands = map[string]string{"ping": somewhere, "send": somewhere, "top": "--once @ringmsgr-nobody", "decode": recordings + "msgr2.pcap"}

// Every flag of every command that gets a value it cannot take says so by its name, on
// standard error alone, in one line and without the words of packages.
// Matrix: OB-08
func TestEveryFlagIsNamedByWhatItRefuses(t *testing.T) {
	for _, c := range commands(env{}) {
		c.Flags.VisitAll(func(f *pflag.Flag) {
			bad, ok := badValues[c.Name+" "+f.Name]
			if !ok {
				bad, ok = badValues[f.Name]
			}
			if f.Value.Type() == "bool" {
				bad, ok = "--"+f.Name+"=perhaps", true
			}
			if !ok {
				t.Errorf("%s --%s: no value is known that is wrong", c.Name, f.Name)
				return
			}
			args := strings.Fields(c.Name + " " + operands[c.Name] + " " + bad)
			t.Run(strings.Join(args, " "), func(t *testing.T) {
				refused(t, ringmsgr(t, args...), f.Name)
			})
			if value, _ := pflag.UnquoteUsage(f); value != "" {
				args := []string{c.Name, "--" + f.Name}
				t.Run(strings.Join(args, " "), func(t *testing.T) {
					refused(t, ringmsgr(t, args...), f.Name)
				})
			}
		})
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
