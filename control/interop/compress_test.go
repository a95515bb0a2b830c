//go:build !giouring

package interop_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/internal/compress"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Compression on the wire, which daemons have from release 17 on, towards OSDs alone.

// A real OSD and our messenger, under the name of another OSD, compress their messages to each other, by
// each method and in both modes; a client gets nothing compressed. An OSD without
// compression has its objects all the same.
// Matrix: FR-31, FR-34, IN-04, IN-11
func TestOSDsCompressTowardsUs(t *testing.T) {
	enabled(t)
	t.Parallel()
	c := startCluster(t, clusterConfig{auth: "cephx", mode: "crc", osds: 1, compress: true})
	id, methods := 6, compress.Methods()
	if major(t) < 17 {
		methods = methods[:1] // which OSDs do not have
	}
	for _, method := range methods {
		for i, mode := range []auth.Mode{auth.CRC, auth.Secure} {
			backend := backends[i%len(backends)]
			t.Run(fmt.Sprintf("%v/%v/%s", method, mode, backend), func(t *testing.T) {
				quiet(t, c)
				want := method
				if major(t) < 17 {
					want = wire.CompressionNone
				}
				id++ // an OSD answers a request of one peer that it has seen before as it did then
				packObjects(t, c, c.newOSDKey(t, id), backend, mode, method, want)
			})
		}
	}
	t.Run("as-a-client", func(t *testing.T) {
		packObjects(t, c, cephx.Entity{Name: admin, Key: clusterKey(t, c, admin)}, backends[0], auth.CRC, wire.CompressionSnappy, wire.CompressionNone)
	})
}

func packObjects(t *testing.T, c *cluster, who cephx.Entity, backend uring.Backend, mode auth.Mode,
	method, want wire.CompressionMethod,
) {
	ctx := within(t, 5*patience) // with three runs of the tool
	var seen tracer
	keys, err := cephx.NewClient(cephx.ClientConfig{Name: who.Name, Key: who.Key, Modes: func(wire.EntityType) []auth.Mode { return []auth.Mode{mode} }})
	check(t, err)
	policy := control.LossyClient()
	m := newMessenger(t, control.Config{
		Name: who.Name, Auth: control.Auth{Client: keys, Modes: []auth.Mode{mode}}, Diagnostics: control.Diagnostics{Tracer: &seen}, Default: &policy,
		Plane:    loop.Config{Driver: uring.Config{Backend: backend}},
		Protocol: control.Protocol{Compression: control.Compression{Methods: []wire.CompressionMethod{method}, Secure: true}},
	})
	cl := openCluster(t, m, mon.Config{Mons: []wire.Addr{c.monAddr.V2()}, Auth: keys})
	file := filepath.Join(t.TempDir(), "file")
	large := 0
	for _, size := range []int{1, 900, 1024, 4097, 70_000, 4 << 20} {
		for kind, data := range map[string][]byte{
			"zeros": make([]byte, size), "text": bytes.Repeat([]byte("to and fro "), size/11+1)[:size], "noise": noise(size),
		} {
			check(t, object(t, cl, "packed").WriteFull(ctx, data))
			got, err := object(t, cl, "packed").ReadAll(ctx)
			if check(t, err); !bytes.Equal(got, data) {
				t.Errorf("%d bytes of %s come back as %d others", size, kind, len(got))
			}
			if size > 1024 {
				large++
			}
			if size != 70_000 {
				continue
			}
			c.rados("get", "packed", file)
			wantFile(t, "of "+kind+" the real tool", file, data)
		}
	}
	for _, conn := range m.Conns() {
		i := conn.Info()
		expect := wire.CompressionNone
		if i.PeerType == wire.OSD {
			expect = want
		}
		if i.Compression != expect.String() || i.Mode != mode {
			t.Errorf("negotiated %+v, want %v in mode %v", i, expect, mode)
		}
	}
	// Answers to the reads of all that is large enough; an OSD sends noise as it is where
	// that does not get smaller.
	if n := seen.compressed.Load(); want == wire.CompressionNone && n > 0 || want != wire.CompressionNone && n < int64(large*2/3) {
		t.Errorf("%d compressed frames have come, of %d answers of more than 1024 bytes", n, large)
	}
}

// unproven takes everybody for a client of method none: the load tool of Ceph says nothing
// of itself.
type unproven struct{ *none.Server }

func (u unproven) Start(context.Context, wire.EntityType, auth.Method, auth.Mode) (auth.ServerExchange, error) {
	return u, nil
}

func (unproven) Handle(context.Context, []byte) ([]byte, *auth.Result, error) {
	return nil, &auth.Result{Entity: wire.EntityName{Type: wire.Client, ID: "load"}, Mode: auth.CRC, Method: auth.None}, nil
}

// Real clients that must compress towards OSDs send requests of every size to our messenger, which is an OSD to them,
// and take our compressed answers.
// Matrix: FR-31, IN-11
func TestClientsCompressTowardsUs(t *testing.T) {
	enabled(t)
	t.Parallel()
	if major(t) < 17 {
		t.Skip("this release has no compression")
	}
	for i, method := range compress.Methods() {
		backend := backends[i%len(backends)]
		t.Run(fmt.Sprintf("%v/%s", method, backend), func(t *testing.T) {
			for _, size := range []int{64, 4 << 10, 1 << 20} {
				takeLoad(t, backend, method, size)
			}
		})
	}
}

func takeLoad(t *testing.T, backend uring.Backend, method wire.CompressionMethod, size int) {
	t.Helper()
	const count, inFlight = 20, 4 // the client does not wait for the last answers
	var seen tracer
	m := newMessenger(t, control.Config{
		Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Auth: control.Auth{Server: unproven{none.NewServer(none.ServerConfig{})}}, Diagnostics: control.Diagnostics{Tracer: &seen},
		Plane: loop.Config{Driver: uring.Config{Backend: backend}},
		Protocol: control.Protocol{Compression: control.Compression{
			Methods: []wire.CompressionMethod{method}, Peers: []wire.EntityType{wire.Client}, Min: -1,
		}},
	})
	var came atomic.Int64
	check(t, m.Start(&control.Dispatcher{Fast: func(conn *control.Conn, m *control.Message) bool {
		if m.Type != msgOSDOp || len(m.Data) != size {
			t.Errorf("message of type %d with %d bytes", m.Type, len(m.Data))
		}
		came.Add(1)
		answer := control.NewMessage(msgOSDOpReply, opReply(size), bytes.Clone(m.Data))
		answer.TID, answer.Version, answer.CompatVersion = m.TID, 8, 2
		if err := conn.Send(answer); err != nil && !errors.Is(err, control.ErrClosed) {
			t.Error(err)
		}
		return true
	}}))
	addrs, err := m.Bind(loopbackPort())
	check(t, err)
	dir := clusterDir(t)
	conf, log := filepath.Join(dir, "ceph.conf"), filepath.Join(dir, "log")
	writeConf(t, conf, "none", filepath.Join(dir, "keyring"), log,
		"ms osd compress mode = force", "ms osd compress min size = 1", fmt.Sprintf("ms osd compression algorithm = %v", method), "debug ms = 5")
	// One in fifty of these clients waits for ever at its start, with servers of its own, too.
	for tries := 1; ; tries++ {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		before := came.Load()
		cmd := exec.CommandContext(ctx, "ceph_perf_msgr_client", addrs.V2().AddrPort.String(), "1", fmt.Sprint(inFlight), fmt.Sprint(count), "0", fmt.Sprint(size))
		cmd.Env = append(cephEnv(), "CEPH_CONF="+conf)
		out, err := cmd.CombinedOutput()
		cancel()
		if err == nil && came.Load()-before >= count-inFlight {
			break
		}
		if tries == 5 {
			t.Fatalf("the load of %d bytes by %v did not end, %d messages came: %v\n%s", size, method, came.Load(), err, out)
		}
	}
	if n := seen.compressed.Load(); n < count-inFlight {
		t.Errorf("%d compressed frames have come of %d messages", n, came.Load())
	}
	said, err := os.ReadFile(log)
	check(t, err)
	wantNone(t, complaints(string(said)))
}

// opReply is an MOSDOpReply for one operation with output of size bytes.
func opReply(size int) []byte {
	le := binary.LittleEndian
	b := append(make([]byte, 4), 1)             // no name, and a placement group
	b = append(b, make([]byte, 16+8+4+12+4)...) // with flags, result, version, epoch
	b = append(le.AppendUint32(b, 1), make([]byte, 34)...)
	b = le.AppendUint32(b, uint32(size))
	return append(b, make([]byte, 4+4+12+8+1+24)...) // attempt, results, versions, redirect, trace
}
