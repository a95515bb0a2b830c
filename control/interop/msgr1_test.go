//go:build !epoll && !giouring

package interop_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
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
}

// v1Way names both ends of a connection.
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

// next reads the front of a message, or the body of another tag.
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

	// The same with a global_seq that begins anew.
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
