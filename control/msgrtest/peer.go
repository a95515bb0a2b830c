package msgrtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake2"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// PeerConfig is the identity of a Peer.
type PeerConfig struct {
	// Name is its identity.
	Name wire.EntityName
	// Number is its gid.
	Number int64
	// Addr is the address that it claims in ident and reconnect frames; it
	// need not be a real one.
	Addr wire.Addr
	// Reached is the address that it says it has reached; zero: that of the other side.
	Reached wire.Addr
	// From is the IP that it dials from; zero: the system chooses.
	From netip.Addr
	// Rev0 makes it speak msgr2.0.
	Rev0 bool
	// AuthClient and AuthServer; nil: method none.
	AuthClient auth.Client
	AuthServer auth.Server
}

// Peer is the other end of one TCP connection as a script: each call does one
// step. The first error ends the script: all later steps do nothing, and Err
// returns it. A Peer belongs to one goroutine at a time.
type Peer struct {
	// Info has the facts about the other side that the handshake has found.
	Info *handshake.Peer

	cfg      PeerConfig
	ctx      context.Context
	conn     net.Conn
	accepted bool
	target   wire.Addr // of the other side; zero if accepted
	enc      *frame.Encoder
	dec      *frame.Decoder
	ignored  []frame.Tag
	err      error
}

// DialPeer connects to a messenger. ctx bounds the whole script.
func DialPeer(ctx context.Context, cfg PeerConfig, to wire.Addr) *Peer {
	d := net.Dialer{}
	if cfg.From.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(cfg.From, 0))
	}
	conn, err := d.DialContext(ctx, "tcp", to.AddrPort.String())
	if err != nil {
		return &Peer{cfg: cfg, err: fmt.Errorf("msgrtest: %w", err)}
	}
	return PeerOn(ctx, cfg, conn, to)
}

// PeerOn is a Peer on a connection that the caller has made: it dialled to, or, if that is
// the zero value, accepted. ctx bounds the whole script. The caller owns the connection, and
// may use it after Codecs.
func PeerOn(ctx context.Context, cfg PeerConfig, conn net.Conn, to wire.Addr) *Peer {
	p := &Peer{cfg: cfg, ctx: ctx, conn: conn, accepted: to == (wire.Addr{}), target: cmp.Or(cfg.Reached, to)}
	deadline, _ := ctx.Deadline()
	p.fail(conn.SetDeadline(deadline))
	return p
}

// Err is the first error of the script.
func (p *Peer) Err() error { return p.err }

// fail notes the first error and reports whether the script has ended.
func (p *Peer) fail(err error) bool {
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("msgrtest: peer %v: %w", p.cfg.Name, err)
	}
	return p.err != nil
}

// errStopped ends a handshake on purpose.
var errStopped = errors.New("stopped")

// stopAt is a probe that stops before a point.
func stopAt(at probe.Point) probe.Probe {
	return probe.Func(func(_ context.Context, e probe.Event) error {
		if e.Point == at && e.When == probe.Before {
			return errStopped
		}
		return nil
	})
}

// Handshake runs from the banner to the signatures. The next frame is
// CLIENT_IDENT or SESSION_RECONNECT.
func (p *Peer) Handshake() { p.handshake(nil) }

// HandshakeUntil runs the handshake up to a point, and stops there. After it a
// script can only be silent, call WriteRaw, or end.
func (p *Peer) HandshakeUntil(at probe.Point) { p.handshake(stopAt(at)) }

func (p *Peer) handshake(by probe.Probe) {
	if p.err != nil {
		return
	}
	opt := handshake2.Options{EntityType: p.cfg.Name.Type, Rev0Only: p.cfg.Rev0, Probe: probe.NewSocket(by, 1, p.accepted, nil)}
	var s *handshake2.Stream
	var err error
	if p.accepted {
		server := p.cfg.AuthServer
		if server == nil {
			server = none.NewServer(none.ServerConfig{Monitor: p.cfg.Name.Type == wire.Mon})
		}
		var remote netip.AddrPort
		if a, ok := p.conn.RemoteAddr().(*net.TCPAddr); ok {
			remote = a.AddrPort()
		}
		s, p.Info, err = handshake2.Accept(p.ctx, netLink{p.conn}, handshake2.AcceptConfig{Options: opt, PeerAddr: remote, Auth: server})
	} else {
		client := p.cfg.AuthClient
		if client == nil {
			client = none.NewClient(p.cfg.Name)
		}
		s, p.Info, err = handshake2.Connect(p.ctx, netLink{p.conn}, handshake2.ConnectConfig{Options: opt, Target: p.target, Auth: client})
	}
	switch {
	case by != nil && errors.Is(err, errStopped):
	case err == nil && by != nil:
		p.fail(errors.New("the handshake ended before the point was reached"))
	case !p.fail(err):
		p.enc, p.dec = s.Release()
	}
}

// netLink is a net.Conn as a handshake sees it.
type netLink struct{ conn net.Conn }

func (l netLink) ReadFull(_ context.Context, b []byte) error {
	_, err := io.ReadFull(l.conn, b)
	return err
}

func (l netLink) Write(_ context.Context, b []byte) error {
	_, err := l.conn.Write(b)
	return err
}

// Codecs are the codecs of the frames that follow. The caller owns them from now on: the Peer
// reads and sends no more frames.
func (p *Peer) Codecs() (*frame.Encoder, *frame.Decoder, error) { return p.enc, p.dec, p.err }

// Send sends one frame.
func (p *Peer) Send(tag frame.Tag, segments ...[]byte) {
	if p.err != nil {
		return
	}
	b, err := p.enc.AppendFrame(nil, tag, segments...)
	if p.fail(err) {
		return
	}
	p.WriteRaw(b)
}

// WriteRaw sends bytes as they are.
func (p *Peer) WriteRaw(b []byte) {
	if p.err != nil {
		return
	}
	_, err := p.conn.Write(b)
	p.fail(err)
}

// Ignore has Next and Expect pass over frames with these tags.
func (p *Peer) Ignore(tags ...frame.Tag) { p.ignored = append(p.ignored, tags...) }

// Next reads the next frame. Its segments are the caller's.
func (p *Peer) Next() frame.Frame {
	for p.err == nil {
		f, err := p.read()
		if p.fail(err) {
			break
		}
		if !slices.Contains(p.ignored, f.Tag) {
			return f
		}
	}
	return frame.Frame{}
}

func (p *Peer) read() (frame.Frame, error) {
	head := make([]byte, p.dec.HeadSize())
	if _, err := io.ReadFull(p.conn, head); err != nil {
		return frame.Frame{}, err
	}
	h, err := p.dec.Open(head)
	if err != nil {
		return frame.Frame{}, err
	}
	rest := make([]byte, p.dec.RestSize(h))
	if _, err := io.ReadFull(p.conn, rest); err != nil {
		return frame.Frame{}, err
	}
	return p.dec.Finish(h, head, rest)
}

// Expect reads the next frame, which must have this tag, and returns its first
// segment.
func (p *Peer) Expect(tag frame.Tag) []byte {
	f := p.Next()
	if p.err == nil && f.Tag != tag {
		p.fail(fmt.Errorf("got %v, want %v", f.Tag, tag))
	}
	if p.err != nil {
		return nil
	}
	return f.Seg[0]
}

// ExpectEnd reads until the other side ends the connection, orderly or not. A
// frame is an error, unless its tag is ignored.
func (p *Peer) ExpectEnd() {
	for p.err == nil {
		var err error
		var f frame.Frame
		if p.dec == nil {
			var n int
			var b [256]byte
			if n, err = p.conn.Read(b[:]); n > 0 {
				err = nil // still in the middle of a handshake: its bytes do not matter
			}
		} else {
			f, err = p.read()
		}
		switch {
		case err == nil && (p.dec == nil || slices.Contains(p.ignored, f.Tag)):
		case err == nil:
			p.fail(fmt.Errorf("got %v, want the end of the connection", f.Tag))
		case errors.Is(err, os.ErrDeadlineExceeded):
			p.fail(fmt.Errorf("the connection does not end: %w", err))
		default:
			return
		}
	}
}

// Close ends the connection, at any step of a script.
func (p *Peer) Close() {
	if p.conn != nil {
		_ = p.conn.Close() // its error is of no interest any more
	}
}

// Reset ends the connection with a TCP reset.
func (p *Peer) Reset() {
	if c, ok := p.conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0) // without it Close is an orderly one
	}
	p.Close()
}

// ClientIdent is the CLIENT_IDENT of a correct connector, with this cookie and
// global_seq. A script changes fields of it.
func (p *Peer) ClientIdent(cookie, globalSeq uint64) wire2.ClientIdent {
	return wire2.ClientIdent{
		Addrs: wire.AddrVec{p.cfg.Addr}, TargetAddr: p.target, GID: p.cfg.Number, GlobalSeq: globalSeq,
		Supported: wire.FeaturesPacific, Required: wire.FeatureMsgAddr2, Cookie: cookie,
	}
}

// ServerIdent is the SERVER_IDENT of a correct acceptor; a cookie of 0 makes
// the session lossy.
func (p *Peer) ServerIdent(cookie, globalSeq uint64) wire2.ServerIdent {
	si := wire2.ServerIdent{
		Addrs: wire.AddrVec{p.cfg.Addr}, GID: p.cfg.Number, GlobalSeq: globalSeq,
		Supported: wire.FeaturesPacific, Required: wire.FeatureMsgAddr2, Cookie: cookie,
	}
	if cookie == 0 {
		si.Flags = wire.IdentLossy
	}
	return si
}

// SessionReconnect is the SESSION_RECONNECT of a connector with a session.
func (p *Peer) SessionReconnect(clientCookie, serverCookie, globalSeq, connectSeq, msgSeq uint64) wire2.SessionReconnect {
	return wire2.SessionReconnect{
		Addrs: wire.AddrVec{p.cfg.Addr}, ClientCookie: clientCookie, ServerCookie: serverCookie,
		GlobalSeq: globalSeq, ConnectSeq: connectSeq, MsgSeq: msgSeq,
	}
}

// payload is a payload type of package wire2.
type payload interface{ AppendTo(dst []byte) []byte }

// SendPayload sends a control frame.
func (p *Peer) SendPayload(tag frame.Tag, body payload) { p.Send(tag, body.AppendTo(nil)) }

// Establish does the handshake and opens a session as a connector, and returns
// the answer to CLIENT_IDENT.
func (p *Peer) Establish(cookie, globalSeq uint64) wire2.ServerIdent {
	p.Handshake()
	p.SendPayload(frame.TagClientIdent, p.ClientIdent(cookie, globalSeq))
	return p.ExpectServerIdent()
}

// ExpectServerIdent reads SERVER_IDENT.
func (p *Peer) ExpectServerIdent() wire2.ServerIdent {
	return decode(p, frame.TagServerIdent, wire2.DecodeServerIdent)
}

// ExpectClientIdent reads CLIENT_IDENT.
func (p *Peer) ExpectClientIdent() wire2.ClientIdent {
	return decode(p, frame.TagClientIdent, wire2.DecodeClientIdent)
}

// ExpectReconnect reads SESSION_RECONNECT.
func (p *Peer) ExpectReconnect() wire2.SessionReconnect {
	return decode(p, frame.TagSessionReconnect, wire2.DecodeSessionReconnect)
}

// ExpectReconnectOK reads SESSION_RECONNECT_OK and returns the last message
// that the other side has received.
func (p *Peer) ExpectReconnectOK() (msgSeq uint64) {
	return decode(p, frame.TagSessionReconnectOK, wire2.DecodeSessionReconnectOK).MsgSeq
}

// ExpectReset reads SESSION_RESET and returns whether it is a full one.
func (p *Peer) ExpectReset() (full bool) {
	return decode(p, frame.TagSessionReset, wire2.DecodeSessionReset).Full
}

func decode[T any](p *Peer, tag frame.Tag, f func([]byte) (T, error)) T {
	var none T
	b := p.Expect(tag)
	if p.err != nil {
		return none
	}
	v, err := f(b)
	if p.fail(err) {
		return none
	}
	return v
}

// SendMessage sends a message with this header and payload.
func (p *Peer) SendMessage(hd frame.MessageHeader, front, middle, data []byte) {
	var b [frame.MessageHeaderSize]byte
	hd.Put(&b)
	p.Send(frame.TagMessage, b[:], front, middle, data)
}

// ExpectMessage reads a message and returns its header and front.
func (p *Peer) ExpectMessage() (frame.MessageHeader, []byte) {
	f := p.Next()
	if p.err == nil && f.Tag != frame.TagMessage {
		p.fail(fmt.Errorf("got %v, want MESSAGE", f.Tag))
	}
	if p.err != nil {
		return frame.MessageHeader{}, nil
	}
	hd, err := frame.ParseMessageHeader(f.Seg[0])
	p.fail(err)
	return hd, f.Seg[1]
}
