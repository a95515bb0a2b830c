package auth

import (
	"errors"
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

// ParseMethod parses "none" or "cephx".
func ParseMethod(s string) (Method, error) {
	return parse(methodNames, s, "authentication method")
}

// MarshalText implements [encoding.TextMarshaler].
func (m Method) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (m *Method) UnmarshalText(text []byte) error {
	v, err := ParseMethod(string(text))
	if err == nil {
		*m = v
	}
	return err
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
func parse[T ~uint32](names map[T]string, s, kind string) (T, error) {
	for v, name := range names {
		if name == s {
			return v, nil
		}
	}
	return 0, fmt.Errorf("%w: unknown %s %q", errSyntax, kind, s)
}

// ParseModes parses a list of modes, most preferred first, separated by commas or spaces, for
// example "secure crc". An empty list or a repeated mode is an error.
func ParseModes(s string) ([]Mode, error) {
	var modes []Mode
	for _, f := range fields(s) {
		m, err := parse(modeNames, f, "connection mode")
		if err != nil {
			return nil, err
		}
		for _, seen := range modes {
			if seen == m {
				return nil, fmt.Errorf("%w: connection mode %q is listed twice", errSyntax, f)
			}
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
	v, err := parse(modeNames, string(text), "connection mode")
	if err == nil {
		*m = v
	}
	return err
}

func fields(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
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

// Negative errno values of AUTH_BAD_METHOD. They are those of Linux on every system.
const (
	EPERM      int32 = -1
	EACCES     int32 = -13
	ebusy      int32 = -16
	EINVAL     int32 = -22
	EOPNOTSUPP int32 = -95
)

var (
	// ErrNoMethod means that the two sides have no authentication method in common, or
	// that every common one was refused.
	ErrNoMethod = errors.New("no usable authentication method")
	// ErrNoMode means that the two sides have no connection mode in common.
	ErrNoMode = errors.New("no usable connection mode")
	// ErrDowngrade means that the acceptor chose a mode that was not offered to it.
	ErrDowngrade = errors.New("peer chose a connection mode that was not offered")
	// ErrBusy is returned by a [ServerExchange] that cannot answer now. The connection is
	// closed without a frame, and the peer tries again later.
	ErrBusy = errors.New("authentication server is busy")
	// errSyntax means that the text form of a method or mode could not be parsed.
	errSyntax = errors.New("invalid syntax")
)

// Refused means that authentication was refused with a reason. A server returns it to
// choose the errno that the peer is told; a client returns it when it gives up after
// AUTH_BAD_METHOD.
type Refused struct {
	// Errno is negative, for example [EACCES].
	Errno int32
	// Reason says more than the errno. It is for the local log and never sent.
	Reason string
}

// Error implements error.
func (e *Refused) Error() string {
	s := "authentication refused: " + errnoText(e.Errno)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// Is reports whether target is a *Refused with the same errno, or with errno 0, which
// stands for any.
func (e *Refused) Is(target error) bool {
	t, ok := target.(*Refused)
	return ok && (t.Errno == 0 || t.Errno == e.Errno)
}

// Errno returns the negative errno that AUTH_BAD_METHOD carries for err: the one of a
// [Refused], EOPNOTSUPP for [ErrNoMethod] and [ErrNoMode], that of busy for [ErrBusy], EACCES
// for everything else. It never returns 0 or more, which a peer could take for success.
func Errno(err error) int32 {
	var r *Refused
	switch {
	case errors.As(err, &r) && r.Errno < 0:
		return r.Errno
	case errors.Is(err, ErrBusy):
		return ebusy
	case errors.Is(err, ErrNoMethod), errors.Is(err, ErrNoMode):
		return EOPNOTSUPP
	}
	return EACCES
}

var errnoTexts = map[int32]string{
	EPERM: "operation not permitted", EACCES: "permission denied", ebusy: "busy", EINVAL: "invalid argument",
	EOPNOTSUPP: "operation not supported",
}

func errnoText(errno int32) string {
	if text, ok := errnoTexts[errno]; ok {
		return text
	}
	return fmt.Sprintf("result %d", errno)
}

// BadMethod turns an AUTH_BAD_METHOD for method m into the error of a client that gives up. It
// wraps [Refused] and, if the same offer is pointless by the lists or the errno, [ErrNoMethod]
// or [ErrNoMode]. A result that is no negative errno is reported as EACCES, so that no result
// can look like success.
func BadMethod(m Method, result int32, methods []Method, modes []Mode) error {
	refused := &Refused{Errno: result}
	if result >= 0 {
		refused.Errno = EACCES
		refused.Reason = fmt.Sprintf("peer sent the odd result %d", result)
	}
	switch {
	case !slices.Contains(methods, m):
		return fmt.Errorf("%w: %v was refused, peer allows %v: %w", ErrNoMethod, m, methods, refused)
	case refused.Errno == EOPNOTSUPP:
		return fmt.Errorf("%w: peer allows %v with method %v or less: %w", ErrNoMode, modes, m, refused)
	}
	return fmt.Errorf("method %v: %w", m, refused)
}
