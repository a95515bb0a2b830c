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

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// The example program, as a user runs it, on a cluster whose daemons have v1 addresses alone, too (ms_bind_msgr2 = false). So does
// our client, which loses its connections. What these daemons say to each other is decoded.
// Matrix: OB-10, V1-12
func TestTheClientProgramOnARealCluster(t *testing.T) {
	enabled(t)
	t.Parallel()
	program := buildProgram(t, "cephclient")
	for i, cfg := range []clusterConfig{
		{auth: "cephx", mode: "secure", osds: 1, more: "osd max write size = 20\n"}, // MB
		{auth: "cephx", mode: "crc", osds: 1, later: 1, v1only: true},
	} {
		t.Run(cfg.String(), func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, cfg)
			flags := []string{"--mon", c.monAddr.V2().String(), "--mode", "secure"}
			if cfg.v1only {
				c.wantNoMsgr2()
				flags = []string{"--mon", c.monAddr.V1().String(), "--proto", "v1"}
				// Our client with msgr2 alone cannot connect.
				if out, err := tryTool(t, program, "--mon", c.monAddr.V1().WithType(wire.AddrMsgr2).String(), "--timeout", "2s", "monmap"); err == nil {
					t.Errorf("msgr2 is spoken: %s", out)
				}
			}
			flags = append(flags, "--keyring", c.file("keyring"))
			backend := backends[i%len(backends)]
			t.Run(string(backend), func(t *testing.T) {
				useProgram(t, c, program, backend, flags...)
				if cfg.v1only {
					useClient(t, c, control.Msgr1, backend, wire.Addr{})
				}
			})
			answer := func(what string) (a struct {
				FSID  string
				Mons  []struct{ Name, Addrs string }
				Epoch uint32
			}) {
				t.Helper()
				check(t, json.Unmarshal(runTool(t, program, append(flags, what)...), &a))
				return a
			}
			if got := answer("status").FSID; got != c.fsid {
				t.Errorf("status of %q, want cluster %s", got, c.fsid)
			}
			if m := answer("monmap"); m.FSID != c.fsid || len(m.Mons) != 1 || m.Mons[0].Addrs != c.monAddr.String() {
				t.Errorf("monmap %+v, want cluster %s", m, c.fsid)
			}
			if got := answer("osdmap").Epoch; got < 2 {
				t.Errorf("osdmap of epoch %d", got)
			}
			if cfg.v1only {
				c.decodeOSDs(t, "msgr1", func(osd int) wire.Addr { return c.osdAddrOf(osd, "cluster_addrs", "v1") })
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

// useProgram has cephclient and rados read the data of each other, byte for byte.
func useProgram(t *testing.T, c *cluster, program string, backend uring.Backend, flags ...string) {
	quiet(t, c)
	flags = append(flags[:len(flags):len(flags)], "--backend", string(backend), "--timeout", (2 * time.Minute).String())
	ours := func(args ...string) []byte {
		t.Helper()
		return runTool(t, program, append(flags[:len(flags):len(flags)], args...)...)
	}
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	same := func(who string, want []byte) {
		t.Helper()
		wantFile(t, who, out, want)
		check(t, os.Remove(out))
	}
	sizes := []int{0, 4 << 10, rados.PieceSize + 1}
	if !c.v1only { // more than a frame and an OSD take at once
		sizes = append(sizes, 1, rados.PieceSize, 2*rados.PieceSize+12345)
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
