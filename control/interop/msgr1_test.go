//go:build !epoll && !giouring

package interop_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/internal/drive1"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake1"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/session1"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

// The packages of msgr1 without a messenger, against the v1 ports of real daemons.

// v1Link is a TCP connection as a handshake wants it.
type v1Link struct {
	net.Conn
	r *bufio.Reader
}

func (l *v1Link) ReadFull(_ context.Context, p []byte) error {
	_, err := io.ReadFull(l.r, p)
	return err
}

func (l *v1Link) Write(_ context.Context, p []byte) error {
	_, err := l.Conn.Write(p)
	return err
}

// v1Peer is our end of an open connection of msgr1.
type v1Peer struct {
	t    *testing.T
	link *v1Link
	s    session1.Session
	said []string
	enc  *frame1.Encoder
	dec  *frame1.Decoder
	seq  uint64
}

// v1Way is who we are, and to whom we connect.
type v1Way struct {
	as, to wire.EntityType
	own    wire.Addr
	target wire.Addr
	auth   auth.Client
	policy session.Policy
}

// dialV1 opens or resumes a session.
func dialV1(t *testing.T, w v1Way, s session1.Session, seq *session.GlobalSeq) *v1Peer {
	t.Helper()
	p, err := tryV1(t, w, s, seq)
	if err != nil {
		t.Fatal(err, strings.Join(p.said, "\n"))
	}
	return p
}

func tryV1(t *testing.T, w v1Way, s session1.Session, seq *session.GlobalSeq) (*v1Peer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := net.Dial("tcp", w.target.AddrPort.String())
	check(t, err)
	t.Cleanup(func() { conn.Close() })
	check(t, conn.SetDeadline(time.Now().Add(patience)))
	p := &v1Peer{t: t, link: &v1Link{conn, bufio.NewReader(conn)}}
	c, err := handshake1.Connect(ctx, p.link, handshake1.ConnectConfig{
		Options: handshake1.Options{EntityType: w.as, Own: w.own}, Target: w.target, PeerType: w.to, Auth: w.auth,
	})
	if err != nil {
		return p, err
	}
	p.s, p.said, err = drive1.Connect(ctx, c, s, session.Env{Seq: seq, Addrs: wire.AddrVec{w.own}})
	if err != nil {
		return p, err
	}
	p.enc, p.dec, err = c.Release(p.s.Features)
	return p, err
}

func (w v1Way) fresh() session1.Session {
	return session1.New(w.as, w.policy, session.Peer{Type: w.to, Target: w.target, Dialled: true}, session.Backoff{})
}

// send sends a message.
func (p *v1Peer) send(typ uint16, front []byte) {
	p.t.Helper()
	p.seq++
	h := frame1.Header{Seq: p.seq, Type: typ, Priority: 127, Version: 1, CompatVersion: 1, SrcType: uint8(wire.Client), SrcNum: -1}
	_, err := p.link.Conn.Write(p.enc.AppendMessage(nil, &h, front, nil, nil))
	check(p.t, err)
}

// next reads what comes: the front of a message, or the body of another tag.
func (p *v1Peer) next() (frame1.Tag, frame1.Header, []byte, error) {
	tag, err := p.link.r.ReadByte()
	if err != nil {
		return 0, frame1.Header{}, nil, err
	}
	n, err := p.dec.Form().Size(frame1.Tag(tag))
	check(p.t, err)
	body := make([]byte, n)
	check(p.t, p.link.ReadFull(p.t.Context(), body))
	if frame1.Tag(tag) != frame1.TagMessage {
		return frame1.Tag(tag), frame1.Header{}, body, nil
	}
	h, err := p.dec.Header(body)
	check(p.t, err)
	payload := make([]byte, h.PayloadSize())
	check(p.t, p.link.ReadFull(p.t.Context(), payload))
	footer := make([]byte, p.dec.Form().FooterSize())
	check(p.t, p.link.ReadFull(p.t.Context(), footer))
	front, rest := payload[:h.FrontLen], payload[h.FrontLen:]
	check(p.t, p.dec.Footer(h, footer, frame1.SumsOf(front, rest[:h.MiddleLen], rest[h.MiddleLen:])))
	return frame1.TagMessage, h, front, nil
}

// receive is the front of the next message of a type.
func (p *v1Peer) receive(typ uint16) []byte {
	p.t.Helper()
	for {
		tag, h, front, err := p.next()
		check(p.t, err)
		if tag == frame1.TagMessage && h.Type == typ {
			return front
		}
	}
}

// ping is a keepalive round trip.
func (p *v1Peer) ping() error {
	stamp := [8]byte{1, 2, 3, 4, 5, 6, 7, 0}
	if _, err := p.link.Conn.Write(p.enc.Form().AppendKeepalive(nil, stamp)); err != nil {
		return err
	}
	for {
		switch tag, _, body, err := p.next(); {
		case err != nil:
			return err
		case tag == frame1.TagKeepalive2Ack && [8]byte(body) == stamp:
			return nil
		}
	}
}

// mauth is a round of authentication by messages; payload is what the method has.
func (p *v1Peer) mauth(protocol uint32, payload []byte) (globalID uint64, reply []byte) {
	p.t.Helper()
	le := binary.LittleEndian
	front := append(make([]byte, 8), 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0)
	front = wire.AppendBlob(le.AppendUint32(front, protocol), payload)
	p.send(17, le.AppendUint32(front, 0))
	r := wire.NewReader(p.receive(18))
	r.U32()
	result := r.S32()
	globalID = r.U64()
	reply = r.Blob()
	check(p.t, r.Err())
	if result != 0 {
		p.t.Fatalf("MAuth ends with %d", result)
	}
	return globalID, reply
}

// loginV1 authenticates on an open connection to the monitor, and returns what makes
// authorizers.
func loginV1(p *v1Peer, c *cluster) auth.Client {
	t := p.t
	t.Helper()
	name := wire.EntityName{Type: wire.Client, ID: "admin"}
	if c.auth == "none" {
		start := name.AppendTo(append([]byte{1}, 1, 0, 0, 0, 1, 0, 0, 0))
		id, _ := p.mauth(0, binary.LittleEndian.AppendUint64(start, 0))
		client := none.NewClient(name)
		client.SetGlobalID(id)
		return client
	}
	file, err := os.ReadFile(c.file("keyring"))
	check(t, err)
	ring, err := cephx.ReadKeyring(strings.NewReader(string(file)))
	check(t, err)
	entity, _ := ring.Lookup(name)
	client, err := cephx.NewClient(cephx.ClientConfig{Name: name, Key: entity.Key})
	check(t, err)
	login := client.NewLogin()
	start, err := login.StartMAuth()
	check(t, err)
	_, challenge := p.mauth(0, start)
	proof, err := login.Challenge(challenge)
	check(t, err)
	id, reply := p.mauth(2, proof)
	_, err = login.Done(id, 0, reply)
	check(t, err)
	for client.NeedRenew(time.Now()) != 0 {
		request, err := client.RenewRequest()
		check(t, err)
		_, reply := p.mauth(2, request)
		check(t, client.HandleReply(reply))
	}
	return client
}

var lossyV1 = session.Policy{Lossy: true, Supported: wire.FeaturesPacific}

// Matrix: V1-05
func TestMsgr1ClientConnectsToTheMonitorAndAnOSD(t *testing.T) {
	enabled(t)
	for _, method := range []string{"none", "cephx"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, clusterConfig{auth: method, mode: "crc", osds: 1, msgr1: true})
			own := wire.Addr{Type: wire.AddrLegacy, Nonce: 4711}
			var seq session.GlobalSeq
			mon := v1Way{as: wire.Client, to: wire.Mon, own: own, target: c.monAddr.V1(), policy: lossyV1}
			m := dialV1(t, mon, mon.fresh(), &seq)
			if m.s.State != session.Ready || m.s.Features != wire.FeaturesPacific || !m.s.Policy.Lossy {
				t.Errorf("state %v, features %v, lossy %v", m.s.State, m.s.Features, m.s.Policy.Lossy)
			}
			authorizers := loginV1(m, c)
			m.receive(4) // the monmap, which comes unasked
			check(t, m.ping())

			osd := v1Way{
				as: wire.Client, to: wire.OSD, own: own, target: c.osdAddrOf(0, "public_addrs", "v1"), auth: authorizers, policy: lossyV1,
			}
			o := dialV1(t, osd, osd.fresh(), &seq)
			o.send(2, nil) // MPing: signed, if there is cephx
			check(t, o.ping())
			// A message that its sender has given up ends the connection: nothing behind it counts.
			given := dialV1(t, osd, osd.fresh(), &seq)
			check(t, given.ping())
			h := frame1.Header{Seq: 1, Type: 2, Priority: 127, Version: 1, CompatVersion: 1, SrcType: uint8(wire.Client), SrcNum: -1}
			b := given.enc.AppendMessage(nil, &h, nil, nil, nil)
			b[len(b)-1] &^= 1 // COMPLETE
			_, err := given.link.Conn.Write(b)
			check(t, err)
			if err := given.ping(); err == nil {
				t.Error("aborted: the osd goes on")
			}
			if method == "none" {
				return
			}
			// A message that is not signed, or signed for another number, ends the connection.
			for name, spoil := range map[string]func(p *v1Peer){
				"unsigned": func(p *v1Peer) { p.enc = frame1.NewEncoder(frame1.Config{}, nil, [136]byte{}) },
				"shifted":  func(p *v1Peer) { p.enc = frame1.NewEncoder(frame1.Config{}, sameSignature{}, [136]byte{}) },
			} {
				p := dialV1(t, osd, osd.fresh(), &seq)
				check(t, p.ping())
				spoil(p)
				p.send(2, nil)
				if err := p.ping(); err == nil {
					t.Errorf("%s: the osd goes on", name)
				}
			}
			// Without a ticket there is no connection.
			strange := osd
			strange.auth = none.NewClient(wire.EntityName{Type: wire.Client, ID: "admin"})
			if _, err := tryV1(t, strange, strange.fresh(), &seq); !errors.Is(err, &auth.Refused{Errno: auth.EACCES}) {
				t.Errorf("with method none: %v", err)
			}
		})
	}
}

type sameSignature struct{}

func (sameSignature) Sign(frame1.Signed) uint64 { return 1 }

// TestMsgr1SessionWithTheMonitor is a monitor that the real one does not know, with a
// session that is lossless, so that every row of the acceptor's table that a peer can
// reach is answered by a real daemon, and by our connector.
func TestMsgr1SessionWithTheMonitor(t *testing.T) {
	enabled(t)
	t.Parallel()
	c := startCluster(t, clusterConfig{auth: "none", mode: "crc", msgr1: true})
	own := loopback(wire.AddrLegacy, freePorts(t, 1)[0]).WithNonce(60001)
	var seq session.GlobalSeq
	w := v1Way{
		as: wire.Mon, to: wire.Mon, own: own, target: c.monAddr.V1(),
		auth:   none.NewClient(wire.EntityName{Type: wire.Mon, ID: "z"}),
		policy: session.Policy{Standby: true, ResetCheck: true, Register: true, Supported: wire.FeaturesPacific},
	}
	said := func(p *v1Peer, want ...string) {
		t.Helper()
		all := strings.Join(p.said, "\n")
		for _, part := range want {
			_, rest, ok := strings.Cut(all, part)
			if !ok {
				t.Errorf("%q is missing, or out of order, in\n%s", part, strings.Join(p.said, "\n"))
			}
			all = rest
		}
	}
	// lose ends the socket, and has the session dial.
	lose := func(p *v1Peer) session1.Session {
		p.link.Close()
		s, _ := session.Step(p.s, session.Lost{Notification: 1 + p.s.IO.Notifications, IO: session.Snapshot{Queued: true, Notifications: 1 + p.s.IO.Notifications}, Useful: true},
			session.Env{Seq: &seq, Addrs: wire.AddrVec{own}})
		return s
	}
	p := dialV1(t, w, w.fresh(), &seq)
	said(p, "connect_seq=0", "< SEQ", "connect_seq=1", "> received=0")
	if p.s.Policy.Lossy {
		t.Error("the session is lossy")
	}
	check(t, p.ping())

	// A reconnect: the existing session takes the socket, and has us connect again.
	p = dialV1(t, w, lose(p), &seq)
	said(p, "connect_seq=2", "< RETRY_GLOBAL", "> CONNECT", "connect_seq=2", "< SEQ", "connect_seq=3")
	check(t, p.ping())

	// connect_seq too low: our standby does not raise it.
	s := lose(p)
	s.ConnectSeq = 3
	p = dialV1(t, w, s, &seq)
	said(p, "connect_seq=3", "< RETRY_SESSION global_seq=0 connect_seq=4", "> CONNECT", "connect_seq=4", "< RETRY_GLOBAL", "< SEQ")
	check(t, p.ping())

	// A process that has forgotten the session: READY.
	p.link.Close()
	p = dialV1(t, w, w.fresh(), &seq)
	said(p, "connect_seq=0", "< RETRY_GLOBAL", "> CONNECT", "connect_seq=0", "< READY")
	check(t, p.ping())

	// And one whose global_seq begins anew, too.
	p.link.Close()
	var young session.GlobalSeq
	p = dialV1(t, w, w.fresh(), &young)
	said(p, "CONNECT type=mon global_seq=1 ", "< RETRY_GLOBAL", "< RETRY_GLOBAL", "< READY")
	if young < 5 {
		t.Errorf("global_seq is %d", young)
	}

	// Another process, and a session that the monitor has never had.
	other := w
	other.own = loopback(wire.AddrLegacy, freePorts(t, 1)[0]).WithNonce(60002)
	s = other.fresh()
	s.ConnectSeq = 7
	q := dialV1(t, other, s, &young)
	said(q, "connect_seq=7", "< RESETSESSION", "connect_seq=0", "< SEQ", "connect_seq=1")
	check(t, q.ping())
}

// TestMsgr1MonitorComesBackToUs leaves answers of the real monitor unacknowledged. When the
// connection breaks it connects to us, our session takes its socket, and the answers come
// again under their numbers.
func TestMsgr1MonitorComesBackToUs(t *testing.T) {
	enabled(t)
	t.Parallel()
	c := startCluster(t, clusterConfig{auth: "none", mode: "crc", msgr1: true})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	own := wire.Addr{Type: wire.AddrLegacy, Nonce: 60003, AddrPort: l.Addr().(*net.TCPAddr).AddrPort()}
	var seq session.GlobalSeq
	w := v1Way{
		as: wire.Mon, to: wire.Mon, own: own, target: c.monAddr.V1(),
		auth:   none.NewClient(wire.EntityName{Type: wire.Mon, ID: "z"}),
		policy: session.Policy{Standby: true, ResetCheck: true, Register: true, Supported: wire.FeaturesPacific},
	}
	p := dialV1(t, w, w.fresh(), &seq)
	for range 3 {
		p.send(2, nil) // MPing
	}
	for i := range uint64(3) {
		tag, h, _, err := p.next()
		for err == nil && tag != frame1.TagMessage { // its acks and keepalives
			tag, h, _, err = p.next()
		}
		if check(t, err); h.Type != 2 || h.Seq != i+1 {
			t.Fatalf("message %d of type %d", h.Seq, h.Type)
		}
	}
	// We say that one has arrived.
	env := session.Env{Seq: &seq, Addrs: wire.AddrVec{own}}
	s, _ := session.Step(p.s, session.Lost{Notification: 1, IO: session.Snapshot{InSeq: 1, OutSeq: 3, Notifications: 1}}, env)
	if s.State != session.Standby {
		t.Fatalf("our session is in state %v", s.State)
	}
	p.link.Close()
	back := acceptV1(t, l, own, drive1.Accepting{Own: wire.Mon, Existing: &s, Make: func(peer wire.EntityType) session1.Session {
		return session1.New(wire.Mon, w.policy, session.Peer{Type: peer}, session.Backoff{})
	}, Env: env}, none.NewServer(none.ServerConfig{}))
	said := strings.Join(back.said, "\n")
	for _, part := range []string{"< CONNECT type=mon", "connect_seq=2", "> RETRY_GLOBAL", "< CONNECT", "connect_seq=2", "> SEQ", "received=1", "< received=3"} {
		_, rest, ok := strings.Cut(said, part)
		if !ok {
			t.Fatalf("%q is missing, or out of order, in\n%s", part, strings.Join(back.said, "\n"))
		}
		said = rest
	}
	if back.s.State != session.Ready || back.s.ConnectSeq != 3 {
		t.Errorf("state %v, connect_seq %d", back.s.State, back.s.ConnectSeq)
	}
	for want := uint64(2); want <= 3; {
		tag, h, _, err := back.next()
		check(t, err)
		if tag != frame1.TagMessage {
			continue
		}
		if h.Seq != want || h.Type != 2 {
			t.Errorf("message %d of type %d, want %d", h.Seq, h.Type, want)
		}
		want++
	}
}

// acceptV1 waits for a connection, and opens or resumes a session on it.
func acceptV1(t *testing.T, l net.Listener, own wire.Addr, cfg drive1.Accepting, server auth.Server) *v1Peer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	check(t, l.(*net.TCPListener).SetDeadline(time.Now().Add(patience)))
	conn, err := l.Accept()
	check(t, err)
	t.Cleanup(func() { conn.Close() })
	check(t, conn.SetDeadline(time.Now().Add(patience)))
	p := &v1Peer{t: t, link: &v1Link{conn, bufio.NewReader(conn)}}
	from := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	a, err := handshake1.Accept(ctx, p.link, handshake1.AcceptConfig{Options: handshake1.Options{EntityType: cfg.Own, Own: own}, PeerAddr: from, Auth: server})
	check(t, err)
	p.s, p.said, err = drive1.Accept(ctx, a, cfg)
	if err != nil {
		t.Fatal(err, strings.Join(p.said, "\n"))
	}
	p.enc, p.dec, err = a.Release(p.s.Features)
	check(t, err)
	return p
}

// A client that has nothing but a v1 address connects to us, and says who it is.
func TestMsgr1ClientConnectsToUs(t *testing.T) {
	enabled(t)
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	own := wire.Addr{Type: wire.AddrLegacy, AddrPort: l.Addr().(*net.TCPAddr).AddrPort()}
	conf := t.TempDir() + "/ceph.conf"
	check(t, os.WriteFile(conf, []byte("[global]\nmon host = "+own.String()+"\nauth client required = none\n"), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, "ceph", "--conf", conf, "--connect-timeout", "60", "status")
	cmd.Env = cephEnv()
	check(t, cmd.Start())
	defer func() { cancel(); _ = cmd.Wait() }()
	p := acceptV1(t, l, own, drive1.Accepting{Own: wire.Mon, Make: func(peer wire.EntityType) session1.Session {
		return session1.New(wire.Mon, session.Policy{Lossy: true, Server: true, Supported: wire.FeaturesPacific}, session.Peer{Type: peer}, session.Backoff{})
	}, Env: session.Env{Seq: new(session.GlobalSeq), Addrs: wire.AddrVec{own}}}, nil)
	if p.s.State != session.Ready || p.s.Peer.Type != wire.Client || p.s.Features != wire.FeaturesPacific {
		t.Errorf("state %v, %v with features %v", p.s.State, p.s.Peer.Type, p.s.Features)
	}
	// MAuth: paxos head, protocol, payload with methods and the name.
	r := wire.NewReader(p.receive(17))
	r.Skip(18 + 4)
	q := wire.NewReader(r.Blob())
	q.U8()
	q.U32s()
	if name := q.EntityName(); r.Err() != nil || q.Err() != nil || name != (wire.EntityName{Type: wire.Client, ID: "admin"}) {
		t.Errorf("the client is %v: %v, %v", name, r.Err(), q.Err())
	}
}
