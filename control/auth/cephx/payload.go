package cephx

import (
	"crypto/subtle"
	"fmt"
	"io"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

const (
	opAuthSessionKey      = 0x0100
	opPrincipalSessionKey = 0x0200
	opRotatingKey         = 0x0400

	authenticateVersion = 3
	// The first byte of an AUTH_REQUEST payload is its kind.
	modeAuthorizer    = 1
	modeAuthorizerMax = 9
	modeLogin         = 10
	modeLoginMax      = 19
)

// appendLoginStart appends the payload of the AUTH_REQUEST that opens a login.
func appendLoginStart(dst []byte, name wire.EntityName, globalID uint64) []byte {
	dst = append(dst, modeLogin)
	dst = name.AppendTo(dst)
	return le.AppendUint64(dst, globalID)
}

func decodeLoginStart(p []byte) (name wire.EntityName, globalID uint64, err error) {
	r := wire.NewReader(p)
	if m := r.U8(); r.Err() == nil && (m < modeLogin || m > modeLoginMax) {
		r.Fail(malformed(fmt.Sprintf("auth mode %d", m)))
	}
	return readNameAndID(r)
}

// appendMAuthStart appends the payload of the MAuth message of protocol 0 that opens a
// login in protocol version 1.
func appendMAuthStart(dst []byte, name wire.EntityName, globalID uint64) []byte {
	dst = append(dst, structVersion)
	dst = wire.AppendU32s(dst, []uint32{uint32(auth.Cephx)})
	dst = name.AppendTo(dst)
	return le.AppendUint64(dst, globalID)
}

// maxMethods bounds the methods that count of a peer that has proven nothing. An error names them.
const maxMethods = 64

func decodeMAuthStart(p []byte) (methods []auth.Method, name wire.EntityName, globalID uint64, err error) {
	r := wire.NewReader(p)
	readVersion(r, "MAuth payload", structVersion)
	list := r.U32s()
	for _, m := range list[:min(len(list), maxMethods)] {
		methods = append(methods, auth.Method(m))
	}
	name, globalID, err = readNameAndID(r)
	return methods, name, globalID, err
}

func readNameAndID(r *wire.Reader) (wire.EntityName, uint64, error) {
	name, id := r.EntityName(), r.U64()
	if err := r.Err(); err != nil {
		return wire.EntityName{}, 0, fmt.Errorf("login: %w", err)
	}
	return name, id, nil
}

// appendServerChallenge appends the monitor's challenge to a login.
func appendServerChallenge(dst []byte, challenge uint64) []byte {
	return le.AppendUint64(append(dst, structVersion), challenge)
}

func decodeServerChallenge(p []byte) (uint64, error) {
	r := wire.NewReader(p)
	readVersion(r, "server challenge", structVersion)
	c := r.U64()
	if r.Err() == nil && c == 0 {
		r.Fail(malformed("server challenge is zero"))
	}
	if err := r.Err(); err != nil {
		return 0, fmt.Errorf("server challenge: %w", err)
	}
	return c, nil
}

// authenticate is the content of a request for the auth session key.
type authenticate struct {
	version         uint8
	clientChallenge uint64
	proof           uint64
	oldTicket       ticket
	otherKeys       service
}

func (a *authenticate) appendTo(dst []byte) []byte {
	dst = append(dst, a.version)
	dst = le.AppendUint64(dst, a.clientChallenge)
	dst = le.AppendUint64(dst, a.proof)
	dst = a.oldTicket.appendTo(dst)
	if a.version >= 2 {
		dst = le.AppendUint32(dst, uint32(a.otherKeys))
	}
	return dst
}

func readAuthenticate(r *wire.Reader) authenticate {
	a := authenticate{version: readVersion(r, "authenticate", 1)}
	a.clientChallenge = r.U64()
	a.proof = r.U64()
	a.oldTicket = readTicket(r)
	if a.version >= 2 {
		a.otherKeys = service(r.U32())
	}
	return a
}

// appendReplyHeader appends the header of a successful reply.
func appendReplyHeader(dst []byte, op uint16) []byte {
	return le.AppendUint32(le.AppendUint16(dst, op), 0)
}

// readReplyHeader reads the header of the reply to a request; a status other than 0 is an error.
func readReplyHeader(r *wire.Reader, asked uint16) {
	op := r.U16()
	if status := r.S32(); r.Err() == nil && status != 0 {
		// The status is only shown, and a positive one is no success either.
		if status > 0 {
			status = -status
		}
		r.Fail(fmt.Errorf("%w: op 0x%04x: %w", errStatus, op, &auth.Refused{Errno: status}))
	}
	if r.Err() == nil && op != asked {
		r.Fail(malformed(fmt.Sprintf("reply to op 0x%04x", op)))
	}
}

// issued is one entry of a service ticket reply before it is opened.
type issued struct {
	service   service
	grant     []byte // bare envelope of part A
	encrypted bool   // sealed is a bare envelope under the old session key
	sealed    []byte // of a blob that holds a ticket, else that ticket itself
}

const issuedMinSize = 4 + 1 + 4 + 1 + 4

func appendIssuedHead(dst []byte, n int) []byte {
	return le.AppendUint32(append(dst, structVersion), uint32(n))
}

func (s *issued) appendTo(dst []byte) []byte {
	dst = le.AppendUint32(dst, uint32(s.service))
	dst = append(dst, structVersion)
	dst = wire.AppendBlob(dst, s.grant)
	dst = wire.AppendBool(dst, s.encrypted)
	return wire.AppendBlob(dst, s.sealed)
}

// readIssued reads a service ticket reply. The slices alias the input.
func readIssued(r *wire.Reader) []issued {
	readVersion(r, "service ticket reply", structVersion)
	out := make([]issued, r.Count(issuedMinSize))
	for i := range out {
		s := &out[i]
		s.service = service(r.U32())
		readVersion(r, "issued ticket", structVersion)
		s.grant = r.Blob()
		s.encrypted = r.Bool()
		s.sealed = r.Blob()
	}
	return out
}

// open opens one entry with the key of the principal and, for an encrypted ticket, the
// old session key.
func (s *issued) open(principal, old Key) (g grant, t ticket, err error) {
	err = principal.openDecode(useGrant, s.grant, func(r *wire.Reader) { g = readGrant(r) })
	if err != nil {
		return grant{}, ticket{}, err
	}
	if s.encrypted {
		err = old.openDecode(useOldTicket, s.sealed, func(r *wire.Reader) {
			inner := wire.NewReader(r.Blob())
			t = readTicket(inner)
			r.Fail(inner.Err())
		})
	} else {
		r := wire.NewReader(s.sealed)
		t = readTicket(r)
		err = r.Err()
	}
	if err == nil && t.isZero() {
		err = malformed("empty ticket")
	}
	if err != nil {
		g.sessionKey.Wipe()
		return grant{}, ticket{}, fmt.Errorf("ticket for %v: %w", s.service, err)
	}
	return g, t, nil
}

// sealSecret returns blob C of a login reply: the prefixed envelope of the connection
// secret as a string.
func sealSecret(session Key, secret []byte, r io.Reader) ([]byte, error) {
	plain := wire.AppendBlob(make([]byte, 0, 4+len(secret)), secret)
	defer clear(plain)
	return session.sealPrefixed(useSecret, nil, plain, r)
}

// openSecret is the opposite of sealSecret; an empty blob holds no secret.
func openSecret(session Key, blob []byte) (secret []byte, err error) {
	if len(blob) == 0 {
		return nil, nil
	}
	err = session.openPrefixed(useSecret, blob, func(r *wire.Reader) { secret = readSecret(r) })
	return secret, err
}

// maxSecret bounds the connection secret that is taken from a peer; real ones have 64
// bytes.
const maxSecret = 4096

func readSecret(r *wire.Reader) []byte {
	p := r.Blob()
	if len(p) > maxSecret {
		r.Fail(malformed(fmt.Sprintf("connection secret of %d bytes", len(p))))
		return nil
	}
	return append([]byte(nil), p...)
}

const (
	envelopeMagic = 0xff009cad8826aa55
	// envelopeHead is u8 version and u64 magic in front of the payload.
	envelopeHead    = 1 + 8
	envelopeVersion = 1
	// sealSurplus bounds the bytes that encryption appends, some for a moment: padding, then a
	// tag.
	sealSurplus = blockSize + tagSize
)

func appendEnvelopeHead(dst []byte) []byte {
	return le.AppendUint64(append(dst, envelopeVersion), envelopeMagic)
}

// seal appends the bare envelope of payload. The confounder, if the key's kind has one,
// comes from r, or from [crypto/rand] if r is nil.
func (k Key) seal(u usage, dst, payload []byte, r io.Reader) ([]byte, error) {
	s, err := k.scheme()
	if err != nil {
		return nil, err
	}
	from, head := len(dst), s.confounder()
	// It grows once, so that no clear text stays in old memory.
	dst = slices.Grow(dst, head+envelopeHead+len(payload)+sealSurplus)[:from+head]
	if err := random(r, dst[from:]); err != nil {
		return nil, err
	}
	dst = append(appendEnvelopeHead(dst), payload...)
	return s.encrypt(k.data().secret, u, dst, from)
}

// sealPrefixed appends the prefixed envelope of payload: u32 length and bare envelope.
func (k Key) sealPrefixed(u usage, dst, payload []byte, r io.Reader) ([]byte, error) {
	from := len(dst)
	dst, err := k.seal(u, append(dst, 0, 0, 0, 0), payload, r)
	if err != nil {
		return nil, err
	}
	le.PutUint32(dst[from:], uint32(len(dst)-from-4))
	return dst, nil
}

// open returns the payload of a bare envelope. The caller owns the slice, and clears it if it
// holds secrets.
func (k Key) open(u usage, bare []byte) ([]byte, error) {
	s, err := k.scheme()
	if err != nil {
		return nil, err
	}
	p, err := s.decrypt(k.data().secret, u, bare)
	if err != nil {
		return nil, err
	}
	if len(p) < envelopeHead {
		clear(p)
		return nil, errWrongKey
	}
	var head [envelopeHead]byte
	if subtle.ConstantTimeCompare(appendEnvelopeHead(head[:0]), p[:envelopeHead]) != 1 {
		clear(p)
		return nil, errWrongKey
	}
	return p[envelopeHead:], nil
}

// openDecode opens a bare envelope, decodes its payload with read, and clears it. read must
// copy. Surplus bytes are ignored.
func (k Key) openDecode(u usage, bare []byte, read func(r *wire.Reader)) error {
	p, err := k.open(u, bare)
	if err != nil {
		return fmt.Errorf("%v: %w", u, err)
	}
	defer clear(p)
	r := wire.NewReader(p)
	read(r)
	if err := r.Err(); err != nil {
		return fmt.Errorf("%v: %w", u, err)
	}
	return nil
}

// openPrefixed is openDecode of a prefixed envelope.
func (k Key) openPrefixed(u usage, p []byte, read func(r *wire.Reader)) error {
	r := wire.NewReader(p)
	bare := r.Blob()
	if err := r.Err(); err != nil {
		return fmt.Errorf("%v: %w", u, err)
	}
	return k.openDecode(u, bare, read)
}

// proof computes the value with which an entity proves its key at login.
func (k Key) proof(serverChallenge, clientChallenge uint64) (uint64, error) {
	s, err := k.scheme()
	if err != nil {
		return 0, err
	}
	return s.proof(k.data().secret, serverChallenge, clientChallenge)
}

// equalU64 compares in constant time.
func equalU64(a, b uint64) bool {
	x := a ^ b
	return subtle.ConstantTimeEq(int32(uint32(x)), 0)&subtle.ConstantTimeEq(int32(uint32(x>>32)), 0) == 1
}
