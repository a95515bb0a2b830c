package interop_test

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The behaviour of the client program where a cluster is in trouble.

// unwell is a cluster with a program of ours and an object in a file.
type unwell struct {
	*cluster
	program, in string
	data        []byte
}

func startUnwell(t *testing.T) *unwell {
	t.Helper()
	c := &unwell{cluster: startCluster(t, clusterConfig{auth: "cephx", mode: "crc", osds: 1})}
	dir := t.TempDir()
	c.program, c.in = buildProgram(t, "cephclient"), filepath.Join(dir, "in")
	c.data = bytes.Repeat([]byte("trouble "), 1000)
	check(t, os.WriteFile(c.in, c.data, 0o600))
	return c
}

// client runs the program with a monitor at an address, and bounds it.
func (c *unwell) client(t *testing.T, timeout string, at wire.Addr, args ...string) ([]byte, error) {
	t.Helper()
	flags := []string{"--mon", at.String(), "--keyring", c.file("keyring"), "--timeout", timeout}
	return tryTool(t, c.program, append(flags, args...)...)
}

// put waits as "rados put" does: until an OSD comes back, or to its deadline.
// Matrix: OB-09
func TestPutWaitsForAnOSDThatIsDown(t *testing.T) {
	enabled(t)
	t.Parallel()
	c := startUnwell(t)
	for _, at := range []wire.Addr{c.monAddr.V2(), c.monAddr.V1()} {
		name := "for " + at.String()
		c.osds[0].set(t, "osd_fast_shutdown", "false") // then a disk in memory is kept in files
		c.osds[0].end(t)
		c.awaitUp(0)
		_, err := c.client(t, "10s", at, "put", "data", name, c.in)
		wantText(t, "put without an OSD", err, "no OSD that is up serves the placement group", "gave up after 10s (--timeout)")

		done := make(chan error, 1)
		go func() { _, err := c.client(t, "2m", at, "put", "data", name, c.in); done <- err }()
		c.osds[0].restart(t)
		c.awaitUp(1)
		check(t, <-done)
		if got := c.rados("get", name, "-"); !bytes.Equal(got, c.data) {
			t.Errorf("rados reads %d bytes of %d", len(got), len(c.data))
		}
	}

	c.osds[0].freeze(t)
	_, err := c.client(t, "10s", c.monAddr.V2(), "put", "data", "frozen", c.in)
	c.osds[0].thaw(t)
	wantText(t, "put to a frozen OSD", err, "osd.0", "the OSD at v2:127.0.0.1:", "it is overloaded or frozen", "gave up after 10s (--timeout)")
}

// Frozen monitors and wrong ports explain themselves, in the client program and in ping.
// Matrix: OB-09
func TestAFrozenMonitorAndAWrongPortAreExplained(t *testing.T) {
	enabled(t)
	t.Parallel()
	c := startUnwell(t)
	ringmsgr := buildProgram(t, "ringmsgr")
	nobody, err := net.Listen("tcp4", "127.0.0.1:0")
	check(t, err)
	closed := "v2:" + nobody.Addr().String()
	check(t, nobody.Close())
	var waiting sync.WaitGroup
	v2, v1, osd := c.monAddr.V2(), c.monAddr.V1(), c.osdAddr(0)
	for _, wrong := range []struct {
		what, mon    string
		client, ping string
	}{
		{"the v1 address", v1.WithType(wire.AddrMsgr2).String(), "this is the v1 address of a daemon, want its v2 one", "this is the v1 address of a daemon, want its v2 one"},
		{"the v2 address", v2.WithType(wire.AddrLegacy).String(), "this is the v2 address of a daemon, want its v1 one", "this is the v2 address of a daemon, want its v1 one"},
		{"that of an OSD", osd.String(), "the daemon there is of another type", "name its type with --peer"},
		{"of nobody", closed, "nothing listens there", "nothing listens there"},
	} {
		waiting.Go(func() {
			addr, err := wire.ParseAddr(wrong.mon)
			if err == nil {
				_, err = c.client(t, "10s", addr, "status")
			}
			wantText(t, wrong.what, err, wrong.client, "gave up after 10s (--timeout)")
			_, err = tryTool(t, ringmsgr, "ping", "--timeout", "10s", wrong.mon)
			wantText(t, "ping: "+wrong.what, err, wrong.ping)
		})
	}
	waiting.Wait()
	c.mons[0].freeze(t)
	defer c.mons[0].thaw(t)
	for _, at := range []wire.Addr{v2, v1} {
		waiting.Go(func() {
			_, err := c.client(t, "10s", at, "status")
			wantText(t, "a frozen monitor", err, "the monitor does not answer", "it is overloaded or frozen", "gave up after 10s (--timeout)")
			_, err = tryTool(t, ringmsgr, "ping", "--timeout", "10s", at.String())
			wantText(t, "ping to a frozen monitor", err, "it is frozen, or does not speak")
		})
	}
	waiting.Wait()
}

// wantText checks that err says all of that, and nothing of contexts.
func wantText(t *testing.T, what string, err error, says ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
		return
	}
	for _, want := range says {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\ndoes not say %q", what, err, want)
		}
	}
	if strings.Contains(err.Error(), "context ") {
		t.Errorf("%s: %v\ntells of a context", what, err)
	}
}

// awaitUp waits until the monitor counts so many OSDs that are up.
func (c *cluster) awaitUp(n int) {
	c.t.Helper()
	var status struct {
		Up int `json:"num_up_osds"`
	}
	if !await(2*patience, func() bool {
		check(c.t, json.Unmarshal(c.ceph("osd", "stat", "--format", "json"), &status))
		return status.Up == n
	}) {
		c.t.Fatalf("%d OSDs are up, not %d", status.Up, n)
	}
}

// buildProgram builds a program of cmd.
func buildProgram(t *testing.T, name string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), name)
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../cmd/"+name).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}
