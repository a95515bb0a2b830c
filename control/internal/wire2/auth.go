package wire2

import "github.com/ringmsgr/ringmsgr/control/wire"

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
