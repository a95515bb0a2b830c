package wire2

import "github.com/ringmsgr/ringmsgr/control/wire"

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

// AppendTo appends the payload.
func (s SessionReconnect) AppendTo(dst []byte) []byte {
	dst = s.Addrs.AppendTo(dst)
	dst = le.AppendUint64(dst, s.ClientCookie)
	dst = le.AppendUint64(dst, s.ServerCookie)
	dst = le.AppendUint64(dst, s.GlobalSeq)
	dst = le.AppendUint64(dst, s.ConnectSeq)
	return le.AppendUint64(dst, s.MsgSeq)
}

// DecodeSessionReconnect reads the payload of SESSION_RECONNECT.
func DecodeSessionReconnect(p []byte) (SessionReconnect, error) {
	r := wire.NewReader(p)
	s := SessionReconnect{
		Addrs: r.AddrVec(), ClientCookie: r.U64(), ServerCookie: r.U64(),
		GlobalSeq: r.U64(), ConnectSeq: r.U64(), MsgSeq: r.U64(),
	}
	return s, wrap("SESSION_RECONNECT", r.Err())
}

// SessionReset is the payload of SESSION_RESET: the acceptor knows no such session.
type SessionReset struct {
	Full bool // drop the queues too
}

// AppendTo appends the payload.
func (s SessionReset) AppendTo(dst []byte) []byte { return wire.AppendBool(dst, s.Full) }

// DecodeSessionReset reads the payload of SESSION_RESET.
func DecodeSessionReset(p []byte) (SessionReset, error) {
	r := wire.NewReader(p)
	s := SessionReset{Full: r.Bool()}
	return s, wrap("SESSION_RESET", r.Err())
}

// SessionRetry is the payload of SESSION_RETRY: the connect sequence was too old.
type SessionRetry struct {
	ConnectSeq uint64 // the acceptor's current value
}

// AppendTo appends the payload.
func (s SessionRetry) AppendTo(dst []byte) []byte { return le.AppendUint64(dst, s.ConnectSeq) }

// DecodeSessionRetry reads the payload of SESSION_RETRY.
func DecodeSessionRetry(p []byte) (SessionRetry, error) {
	r := wire.NewReader(p)
	s := SessionRetry{ConnectSeq: r.U64()}
	return s, wrap("SESSION_RETRY", r.Err())
}

// SessionRetryGlobal is the payload of SESSION_RETRY_GLOBAL: the global sequence was
// too old.
type SessionRetryGlobal struct {
	GlobalSeq uint64 // the highest that the acceptor has seen from the connector
}

// AppendTo appends the payload.
func (s SessionRetryGlobal) AppendTo(dst []byte) []byte { return le.AppendUint64(dst, s.GlobalSeq) }

// DecodeSessionRetryGlobal reads the payload of SESSION_RETRY_GLOBAL.
func DecodeSessionRetryGlobal(p []byte) (SessionRetryGlobal, error) {
	r := wire.NewReader(p)
	s := SessionRetryGlobal{GlobalSeq: r.U64()}
	return s, wrap("SESSION_RETRY_GLOBAL", r.Err())
}

// SessionReconnectOK is the payload of SESSION_RECONNECT_OK: the session is resumed.
type SessionReconnectOK struct {
	MsgSeq uint64 // highest message sequence number that the acceptor has received
}

// AppendTo appends the payload.
func (s SessionReconnectOK) AppendTo(dst []byte) []byte { return le.AppendUint64(dst, s.MsgSeq) }

// DecodeSessionReconnectOK reads the payload of SESSION_RECONNECT_OK.
func DecodeSessionReconnectOK(p []byte) (SessionReconnectOK, error) {
	r := wire.NewReader(p)
	s := SessionReconnectOK{MsgSeq: r.U64()}
	return s, wrap("SESSION_RECONNECT_OK", r.Err())
}

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

// AppendTo appends the payload.
func (c ClientIdent) AppendTo(dst []byte) []byte {
	dst = c.TargetAddr.AppendTo(c.Addrs.AppendTo(dst))
	dst = le.AppendUint64(dst, uint64(c.GID))
	dst = le.AppendUint64(dst, c.GlobalSeq)
	dst = le.AppendUint64(dst, uint64(c.Supported))
	dst = le.AppendUint64(dst, uint64(c.Required))
	dst = le.AppendUint64(dst, c.Flags)
	return le.AppendUint64(dst, c.Cookie)
}

// DecodeClientIdent reads the payload of CLIENT_IDENT.
func DecodeClientIdent(p []byte) (ClientIdent, error) {
	r := wire.NewReader(p)
	c := ClientIdent{
		Addrs: r.AddrVec(), TargetAddr: r.Addr(), GID: r.S64(), GlobalSeq: r.U64(),
		Supported: wire.Features(r.U64()), Required: wire.Features(r.U64()), Flags: r.U64(), Cookie: r.U64(),
	}
	return c, wrap("CLIENT_IDENT", r.Err())
}

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

// AppendTo appends the payload.
func (s ServerIdent) AppendTo(dst []byte) []byte {
	dst = s.Addrs.AppendTo(dst)
	dst = le.AppendUint64(dst, uint64(s.GID))
	dst = le.AppendUint64(dst, s.GlobalSeq)
	dst = le.AppendUint64(dst, uint64(s.Supported))
	dst = le.AppendUint64(dst, uint64(s.Required))
	dst = le.AppendUint64(dst, s.Flags)
	return le.AppendUint64(dst, s.Cookie)
}

// DecodeServerIdent reads the payload of SERVER_IDENT.
func DecodeServerIdent(p []byte) (ServerIdent, error) {
	r := wire.NewReader(p)
	s := ServerIdent{
		Addrs: r.AddrVec(), GID: r.S64(), GlobalSeq: r.U64(),
		Supported: wire.Features(r.U64()), Required: wire.Features(r.U64()), Flags: r.U64(), Cookie: r.U64(),
	}
	return s, wrap("SERVER_IDENT", r.Err())
}

// IdentMissingFeatures is the payload of IDENT_MISSING_FEATURES.
type IdentMissingFeatures struct {
	Features wire.Features // required by the acceptor, not supported by the connector
}

// AppendTo appends the payload.
func (m IdentMissingFeatures) AppendTo(dst []byte) []byte {
	return le.AppendUint64(dst, uint64(m.Features))
}

// DecodeIdentMissingFeatures reads the payload of IDENT_MISSING_FEATURES.
func DecodeIdentMissingFeatures(p []byte) (IdentMissingFeatures, error) {
	r := wire.NewReader(p)
	m := IdentMissingFeatures{Features: wire.Features(r.U64())}
	return m, wrap("IDENT_MISSING_FEATURES", r.Err())
}

// Hello is the payload of HELLO.
type Hello struct {
	// EntityType is the type of the sender.
	EntityType wire.EntityType
	// PeerAddr is the address of the receiver as the sender knows it: what a connector
	// has dialled, nonce included, or the socket address that an acceptor has accepted.
	PeerAddr wire.Addr
}

// AppendTo appends the payload.
func (h Hello) AppendTo(dst []byte) []byte {
	return h.PeerAddr.AppendTo(append(dst, uint8(h.EntityType)))
}

// DecodeHello reads the payload of HELLO.
func DecodeHello(p []byte) (Hello, error) {
	r := wire.NewReader(p)
	h := Hello{EntityType: wire.EntityType(r.U8()), PeerAddr: r.Addr()}
	return h, wrap("HELLO", r.Err())
}

// AuthRequest is the payload of AUTH_REQUEST.
type AuthRequest struct {
	Method         uint32
	PreferredModes []uint32 // most preferred first
	Payload        []byte   // of the method; aliases the input when decoded
}

// AppendTo appends the payload.
func (a AuthRequest) AppendTo(dst []byte) []byte {
	dst = wire.AppendU32s(le.AppendUint32(dst, a.Method), a.PreferredModes)
	return wire.AppendBlob(dst, a.Payload)
}

// DecodeAuthRequest reads the payload of AUTH_REQUEST.
func DecodeAuthRequest(p []byte) (AuthRequest, error) {
	r := wire.NewReader(p)
	a := AuthRequest{Method: r.U32(), PreferredModes: r.U32s(), Payload: r.Blob()}
	return a, wrap("AUTH_REQUEST", r.Err())
}

// AuthBadMethod is the payload of AUTH_BAD_METHOD.
type AuthBadMethod struct {
	Method         uint32 // the one that was refused
	Result         int32  // negative errno; a hostile peer can send anything
	AllowedMethods []uint32
	AllowedModes   []uint32
}

// AppendTo appends the payload.
func (a AuthBadMethod) AppendTo(dst []byte) []byte {
	dst = le.AppendUint32(dst, a.Method)
	dst = le.AppendUint32(dst, uint32(a.Result))
	return wire.AppendU32s(wire.AppendU32s(dst, a.AllowedMethods), a.AllowedModes)
}

// DecodeAuthBadMethod reads the payload of AUTH_BAD_METHOD.
func DecodeAuthBadMethod(p []byte) (AuthBadMethod, error) {
	r := wire.NewReader(p)
	a := AuthBadMethod{Method: r.U32(), Result: r.S32(), AllowedMethods: r.U32s(), AllowedModes: r.U32s()}
	return a, wrap("AUTH_BAD_METHOD", r.Err())
}

// AuthMore is the payload of AUTH_REPLY_MORE and AUTH_REQUEST_MORE.
type AuthMore struct {
	Payload []byte // of the method; aliases the input when decoded
}

// AppendTo appends the payload.
func (a AuthMore) AppendTo(dst []byte) []byte { return wire.AppendBlob(dst, a.Payload) }

// DecodeAuthMore reads the payload of AUTH_REPLY_MORE or AUTH_REQUEST_MORE.
func DecodeAuthMore(p []byte) (AuthMore, error) {
	r := wire.NewReader(p)
	a := AuthMore{Payload: r.Blob()}
	return a, wrap("AUTH_REPLY_MORE or AUTH_REQUEST_MORE", r.Err())
}

// AuthDone is the payload of AUTH_DONE.
type AuthDone struct {
	GlobalID uint64
	Mode     uint32 // the acceptor's choice
	Payload  []byte // of the method; aliases the input when decoded
}

// AppendTo appends the payload.
func (a AuthDone) AppendTo(dst []byte) []byte {
	dst = le.AppendUint32(le.AppendUint64(dst, a.GlobalID), a.Mode)
	return wire.AppendBlob(dst, a.Payload)
}

// DecodeAuthDone reads the payload of AUTH_DONE.
func DecodeAuthDone(p []byte) (AuthDone, error) {
	r := wire.NewReader(p)
	a := AuthDone{GlobalID: r.U64(), Mode: r.U32(), Payload: r.Blob()}
	return a, wrap("AUTH_DONE", r.Err())
}

// SignatureSize is the size of the signature in AUTH_SIGNATURE in bytes.
const SignatureSize = 32

// AuthSignature is the payload of AUTH_SIGNATURE: an HMAC-SHA-256, or zero when the
// method has no session key.
type AuthSignature [SignatureSize]byte

// AppendTo appends the payload.
func (a AuthSignature) AppendTo(dst []byte) []byte { return append(dst, a[:]...) }

// DecodeAuthSignature reads the payload of AUTH_SIGNATURE.
func DecodeAuthSignature(p []byte) (a AuthSignature, err error) {
	r := wire.NewReader(p)
	r.Copy(a[:])
	return a, wrap("AUTH_SIGNATURE", r.Err())
}

// CompressionRequest is the payload of COMPRESSION_REQUEST.
type CompressionRequest struct {
	Compress  bool     // the connector wants compression
	Preferred []uint32 // methods, most preferred first
}

// AppendTo appends the payload.
func (c CompressionRequest) AppendTo(dst []byte) []byte {
	return wire.AppendU32s(wire.AppendBool(dst, c.Compress), c.Preferred)
}

// DecodeCompressionRequest reads the payload of COMPRESSION_REQUEST.
func DecodeCompressionRequest(p []byte) (CompressionRequest, error) {
	r := wire.NewReader(p)
	c := CompressionRequest{Compress: r.Bool(), Preferred: r.U32s()}
	return c, wrap("COMPRESSION_REQUEST", r.Err())
}

// CompressionDone is the payload of COMPRESSION_DONE.
type CompressionDone struct {
	Compress bool   // a method was found
	Method   uint32 // it; 0 is none
}

// AppendTo appends the payload.
func (c CompressionDone) AppendTo(dst []byte) []byte {
	return le.AppendUint32(wire.AppendBool(dst, c.Compress), c.Method)
}

// DecodeCompressionDone reads the payload of COMPRESSION_DONE.
func DecodeCompressionDone(p []byte) (CompressionDone, error) {
	r := wire.NewReader(p)
	c := CompressionDone{Compress: r.Bool(), Method: r.U32()}
	return c, wrap("COMPRESSION_DONE", r.Err())
}
