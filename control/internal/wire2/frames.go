package wire2

import (
	"sync"

	"github.com/ringmsgr/ringmsgr/control/internal/layout"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// SessionReconnect is the payload of SESSION_RECONNECT, with which the connector
// resumes a session.
type SessionReconnect struct {
	Addrs        wire.AddrVec // all addresses of the connector
	ClientCookie uint64       // of the session, whoever dialled first
	ServerCookie uint64       // of the session
	GlobalSeq    uint64       // the connector's count of connection attempts
	ConnectSeq   uint64       // number of reconnects of this session
	MsgSeq       uint64       // highest message sequence number received
}

// Layout implements [layout.Structure].
func (s *SessionReconnect) Layout(l *layout.Coder) {
	l.Fields(&s.Addrs, &s.ClientCookie, &s.ServerCookie, &s.GlobalSeq, &s.ConnectSeq, &s.MsgSeq)
}

// AppendTo appends the payload.
func (s SessionReconnect) AppendTo(dst []byte) []byte { return layout.Append(dst, &s) }

// SessionReset is the payload of SESSION_RESET: the acceptor knows no such session.
type SessionReset struct {
	Full bool // drop the queues too
}

// Layout implements [layout.Structure].
func (s *SessionReset) Layout(l *layout.Coder) { l.Fields(&s.Full) }

// AppendTo appends the payload.
func (s SessionReset) AppendTo(dst []byte) []byte { return layout.Append(dst, &s) }

// SessionRetry is the payload of SESSION_RETRY: the connect sequence was too old.
type SessionRetry struct {
	ConnectSeq uint64 // the acceptor's current value
}

// Layout implements [layout.Structure].
func (s *SessionRetry) Layout(l *layout.Coder) { l.Fields(&s.ConnectSeq) }

// AppendTo appends the payload.
func (s SessionRetry) AppendTo(dst []byte) []byte { return layout.Append(dst, &s) }

// SessionRetryGlobal is the payload of SESSION_RETRY_GLOBAL: the global sequence was
// too old.
type SessionRetryGlobal struct {
	GlobalSeq uint64 // the highest that the acceptor has seen from the connector
}

// Layout implements [layout.Structure].
func (s *SessionRetryGlobal) Layout(l *layout.Coder) { l.Fields(&s.GlobalSeq) }

// AppendTo appends the payload.
func (s SessionRetryGlobal) AppendTo(dst []byte) []byte { return layout.Append(dst, &s) }

// SessionReconnectOK is the payload of SESSION_RECONNECT_OK: the session is resumed.
type SessionReconnectOK struct {
	MsgSeq uint64 // highest message sequence number that the acceptor has received
}

// Layout implements [layout.Structure].
func (s *SessionReconnectOK) Layout(l *layout.Coder) { l.Fields(&s.MsgSeq) }

// AppendTo appends the payload.
func (s SessionReconnectOK) AppendTo(dst []byte) []byte { return layout.Append(dst, &s) }

// ClientIdent is the payload of CLIENT_IDENT, with which the connector opens a new
// session.
type ClientIdent struct {
	Addrs      wire.AddrVec  // all addresses of the connector
	TargetAddr wire.Addr     // the one that it believes to have reached
	GID        int64         // its number; -1 if it has none yet
	GlobalSeq  uint64        // its count of connection attempts
	Supported  wire.Features // what it can do
	Required   wire.Features // what it insists on
	Flags      uint64        // [wire.IdentLossy]
	Cookie     uint64        // client cookie of the session
}

// Layout implements [layout.Structure].
func (c *ClientIdent) Layout(l *layout.Coder) {
	l.Fields(&c.Addrs, &c.TargetAddr, &c.GID, &c.GlobalSeq, &c.Supported, &c.Required, &c.Flags, &c.Cookie)
}

// AppendTo appends the payload.
func (c ClientIdent) AppendTo(dst []byte) []byte { return layout.Append(dst, &c) }

// ServerIdent is the payload of SERVER_IDENT, with which the acceptor confirms a new
// session.
type ServerIdent struct {
	Addrs     wire.AddrVec  // all addresses of the acceptor
	GID       int64         // its number
	GlobalSeq uint64        // from its own counter
	Supported wire.Features // what it can do
	Required  wire.Features // what it insists on
	Flags     uint64        // [wire.IdentLossy]
	Cookie    uint64        // server cookie of the session; 0 if lossy
}

// Layout implements [layout.Structure].
func (s *ServerIdent) Layout(l *layout.Coder) {
	l.Fields(&s.Addrs, &s.GID, &s.GlobalSeq, &s.Supported, &s.Required, &s.Flags, &s.Cookie)
}

// AppendTo appends the payload.
func (s ServerIdent) AppendTo(dst []byte) []byte { return layout.Append(dst, &s) }

// IdentMissingFeatures is the payload of IDENT_MISSING_FEATURES.
type IdentMissingFeatures struct {
	Features wire.Features // required by the acceptor, not supported by the connector
}

// Layout implements [layout.Structure].
func (m *IdentMissingFeatures) Layout(l *layout.Coder) { l.Fields(&m.Features) }

// AppendTo appends the payload.
func (m IdentMissingFeatures) AppendTo(dst []byte) []byte { return layout.Append(dst, &m) }

// Hello is the payload of HELLO.
type Hello struct {
	// EntityType is the type of the sender.
	EntityType wire.EntityType
	// PeerAddr is the address of the receiver as the sender knows it: what a connector
	// has dialled, nonce included, or the socket address that an acceptor has accepted.
	PeerAddr wire.Addr
}

// Layout implements [layout.Structure].
func (h *Hello) Layout(l *layout.Coder) { l.Fields(&h.EntityType, &h.PeerAddr) }

// AppendTo appends the payload.
func (h Hello) AppendTo(dst []byte) []byte { return layout.Append(dst, &h) }

// AuthRequest is the payload of AUTH_REQUEST.
type AuthRequest struct {
	Method         uint32
	PreferredModes []uint32 // most preferred first
	Payload        []byte   // of the method; aliases the input when decoded
}

// Layout implements [layout.Structure].
func (a *AuthRequest) Layout(l *layout.Coder) { l.Fields(&a.Method, &a.PreferredModes, &a.Payload) }

// AppendTo appends the payload.
func (a AuthRequest) AppendTo(dst []byte) []byte { return layout.Append(dst, &a) }

// AuthBadMethod is the payload of AUTH_BAD_METHOD.
type AuthBadMethod struct {
	Method         uint32 // the one that was refused
	Result         int32  // negative errno; a hostile peer can send anything
	AllowedMethods []uint32
	AllowedModes   []uint32
}

// Layout implements [layout.Structure].
func (a *AuthBadMethod) Layout(l *layout.Coder) {
	l.Fields(&a.Method, &a.Result, &a.AllowedMethods, &a.AllowedModes)
}

// AppendTo appends the payload.
func (a AuthBadMethod) AppendTo(dst []byte) []byte { return layout.Append(dst, &a) }

// AuthMore is the payload of AUTH_REPLY_MORE and AUTH_REQUEST_MORE.
type AuthMore struct {
	Payload []byte // of the method; aliases the input when decoded
}

// Layout implements [layout.Structure].
func (a *AuthMore) Layout(l *layout.Coder) { l.Fields(&a.Payload) }

// AppendTo appends the payload.
func (a AuthMore) AppendTo(dst []byte) []byte { return layout.Append(dst, &a) }

// AuthDone is the payload of AUTH_DONE.
type AuthDone struct {
	GlobalID uint64
	Mode     uint32 // the acceptor's choice
	Payload  []byte // of the method; aliases the input when decoded
}

// Layout implements [layout.Structure].
func (a *AuthDone) Layout(l *layout.Coder) { l.Fields(&a.GlobalID, &a.Mode, &a.Payload) }

// AppendTo appends the payload.
func (a AuthDone) AppendTo(dst []byte) []byte { return layout.Append(dst, &a) }

// SignatureSize is the size of the signature in AUTH_SIGNATURE in bytes.
const SignatureSize = 32

// AuthSignature is the payload of AUTH_SIGNATURE: an HMAC-SHA-256, or zero when the
// method has no session key.
type AuthSignature [SignatureSize]byte

// Layout implements [layout.Structure].
func (a *AuthSignature) Layout(l *layout.Coder) { l.Fields(a[:]) }

// AppendTo appends the payload.
func (a AuthSignature) AppendTo(dst []byte) []byte { return layout.Append(dst, &a) }

// CompressionRequest is the payload of COMPRESSION_REQUEST.
type CompressionRequest struct {
	Compress  bool     // the connector wants compression
	Preferred []uint32 // methods, most preferred first
}

// Layout implements [layout.Structure].
func (c *CompressionRequest) Layout(l *layout.Coder) { l.Fields(&c.Compress, &c.Preferred) }

// AppendTo appends the payload.
func (c CompressionRequest) AppendTo(dst []byte) []byte { return layout.Append(dst, &c) }

// CompressionDone is the payload of COMPRESSION_DONE.
type CompressionDone struct {
	Compress bool   // a method was found
	Method   uint32 // it; 0 is none
}

// Layout implements [layout.Structure].
func (c *CompressionDone) Layout(l *layout.Coder) { l.Fields(&c.Compress, &c.Method) }

// AppendTo appends the payload.
func (c CompressionDone) AppendTo(dst []byte) []byte { return layout.Append(dst, &c) }

// The decoders of the payloads, which tolerate bytes behind the known fields.
var (
	DecodeSessionReconnect     = decoding[SessionReconnect]("SESSION_RECONNECT")
	DecodeSessionReset         = decoding[SessionReset]("SESSION_RESET")
	DecodeSessionRetry         = decoding[SessionRetry]("SESSION_RETRY")
	DecodeSessionRetryGlobal   = decoding[SessionRetryGlobal]("SESSION_RETRY_GLOBAL")
	DecodeSessionReconnectOK   = decoding[SessionReconnectOK]("SESSION_RECONNECT_OK")
	DecodeClientIdent          = decoding[ClientIdent]("CLIENT_IDENT")
	DecodeServerIdent          = decoding[ServerIdent]("SERVER_IDENT")
	DecodeIdentMissingFeatures = decoding[IdentMissingFeatures]("IDENT_MISSING_FEATURES")
	DecodeHello                = decoding[Hello]("HELLO")
	DecodeAuthRequest          = decoding[AuthRequest]("AUTH_REQUEST")
	DecodeAuthBadMethod        = decoding[AuthBadMethod]("AUTH_BAD_METHOD")
	DecodeAuthMore             = decoding[AuthMore]("AUTH_REPLY_MORE or AUTH_REQUEST_MORE")
	DecodeAuthDone             = decoding[AuthDone]("AUTH_DONE")
	DecodeAuthSignature        = decoding[AuthSignature]("AUTH_SIGNATURE")
	DecodeCompressionRequest   = decoding[CompressionRequest]("COMPRESSION_REQUEST")
	DecodeCompressionDone      = decoding[CompressionDone]("COMPRESSION_DONE")
)

// decoding is the decoder of a payload, whose errors have its name. Its memory is used again.
func decoding[T any, P interface {
	*T
	layout.Structure
}](name string) func(p []byte) (T, error) {
	type work struct {
		layout.Reading
		v T
	}
	idle := sync.Pool{New: func() any { return new(work) }}
	return func(p []byte) (T, error) {
		w := idle.Get().(*work)
		err := w.Read(p, P(&w.v))
		v := w.v
		*w = work{}
		idle.Put(w)
		return v, wrap(name, err)
	}
}
