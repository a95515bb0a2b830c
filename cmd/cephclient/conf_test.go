package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The values are the output of ceph-conf of 16.2 for client.foo.
func TestACephConfIsReadAsCephReadsIt(t *testing.T) {
	for text, want := range map[string]string{
		"mon_host = a":                                     "a",
		"[global] # c\nmon_host = a":                       "a",
		"[global]\nmon  host\t=\ta  \r\n":                  "a",
		"[global]\nmon-host = a":                           "",
		"[global]\nMON_HOST = a":                           "",
		"[ global ]\nmon_host = a":                         "",
		"[global]\nmon_host = a;b":                         "a",
		"[global]\nmon_host = a # b":                       "a",
		"; c\n#c\n\n[global]\n mon_host = \"x y\" # c":     "x y",
		"[global]\nmon_host = 'x y' # c":                   "x y",
		"[global]\nmon_host = x\"y\"z":                     `x"y"z`,
		"[global]\nmon_host = \"a\\\"b\"":                  `a"b`,
		"[global]\nmon_host = x\\;y\\#z\\\\q\\a ; c":       `x;y#z\qa`,
		"[global]\nmon_host = a\\\n  b":                    "a  b",
		"[global]\nmon_host = a = b":                       "a = b",
		"[global]\nmon_host = a\nmon_host = b\n":           "b",
		"[global]\nmon_host = a\n[x]\n[global]\nmon_host=": "",
		"[client]\nmon_host = c\n[client.foo]\nmon_host = b\n[global]\nmon_host = a": "b",
		"[global]\nmon_host = a\n[client]\nmon_host = c":                             "c",
		"[mon.a]\nmon_host = a": "",
		"[global]\nfsid = 7\nmon_host = ${fsid}-$cluster-$type-$id-$name-$nosuch-$$": "7-ceph-client-foo-client.foo-$nosuch-$$",
	} {
		s := settings{cluster: "ceph", name: wire.EntityName{Type: wire.Client, ID: "foo"}}
		var err error
		if s.sections, err = parseConf(strings.NewReader(text)); err != nil || s.get("mon_host") != want {
			t.Errorf("%q: %q, %v; want %q", text, s.get("mon_host"), err, want)
		}
	}
	for _, text := range []string{"[global\nmon_host = a", "[global]\nmon_host", "[global]\n= a", "[global]\nmon_host = a\\"} {
		if _, err := parseConf(strings.NewReader(text)); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

func TestMonitorsAreFoundInEveryForm(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "",
		"10.0.0.1":                 "10.0.0.1",
		"a, b;c d":                 "a b c d",
		"10.0.0.1:6789,10.0.0.2:1": "v1:10.0.0.1:6789 10.0.0.2:1",
		"[v2:10.0.0.1:3300,v1:10.0.0.1:6789],[v2:10.0.0.2:3300/0,v1:10.0.0.2:6789/0]": "[v2:10.0.0.1:3300,v1:10.0.0.1:6789] [v2:10.0.0.2:3300/0,v1:10.0.0.2:6789/0]",
		"v2:[fd00::3]:3301 [fd00::4]": "v2:[fd00::3]:3301 [fd00::4]",
		"v1:10.0.0.1:6789 [fd00::4":   "v1:10.0.0.1:6789 [fd00::4",
	} {
		s := settings{args: readArgs("--mon-host=" + strings.ReplaceAll(text, " ", ";"))}
		list, _, _ := s.monitors(t.Context(), noDNS)
		if got := strings.Join(list, " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// Without mon_host monitors are those of a service in the DNS, in the order in which it prefers them.
func TestMonitorsAreFoundInTheDNS(t *testing.T) {
	records := []*net.SRV{{Target: "mon-b.example.com.", Port: 3300}, {Target: "mon-a.example.com.", Port: 6789}, {Target: "v6.example.com."}}
	for text, want := range map[string]string{"": "_ceph-mon._tcp", "--mon_dns_srv_name=store_a.example.com": "_store._tcp.a.example.com"} {
		got, name, err := (&settings{args: readArgs(text)}).monitors(t.Context(), func(_ context.Context, service, proto, name string) (string, []*net.SRV, error) {
			return name, records, nil
		})
		if all := strings.Join(got, " "); err != nil || name != want || all != "mon-b.example.com:3300 v1:mon-a.example.com:6789 v6.example.com" {
			t.Errorf("%s: %s of %s, %v", text, all, name, err)
		}
	}
}

// Flags have precedence over the environment, and the environment over files.
func TestSettingsComeFromWhereCephLooksForThem(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		f := filepath.Join(dir, name)
		clitest.Must(t, os.MkdirAll(filepath.Dir(f), 0o700))
		clitest.Must(t, os.WriteFile(f, []byte(text), 0o600))
		return f
	}
	const key, other = "AQBAGgFrkJ2DJBAALXeqe7bTTWvmuDKp+LpfWA==", "AQC8Mgpp+gCFHhAAhjmCXn3YWEGuEvt1bd9FZw=="
	ring := file("ceph.client.foo.keyring", "[client.foo]\nkey = "+key+"\n")
	others := file("others", "[client.admin]\nkey = "+other+"\n")
	secret := file("secret", other+"\n")
	conf := file("ceph.conf", "[global]\nmon_host = 10.0.0.1\nkeyring = /nonexistent, "+dir+"/$cluster.$name.keyring\n")
	file(".ceph/mine.conf", "[global]\nmon_host = 10.0.0.2\nkey = "+key+"\n")
	open := file("open.conf", "[global]\nmon_host = 10.0.0.3\nauth client required = none\nkeyring = "+ring+"\n"+
		"crush location = root=default, host=a\nrados replica read policy = localize\n")
	keyfile := file("site.conf", "[client]\nmon_host = 10.0.0.4\nkeyfile = "+secret+"\n")
	broken := file("broken.conf", "[global]\nmon_host = 10.0.0.6\nwhat")
	for _, c := range []struct {
		env, args, mon, from, says string
	}{
		{"CEPH_CONF=" + conf, "--name client.foo", "10.0.0.1", ring, ""},
		{"CEPH_CONF=/nonexistent," + conf + " CEPH_ARGS=--id_foo", "", "10.0.0.1", ring, ""},
		{"CEPH_ARGS=-n_client.foo_--debug-ms=1_-x_-c_" + conf, "", "10.0.0.1", ring, ""},
		{"CEPH_ARGS=--id=bar", "-n client.foo -c " + conf, "10.0.0.1", ring, ""},
		{"CEPH_CONF=" + conf + " CEPH_KEYRING=" + others, "", "10.0.0.1", others, ""},
		{"CEPH_CONF=" + conf + " CEPH_ARGS=-m_10.0.0.9", "-k " + others, "10.0.0.9", others, ""},
		{"CEPH_CONF=" + conf, "-m 10.0.0.8 -k " + others, "10.0.0.8", others, ""},
		{"CEPH_CONF=" + conf, "-m [v2:10.0.0.8:3300/0,v1:10.0.0.8:6789/0],v2:[fd00::3]:3301 -k " + others, "10.0.0.8 fd00::3", others, ""},
		{"HOME=" + dir + " CEPH_ARGS=--cluster=mine", "", "10.0.0.2", "option key", ""},
		{"CEPH_CONF=" + open, "", "10.0.0.3", "", ""},
		{"CEPH_CONF=" + keyfile, "", "10.0.0.4", secret, ""},
		{"CEPH_CONF=" + conf, "", "10.0.0.1", "", "/nonexistent, " + dir + "/ceph.client.admin.keyring"},
		{"CEPH_CONF=" + conf + " CEPH_KEYRING=" + ring, "", "", "", "has no key of client.admin"},
		{"CEPH_CONF=" + broken, "", "", "", "--conf " + broken + `: "what" is neither`},
		{"CEPH_CONF=/nonexistent", "", "", "", "--conf /nonexistent: no such file or directory"},
		{"CEPH_CONF=" + os.DevNull, "", "", "", "--mon is missing"},
	} {
		getenv := func(name string) string {
			for word := range strings.FieldsSeq(c.env) {
				if value, ok := strings.CutPrefix(word, name+"="); ok {
					return strings.ReplaceAll(value, "_", " ")
				}
			}
			return ""
		}
		var o options
		root := &cobra.Command{Use: "x"}
		o.register(root.Flags(), getenv)
		root.RunE = func(*cobra.Command, []string) error {
			cfg, err := o.config(t.Context(), env{stderr: io.Discard, getenv: getenv, lookupSRV: noDNS})
			all := ""
			for _, m := range cfg.Mons {
				all += " " + m.AddrPort.Addr().String()
			}
			if err == nil && (strings.TrimPrefix(all, " ") != c.mon || o.keyFrom != c.from || cfg.Key.IsZero() != (c.from == "")) {
				t.Errorf("%s, %s: %v with the key of %q", c.env, c.args, cfg.Mons, o.keyFrom)
			}
			if at, localizes := strings.Join(cfg.Location, " "), c.mon == "10.0.0.3"; err == nil && (at == "root=default host=a") != localizes || (o.reads == "localize") != localizes {
				t.Errorf("%s: reads %s from %s", c.env, o.reads, at)
			}
			return err
		}
		var stderr strings.Builder
		status := cli.Run(t.Context(), root, io.Discard, &stderr, strings.Fields(c.args))
		if (status == cli.OK) != (c.mon != "") || !strings.Contains(stderr.String()+o.sought, c.says) {
			t.Errorf("%s, %s: status %d, %s; sought in %q", c.env, c.args, status, stderr.String(), o.sought)
		}
	}
}

func FuzzCephConf(f *testing.F) {
	f.Add("[global]\nmon host = \"a\" ; b\n[client]\nkeyring = $cluster.${name}\\\n$keyring", "-c x --id=y")
	f.Fuzz(func(t *testing.T, text, args string) {
		s := settings{args: readArgs(args), name: wire.EntityName{Type: wire.Client, ID: "a"}}
		var err error
		if s.sections, err = parseConf(strings.NewReader(text)); err != nil {
			return
		}
		for _, section := range s.sections {
			for name, value := range section {
				if strings.ContainsAny(name, "=;#[]\n") || strings.Contains(value, "\n") {
					t.Errorf("%q is set to %q", name, value)
				}
				_ = s.get(name)
			}
		}
		list, _, _ := s.monitors(t.Context(), noDNS)
		for _, addr := range list {
			if addr == "" {
				t.Error("an empty address")
			}
		}
	})
}
