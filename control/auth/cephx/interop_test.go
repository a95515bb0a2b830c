package cephx_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// The tests of this file connect to a real cluster with cephx. They run if
// RINGMSGR_INTEROP is set, and need CEPH_CONF and CEPH_KEYRING for the ceph tool, and
// MON_V2 (host:port).

const (
	msgAuth      = 17
	msgAuthReply = 18
)

type realCluster struct {
	t    *testing.T
	ring *cephx.Keyring
	mon  wire.Addr
}

func openCluster(t *testing.T) *realCluster {
	if os.Getenv("RINGMSGR_INTEROP") == "" {
		t.Skip("RINGMSGR_INTEROP is not set: no real cluster to talk to")
	}
	for _, v := range []string{"CEPH_CONF", "CEPH_KEYRING", "MON_V2"} {
		if os.Getenv(v) == "" {
			t.Fatalf("RINGMSGR_INTEROP is set, but %s is not", v)
		}
	}
	f, err := os.Open(os.Getenv("CEPH_KEYRING"))
	check(t, err)
	defer f.Close()
	c := &realCluster{t: t}
	c.ring, err = cephx.ReadKeyring(f)
	check(t, err)
	c.mon, err = wire.ParseAddr("v2:" + os.Getenv("MON_V2") + "/0")
	check(t, err)
	return c
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tool runs the ceph command line tool.
func (c *realCluster) tool(args ...string) []byte {
	c.t.Helper()
	args = append([]string{"-c", os.Getenv("CEPH_CONF"), "-k", os.Getenv("CEPH_KEYRING")}, args...)
	out, err := exec.CommandContext(c.t.Context(), "ceph", args...).Output()
	if err != nil {
		c.t.Fatalf("ceph %v: %v", args, err)
	}
	return out
}

// osd returns the address of the first osd that is up.
func (c *realCluster) osd() wire.Addr {
	c.t.Helper()
	var dump struct {
		OSDs []struct {
			Up    int
			Addrs struct {
				Vec []struct {
					Type, Addr string
					Nonce      uint32
				} `json:"addrvec"`
			} `json:"public_addrs"`
		}
	}
	check(c.t, json.Unmarshal(c.tool("osd", "dump", "-f", "json"), &dump))
	for _, o := range dump.OSDs {
		for _, a := range o.Addrs.Vec {
			if o.Up == 1 && a.Type == "v2" {
				addr, err := wire.ParseAddr(fmt.Sprintf("v2:%s/%d", a.Addr, a.Nonce))
				check(c.t, err)
				return addr
			}
		}
	}
	c.t.Skip("the cluster has no osd that is up")
	return wire.Addr{}
}

// testClock is the wall clock plus an offset that the test moves.
type testClock struct{ offset time.Duration }

func (c *testClock) Now() time.Time { return time.Now().Add(c.offset) }

func (c *realCluster) client(name wire.EntityName, key cephx.Key, modes ...auth.Mode) (*cephx.Client, *testClock) {
	c.t.Helper()
	clock := new(testClock)
	cl, err := cephx.NewClient(cephx.ClientConfig{
		Name: name, Key: key, Now: clock.Now,
		Modes: func(wire.EntityType) []auth.Mode { return modes },
	})
	check(c.t, err)
	return cl, clock
}

func (c *realCluster) admin(modes ...auth.Mode) (*cephx.Client, *testClock) {
	c.t.Helper()
	name := wire.EntityName{Type: wire.Client, ID: "admin"}
	e, ok := c.ring.Lookup(name)
	if !ok {
		c.t.Fatal("no client.admin in the keyring")
	}
	return c.client(name, e.Key, modes...)
}

type netLink struct{ net.Conn }

func (l netLink) ReadFull(ctx context.Context, p []byte) error {
	l.deadline(ctx)
	_, err := io.ReadFull(l.Conn, p)
	return err
}

func (l netLink) Write(ctx context.Context, p []byte) error {
	l.deadline(ctx)
	_, err := l.Conn.Write(p)
	return err
}

func (l netLink) deadline(ctx context.Context) {
	if t, ok := ctx.Deadline(); ok {
		l.SetDeadline(t)
	}
}

// session is a connection to a real daemon behind SERVER_IDENT.
type session struct {
	t    *testing.T
	ctx  context.Context
	link netLink
	peer *handshake.Peer
	enc  *frame.Encoder
	dec  *frame.Decoder
	seq  uint64
}

// dial connects and opens a lossy session. A daemon that did not agree about the keys
// would not answer CLIENT_IDENT.
func (c *realCluster) dial(cl *cephx.Client, own, peer wire.EntityType, to wire.Addr, rev0 bool) (*session, error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	c.t.Cleanup(cancel)
	conn, err := net.Dial("tcp", to.AddrPort.String())
	check(c.t, err)
	c.t.Cleanup(func() { conn.Close() })
	s := &session{t: c.t, ctx: ctx, link: netLink{conn}}
	stream, p, err := handshake.Connect(ctx, s.link, handshake.ConnectConfig{
		Options: handshake.Options{EntityType: own, Rev0Only: rev0},
		Target:  to, PeerType: peer, Auth: cl,
	})
	if err != nil {
		return nil, err
	}
	s.peer = p
	const features = 0x3f01cfbdfffdffff
	ident := wire2.ClientIdent{
		Addrs:      wire.AddrVec{handshake.LearnClassic(wire.Addr{Type: wire.AddrAny, Nonce: 4711}, p.SeenAs)},
		TargetAddr: to, GID: int64(cl.GlobalID()), GlobalSeq: 1, Supported: features, Required: 1 << 59, Flags: wire.IdentLossy,
	}
	check(c.t, stream.WriteFrame(ctx, frame.TagClientIdent, ident.AppendTo(nil)))
	tag, _, err := stream.ReadFrame(ctx)
	check(c.t, err)
	if tag != frame.TagServerIdent {
		c.t.Fatalf("%v instead of SERVER_IDENT", tag)
	}
	s.enc, s.dec = stream.Release()
	return s, nil
}

// mauth sends an MAuth message and returns the fields of the reply.
func (s *session) mauth(payload []byte) (result int32, globalID uint64, reply []byte) {
	s.t.Helper()
	front := make([]byte, 18, 64)
	binary.LittleEndian.PutUint16(front[8:], 0xffff)
	front = binary.LittleEndian.AppendUint32(front, uint32(auth.Cephx))
	front = wire.AppendBlob(front, payload)
	front = binary.LittleEndian.AppendUint32(front, 0)
	s.seq++
	var head [frame.MessageHeaderSize]byte
	(frame.MessageHeader{Seq: s.seq, Type: msgAuth, Version: 1, Priority: 127, Flags: 3, CompatVersion: 1}).Put(&head)
	p, err := s.enc.AppendFrame(nil, frame.TagMessage, head[:], front)
	check(s.t, err)
	check(s.t, s.link.Write(s.ctx, p))
	for {
		f := s.read()
		if f.Tag != frame.TagMessage {
			continue
		}
		h, err := frame.ParseMessageHeader(f.Seg[0])
		check(s.t, err)
		if h.Type != msgAuthReply {
			continue
		}
		r := wire.NewReader(f.Seg[1])
		r.U32() // protocol
		result, globalID, reply = r.S32(), r.U64(), r.Blob()
		check(s.t, r.Err())
		return result, globalID, reply
	}
}

func (s *session) read() frame.Frame {
	s.t.Helper()
	head := make([]byte, s.dec.HeadSize())
	check(s.t, s.link.ReadFull(s.ctx, head))
	h, err := s.dec.Open(head)
	check(s.t, err)
	rest := make([]byte, s.dec.RestSize(h))
	check(s.t, s.link.ReadFull(s.ctx, rest))
	f, err := s.dec.Finish(h, head, rest)
	check(s.t, err)
	return f
}

// variants runs f in both modes and with both revisions.
func variants(t *testing.T, f func(t *testing.T, mode auth.Mode, rev0 bool)) {
	for _, mode := range []auth.Mode{auth.CRC, auth.Secure} {
		for _, rev0 := range []bool{false, true} {
			rev := frame.Rev1
			if rev0 {
				rev = frame.Rev0
			}
			t.Run(fmt.Sprintf("%v %v", mode, rev), func(t *testing.T) { f(t, mode, rev0) })
		}
	}
}

func TestInteropMonThenOSD(t *testing.T) {
	openCluster(t)
	variants(t, func(t *testing.T, mode auth.Mode, rev0 bool) {
		c := openCluster(t)
		cl, _ := c.admin(mode)
		s, err := c.dial(cl, wire.Client, wire.Mon, c.mon, rev0)
		check(t, err)
		if s.peer.Mode != mode || cl.GlobalID() == 0 {
			t.Errorf("mode %v, id %d", s.peer.Mode, cl.GlobalID())
		}
		if due := cl.NeedRenew(time.Now()); due != 0 {
			t.Errorf("no tickets for %v", due)
		}
		id := cl.GlobalID()
		if s, err = c.dial(cl, wire.Client, wire.OSD, c.osd(), rev0); err != nil {
			t.Fatal(err)
		}
		if s.peer.Mode != mode {
			t.Errorf("mode %v", s.peer.Mode)
		}
		// The second login keeps the id with the old ticket.
		_, err = c.dial(cl, wire.Client, wire.Mon, c.mon, rev0)
		check(t, err)
		if cl.GlobalID() != id {
			t.Errorf("id %d became %d", id, cl.GlobalID())
		}
	})
}

func TestInteropRenewal(t *testing.T) {
	openCluster(t)
	variants(t, func(t *testing.T, mode auth.Mode, rev0 bool) {
		c := openCluster(t)
		cl, clock := c.admin(mode)
		s, err := c.dial(cl, wire.Client, wire.Mon, c.mon, rev0)
		check(t, err)
		for _, later := range []struct {
			by   time.Duration
			want cephx.Service
		}{
			{50 * time.Minute, cephx.DefaultServices},
			{55 * time.Hour, cephx.DefaultServices | cephx.ServiceAuth},
		} {
			clock.offset += later.by
			if due := cl.NeedRenew(clock.Now()); due != later.want {
				t.Fatalf("due after %v: %v", later.by, due)
			}
			p, err := cl.RenewRequest()
			check(t, err)
			result, id, reply := s.mauth(p)
			if result != 0 || id != cl.GlobalID() {
				t.Fatalf("renewal after %v: result %d, id %d", later.by, result, id)
			}
			check(t, cl.HandleReply(reply))
			if due := cl.NeedRenew(clock.Now()); due != 0 {
				t.Errorf("still due after %v: %v", later.by, due)
			}
		}
		_, err = c.dial(cl, wire.Client, wire.OSD, c.osd(), rev0)
		check(t, err)
		if _, err = c.dial(cl, wire.Client, wire.Mon, c.mon, rev0); err != nil {
			t.Errorf("login with a renewed auth ticket: %v", err)
		}
	})
}

func TestInteropRotatingSecrets(t *testing.T) {
	c := openCluster(t)
	c.osd() // there is one
	key, err := cephx.ParseKey(strings.TrimSpace(string(c.tool("auth", "print-key", "osd.0"))))
	check(t, err)
	daemon, _ := c.client(wire.EntityName{Type: wire.OSD, ID: "0"}, key, auth.Secure)
	s, err := c.dial(daemon, wire.OSD, wire.Mon, c.mon, false)
	check(t, err)
	result, _, reply := s.mauth(daemon.RotatingRequest())
	if result != 0 {
		t.Fatalf("result %d", result)
	}
	secrets, err := daemon.HandleRotatingReply(reply)
	check(t, err)
	store := cephx.NewSecretStore(cephx.ServiceOSD)
	store.Update(secrets)
	if store.NeedRefresh(time.Now()) {
		t.Errorf("the secrets are not enough: %v", store)
	}
	// An acceptor with these secrets understands the tickets of the real monitor.
	osd, err := cephx.NewServer(cephx.ServerConfig{Own: wire.OSD, Secrets: store})
	check(t, err)
	cl, _ := c.admin(auth.CRC)
	_, err = c.dial(cl, wire.Client, wire.Mon, c.mon, false)
	check(t, err)
	a, err := cl.NewAuthorizer(cephx.ServiceOSD)
	check(t, err)
	v := osd.NewVerifier()
	first, err := a.First()
	check(t, err)
	challenge, _, err := v.Handle(first, auth.CRC)
	check(t, err)
	answer, err := a.Answer(challenge)
	check(t, err)
	proof, principal, err := v.Handle(answer, auth.CRC)
	check(t, err)
	_, err = a.Done(proof)
	check(t, err)
	if caps, err := cephx.CapsText(principal.Caps); err != nil || caps != "allow *" || principal.GlobalID != cl.GlobalID() {
		t.Errorf("%v %d %q %v", principal.Entity, principal.GlobalID, caps, err)
	}
}

func TestInteropRefusals(t *testing.T) {
	c := openCluster(t)
	wrong, err := cephx.NewKey(cephx.AES, nil, time.Now())
	check(t, err)
	for _, id := range []string{"admin", "nobody"} {
		cl, _ := c.client(wire.EntityName{Type: wire.Client, ID: id}, wrong, auth.Secure)
		_, err := c.dial(cl, wire.Client, wire.Mon, c.mon, false)
		var refused *auth.Refused
		if !errors.As(err, &refused) || refused.Errno != auth.EACCES {
			t.Errorf("client.%s with a wrong key: %v", id, err)
		}
	}
}

// TestInteropRealClientLogsIn lets the ceph tool log in to an authority of this package.
// It got as far as CLIENT_IDENT if it agrees about all keys.
func TestInteropRealClientLogsIn(t *testing.T) {
	c := openCluster(t)
	authority, err := cephx.NewAuthority(cephx.AuthorityConfig{Entities: c.ring})
	check(t, err)
	for _, mode := range []auth.Mode{auth.CRC, auth.Secure} {
		t.Run(mode.String(), func(t *testing.T) {
			server, err := cephx.NewServer(cephx.ServerConfig{Own: wire.Mon, Authority: authority})
			check(t, err)
			// At this address nobody else dials: daemons of tests beside this one go on to
			// dial ports of 127.0.0.1 that are free again.
			ln, err := net.Listen("tcp", "127.77.0.1:0")
			check(t, err)
			defer ln.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			tool := exec.CommandContext(ctx, "ceph", "-c", "/dev/null", "-k", os.Getenv("CEPH_KEYRING"), "-n", "client.admin",
				"-m", "v2:"+ln.Addr().String(), "--ms_mon_client_mode="+mode.String(), "status")
			check(t, tool.Start())
			defer tool.Wait()
			defer cancel()
			check(t, ln.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute)))
			conn, err := ln.Accept()
			check(t, err)
			defer conn.Close()
			stream, p, err := handshake.Accept(ctx, netLink{conn}, handshake.AcceptConfig{
				Options:  handshake.Options{EntityType: wire.Mon},
				PeerAddr: conn.RemoteAddr().(*net.TCPAddr).AddrPort(), Auth: server,
			})
			check(t, err)
			if p.Auth.Entity.String() != "client.admin" || p.Mode != mode || p.Auth.GlobalID == 0 {
				t.Errorf("%v as %v %d in mode %v", p, p.Auth.Entity, p.Auth.GlobalID, p.Mode)
			}
			if tag, _, err := stream.ReadFrame(ctx); err != nil || tag != frame.TagClientIdent {
				t.Errorf("%v, %v instead of CLIENT_IDENT", tag, err)
			}
		})
	}
}
