package interop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Each combination has a client of its own on a cluster that they share.
// Matrix: IN-01
func TestOurClientAndTheRealToolsShareObjects(t *testing.T) {
	enabled(t)
	shareObjects(t, clusters, protocols, nil)
}

// shareObjects has our client and the real tools share objects of each cluster, for which it then calls behind.
func shareObjects(t *testing.T, clusters []clusterConfig, protocols []string, behind func(t *testing.T, c *cluster)) {
	t.Parallel()
	var tb table
	t.Run("clusters", func(t *testing.T) {
		for _, cfg := range clusters {
			t.Run(cfg.String(), func(t *testing.T) {
				t.Parallel()
				c := startCluster(t, cfg)
				for _, protocol := range protocols {
					for _, backend := range backends {
						tb.run(t, combo{"rados client", "cluster", cfg, protocol, backend}, func(t *testing.T) {
							quiet(t, c)
							useObjects(t, c, dialCluster(t, c, protocol, backend))
						})
					}
				}
				if behind != nil {
					behind(t, c)
				}
			})
		}
	})
	tb.log(t)
}

// dialCluster connects as client.admin.
func dialCluster(t *testing.T, c *cluster, protocol string, backend uring.Backend, location ...string) *rados.Cluster {
	t.Helper()
	cfg := rados.Config{
		Options: rados.Options{Location: location},
		Name:    wire.EntityName{Type: wire.Client, ID: "admin"}, Rev0: protocol == "msgr2.0",
		Plane: loop.Config{Cores: 1, Driver: uring.Config{Backend: backend}},
	}
	for _, a := range c.allMons {
		at := a.V2()
		if protocol == control.Msgr1 {
			at = a.V1()
		}
		cfg.Mons = append(cfg.Mons, at)
	}
	if c.auth == "cephx" {
		cfg.Key = clusterKey(t, c, cfg.Name)
		cfg.Modes = []auth.Mode{auth.CRC}
		if c.mode == "secure" {
			cfg.Modes = []auth.Mode{auth.Secure}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cl, err := rados.Dial(ctx, cfg)
	check(t, err)
	t.Cleanup(func() {
		if err := cl.Close(); err != nil {
			t.Error(err)
		}
	})
	return cl
}

// clusterKey is the key of an entity of the cluster's own keyring.
func clusterKey(t *testing.T, c *cluster, name wire.EntityName) cephx.Key {
	t.Helper()
	f, err := os.Open(c.file("keyring"))
	check(t, err)
	defer f.Close()
	ring, err := cephx.ReadKeyring(f)
	check(t, err)
	e, ok := ring.Lookup(name)
	if !ok {
		t.Fatalf("the keyring has no %v", name)
	}
	return e.Key
}

// object is an object of pool data.
func object(t *testing.T, cl *rados.Cluster, name string) rados.Object {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p, err := cl.Pool(ctx, "data")
	check(t, err)
	return p.Object(name)
}

func useObjects(t *testing.T, c *cluster, cl *rados.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	m := cl.Mon().MonMap()
	if m.FSID.String() != c.fsid || len(m.Mons) != 1 || !m.Mons[0].Addrs.Equal(c.monAddr) || m.Mons[0].Name != "a" {
		t.Errorf("monmap %+v, want the cluster %s with mon.a at %v", m, c.fsid, c.monAddr)
	}
	out, err := cl.Mon().Command(ctx, map[string]string{"prefix": "status", "format": "json"})
	check(t, err)
	var status struct{ FSID string }
	check(t, json.Unmarshal(out.Data, &status))
	if status.FSID != c.fsid {
		t.Errorf("status of cluster %q, want %s", status.FSID, c.fsid)
	}
	var refused *mon.CommandError
	if _, err := cl.Mon().Command(ctx, map[string]string{"prefix": "make tea"}); !errors.As(err, &refused) {
		t.Errorf("an unknown command: %v, want a CommandError", err)
	}
	// The map may change meanwhile.
	least := osdmapEpoch(ctx, t, cl)
	maps, err := cl.Mon().OSDMap(ctx)
	check(t, err)
	most := osdmapEpoch(ctx, t, cl)
	if e := maps.Epoch(); e < least || e > most || len(maps.Full[e]) == 0 {
		t.Errorf("osdmap of epoch %d, want one from %d to %d", e, least, most)
	}
	for _, size := range []int{0, 4 << 10, 4 << 20} {
		shareObject(ctx, t, c, cl, size)
	}
	if _, err := object(t, cl, "never written").ReadAll(ctx); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read of an absent object: %v", err)
	}
	if _, err := cl.Pool(ctx, "no such pool"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an absent pool: %v", err)
	}
}

// osdmapEpoch is the epoch in the answer to "osd dump".
func osdmapEpoch(ctx context.Context, t *testing.T, cl *rados.Cluster) uint32 {
	t.Helper()
	out, err := cl.Mon().Command(ctx, map[string]string{"prefix": "osd dump", "format": "json"})
	check(t, err)
	var dump struct{ Epoch uint32 }
	check(t, json.Unmarshal(out.Data, &dump))
	return dump.Epoch
}

// noise are n random bytes, always the same.
func noise(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16)}).Read(b)
	return b
}

// shareObject has our client and the real tool read the data of each other.
func shareObject(ctx context.Context, t *testing.T, c *cluster, cl *rados.Cluster, size int) {
	t.Helper()
	pattern, name := noise(size), "object with a blank"
	before := time.Now().Add(-time.Minute)
	check(t, object(t, cl, name).WriteFull(ctx, pattern))
	file := filepath.Join(t.TempDir(), "copy")
	c.rados("get", name, file)
	got, err := os.ReadFile(file)
	check(t, err)
	if !bytes.Equal(got, pattern) {
		t.Errorf("the real tool reads %d other bytes, we wrote %d", len(got), size)
	}

	slices.Reverse(pattern)
	check(t, os.WriteFile(file, pattern, 0o600))
	c.rados("put", name, file)
	got, err = object(t, cl, name).ReadAll(ctx)
	check(t, err)
	if !bytes.Equal(got, pattern) {
		t.Errorf("we read %d other bytes, the real tool wrote %d", len(got), size)
	}
	info, err := object(t, cl, name).Stat(ctx)
	check(t, err)
	if info.Size != uint64(size) || info.ModTime.Before(before) || info.ModTime.After(time.Now().Add(time.Minute)) {
		t.Errorf("stat: %+v, want %d bytes, written now", info, size)
	}
	check(t, object(t, cl, name).Remove(ctx))
	if list := c.rados("ls"); len(list) != 0 {
		t.Errorf("the pool still has %q", list)
	}
	var gone *rados.Error
	if err := object(t, cl, name).Remove(ctx); !errors.As(err, &gone) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("second removal: %v", err)
	}
}

// Requests and commands survive connections that are cut under them.
// Matrix: IN-02
func TestObjectsAreWrittenAcrossCuts(t *testing.T) {
	enabled(t)
	t.Parallel()
	c := startCluster(t, clusterConfig{auth: "cephx", mode: "secure", osds: 1})
	for _, backend := range backends {
		t.Run(string(backend), func(t *testing.T) {
			w := c.keepWriting(t, backend)
			for range 5 {
				w.goOn(10)
				session := w.cl.Mon().Conn()
				c.link.cut()
				hangUp(w.cl)
				w.until("another session", func() bool { now := w.cl.Mon().Conn(); return now != nil && now != session })
			}
			w.goOn(10)
			w.end()
		})
	}
}
