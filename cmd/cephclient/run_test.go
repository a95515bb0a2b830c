package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// call runs the program.
func call(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	status = run(t.Context(), env{strings.NewReader(""), &out, &err}, args)
	return status, out.String(), err.String()
}

func TestWrongCallsSayWhatIsWrong(t *testing.T) {
	keyring := filepath.Join(t.TempDir(), "keyring")
	if err := os.WriteFile(keyring, []byte("[client.other]\nkey = AQBAGgFrkJ2DJBAALXeqe7bTTWvmuDKp+LpfWA==\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const mon = "--mon=v2:127.0.0.1:1"
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "no command"},
		{[]string{"dance"}, `no command "dance"`},
		{[]string{"status"}, "--mon is missing"},
		{[]string{"--mon", "127.0.0.1", "status"}, "want v2:IP:PORT"},
		{[]string{"--mon", "v1:127.0.0.1:6789", "status"}, "want v2:IP:PORT"},
		{[]string{mon, "status", "more"}, "usage: cephclient [flags] status"},
		{[]string{mon, "put", "pool"}, "usage: cephclient [flags] put POOL OBJECT FILE"},
		{[]string{mon, "--name", "nobody", "status"}, "--name"},
		{[]string{mon, "--rev", "2", "status"}, "--rev 2"},
		{[]string{mon, "--mode", "loud", "status"}, "--mode"},
		{[]string{mon, "--compress", "brotli", "status"}, "--compress"},
		{[]string{mon, "--backend", "select", "status"}, "--backend"},
		{[]string{mon, "--timeout", "0s", "status"}, "--timeout"},
		{[]string{mon, "--keyring", keyring + ".not", "status"}, "--keyring"},
		{[]string{mon, "--keyring", keyring, "status"}, "has no key of client.admin"},
		{[]string{"--nonsense", "status"}, "nonsense"},
	} {
		status, stdout, stderr := call(t, c.args...)
		if status != exitUsage || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: status %d, %q %q; want %q", c.args, status, stdout, stderr, c.want)
		}
	}
}

func TestNobodyThereIsAFailure(t *testing.T) {
	// Port 1 of the loopback address refuses.
	status, stdout, stderr := call(t, "--mon", "v2:127.0.0.1:1", "--timeout", "300ms", "status")
	if status != exitFailed || stdout != "" || !strings.Contains(stderr, "connect as client.admin") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("status %d, %q, %q", status, stdout, stderr)
	}
}

func TestHelpNamesEveryCommand(t *testing.T) {
	status, stdout, stderr := call(t, "-h")
	if status != exitOK || stderr != "" {
		t.Errorf("status %d, %q", status, stderr)
	}
	for _, c := range commands() {
		if !strings.Contains(stdout, "\n  "+strings.Join(append([]string{c.name}, c.args...), " ")+" ") {
			t.Errorf("help does not name %s:\n%s", c.name, stdout)
		}
	}
}

func TestACancelledRunEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, err bytes.Buffer
	if status := run(ctx, env{strings.NewReader(""), &out, &err}, []string{"--mon", "v2:127.0.0.1:1", "monmap"}); status != exitFailed {
		t.Errorf("status %d, %s", status, err.String())
	}
}
