package interop_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/uring"
)

// The example program, as a user runs it.
func TestTheClientProgramOnARealCluster(t *testing.T) {
	enabled(t)
	t.Parallel()
	program := buildProgram(t, "cephclient")
	c := startCluster(t, clusterConfig{auth: "cephx", mode: "secure", osds: 1})
	for _, backend := range backends {
		t.Run(string(backend), func(t *testing.T) {
			flags := []string{"--mon", c.monAddr.V2().String(), "--mode", "secure"}
			useProgram(t, c, program, backend, flags...)
			call := func(what string) []byte {
				t.Helper()
				return runTool(t, program, append(flags, "--keyring", c.file("keyring"), what)...)
			}
			var status, monmap struct {
				FSID  string
				Mons  []struct{ Name, Addrs string }
				Epoch uint32
			}
			check(t, json.Unmarshal(call("status"), &status))
			check(t, json.Unmarshal(call("monmap"), &monmap))
			if status.FSID != c.fsid || monmap.FSID != c.fsid || len(monmap.Mons) != 1 || monmap.Mons[0].Addrs != c.monAddr.String() {
				t.Errorf("status of %q, monmap %+v, want cluster %s", status.FSID, monmap, c.fsid)
			}
			check(t, json.Unmarshal(call("osdmap"), &monmap))
			if monmap.Epoch < 2 {
				t.Errorf("osdmap of epoch %d", monmap.Epoch)
			}
		})
	}
}

// useProgram has cephclient and rados read the data of each other, byte for byte.
func useProgram(t *testing.T, c *cluster, program string, backend uring.Backend, flags ...string) {
	quiet(t, c)
	flags = append(flags, "--backend", string(backend), "--timeout", (2 * time.Minute).String())
	if c.auth == "cephx" {
		flags = append(flags, "--keyring", c.file("keyring"))
	}
	ours := func(args ...string) []byte {
		t.Helper()
		return runTool(t, program, append(flags[:len(flags):len(flags)], args...)...)
	}
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	same := func(who string, want []byte) {
		t.Helper()
		got, err := os.ReadFile(out)
		check(t, err)
		check(t, os.Remove(out))
		if !bytes.Equal(got, want) {
			t.Errorf("%s reads %d bytes that are not the %d that went in", who, len(got), len(want))
		}
	}
	sizes := []int{0, 1, 4 << 10, 4 << 20, rados.PieceSize + 1}
	if backend == backends[0] { // more than a frame and an OSD take at once
		sizes = append(sizes, rados.PieceSize-1, rados.PieceSize, 2*rados.PieceSize+12345, 100<<20)
	}
	for _, size := range sizes {
		data := noise(size)
		check(t, os.WriteFile(in, data, 0o600))
		ours("put", "data", "object", in)
		c.rados("get", "object", out)
		same("rados", data)
		ours("get", "data", "object", out)
		same("cephclient", data)
		if !bytes.Equal(ours("get", "data", "object", "-"), data) {
			t.Errorf("cephclient prints others than the %d bytes that went in", size)
		}
		var info struct{ Size int }
		check(t, json.Unmarshal(ours("stat", "data", "object"), &info))
		if text := string(c.rados("stat", "object")); info.Size != size || !strings.HasSuffix(strings.TrimSpace(text), "size "+strconv.Itoa(size)) {
			t.Errorf("cephclient says %d bytes, rados %q, want %d", info.Size, text, size)
		}
		c.rados("rm", "object")
		if _, err := tryTool(t, program, append(flags, "stat", "data", "object")...); err == nil ||
			!strings.Contains(err.Error(), "no such file or directory") || !strings.Contains(err.Error(), "exit status 1") {
			t.Errorf("stat of what rados has removed: %v", err)
		}

		c.rados("put", "object", in)
		ours("get", "data", "object", out)
		same("cephclient", data)
		ours("rm", "data", "object")
		if list := c.rados("ls"); len(list) != 0 {
			t.Errorf("the pool still has %q", list)
		}
	}
}
