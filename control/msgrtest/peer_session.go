package msgrtest

import (
	"encoding/binary"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

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

// payload is a payload type of package wire2, or of this package.
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

// Ack is the payload of ACK.
type Ack struct {
	Seq uint64 // every message up to this one has arrived
}

// AppendTo appends the payload.
func (a Ack) AppendTo(dst []byte) []byte { return binary.LittleEndian.AppendUint64(dst, a.Seq) }

// DecodeAck reads the payload of ACK. Errors: wire.ErrTruncated.
func DecodeAck(p []byte) (Ack, error) {
	r := wire.NewReader(p)
	a := Ack{Seq: r.U64()}
	if err := r.Err(); err != nil {
		return Ack{}, fmt.Errorf("decode ACK: %w", err)
	}
	return a, nil
}

// Keepalive is the payload of KEEPALIVE2, and of KEEPALIVE2_ACK.
type Keepalive struct {
	// Stamp is the clock of the sender of KEEPALIVE2. The ack has it unchanged.
	Stamp dataplane.Timestamp
}

// AppendTo appends the payload.
func (k Keepalive) AppendTo(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, k.Stamp.Sec)
	return binary.LittleEndian.AppendUint32(dst, k.Stamp.Nsec)
}

// DecodeKeepalive reads the payload of KEEPALIVE2 or KEEPALIVE2_ACK. Errors:
// wire.ErrTruncated.
func DecodeKeepalive(p []byte) (Keepalive, error) {
	r := wire.NewReader(p)
	k := Keepalive{Stamp: dataplane.Timestamp{Sec: r.U32(), Nsec: r.U32()}}
	if err := r.Err(); err != nil {
		return Keepalive{}, fmt.Errorf("decode KEEPALIVE2: %w", err)
	}
	return k, nil
}
