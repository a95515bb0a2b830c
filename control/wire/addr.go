package wire

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// AddrType says which protocol an address speaks (Ceph's msg_types.h).
type AddrType uint32

// The address types.
const (
	AddrNone   AddrType = 0 // blank
	AddrLegacy AddrType = 1 // an endpoint of protocol v1
	AddrMsgr2  AddrType = 2 // an endpoint of protocol v2
	AddrAny    AddrType = 3 // not bound, could speak either
)

// Addr is the address of one endpoint of one process instance. The nonce differs for
// instances that use the same port one after the other.
//
// The zero Addr is the blank address. Addr is comparable, and == agrees with
// [Addr.Equal] for addresses from this package. An IPv6 scope is held as a decimal
// zone; the IPv6 flow information is not kept.
type Addr struct {
	Type  AddrType
	Nonce uint32
	// AddrPort is the zero value for a family other than IPv4 and IPv6.
	AddrPort netip.AddrPort
}

// Socket address families, as numbered by Linux and on the wire.
const (
	afInet  = 2
	afInet6 = 10
)

const (
	sockaddrInSize      = 16
	sockaddrIn6Size     = 28
	sockaddrStorageSize = 128

	addrVersion = 1

	addrMarkerLegacy    = 0
	addrMarkerVersioned = 1
	addrVecMarker       = 2
	// addrMinSize is the size of the smallest versioned address: marker, envelope head
	// and body without a socket address.
	addrMinSize = 1 + 6 + 12

	imageSize = 4 + 4 + sockaddrIn6Size
)

// IsBlank reports whether a names no host: no address at all, or the unspecified IPv4
// or IPv6 address, also as IPv4 in IPv6.
func (a Addr) IsBlank() bool {
	ip := a.AddrPort.Addr()
	return !ip.IsValid() || ip.Unmap().IsUnspecified()
}

// IsOneHost reports whether a can be dialled: it has a port, and names one host, not a
// group and not all hosts.
func (a Addr) IsOneHost() bool {
	ip := a.AddrPort.Addr().Unmap()
	return !a.IsBlank() && a.AddrPort.Port() != 0 && !ip.IsMulticast() && ip != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// WithType returns a with another type.
func (a Addr) WithType(t AddrType) Addr {
	a.Type = t
	return a
}

// WithPort returns a with another port. A blank socket address stays blank.
func (a Addr) WithPort(port uint16) Addr {
	if a.AddrPort.Addr().IsValid() {
		a.AddrPort = netip.AddrPortFrom(a.AddrPort.Addr(), port)
	}
	return a
}

// WithNonce returns a with another nonce.
func (a Addr) WithNonce(nonce uint32) Addr {
	a.Nonce = nonce
	return a
}

// Equal reports whether the canonical images are equal; type and nonce count.
func (a Addr) Equal(b Addr) bool { return a.Compare(b) == 0 }

// Compare orders addresses by their canonical 36-byte image, byte by byte and unsigned
// (Ceph's msg_types.h); the nonce starts with its least significant byte. All
// implementations have the same order, because it decides connect races. The result is
// -1, 0 or 1.
func (a Addr) Compare(b Addr) int {
	x, y := a.image(), b.image()
	return bytes.Compare(x[:], y[:])
}

// image returns type, nonce and socket address as on the wire, extended with zeros to the
// size of the largest family.
func (a Addr) image() (img [imageSize]byte) {
	p := le.AppendUint32(img[:0], uint32(a.Type))
	p = le.AppendUint32(p, a.Nonce)
	appendSockaddr(p, a.AddrPort)
	return img
}

// AppendTo appends the versioned form, 35 bytes for IPv4 and 47 otherwise. It is the
// only form that protocol v2 sends.
func (a Addr) AppendTo(dst []byte) []byte {
	dst = append(dst, addrMarkerVersioned)
	dst, env := BeginEnvelope(dst, addrVersion, addrVersion)
	dst = le.AppendUint32(dst, uint32(a.Type))
	dst = le.AppendUint32(dst, a.Nonce)
	dst = append(dst, 0, 0, 0, 0)
	mark := len(dst)
	dst = appendSockaddr(dst, a.AddrPort)
	le.PutUint32(dst[mark-4:mark], uint32(len(dst)-mark))
	return EndEnvelope(dst, env)
}

// AppendLegacyTo appends the 136-byte form that peers without [FeatureMsgAddr2]
// understand. It does not carry the type. Protocol v2 never sends it.
func (a Addr) AppendLegacyTo(dst []byte) []byte {
	dst = append(dst, addrMarkerLegacy, 0, 0, 0)
	dst = le.AppendUint32(dst, a.Nonce)
	mark := len(dst)
	dst = appendSockaddr(dst, a.AddrPort)
	dst[mark], dst[mark+1] = dst[mark+1], dst[mark] // here the family is big-endian
	return append(dst, make([]byte, sockaddrStorageSize-(len(dst)-mark))...)
}

// appendSockaddr appends the socket address in the layout of its family; 28 zeros for
// none.
func appendSockaddr(dst []byte, ap netip.AddrPort) []byte {
	ip := ap.Addr()
	if ip.Is4() {
		dst = le.AppendUint16(dst, afInet)
		dst = append(dst, byte(ap.Port()>>8), byte(ap.Port()))
		a4 := ip.As4()
		dst = append(dst, a4[:]...)
		return append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	}
	if !ip.IsValid() {
		var blank [sockaddrIn6Size]byte
		return append(dst, blank[:]...)
	}
	dst = le.AppendUint16(dst, afInet6)
	dst = append(dst, byte(ap.Port()>>8), byte(ap.Port()), 0, 0, 0, 0)
	a16 := ip.As16()
	dst = append(dst, a16[:]...)
	var scope uint64
	if zone := ip.Zone(); zone != "" {
		scope, _ = strconv.ParseUint(zone, 10, 32) // a named zone means nothing elsewhere
	}
	return le.AppendUint32(dst, uint32(scope))
}

// Addr reads an address in either form.
func (r *Reader) Addr() Addr {
	return r.addrBody(r.U8())
}

// addrBody reads the bytes of an address after its marker byte.
func (r *Reader) addrBody(marker uint8) (a Addr) {
	switch {
	case r.err != nil:
	case marker == addrMarkerVersioned:
		if _, in, ok := r.open(addrVersion); ok {
			a.Type = AddrType(in.U32())
			a.Nonce = in.U32()
			if n := in.Count(1); n > 0 {
				a.AddrPort = in.sockaddr(in.Bytes(n))
			}
			r.err = in.err
		}
	case marker == addrMarkerLegacy:
		r.Skip(3)
		a.Type = AddrLegacy
		a.Nonce = r.U32()
		if sa := r.Bytes(sockaddrStorageSize); sa != nil {
			var sized [sockaddrIn6Size]byte
			copy(sized[:], sa)
			sized[0], sized[1] = sized[1], sized[0]
			a.AddrPort = decodeSockaddr(&sized)
		}
	default:
		r.Fail(fmt.Errorf("%w: address marker %d", ErrMalformed, marker))
	}
	if r.err != nil {
		return Addr{}
	}
	return a
}

// sockaddr checks the length of a socket address against its family (Ceph's msg_types.h)
// and decodes it. A short address is extended with zeros.
func (r *Reader) sockaddr(sa []byte) netip.AddrPort {
	if r.err != nil {
		return netip.AddrPort{}
	}
	if len(sa) < 2 {
		r.Fail(fmt.Errorf("%w: socket address of %d byte", ErrMalformed, len(sa)))
		return netip.AddrPort{}
	}
	limit := sockaddrIn6Size
	if le.Uint16(sa) == afInet {
		limit = sockaddrInSize
	}
	if len(sa) > limit {
		r.Fail(fmt.Errorf("%w: socket address of %d bytes, family %d has at most %d", ErrMalformed, len(sa), le.Uint16(sa), limit))
		return netip.AddrPort{}
	}
	var sized [sockaddrIn6Size]byte
	copy(sized[:], sa)
	return decodeSockaddr(&sized)
}

// decodeSockaddr decodes a socket address with a little-endian family.
func decodeSockaddr(sa *[sockaddrIn6Size]byte) netip.AddrPort {
	port := uint16(sa[2])<<8 | uint16(sa[3])
	switch le.Uint16(sa[:]) {
	case afInet:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(sa[4:8])), port)
	case afInet6:
		ip := netip.AddrFrom16([16]byte(sa[8:24]))
		if scope := le.Uint32(sa[24:]); scope != 0 {
			ip = ip.WithZone(strconv.FormatUint(uint64(scope), 10))
		}
		return netip.AddrPortFrom(ip, port)
	}
	return netip.AddrPort{}
}

// DecodeAddr reads one address, in either form, from the front of p.
func DecodeAddr(p []byte) (Addr, error) {
	r := NewReader(p)
	a := r.Addr()
	if r.Err() != nil {
		return a, fmt.Errorf("decode address: %w", r.Err())
	}
	return a, nil
}

// AddrVec lists all addresses of one process, the preferred one first (Ceph's msg_types.h).
type AddrVec []Addr

// Front returns the first address, or the blank one.
func (v AddrVec) Front() Addr {
	if len(v) == 0 {
		return Addr{}
	}
	return v[0]
}

// V2 returns the first address of type [AddrMsgr2], or the blank one.
func (v AddrVec) V2() Addr { return v.first(AddrMsgr2) }

// V1 returns the first address of type [AddrLegacy], or the blank one.
func (v AddrVec) V1() Addr { return v.first(AddrLegacy) }

func (v AddrVec) first(t AddrType) Addr {
	for _, a := range v {
		if a.Type == t {
			return a
		}
	}
	return Addr{}
}

// Contains reports whether some element equals a in every field.
func (v AddrVec) Contains(a Addr) bool { return slices.ContainsFunc(v, a.Equal) }

// Equal reports whether both have equal addresses in the same order.
func (v AddrVec) Equal(w AddrVec) bool { return slices.EqualFunc(v, w, Addr.Equal) }

// AppendTo appends the vector, each address in the versioned form.
func (v AddrVec) AppendTo(dst []byte) []byte {
	dst = le.AppendUint32(append(dst, addrVecMarker), uint32(len(v)))
	for _, a := range v {
		dst = a.AppendTo(dst)
	}
	return dst
}

// AddrVec reads a vector of addresses, or a single address in either form, which makes
// a vector of one element.
func (r *Reader) AddrVec() AddrVec {
	marker := r.U8()
	if r.err != nil {
		return nil
	}
	var v AddrVec
	switch marker {
	case addrVecMarker:
		n := r.Count(addrMinSize)
		if n > 0 && r.err == nil {
			v = make(AddrVec, 0, n)
		}
		for range n {
			v = append(v, r.Addr())
			if r.err != nil {
				break
			}
		}
	case addrMarkerLegacy, addrMarkerVersioned:
		v = AddrVec{r.addrBody(marker)}
	default:
		r.Fail(fmt.Errorf("%w: address vector marker %d", ErrMalformed, marker))
	}
	if r.err != nil {
		return nil
	}
	return v
}

// addrTypes are the types in the text form.
var addrTypes = [...]string{AddrNone: "none", AddrLegacy: "v1", AddrMsgr2: "v2", AddrAny: "any"}

// String returns the text form "v2:10.0.0.1:6800/123", with the IPv6 address in
// brackets; "-" for the zero value. An unbound address starts with "any:". The text
// form of a blank socket address ends in "-", as in "v2:-/123".
func (a Addr) String() string {
	if a == (Addr{}) {
		return "-"
	}
	b := make([]byte, 0, 64)
	if int64(a.Type) < int64(len(addrTypes)) {
		b = append(b, addrTypes[a.Type]...)
	} else {
		b = strconv.AppendUint(b, uint64(a.Type), 10)
	}
	b = append(b, ':')
	if a.AddrPort.Addr().IsValid() {
		b = a.AddrPort.AppendTo(b)
	} else {
		b = append(b, '-')
	}
	b = append(b, '/')
	return string(strconv.AppendUint(b, uint64(a.Nonce), 10))
}

// ParseAddr parses the text of [Addr.String]. A missing type is [AddrMsgr2], a missing nonce
// is 0.
func ParseAddr(s string) (Addr, error) {
	if s == "-" {
		return Addr{}, nil
	}
	fail := func(why string) (Addr, error) {
		return Addr{}, fmt.Errorf("%w: address %q: %s", errSyntax, s, why)
	}
	a := Addr{Type: AddrMsgr2}
	rest := s
	if prefix, tail, ok := strings.Cut(s, ":"); ok {
		if t, ok := parseAddrType(prefix); ok && strings.ContainsAny(tail, ":-") {
			a.Type, rest = t, tail
		}
	}
	rest, nonce, hasNonce := strings.Cut(rest, "/")
	if hasNonce {
		n, err := strconv.ParseUint(nonce, 10, 32)
		if err != nil {
			return fail("the nonce is not a 32-bit number")
		}
		a.Nonce = uint32(n)
	}
	if rest == "-" {
		return a, nil
	}
	ap, err := netip.ParseAddrPort(rest)
	if err != nil {
		return fail("want type:ip:port/nonce")
	}
	if zone := ap.Addr().Zone(); zone != "" {
		n, err := strconv.ParseUint(zone, 10, 32)
		if err != nil || n == 0 {
			return fail("the IPv6 zone is not a positive number")
		}
		ap = netip.AddrPortFrom(ap.Addr().WithZone(strconv.FormatUint(n, 10)), ap.Port())
	}
	a.AddrPort = ap
	return a, nil
}

// parseAddrType parses the part in front of the first colon.
func parseAddrType(s string) (AddrType, bool) {
	if i := slices.Index(addrTypes[:], s); i >= 0 {
		return AddrType(i), true
	}
	n, err := strconv.ParseUint(s, 10, 32)
	return AddrType(n), err == nil && AddrType(n) > AddrAny
}

// MarshalText implements [encoding.TextMarshaler]; the JSON form is that string too.
func (a Addr) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (a *Addr) UnmarshalText(text []byte) error {
	return unmarshal(a, text, ParseAddr)
}

// String returns the elements between brackets, separated by commas, such as
// "[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]".
func (v AddrVec) String() string {
	list := make([]string, len(v))
	for i, a := range v {
		list[i] = a.String()
	}
	return "[" + strings.Join(list, ",") + "]"
}

// ParseAddrVec parses the text of [AddrVec.String], or a single address without brackets.
func ParseAddrVec(s string) (AddrVec, error) {
	list, open := strings.CutPrefix(s, "[")
	list, closed := strings.CutSuffix(list, "]")
	if !open || !closed { // an IPv6 address may start with a bracket, but none ends with one
		a, err := ParseAddr(s)
		if err != nil {
			return nil, err
		}
		return AddrVec{a}, nil
	}
	if list == "" {
		return nil, nil
	}
	var v AddrVec
	for part := range strings.SplitSeq(list, ",") {
		a, err := ParseAddr(part)
		if err != nil {
			return nil, err
		}
		v = append(v, a)
	}
	return v, nil
}

// MarshalText implements [encoding.TextMarshaler]; the JSON form is that string too.
func (v AddrVec) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (v *AddrVec) UnmarshalText(text []byte) error {
	return unmarshal(v, text, ParseAddrVec)
}
