package interop_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// A real client stays with our program, which is a mon with a keyring: it renews its
// tickets, again and again, on the session that it has.
func TestARealClientRenewsItsTicketsAtServe(t *testing.T) {
	enabled(t)
	t.Parallel()
	program := buildProgram(t, "ringmsgr")
	for _, backend := range backends {
		t.Run(string(backend), func(t *testing.T) {
			const ttl, renewals = 4 * time.Second, 3
			dir := clusterDir(t)
			keyring, conf, log := filepath.Join(dir, "keyring"), filepath.Join(dir, "ceph.conf"), filepath.Join(dir, "client.log")
			writeKeyring(t, keyring, newKeyring(t, time.Now()))
			addr := serveProgram(t, program, "--auth", "cephx", "--keyring", keyring, "--name", "mon.a", "--mode", "secure",
				"--ticket-life", ttl.String(), "--backend", string(backend))
			writeConf(t, conf, "cephx", keyring, log, fmt.Sprintf("mon host = [%v]", addr), "ms mon client mode = secure",
				"debug monc = 20", "debug auth = 20", "debug ms = 1")

			// A client may fail by a defect of its own; all clients fail if the server is wrong.
			for tries := 1; ; tries++ {
				said := renewingClient(t, conf, log, renewals)
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
	// It waits for an osdmap, which does not come, and so does not end.
	cmd := exec.Command("rados", "--conf", conf, "-p", "none", "ls")
	cmd.Env = cephEnv()
	check(t, startTied(cmd, func(error) {}))
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
	if found := complaints(log); len(found) > 0 {
		t.Errorf("the client complains:\n%s", strings.Join(found, ""))
	}
}

// serveProgram runs "ringmsgr serve" until the test ends, and returns its address.
func serveProgram(t *testing.T, program string, flags ...string) wire.Addr {
	t.Helper()
	cmd := exec.Command(program, append([]string{"serve", "--json"}, flags...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	check(t, err)
	ended := make(chan error, 1)
	check(t, startTied(cmd, func(err error) { ended <- err }))
	t.Cleanup(func() {
		check(t, cmd.Process.Signal(syscall.SIGTERM))
		check(t, <-ended)
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	check(t, err)
	var ready struct{ Listening string }
	check(t, json.Unmarshal(line, &ready))
	list, err := wire.ParseAddrVec(ready.Listening)
	check(t, err)
	return list.V2()
}
