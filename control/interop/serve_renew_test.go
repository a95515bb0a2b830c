package interop_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A real client stays with a mon of ours that has a keyring: it renews its tickets, again and again, on the session that it has.
func TestARealClientRenewsItsTicketsAtUs(t *testing.T) {
	enabled(t)
	t.Parallel()
	for _, backend := range backends {
		t.Run(string(backend), func(t *testing.T) {
			u := serveAsMon(t, clusterConfig{auth: "cephx", mode: "secure", ttl: 4 * time.Second}, "msgr2.1", backend)
			// A client may fail by a defect of its own; all clients fail if the server is wrong.
			for tries := 1; ; tries++ {
				said := renewingClient(t, u.conf(), filepath.Join(u.dir, "client.log"), 3)
				if !reconnectedByItself(said) {
					wantOneSession(t, said)
					return
				}
				if tries == 5 {
					t.Fatalf("%d clients in a row found our acknowledgements to be of 2106; the last one says\n%s", tries, said)
				}
				t.Log("TRIED AGAIN: the client found our acknowledgement, which came within its tick, to be of 2106")
			}
		})
	}
}

// renewingClient runs a client until it has renewed its tickets so often, and returns what
// it says.
func renewingClient(t *testing.T, conf, log string, renewals int) string {
	t.Helper()
	if err := os.Remove(log); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	// It waits for an osdmap, which does not come, and so does not end. It looks at its tickets for the first
	// time after the interval in which it looks for a monitor.
	cmd := exec.Command("rados", "--conf", conf, "--mon-client-hunt-interval=3", "-p", "none", "ls")
	cmd.Env = cephEnv()
	check(t, startTied(cmd, func() {}))
	defer func() { check(t, cmd.Process.Kill()) }()
	var said []byte
	if !await(2*patience, func() bool {
		said, _ = os.ReadFile(log) // it is not there at once
		return strings.Count(string(said), "verify_service_ticket_reply got 3 keys") > renewals
	}) {
		t.Fatalf("not renewed %d times; the client says\n%s", renewals, said[max(0, len(said)-5000):])
	}
	return string(said)
}

// renewing is the log of the tool's last client after its first renewal. Before it the tool
// had other clients, which ask for the configuration; a slow one of them renews, too.
func renewing(log string) (string, bool) {
	last := log[strings.LastIndex(log, "monclient: shutdown")+1:]
	_, after, found := strings.Cut(last, "_check_auth_tickets getting new tickets!")
	return after, found
}

// reconnectedByItself says that the client met a defect of its own: an acknowledgement that
// comes between its look at the clock and the comparison is from the future, and so 2^32
// seconds old.
func reconnectedByItself(log string) bool {
	after, _ := renewing(log)
	return strings.Contains(after, "monclient: no keepalive since") && strings.Contains(after, " (2106-")
}

// wantOneSession fails if the client has left its session after its first renewal.
func wantOneSession(t *testing.T, log string) {
	t.Helper()
	after, found := renewing(log)
	if !found {
		t.Error("the client has not asked for new tickets")
	}
	for _, bad := range []string{"_reopen_session", "hunting", "ms_handle_reset", "auth_reply(proto 2 -"} {
		if before, _, found := strings.Cut(after, bad); found {
			t.Errorf("the client says %q behind\n%s", bad, before[max(0, len(before)-2000):])
		}
	}
	wantNone(t, complaints(log))
}
