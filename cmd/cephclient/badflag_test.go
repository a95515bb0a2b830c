package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

// badValues has for each flag a value that it cannot take; empty: it takes all.
var badValues = map[string]string{
	"all": "maybe", "conf": "/nonexistent", "duration": "-1s", "locator": "", "namespace": "", "offset": "-1", "pool": "", "quiet": "maybe", "reads": "mine", "seconds": "0s", "size": "0", "snap": "", "threads": "0",
	"backend": "kqueue", "compress": "brotli", "keylog": "/nonexistent/x", "keyring": "/nonexistent", "log-level": "loud", "mode": "loud",
	"mon": "any:127.0.0.1:6789", "name": "nobody", "proto": "v3", "rev": "2", "timeout": "0s", "trace": "/nonexistent/x",
}

// Every flag that gets a value it cannot take says so by its name, on standard error
// alone, in one line and without the words of packages.
// Matrix: OB-08
func TestEveryFlagIsNamedByWhatItRefuses(t *testing.T) {
	fs := cli.NewFlags("cephclient")
	new(options).register(fs, bare)
	fs.VisitAll(func(f *pflag.Flag) {
		bad, ok := badValues[f.Name]
		if !ok {
			t.Errorf("--%s: no value is known that is wrong", f.Name)
			return
		}
		calls := [][]string{{"--mon", "v2:127.0.0.1:1", "status", "--" + f.Name + "=" + bad}, {"--mon", "v2:127.0.0.1:1", "status", "--" + f.Name}}
		if bad == "" {
			calls = calls[1:]
		} else if f.Name == "all" || f.Name == "quiet" { // it needs no value
			calls = calls[:1]
		}
		for _, args := range calls {
			status, stdout, stderr := call(t, args...)
			line, rest, _ := strings.Cut(stderr, "\n")
			if status == cli.OK || stdout != "" || !strings.Contains(line, "--"+f.Name) || rest != "" && !strings.HasPrefix(rest, "run 'cephclient ") {
				t.Errorf("%q: status %d, %q %q", args, status, stdout, stderr)
			}
			for _, internal := range []string{"control:", "dataplane:", "rados:", "mon: the", "wire:", "auth:", "strconv", "open /"} {
				if strings.Contains(stderr, internal) {
					t.Errorf("%q: %q tells of %q", args, stderr, internal)
				}
			}
		}
	})
}
