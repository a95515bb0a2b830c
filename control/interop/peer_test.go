package interop_test

import (
	"bytes"
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// patience is how long a real daemon may take for anything, on a machine that has
// much else to do.
const patience = time.Minute

// peer is our side: a messenger whose messages and events come to channels.
type peer struct {
	t        *testing.T
	m        *control.Messenger
	messages chan *control.Message // retained
	acks     chan time.Time        // keepalive acks
	resets   chan *control.Conn
	tid      uint64
}

// newPeer makes our side of a combo, as the cluster's client.admin.
func newPeer(t *testing.T, c *cluster, protocol string, backend uring.Backend) *peer {
	t.Helper()
	name := wire.EntityName{Type: wire.Client, ID: "admin"}
	cfg := control.Config{
		Name:     name,
		Plane:    loop.Config{Cores: 1, Driver: uring.Config{Backend: backend}},
		Protocol: control.Protocol{Rev0: protocol == "msgr2.0"},
	}
	if c.auth == "cephx" {
		cfg.Auth.Client = cephxClient(t, c, name)
		if c.mode == "secure" {
			cfg.Auth.Modes = []auth.Mode{auth.Secure} // and then nothing weaker
		}
	}
	m, err := control.New(cfg)
	check(t, err)
	t.Cleanup(func() { shutdown(t, m) })
	p := &peer{
		t: t, m: m,
		messages: make(chan *control.Message, 64), acks: make(chan time.Time, 64), resets: make(chan *control.Conn, 64),
	}
	check(t, m.Start(&control.Dispatcher{
		Fast: func(_ *control.Conn, m *control.Message) bool {
			m.Retain()
			select {
			case p.messages <- m:
			default: // nobody waits for that many
				m.Release()
			}
			return true
		},
		KeepaliveAck: func(_ *control.Conn, sent time.Time) { p.acks <- sent },
		Reset:        func(c *control.Conn, _ bool) { p.resets <- c },
	}))
	return p
}

// cephxClient has the key of name.
func cephxClient(t *testing.T, c *cluster, name wire.EntityName) *cephx.Client {
	t.Helper()
	mode := auth.CRC
	if c.mode == "secure" {
		mode = auth.Secure
	}
	client, err := cephx.NewClient(cephx.ClientConfig{
		Name: name, Key: clusterKey(t, c, name), Modes: func(wire.EntityType) []auth.Mode { return []auth.Mode{mode} },
	})
	check(t, err)
	return client
}

func shutdown(t *testing.T, m *control.Messenger) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := m.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// connect connects and waits until messages can flow.
func (p *peer) connect(to wire.Addr, typ wire.EntityType) *control.Conn {
	p.t.Helper()
	conn, err := p.m.Connect(to, typ)
	check(p.t, err)
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	if err := conn.WaitReady(ctx); err != nil {
		p.t.Fatalf("connect to %v: %v", to, err)
	}
	return conn
}

// reply is a message as the tests look at it.
type reply struct {
	tid         uint64
	front, data []byte
}

// call sends a message and waits for one of another type that answers it: with
// its tid, unless that is 0. What comes unasked is passed over.
func (p *peer) call(conn *control.Conn, m *control.Message, want uint16) reply {
	p.t.Helper()
	tid := m.TID
	check(p.t, conn.Send(m))
	deadline := time.After(patience)
	for {
		select {
		case got := <-p.messages:
			r := reply{got.TID, bytes.Clone(got.Front), bytes.Clone(got.Data)}
			typ := got.Type
			got.Release()
			if typ == want && r.tid == tid {
				return r
			}
		case <-deadline:
			st, err := conn.Stats()
			p.t.Fatalf("no message of type %d with tid %d: state %v, %v; %+v, %v", want, tid, conn.State(), conn.Err(), st, err)
		}
	}
}

// nextTID numbers requests.
func (p *peer) nextTID() uint64 {
	p.tid++
	return p.tid
}

// keepalive sends keepalives and waits for each answer.
func (p *peer) keepalive(conn *control.Conn, n int) {
	p.t.Helper()
	for i := range n {
		conn.Keepalive()
		select {
		case at := <-p.acks:
			if d := time.Since(at); d < 0 || d > patience {
				p.t.Fatalf("keepalive %d came back with another time stamp: %v", i, at)
			}
		case <-time.After(patience):
			p.t.Fatalf("keepalive %d was not answered", i)
		}
	}
}

// wantInfo checks the result of the handshake.
func wantInfo(t *testing.T, c *cluster, conn *control.Conn, protocol string, typ wire.EntityType, addrs wire.AddrVec) {
	t.Helper()
	i := conn.Info()
	type negotiated struct {
		Protocol, Auth, Mode, Compression, Features string
		PeerType                                    wire.EntityType
		Lossy, Accepted                             bool
	}
	got := negotiated{i.Protocol, i.Auth.String(), i.Mode.String(), i.Compression, i.Features.String(), i.PeerType, i.Lossy, i.Accepted}
	// Everything that 16.2 daemons have; a later release may support less of
	// what we do, never more than we do.
	want := negotiated{protocol, c.auth, c.mode, "none", "0x3f01cfbdfffdffff", typ, true, false}
	if got != want {
		t.Errorf("negotiated %+v\nwant %+v", got, want)
	}
	if !i.PeerAddrs.Equal(addrs) {
		t.Errorf("the peer's addresses are %v, want %v", i.PeerAddrs, addrs)
	}
}

// loopbackPort is a v2 address that the kernel completes.
func loopbackPort() wire.Addr {
	return wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}
}
