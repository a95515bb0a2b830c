package auth

import (
	"fmt"
	"slices"
	"strings"
)

// Method is an authentication method (Ceph's ceph_fs.h).
type Method uint32

// The authentication methods.
const (
	None  Method = 1 // the peer is believed
	Cephx Method = 2 // shared keys and tickets
)

var methodNames = map[Method]string{None: "none", Cephx: "cephx"}

// String returns "none", "cephx", or "method(n)".
func (m Method) String() string { return nameOf(methodNames, m, "method") }

// MarshalText implements [encoding.TextMarshaler].
func (m Method) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (m *Method) UnmarshalText(text []byte) error {
	return parse(m, methodNames, text, "authentication method")
}

// Mode is a connection mode: the protection of the frames after the handshake (Ceph's
// ceph_fs.h).
type Mode uint32

// The connection modes.
const (
	CRC    Mode = 1 // checksums against accidents
	Secure Mode = 2 // AES-128-GCM
)

var modeNames = map[Mode]string{CRC: "crc", Secure: "secure"}

// String returns "crc", "secure", or "mode(n)".
func (m Mode) String() string { return nameOf(modeNames, m, "mode") }

// nameOf is the name of a value, or its kind with the number.
func nameOf[T ~uint32](names map[T]string, v T, kind string) string {
	if name, ok := names[v]; ok {
		return name
	}
	return fmt.Sprintf("%s(%d)", kind, uint32(v))
}

// parse is the opposite of nameOf, for values with a name.
func parse[T ~uint32](m *T, names map[T]string, text []byte, kind string) error {
	for v, name := range names {
		if name == string(text) {
			*m = v
			return nil
		}
	}
	return fmt.Errorf("%w: unknown %s %q", errSyntax, kind, text)
}

// ParseModes parses a list of modes, most preferred first, separated by commas or spaces, for
// example "secure crc". An empty list or a repeated mode is an error.
func ParseModes(s string) ([]Mode, error) {
	var modes []Mode
	for _, f := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' }) {
		var m Mode
		if err := m.UnmarshalText([]byte(f)); err != nil {
			return nil, err
		}
		if slices.Contains(modes, m) {
			return nil, fmt.Errorf("%w: connection mode %q is listed twice", errSyntax, f)
		}
		modes = append(modes, m)
	}
	if len(modes) == 0 {
		return nil, fmt.Errorf("%w: empty list of connection modes", errSyntax)
	}
	return modes, nil
}

// MarshalText implements [encoding.TextMarshaler].
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (m *Mode) UnmarshalText(text []byte) error {
	return parse(m, modeNames, text, "connection mode")
}

// PickMode makes the acceptor's choice (Ceph's AuthRegistry.cc): the first of the connector's
// preferred modes that is allowed. Method [None] has no keys and can only have [CRC]. Without a
// common mode it returns an error wrapping [ErrNoMode].
func PickMode(m Method, preferred, allowed []Mode) (Mode, error) {
	for _, mode := range preferred {
		if m == None && mode != CRC {
			continue
		}
		if slices.Contains(allowed, mode) {
			return mode, nil
		}
	}
	return 0, fmt.Errorf("%w: peer prefers %v, allowed are %v with method %v", ErrNoMode, preferred, allowed, m)
}

// CheckMode makes the connector's verification of AUTH_DONE: the acceptor must have
// chosen a mode that was offered, and one that the method can have. It returns an error
// wrapping [ErrDowngrade] otherwise.
func CheckMode(m Method, offered []Mode, chosen Mode) error {
	if !slices.Contains(offered, chosen) || m == None && chosen != CRC {
		return fmt.Errorf("%w: offered %v with method %v, got %v", ErrDowngrade, offered, m, chosen)
	}
	return nil
}
