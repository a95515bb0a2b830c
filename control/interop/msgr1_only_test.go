//go:build !giouring

package interop_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Daemons that do not speak msgr2 at all, as ms_bind_msgr2 = false makes them.

// TestMsgr1DaemonsWithoutMsgr2 shares objects of every size with the real tool, on
// clusters whose monitor and OSD have v1 addresses alone: by the program, and by a
// client that loses its connections.
// Matrix: V1-12
func TestMsgr1DaemonsWithoutMsgr2(t *testing.T) {
	enabled(t)
	t.Parallel()
	program := buildProgram(t, "cephclient")
	for _, method := range []string{"none", "cephx"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, clusterConfig{auth: method, mode: "crc", osds: 1, v1only: true})
			c.wantNoMsgr2()
			for _, backend := range backends {
				t.Run(string(backend), func(t *testing.T) {
					useMsgr1(t, c, backend)
					useProgramMsgr1(t, c, program, backend)
				})
			}
			// Our client with msgr2 alone finds nobody.
			if out, err := tryTool(t, program, "--mon", c.monAddr.V1().WithType(wire.AddrMsgr2).String(), "--timeout", "2s", "monmap"); err == nil {
				t.Errorf("msgr2 is spoken: %s", out)
			}
		})
	}
}

// wantNoMsgr2 checks that no daemon has an address of msgr2.
func (c *cluster) wantNoMsgr2() {
	c.t.Helper()
	maps := append(c.ceph("mon", "dump", "--format", "json"), c.ceph("osd", "dump", "--format", "json")...)
	if bytes.Contains(maps, []byte(`"v2"`)) || bytes.Contains(maps, []byte(`v2:`)) || !bytes.Contains(maps, []byte(`"v1"`)) {
		c.t.Fatalf("there are addresses of msgr2, or none of msgr1: %s", maps)
	}
}

// useProgramMsgr1 has cephclient and rados read what the other has written, byte for byte.
func useProgramMsgr1(t *testing.T, c *cluster, program string, backend uring.Backend) {
	quiet(t, c)
	flags := []string{"--proto", "v1", "--mon", c.monAddr.V1().String(), "--backend", string(backend), "--timeout", (2 * time.Minute).String()}
	if c.auth == "cephx" {
		flags = append(flags, "--keyring", c.file("keyring"))
	}
	ours := func(args ...string) []byte {
		t.Helper()
		return runTool(t, program, append(flags[:len(flags):len(flags)], args...)...)
	}
	rados := func(args ...string) []byte {
		t.Helper()
		return c.run("rados", append([]string{"--conf", c.file("ceph.conf"), "-p", "data"}, args...)...)
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
	sizes := []int{0, 1, 4 << 10, 4 << 20, 16<<20 + 1}
	if backend == backends[0] {
		sizes = append(sizes, 100<<20)
	}
	for _, size := range sizes {
		data := make([]byte, size)
		rand.NewChaCha8([32]byte{byte(size), byte(size >> 8), 1}).Read(data)
		check(t, os.WriteFile(in, data, 0o600))
		ours("put", "data", "object", in)
		rados("get", "object", out)
		same("rados", data)
		ours("get", "data", "object", out)
		same("cephclient", data)
		var info struct{ Size int }
		check(t, json.Unmarshal(ours("stat", "data", "object"), &info))
		if text := string(rados("stat", "object")); info.Size != size || !strings.HasSuffix(strings.TrimSpace(text), "size "+strconv.Itoa(size)) {
			t.Errorf("cephclient says %d bytes, rados %q, want %d", info.Size, text, size)
		}
		rados("rm", "object")
		if _, err := tryTool(t, program, append(flags, "stat", "data", "object")...); err == nil || !strings.Contains(err.Error(), "no such file or directory") {
			t.Errorf("stat of what rados has removed: %v", err)
		}

		rados("put", "object", in)
		ours("get", "data", "object", out)
		same("cephclient", data)
		ours("rm", "data", "object")
		if list := rados("ls"); len(list) != 0 {
			t.Errorf("the pool still has %q", list)
		}
	}
}
