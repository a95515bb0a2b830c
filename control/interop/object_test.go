package interop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
	"github.com/ringmsgr/ringmsgr/uring"
)

// backends are the I/O engines of this build. Beside giouring, epoll is that of the default build.
var backends = map[uring.Backend][]uring.Backend{
	uring.IOUring: {uring.IOUring, uring.Epoll}, uring.Giouring: {uring.IOUring}, uring.Epoll: {uring.Epoll},
}[uring.Flavour]

// between runs f as a subtest of what connects, what accepts, and the way between them. The names are what step interop shows.
func between(t *testing.T, client, server string, cfg clusterConfig, protocol string, f func(t *testing.T)) {
	t.Helper()
	t.Run(fmt.Sprintf("%s-to-%s/%v/%s/%s", client, server, cfg, protocol, backends[0]), f)
}

// noKeys is what the protocol does not have: it is refused.
var noKeys = clusterConfig{auth: "none", mode: "secure"}

// usual are configurations of real clusters.
var usual = []clusterConfig{
	{auth: "none", mode: "crc", osds: 1},
	{auth: "cephx", mode: "crc", osds: 1},
	{auth: "cephx", mode: "secure", osds: 1},
}

// clusters has more of them from release 20.2 on: all keys, or those of services, are of kind aes256k.
func clusters(t *testing.T) []clusterConfig {
	t.Helper()
	if major(t) < 20 {
		return usual
	}
	return append(slices.Clone(usual),
		clusterConfig{auth: "cephx", mode: "crc", ciphers: "aes256k", osds: 1},
		clusterConfig{auth: "cephx", mode: "secure", ciphers: "aes256k", osds: 1},
		clusterConfig{auth: "cephx", mode: "crc", ciphers: "mixed", osds: 1})
}

// protocols are those of a cluster: msgr1 has no mode secure. Kinds of keys differ below them.
func (c clusterConfig) protocols() []string {
	switch {
	case c.ciphers != "":
		return []string{"msgr2.1"}
	case c.mode == "secure":
		return []string{"msgr2.1", "msgr2.0"}
	}
	return []string{"msgr2.1", "msgr2.0", control.Msgr1}
}

// admin is the client of the tests, and of the real tools.
var admin = wire.EntityName{Type: wire.Client, ID: "admin"}

// Each combination has a client of its own on a cluster that they share. Daemons refuse what is wrong. Each build flavour has its own
// engine.
// Matrix: AU-02, IN-01, IN-10, INV-10, V1-12, V1-13
func TestOurClientAndTheRealToolsShareObjects(t *testing.T) {
	enabled(t)
	t.Parallel()
	for _, cfg := range clusters(t) {
		t.Run(cfg.String(), func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, cfg)
			osd := c.osdAddr(0)
			for _, protocol := range cfg.protocols() {
				between(t, "ringmsgr", "cluster", cfg, protocol, func(t *testing.T) { useClient(t, c, protocol, backends[0], osd) })
				if cfg.auth == "none" && protocol != control.Msgr1 {
					between(t, "ringmsgr", "cluster", noKeys, protocol, func(t *testing.T) { wantNoSecure(t, c, protocol, backends[0]) })
				}
			}
			t.Run("refused", func(t *testing.T) { refusedByDaemons(t, c) })
		})
	}
}

// useClient uses objects, on new connections, too, and checks what was negotiated. The OSD's v2
// address is osd; zero: it has none.
func useClient(t *testing.T, c *cluster, protocol string, backend uring.Backend, osd wire.Addr) {
	t.Helper()
	quiet(t, c)
	var seen tracer
	cl := dialCluster(t, c, protocol, backend, func(cfg *rados.Config) { cfg.Tracer = &seen })
	useObjects(t, c, cl)
	readInto(t, cl, c.mode)
	before := wantPeers(t, c, cl, protocol, osd)
	for _, conn := range before {
		conn.Keepalive()
	}
	if !await(patience, func() bool { return seen.acks.Load() >= int64(len(before)) }) {
		t.Errorf("%d keepalives of %d are answered", seen.acks.Load(), len(before))
	}
	for _, conn := range before {
		conn.MarkDown()
		<-conn.Closed()
	}
	ctx := within(t, patience)
	check(t, object(t, cl, "again").WriteFull(ctx, []byte("all connections are new")))
	if got, err := object(t, cl, "again").ReadAll(ctx); err != nil || string(got) != "all connections are new" {
		t.Errorf("read %q, %v", got, err)
	}
	check(t, object(t, cl, "again").Remove(ctx))
	for _, conn := range wantPeers(t, c, cl, protocol, osd) {
		if slices.Contains(before, conn) {
			t.Errorf("connection %d is over, and is used", conn.ID())
		}
	}
}

// tracer counts the compressed frames that come, and the answers to keepalives.
type tracer struct{ compressed, acks atomic.Int64 }

func (x *tracer) Trace(probe.TracedSocket) probe.Tap { return x }
func (x *tracer) Banner(bool, uint64, uint64)        {}
func (x *tracer) Ended(error)                        {}
func (x *tracer) Part(p probe.Part) {
	if p.Kind == probe.PartOpen && !p.Sent && p.Tag == frame1.TagKeepalive2Ack {
		x.acks.Add(1)
	}
}
func (x *tracer) Frame(f probe.Frame) {
	if f.Compressed {
		x.compressed.Add(1)
	}
	if f.Tag == frame.TagKeepalive2Ack && !f.Sent {
		x.acks.Add(1)
	}
}

// wantPeers waits for connections with a monitor and an OSD, and checks the result of their handshakes.
func wantPeers(t *testing.T, c *cluster, cl *rados.Cluster, protocol string, osd wire.Addr) (conns []*control.Conn) {
	t.Helper()
	if !await(patience, func() bool {
		conns = cl.Messenger().Conns()
		return len(conns) == 2 && !slices.ContainsFunc(conns, func(conn *control.Conn) bool { return conn.State() != control.StateReady })
	}) {
		t.Fatalf("%d connections, want one with a monitor and one with an OSD", len(conns))
	}
	seen := map[wire.EntityType]bool{}
	for _, conn := range conns {
		i := conn.Info()
		type negotiated struct {
			Protocol, Auth, Mode, Compression, Features string
			Lossy, Accepted                             bool
		}
		got := negotiated{i.Protocol, i.Auth.String(), i.Mode.String(), i.Compression, i.Features.String(), i.Lossy, i.Accepted}
		// Everything that 16.2 daemons have; a later release may support less of
		// what we do, never more than we do.
		want := negotiated{protocol, c.auth, c.mode, "none", "0x3f01cfbdfffdffff", true, false}
		addrs := c.monAddr
		if i.PeerType == wire.OSD {
			addrs = wire.AddrVec{osd}
		} else if protocol == control.Msgr1 {
			want.Auth = "none" // the monitor wants no authorizer
		}
		if protocol == control.Msgr1 {
			addrs = nil // a peer says one address there
		}
		if got != want {
			t.Errorf("negotiated with a %v %+v\nwant %+v", i.PeerType, got, want)
		}
		if len(addrs) > 0 && (!i.PeerAddrs.Contains(addrs[0]) || len(i.PeerAddrs) != 2) {
			t.Errorf("the addresses of the %v are %v, want %v and a v1 one", i.PeerType, i.PeerAddrs, addrs[0])
		}
		seen[i.PeerType] = true
	}
	if !seen[wire.Mon] || !seen[wire.OSD] {
		t.Errorf("connections to %v", seen)
	}
	return conns
}

// newMessenger makes a messenger that ends with the test.
func newMessenger(t *testing.T, cfg control.Config) *control.Messenger {
	t.Helper()
	if cfg.Plane.Cores == 0 {
		cfg.Plane.Cores = 1
	}
	m, err := control.New(cfg)
	check(t, err)
	t.Cleanup(func() { shutdown(t, m) })
	return m
}

func shutdown(t *testing.T, m *control.Messenger) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	check(t, m.Shutdown(ctx))
}

// loopbackPort is a v2 address that the kernel completes.
func loopbackPort() wire.Addr {
	return wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}
}

// wantNoSecure requires secure without authentication: there are no keys for it.
func wantNoSecure(t *testing.T, c *cluster, protocol string, backend uring.Backend) {
	t.Helper()
	quiet(t, c)
	m := newMessenger(t, control.Config{
		Name: admin, Plane: loop.Config{Driver: uring.Config{Backend: backend}}, Auth: control.Auth{Modes: []auth.Mode{auth.Secure}},
		Protocol: control.Protocol{Rev0: protocol == "msgr2.0"},
	})
	check(t, m.Start())
	wantRefused(t, m, c.monAddr[0], wire.Mon, control.StageAuth)
}

// refusedByDaemons dials wrong addresses, and an OSD without a ticket.
func refusedByDaemons(t *testing.T, c *cluster) {
	m := newMessenger(t, control.Config{Name: admin, Auth: control.Auth{Client: none.NewClient(admin)}})
	check(t, m.Start())
	osd := c.osdAddrOf(0, "public_addrs", "v1")
	wantRefused(t, m, osd.WithNonce(osd.Nonce+1), wire.OSD, control.StageHello)
	wantRefused(t, m, c.monAddr.V1().WithNonce(77), wire.Mon, control.StageHello)
	wantRefused(t, m, osd, wire.Mon, control.StageIdent) // another protocol version
	wantRefused(t, m, c.monAddr.V2().WithType(wire.AddrLegacy), wire.Mon, control.StageBanner)
	wantRefused(t, m, c.monAddr.V2(), wire.OSD, control.StageHello)
	if c.auth == "cephx" {
		err := wantRefused(t, m, osd, wire.OSD, control.StageAuth)
		if !errors.Is(err, control.ErrAuth) || !errors.Is(err, &auth.Refused{Errno: auth.EACCES}) {
			t.Errorf("without a ticket: %v", err)
		}
		refuseWrongKey(t, c)
	}
	// Complaints are found where there are some.
	l := c.watchLogs(t)
	wantRefused(t, dialCluster(t, c, "msgr2.1", backends[0]).Messenger(), c.monAddr.V2().WithNonce(77), wire.Mon, control.StageIdent)
	if !await(patience, func() bool { return len(l.complaints(t)) > 0 }) {
		t.Fatal("no daemon's log says that its peer looked for somebody else")
	}
}

// refuseWrongKey logs in with another key of the cluster's kind.
func refuseWrongKey(t *testing.T, c *cluster) {
	t.Helper()
	kind := cephx.AES
	if c.ciphers != "" {
		kind = cephx.AES256K
	}
	key, err := cephx.NewKey(kind, nil, time.Now())
	check(t, err)
	ctx := within(t, patience)
	cl, err := rados.Dial(ctx, rados.Config{Name: admin, Key: key, Mons: []wire.Addr{c.monAddr.V2()}})
	if err == nil {
		check(t, cl.Close())
	}
	if !errors.Is(err, control.ErrAuth) {
		t.Errorf("another key: %v, want %v", err, control.ErrAuth)
	}
}

// wantRefused dials once and expects it to fail at a stage.
func wantRefused(t *testing.T, m *control.Messenger, to wire.Addr, typ wire.EntityType, stage control.Stage) error {
	t.Helper()
	conn, err := m.Connect(to, typ, control.Once())
	check(t, err)
	ctx := within(t, patience)
	err = conn.WaitReady(ctx)
	if e, ok := errors.AsType[*control.Error](err); !ok || ctx.Err() != nil || e.Stage != stage {
		t.Fatalf("dialled %v as %v: %v, want a failure at stage %s", to, typ, err, stage)
	}
	return err
}

// dialCluster connects as client.admin.
func dialCluster(t *testing.T, c *cluster, protocol string, backend uring.Backend, options ...func(*rados.Config)) *rados.Cluster {
	t.Helper()
	cfg := rados.Config{
		Name: admin, Rev0: protocol == "msgr2.0", Plane: loop.Config{Cores: 1, Driver: uring.Config{Backend: backend}},
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
			cfg.Modes = []auth.Mode{auth.Secure} // and then nothing weaker
		}
	}
	for _, change := range options {
		change(&cfg)
	}
	ctx := within(t, patience)
	cl, err := rados.Dial(ctx, cfg)
	check(t, err)
	t.Cleanup(func() { check(t, cl.Close()) })
	return cl
}

// openCluster is a client that a test makes from its parts.
func openCluster(t *testing.T, m *control.Messenger, cfg mon.Config) *rados.Cluster {
	t.Helper()
	monitors, err := mon.NewClient(cfg)
	check(t, err)
	t.Cleanup(monitors.Close)
	cl := rados.New(monitors, rados.Options{})
	check(t, m.Start(monitors.Dispatcher(), cl.Dispatcher()))
	check(t, monitors.Open(within(t, patience), m))
	cl.Open(m)
	t.Cleanup(func() { check(t, cl.Close()) })
	return cl
}

// clusterKey is the key of an entity of the cluster's own keyring.
func clusterKey(t *testing.T, c *cluster, name wire.EntityName) cephx.Key {
	t.Helper()
	e, ok := c.ring(t).Lookup(name)
	if !ok {
		t.Fatalf("the keyring has no %v", name)
	}
	return e.Key
}

// ring is the cluster's own keyring.
func (c *cluster) ring(t *testing.T) *cephx.Keyring {
	t.Helper()
	f, err := os.Open(c.file("keyring"))
	check(t, err)
	defer f.Close()
	ring, err := cephx.ReadKeyring(f)
	check(t, err)
	return ring
}

// newOSDKey makes an OSD's entity, of which no daemon is there.
func (c *cluster) newOSDKey(t *testing.T, id int) cephx.Entity {
	t.Helper()
	name := wire.EntityName{Type: wire.OSD, ID: fmt.Sprint(id)}
	text := c.ceph("auth", "get-or-create", name.String(), "mon", "allow profile osd", "osd", "allow *")
	ring, err := cephx.ReadKeyring(bytes.NewReader(text))
	check(t, err)
	e, _ := ring.Lookup(name)
	return e
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
	ctx := within(t, patience)
	m := cl.Mon().MonMap()
	if m.FSID.String() != c.fsid || len(m.Mons) != 1 || !m.Mons[0].Addrs.Equal(c.monAddr) || m.Mons[0].Name != "a" {
		t.Errorf("monmap %+v, want the cluster %s with mon.a at %v", m, c.fsid, c.monAddr)
	}
	out, err := cl.Mon().Command(ctx, map[string]any{"prefix": "status", "format": "json"})
	check(t, err)
	var status struct{ FSID string }
	check(t, json.Unmarshal(out.Data, &status))
	if status.FSID != c.fsid {
		t.Errorf("status of cluster %q, want %s", status.FSID, c.fsid)
	}
	var refused *mon.CommandError
	if _, err := cl.Mon().Command(ctx, map[string]any{"prefix": "make tea"}); !errors.As(err, &refused) {
		t.Errorf("an unknown command: %v, want a CommandError", err)
	}
	// The map may change meanwhile.
	least := osdmapEpoch(ctx, t, cl)
	check(t, cl.WaitForLatestOSDMap(ctx))
	epoch := cl.Epoch()
	if most := osdmapEpoch(ctx, t, cl); epoch < least || epoch > most {
		t.Errorf("osdmap of epoch %d, want one from %d to %d", epoch, least, most)
	}
	for _, size := range []int{0, 4 << 10, 4 << 20} {
		shareObject(t, c, cl, size)
	}
	if _, err := object(t, cl, "never written").ReadAll(within(t, patience)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read of an absent object: %v", err)
	}
	if _, err := cl.Pool(within(t, patience), "no such pool"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an absent pool: %v", err)
	}
}

// osdmapEpoch is the epoch in the answer to "osd dump".
func osdmapEpoch(ctx context.Context, t *testing.T, cl *rados.Cluster) uint32 {
	t.Helper()
	out, err := cl.Mon().Command(ctx, map[string]any{"prefix": "osd dump", "format": "json"})
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

// readInto reads into memory of the caller. Answers come there from the socket, unless they are encrypted.
func readInto(t *testing.T, cl *rados.Cluster, mode string) {
	t.Helper()
	ctx := within(t, patience)
	o, data := object(t, cl, "read into memory"), noise(1<<20+4097)
	check(t, o.WriteFull(ctx, data))
	for _, from := range []int{0, 1 << 19, len(data) - 16<<10, len(data) - 5} {
		p := bytes.Repeat([]byte{0xa5}, 1<<20)
		n, err := o.ReadInto(ctx, uint64(from), p[:len(p)-8])
		want := data[from:][:min(len(p)-8, len(data)-from)]
		if err != nil || !bytes.Equal(p[:n], want) || !bytes.Equal(p[len(p)-8:], bytes.Repeat([]byte{0xa5}, 8)) {
			t.Errorf("%d bytes from %d, %v; want %d", n, from, err, len(want))
		}
	}
	posted := uint64(0)
	for _, conn := range cl.Messenger().Conns() {
		if conn.Info().PeerType == wire.OSD {
			st, err := conn.Stats()
			check(t, err)
			posted += st.IO.Posted
		}
	}
	if mode == "crc" && posted != 4 {
		t.Errorf("%d of 4 answers came into memory of the caller", posted)
	}
	check(t, o.Remove(ctx))
}

// shareObject has our client and the real tool read the data of each other. On a busy machine each run of the tool takes long.
func shareObject(t *testing.T, c *cluster, cl *rados.Cluster, size int) {
	t.Helper()
	pattern, name := noise(size), "object with a blank"
	before := time.Now().Add(-time.Minute)
	check(t, object(t, cl, name).WriteFull(within(t, patience), pattern))
	file := filepath.Join(t.TempDir(), "copy")
	c.rados("get", name, file)
	wantFile(t, "the real tool", file, pattern)
	slices.Reverse(pattern)
	check(t, os.WriteFile(file, pattern, 0o600))
	c.rados("put", name, file)
	got, err := object(t, cl, name).ReadAll(within(t, patience))
	check(t, err)
	if !bytes.Equal(got, pattern) {
		t.Errorf("we read %d other bytes, the real tool wrote %d", len(got), size)
	}
	info, err := object(t, cl, name).Stat(within(t, patience))
	check(t, err)
	if info.Size != uint64(size) || info.ModTime.Before(before) || info.ModTime.After(time.Now().Add(time.Minute)) {
		t.Errorf("stat: %+v, want %d bytes, written now", info, size)
	}
	check(t, object(t, cl, name).Remove(within(t, patience)))
	if list := c.rados("ls"); len(list) != 0 {
		t.Errorf("the pool still has %q", list)
	}
	var gone *rados.Error
	if err := object(t, cl, name).Remove(within(t, patience)); !errors.As(err, &gone) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("second removal: %v", err)
	}
}
