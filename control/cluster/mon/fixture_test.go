package mon_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// patience is how long anything may take.
const patience = time.Minute

const keyringText = `
[mon.]
	key = AQBAGgFrkJ2DJBAALXeqe7bTTWvmuDKp+LpfWA==
	caps mon = "allow *"
[client.admin]
	key = AQC8Mgpp+gCFHhAAhjmCXn3YWEGuEvt1bd9FZw==
	caps mon = "allow *"
	caps osd = "allow *"
[osd.0]
	key = AQAlMgppkIuaGRAANl25pRpdkMKe16ETnRsIhA==
	caps mon = "allow profile osd"
	caps osd = "allow *"
`

// clock is a wall clock that the test moves on. Its timers fire when the test has moved it past them, or by themselves.
type clock struct {
	mu     sync.Mutex
	ahead  time.Duration
	timers map[*time.Timer]time.Time // those that have fired, too
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *clock) AfterFunc(d time.Duration, f func()) func() bool {
	at := c.Now().Add(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	t := time.AfterFunc(d, sync.OnceFunc(f))
	c.timers[t] = at
	return t.Stop
}

// pass moves the clock on. A timer that has fired does nothing.
func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
	for t, at := range c.timers {
		if !at.After(time.Now().Add(c.ahead)) {
			delete(c.timers, t)
			t.Reset(0)
		}
	}
}

// cluster is a monitor that is us, with a keyring and a clock.
type cluster struct {
	t         *testing.T
	clock     *clock
	ring      *cephx.Keyring
	authority *cephx.Authority
	mon       *control.Messenger
	addr, v1  wire.Addr
	spy       atomic.Pointer[func(*control.Message)] // sees all messages to the monitor; nil: none
	deaf      atomic.Bool                            // the monitor takes no MAuth
	fsid      atomic.Pointer[mon.FSID]
	before    []wire.Addr   // monitors that those who join try before ours
	limit     time.Duration // their Timeout; 0: patience
	queue     int64         // Sending.QueueMessages of those who join
	modes     []auth.Mode   // that they offer; nil: the defaults
}

// typeOther is a type of messages that no monitor knows; a dispatcher behind its own answers them.
const typeOther = 300

const typeAuth = 17 // MAuth

const fsidText = "00112233-4455-6677-8899-aabbccddeeff"

// startCluster has tickets of services that live for ttl; 0: by msgr1 there is method none alone.
func startCluster(t *testing.T, ttl time.Duration) *cluster {
	t.Helper()
	c := &cluster{t: t, clock: &clock{timers: map[*time.Timer]time.Time{}}}
	var err error
	var last atomic.Uint64
	c.ring, err = cephx.ReadKeyring(strings.NewReader(keyringText))
	check(t, err)
	c.authority, err = cephx.NewAuthority(cephx.AuthorityConfig{Entities: c.ring, ServiceTTL: ttl, AuthTTL: 72 * ttl, Now: c.clock.Now})
	check(t, err)
	server, err := cephx.NewServer(cephx.ServerConfig{Own: wire.Mon, Authority: c.authority, Now: c.clock.Now})
	check(t, err)
	c.mon = messenger(t, control.Config{Name: name(t, "mon.a"), Nonce: new(uint32), Auth: control.Auth{Server: server}})
	fsid, err := mon.ParseFSID(fsidText)
	check(t, err)
	c.fsid.Store(&fsid)
	spy := &control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
		if f := c.spy.Load(); f != nil {
			(*f)(m)
		}
		return m.Type == typeAuth && c.deaf.Load()
	}}
	cfg := mon.ServerConfig{
		Authority: c.authority,
		Map: func() mon.MonMap {
			return mon.MonMap{FSID: *c.fsid.Load(), Epoch: 1, Changed: time.Unix(1000, 0), Mons: []mon.Mon{{Name: "a", Addrs: wire.AddrVec{c.addr}}}}
		},
		Command: func(conn *control.Conn, command map[string]any, data []byte) (mon.Output, error) {
			switch command["prefix"] {
			case "whoami":
			case "wipe": // says that the secrets of services were thrown away
				m := mon.MonMap{FSID: fsid, Epoch: 2, AuthEpoch: 1, Ciphers: cephx.Ciphers{Service: cephx.AES256K}, Mons: []mon.Mon{{Name: "a", Addrs: wire.AddrVec{c.addr}}}}
				return mon.Output{}, conn.Send(&control.Message{Type: 4, Version: 1, CompatVersion: 1, Front: wire.AppendBlob(nil, m.AppendTo(nil))})
			case "echo":
				return mon.Output{Status: fmt.Sprint(command["ids"]), Data: bytes.Clone(data)}, nil
			default:
				return mon.Output{}, errNotKnown
			}
			return mon.Output{Data: []byte(conn.Auth().Entity.String())}, nil
		},
	}
	if ttl == 0 {
		cfg.Authority, cfg.Number = nil, func() uint64 { return 4096 + last.Add(1) }
	}
	check(t, c.mon.Start(spy, mon.NewServer(cfg), &control.Dispatcher{ByType: map[uint16]func(*control.Conn, *control.Message){
		typeOther: func(conn *control.Conn, _ *control.Message) { _ = conn.Send(control.NewMessage(typeOther, nil, nil)) },
	}}))
	addrs, err := c.mon.Bind(anyPort, anyPort.WithType(wire.AddrLegacy))
	check(t, err)
	c.addr, c.v1 = addrs.V2(), addrs.V1()
	return c
}

func messenger(t *testing.T, cfg control.Config) *control.Messenger {
	t.Helper()
	cfg.Plane = loop.Config{Cores: 1}
	m, err := control.New(cfg)
	check(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		check(t, m.Shutdown(ctx))
	})
	return m
}

var anyPort = wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}

// member is an entity of the cluster with a session at its monitor.
type member struct {
	m    *control.Messenger
	keys *cephx.Client
	mon  *mon.Client
}

// join logs an entity in. Its messenger has more dispatchers, and accepts with
// secrets if there is a store for them.
func (c *cluster) join(entity string, secrets *cephx.SecretStore, more ...*control.Dispatcher) *member {
	t := c.t
	t.Helper()
	own, ok := c.ring.Lookup(name(t, entity))
	if !ok {
		t.Fatalf("no key of %s", entity)
	}
	keys, err := cephx.NewClient(cephx.ClientConfig{Name: own.Name, Key: own.Key, Now: c.clock.Now, Secrets: secrets})
	check(t, err)
	cfg := control.Config{Name: own.Name, Auth: control.Auth{Client: keys, Modes: c.modes}, Sending: control.Sending{QueueMessages: c.queue}}
	if secrets != nil {
		cfg.Auth.Server, err = cephx.NewServer(cephx.ServerConfig{Own: own.Name.Type, Secrets: secrets, Now: c.clock.Now, TicketGrace: time.Millisecond})
		check(t, err)
	}
	j := &member{m: messenger(t, cfg), keys: keys}
	j.mon, err = mon.NewClient(mon.Config{
		Mons: append(c.before, c.addr), Auth: keys, Clock: c.clock, Retry: 5 * time.Millisecond, Timeout: cmp.Or(c.limit, patience),
	})
	check(t, err)
	t.Cleanup(j.mon.Close)
	check(t, j.m.Start(append([]*control.Dispatcher{j.mon.Dispatcher()}, more...)...))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	check(t, j.mon.Open(ctx, j.m))
	return j
}

func name(t *testing.T, s string) wire.EntityName {
	t.Helper()
	n, err := wire.ParseEntityName(s)
	check(t, err)
	return n
}

var check = drivertest.Must

// soon is what comes on a channel.
func soon[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
	return v
}

// eventually waits for something that other goroutines bring about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if msgrtest.Until(ctx, ok) != nil {
		t.Fatalf("not within %v: %s", patience, what)
	}
}
