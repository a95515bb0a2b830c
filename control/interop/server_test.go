package interop_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// The real client always offers msgr2.1; with msgr2.0 it is our side that does
// not. By msgr1 it gives us data and takes it back, too. It is not let in with a
// wrong key, nor in mode crc where we require secure.
// Matrix: AU-02, IN-01, IN-04, INV-10, V1-12
func TestTheRealClientConnectsToUs(t *testing.T) {
	enabled(t)
	t.Parallel()
	for _, cfg := range usual {
		for _, protocol := range cfg.protocols() {
			between(t, "ceph", "ringmsgr", cfg, protocol, func(t *testing.T) {
				u := serveAsMon(t, cfg, protocol, backends[0])
				u.pinged()
				u.asked()
				if protocol == control.Msgr1 {
					u.keeps(4<<10, 4<<20)
				}
				st, err := u.m.Stats()
				check(t, err)
				if n := st.Counters.AcceptFailures; n > u.crashes { // a tool that crashes may be in one
					t.Errorf("%d handshakes failed, and the tool crashed %d times", n, u.crashes)
				}
			})
		}
	}
	for _, protocol := range []string{"msgr2.1", "msgr2.0"} {
		between(t, "ceph", "ringmsgr", noKeys, protocol, func(t *testing.T) { serveAsMon(t, noKeys, protocol, backends[0]).refused() })
	}
	for _, c := range []struct {
		name, keyring, modes string
	}{
		{"with-a-wrong-key", "wrong", "secure crc"},
		{"in-mode-crc", "keyring", "crc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := serveAsMon(t, clusterConfig{auth: "cephx", mode: "secure"}, "msgr2.1", backends[0])
			other, err := cephx.NewKey(cephx.AES, nil, u.started)
			check(t, err)
			var wrong cephx.Keyring
			check(t, wrong.Set(cephx.Entity{Name: admin, Key: other}))
			writeKeyring(t, filepath.Join(u.dir, "wrong"), &wrong)
			u.modes, u.keyring = c.modes, filepath.Join(u.dir, c.keyring)
			u.configure()
			u.refused()
		})
	}
}

// monitor is our messenger as mon.a, with a keyring of its own.
type monitor struct {
	clusterConfig
	t        *testing.T
	m        *control.Messenger
	dir      string
	protocol string
	keyring  string // that the tool uses
	modes    string // that the tool offers
	started  time.Time
	accepted atomic.Int64
	conns    chan *control.Conn
	status   atomic.Int64 // how often the status was asked for
	pings    atomic.Int64
	crashes  uint64   // of the tool, in pinged
	values   sync.Map // what the tool has given, by key
	asks     sync.Map // what was asked for: commands with their keys
}

// serveAsMon is a monitor to real clients: authority, monmap, commands.
func serveAsMon(t *testing.T, cfg clusterConfig, protocol string, backend uring.Backend) *monitor {
	t.Helper()
	u := &monitor{clusterConfig: cfg, t: t, dir: clusterDir(t), protocol: protocol, conns: make(chan *control.Conn, 64), started: time.Now()}
	u.modes = "crc secure"
	u.keyring = filepath.Join(u.dir, "keyring")
	config := control.Config{
		Name:     wire.EntityName{Type: wire.Mon, ID: "a"},
		Nonce:    new(uint32),
		Plane:    loop.Config{Cores: 1, Driver: uring.Config{Backend: backend}},
		Protocol: control.Protocol{Rev0: protocol == "msgr2.0"},
	}
	var authority *cephx.Authority
	ring := newKeyring(t, u.started)
	writeKeyring(t, u.keyring, ring) // without one the tool of 20.2 does not begin, with method none either
	if cfg.auth == "cephx" {
		var err error
		authority, err = cephx.NewAuthority(cephx.AuthorityConfig{Entities: ring, ServiceTTL: cfg.ttl})
		check(t, err)
		config.Auth.Server, err = cephx.NewServer(cephx.ServerConfig{Own: wire.Mon, Authority: authority})
		check(t, err)
	}
	config.Auth.Modes = []auth.Mode{auth.CRC}
	if cfg.mode == "secure" {
		config.Auth.Modes = []auth.Mode{auth.Secure} // whatever the tool prefers
	}
	m := newMessenger(t, config)
	u.m = m
	fsid, err := mon.ParseFSID(uuid(t))
	check(t, err)
	count := &control.Dispatcher{
		Fast: func(_ *control.Conn, m *control.Message) bool {
			if m.Type == msgPing {
				u.pings.Add(1)
			}
			return false
		},
		Accept: func(c *control.Conn, _ int, _ bool) { u.accepted.Add(1); u.conns <- c },
	}
	check(t, m.Start(count, mon.NewServer(mon.ServerConfig{
		Map: func() mon.MonMap {
			return mon.MonMap{FSID: fsid, Epoch: 1, Changed: u.started, Mons: []mon.Mon{{Name: "a", Addrs: m.Addrs()}}}
		},
		Command: u.command, Authority: authority, Number: func() uint64 { return uint64(u.accepted.Load()) + 4096 },
	})))
	at := loopbackPort()
	if protocol == control.Msgr1 {
		at.Type = wire.AddrLegacy
	}
	_, err = m.Bind(at)
	check(t, err)
	u.configure()
	return u
}

// command answers the commands by which the tool shows the status, and keeps values. The first
// time that it asks for anything, its connection is cut instead, so that it has to come
// back.
func (u *monitor) command(c *control.Conn, command map[string]any, data []byte) (mon.Output, error) {
	key, _ := command["key"].(string)
	first := func() bool {
		if _, again := u.asks.LoadOrStore(fmt.Sprint(command["prefix"], key), true); again {
			return false
		}
		c.MarkDown()
		return true
	}
	switch command["prefix"] {
	case "get_command_descriptions":
		return mon.Output{Data: []byte(descriptions)}, nil
	case "status":
		u.status.Add(1)
		if first() {
			return mon.Output{}, syscall.EAGAIN
		}
		text, err := json.Marshal(map[string]string{"answer": "from " + c.Auth().Entity.String()})
		return mon.Output{Data: text}, err
	case "config-key set":
		if first() {
			return mon.Output{}, syscall.EAGAIN
		}
		u.values.Store(key, bytes.Clone(data))
		return mon.Output{Status: "set " + key}, nil
	case "config-key get":
		value, ok := u.values.Load(key)
		if first() || !ok {
			return mon.Output{}, syscall.ENOENT
		}
		return mon.Output{Data: value.([]byte)}, nil
	}
	return mon.Output{}, errors.New("command not known")
}

// descriptions are the commands that the tool may send us.
const descriptions = `{
	"cmd000": {"sig": ["status"], "help": "show", "module": "mon", "perm": "r", "flags": 0},
	"cmd001": {"sig": ["config-key", "set", {"name": "key", "type": "CephString"}, {"name": "val", "type": "CephString", "req": "false"}],
		"help": "keep", "module": "config-key", "perm": "rw", "flags": 0},
	"cmd002": {"sig": ["config-key", "get", {"name": "key", "type": "CephString"}], "help": "give", "module": "config-key", "perm": "r", "flags": 0}
}`

// keeps has the real tool store values of every size at the monitor and read them back, across cuts:
// each value is in one message.
func (u *monitor) keeps(sizes ...int) {
	u.t.Helper()
	ceph := func(args ...string) []byte {
		u.t.Helper()
		return runTool(u.t, "ceph", append([]string{"--conf", u.conf(), "--connect-timeout", "60"}, args...)...)
	}
	in, out := filepath.Join(u.dir, "in"), filepath.Join(u.dir, "out")
	for _, size := range sizes {
		before := u.accepted.Load()
		key, value := fmt.Sprint("bytes", size), noise(size)
		check(u.t, os.WriteFile(in, value, 0o600))
		ceph("config-key", "set", key, "-i", in)
		if kept, _ := u.values.Load(key); kept == nil || !bytes.Equal(kept.([]byte), value) {
			u.t.Errorf("not the %d bytes that the tool has sent have come", size)
		}
		ceph("config-key", "get", key, "-o", out)
		wantFile(u.t, "the tool", out, value)
		if n := u.accepted.Load() - before; n < 4 {
			u.t.Errorf("%d connections: want each command to come back after a cut", n)
		}
		u.check()
	}
	u.noComplaints()
}

func (u *monitor) conf() string { return filepath.Join(u.dir, "ceph.conf") }

// configure writes the configuration of the tool.
func (u *monitor) configure() {
	u.t.Helper()
	writeConf(u.t, u.conf(), u.auth, u.keyring, filepath.Join(u.dir, "client.log"), fmt.Sprintf("mon host = %v", u.m.Addrs()),
		"ms client mode = "+u.modes, "ms mon client mode = "+u.modes, "debug ms = 20", "debug auth = 20", "debug monc = 20",
		"mon client hunt interval = 60") // on a busy machine it gave a handshake up after 3 s, and began another one
}

// writeConf writes the configuration of a tool whose servers are ours.
func writeConf(t *testing.T, file, auth, keyring, log string, more ...string) {
	t.Helper()
	lines := append([]string{"[global]", "keyring = " + keyring, "log file = " + log, "log to stderr = false"}, more...)
	for _, who := range []string{"client", "service", "cluster"} {
		lines = append(lines, "auth "+who+" required = "+auth)
	}
	check(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
}

// pinged has the real tool ping the monitor. It exits with an error if no answer comes,
// and has no log: for a ping it does not start its logger.
//
// The tool of Ceph 16.2 crashes in about one of 600 pings, with monitors of its
// own as well (2 of 1200 on two busy CPUs), so a crash is said and tried again.
func (u *monitor) pinged() {
	u.t.Helper()
	for ; ; u.crashes++ {
		out, err := tryTool(u.t, "ceph", "--conf", u.conf(), "--connect-timeout", "60", "ping", "mon.a")
		if u.crashes == 2 || !crashed(err) {
			check(u.t, err)
			if !strings.Contains(string(out), `"HEALTH_OK"`) {
				u.t.Errorf("the tool shows %s", out)
			}
			break
		}
		u.t.Logf("THE TOOL CRASHED, and is run again: %v", err)
	}
	if u.accepted.Load() == 0 || u.pings.Load() == 0 {
		u.t.Fatal("the tool succeeded without connecting to us and pinging")
	}
	u.check()
}

// asked has the real tool show our status, across a cut.
func (u *monitor) asked() {
	u.t.Helper()
	before := u.accepted.Load()
	out := runTool(u.t, "ceph", "--conf", u.conf(), "--connect-timeout", "60", "status")
	if want := `{"answer":"from client.admin"}`; strings.TrimSpace(string(out)) != want {
		u.t.Errorf("the tool shows %s, want %s", out, want)
	}
	if n := u.accepted.Load() - before; n < 2 || u.status.Load() < 2 {
		u.t.Errorf("%d connections, asked %d times: want it to come back after the cut", n, u.status.Load())
	}
	u.check()
	u.noComplaints()
}

// noComplaints looks through the tool's log.
func (u *monitor) noComplaints() {
	u.t.Helper()
	log, err := os.ReadFile(filepath.Join(u.dir, "client.log"))
	check(u.t, err)
	if len(log) == 0 {
		u.t.Error("the tool's log is empty")
	}
	wantNone(u.t, complaints(string(log)))
}

// refused has the real tool try, and fail.
func (u *monitor) refused() {
	u.t.Helper()
	out, err := tryTool(u.t, "ceph", "--conf", u.conf(), "--connect-timeout", "60", "status")
	if err == nil {
		u.t.Fatalf("it got in: %s", out)
	}
	refused := await(patience, func() bool { // the tool may have ended before we see that it hung up
		st, err := u.m.Stats()
		check(u.t, err)
		return st.Counters.AcceptFailures > 0
	})
	if n := u.accepted.Load(); n != 0 || !refused {
		u.t.Errorf("%d connections accepted, some refused: %v; want only refusals", n, refused)
	}
}

// check looks at the connections that came.
func (u *monitor) check() {
	u.t.Helper()
	for {
		select {
		case c := <-u.conns:
			i := c.Info()
			if i.Protocol == "" {
				continue // it was gone before it was ready
			}
			if i.Protocol == control.Msgr1 { // it says by messages who it is
				i.Auth, i.PeerEntity = auth.None, admin
				if u.auth == "cephx" {
					i.Auth = auth.Cephx
				}
			}
			if i.Protocol != u.protocol || i.Auth.String() != u.auth || i.Mode.String() != u.mode ||
				i.PeerType != wire.Client || i.PeerEntity.String() != "client.admin" || !i.Accepted {
				u.t.Errorf("negotiated %+v", i)
			}
		default:
			return
		}
	}
}

// newKeyring has the keys of a monitor and of a client.
func newKeyring(t *testing.T, created time.Time) *cephx.Keyring {
	t.Helper()
	ring := &cephx.Keyring{}
	for _, e := range []cephx.Entity{
		{Name: wire.EntityName{Type: wire.Mon}},
		{Name: admin},
	} {
		var err error
		e.Key, err = cephx.NewKey(cephx.AES, nil, created)
		check(t, err)
		e.Caps = map[string]string{"mon": "allow *"}
		check(t, ring.Set(e))
	}
	return ring
}

func writeKeyring(t *testing.T, file string, ring *cephx.Keyring) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	check(t, err)
	_, err = ring.WriteTo(f)
	check(t, errors.Join(err, f.Close()))
}
