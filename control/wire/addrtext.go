package wire

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// String returns the text form "v2:10.0.0.1:6800/123", with the IPv6 address in
// brackets; "-" for the zero value. An unbound address starts with "any:". The text
// form of a blank socket address ends in "-", as in "v2:-/123".
func (a Addr) String() string {
	if a == (Addr{}) {
		return "-"
	}
	b := make([]byte, 0, 64)
	switch a.Type {
	case AddrNone:
		b = append(b, "none:"...)
	case AddrLegacy:
		b = append(b, "v1:"...)
	case AddrMsgr2:
		b = append(b, "v2:"...)
	case AddrAny:
		b = append(b, "any:"...)
	default:
		b = strconv.AppendUint(b, uint64(a.Type), 10)
		b = append(b, ':')
	}
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
	switch s {
	case "none":
		return AddrNone, true
	case "v1":
		return AddrLegacy, true
	case "v2":
		return AddrMsgr2, true
	case "any":
		return AddrAny, true
	}
	n, err := strconv.ParseUint(s, 10, 32)
	return AddrType(n), err == nil && AddrType(n) > AddrAny
}

// MarshalText implements [encoding.TextMarshaler]; the JSON form is that string too.
func (a Addr) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (a *Addr) UnmarshalText(text []byte) error {
	v, err := ParseAddr(string(text))
	if err == nil {
		*a = v
	}
	return err
}

// String returns the elements between brackets, separated by commas, such as
// "[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]".
func (v AddrVec) String() string {
	var b strings.Builder
	b.WriteByte('[')
	for i, a := range v {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(a.String())
	}
	b.WriteByte(']')
	return b.String()
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
	w, err := ParseAddrVec(string(text))
	if err == nil {
		*v = w
	}
	return err
}
