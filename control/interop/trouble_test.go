package interop_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// unwell is a cluster with a program of ours and an object in a file.
type unwell struct {
	*cluster
	program, in string
	data        []byte
}

// client runs the program with a monitor at an address, and bounds it.
func (c *unwell) client(t *testing.T, timeout string, at wire.Addr, args ...string) ([]byte, error) {
	t.Helper()
	flags := []string{"--mon", at.String(), "--keyring", c.file("keyring"), "--timeout", timeout}
	return tryTool(t, c.program, append(flags, args...)...)
}

// put waits as "rados put" does: for an OSD, or to its deadline. Frozen daemons and wrong ports explain themselves.
// Matrix: OB-09
func TestTroublesOfAClusterAreExplained(t *testing.T) {
	enabled(t)
	t.Parallel()
	c := &unwell{
		cluster: startCluster(t, clusterConfig{auth: "cephx", mode: "crc", osds: 1}), program: buildProgram(t, "cephclient"),
		in: filepath.Join(t.TempDir(), "in"), data: bytes.Repeat([]byte("trouble "), 1000),
	}
	check(t, os.WriteFile(c.in, c.data, 0o600))
	t.Run("an OSD is down", c.waitForOSD)
	t.Run("an OSD is frozen", func(t *testing.T) {
		c.osds[0].freeze(t)
		_, err := c.client(t, "10s", c.monAddr.V2(), "put", "data", "frozen", c.in)
		c.osds[0].thaw(t)
		wantText(t, "put", err, "osd.0", "the OSD at v2:127.0.0.1:", "it is overloaded or frozen", "gave up after 10s (--timeout)")
	})
	t.Run("monitors are wrong or frozen", c.missMonitors)
}

func (c *unwell) waitForOSD(t *testing.T) {
	c.osds[0].set(t, "osd_fast_shutdown", "false") // then a disk in memory is kept in files
	c.osds[0].end(t)
	c.awaitUp(0)
	var impatient sync.WaitGroup
	done := make(chan error, len(c.monAddr))
	for i, at := range c.monAddr {
		impatient.Go(func() {
			_, err := c.client(t, "10s", at, "put", "data", "late", c.in)
			wantText(t, "put without an OSD", err, "no OSD that is up serves the placement group", "gave up after 10s (--timeout)")
		})
		go func() { _, err := c.client(t, "2m", at, "put", "data", fmt.Sprint("object ", i), c.in); done <- err }()
	}
	impatient.Wait()
	c.osds[0].restart(c.t)
	c.awaitUp(1)
	for range c.monAddr {
		check(t, <-done)
	}
	for i := range c.monAddr {
		if got := c.rados("get", fmt.Sprint("object ", i), "-"); !bytes.Equal(got, c.data) {
			t.Errorf("rados reads %d bytes of %d", len(got), len(c.data))
		}
	}
}

func (c *unwell) missMonitors(t *testing.T) {
	ringmsgr := buildProgram(t, "ringmsgr")
	closed := wire.Addr{Type: wire.AddrMsgr2, AddrPort: msgrtest.ReservePort(t)}
	var waiting sync.WaitGroup
	says := func(at wire.Addr, ping string, client ...string) {
		waiting.Go(func() {
			_, err := c.client(t, "10s", at, "status")
			wantText(t, "status of "+at.String(), err, append(client, "gave up after 10s (--timeout)")...)
		})
		waiting.Go(func() {
			_, err := tryTool(t, ringmsgr, "ping", "--timeout", "10s", at.String())
			wantText(t, "ping to "+at.String(), err, ping)
		})
	}
	v2, v1 := c.monAddr.V2(), c.monAddr.V1()
	isV1, isV2 := "this is the v1 address of a daemon, want its v2 one", "this is the v2 address of a daemon, want its v1 one"
	says(v1.WithType(wire.AddrMsgr2), isV1, isV1)
	says(v2.WithType(wire.AddrLegacy), isV2, isV2)
	says(c.osdAddr(0), "name its type with --peer", "the daemon there is of another type")
	says(closed, "nothing listens there", "nothing listens there")
	waiting.Wait()
	c.mons[0].freeze(t)
	defer c.mons[0].thaw(t)
	for _, at := range c.monAddr {
		says(at, "it is frozen, or does not speak", "the monitor does not answer", "it is overloaded or frozen")
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

// programs is the directory of the programs that buildProgram has built.
var (
	programs string
	building sync.Mutex
)

// buildProgram builds a program of cmd, once for all tests.
func buildProgram(t *testing.T, name string) (program string) {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	program = filepath.Join(programs, name)
	if _, err := os.Stat(program); err == nil {
		return program
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../cmd/"+name).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}
