package interop_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The example program, as a user runs it.
func TestTheClientProgramOnARealCluster(t *testing.T) {
	enabled(t)
	t.Parallel()
	program := buildProgram(t, "cephclient")
	c := startCluster(t, clusterConfig{auth: "cephx", mode: "secure", osds: 1})
	for _, backend := range backends {
		t.Run(string(backend), func(t *testing.T) {
			quiet(t, c)
			flags := []string{"--mon", c.monAddr.V2().String(), "--keyring", c.file("keyring"), "--mode", "secure", "--backend", string(backend)}
			call := func(args ...string) []byte {
				t.Helper()
				return runTool(t, program, append(flags[:len(flags):len(flags)], args...)...)
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
			in := filepath.Join(t.TempDir(), "in")
			out := filepath.Join(t.TempDir(), "out")
			data := bytes.Repeat([]byte("ringmsgr"), 4<<20/8)
			check(t, os.WriteFile(in, data, 0o600))
			call("put", "data", "program", in)
			call("get", "data", "program", out)
			got, err := os.ReadFile(out)
			check(t, err)
			if !bytes.Equal(got, data) || !bytes.Equal(call("get", "data", "program", "-"), data) {
				t.Errorf("%d bytes came back, %d went in", len(got), len(data))
			}
			c.run("rados", "--conf", c.file("ceph.conf"), "-p", "data", "get", "program", out)
			if got, err = os.ReadFile(out); err != nil || !bytes.Equal(got, data) {
				t.Errorf("the real tool reads %d bytes, %v", len(got), err)
			}
			var info struct{ Size int }
			check(t, json.Unmarshal(call("stat", "data", "program"), &info))
			if info.Size != len(data) {
				t.Errorf("size %d, want %d", info.Size, len(data))
			}
			call("rm", "data", "program")
			if _, err := tryTool(t, program, append(flags, "stat", "data", "program")...); err == nil ||
				!strings.Contains(err.Error(), "no such file or directory") || !strings.Contains(err.Error(), "exit status 1") {
				t.Errorf("stat of what is removed: %v", err)
			}
		})
	}
}
