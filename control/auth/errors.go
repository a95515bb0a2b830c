package auth

import (
	"errors"
	"fmt"
	"slices"
)

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
