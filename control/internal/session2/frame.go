package session2

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
)

// WaitFrame is WAIT, which has no payload. All other frames of a session are decoded payloads
// of package wire, or a session.OtherFrame.
type WaitFrame struct{}

// Kind is a kind of session frame.
type Kind uint8

// The session frames of msgr2.
const (
	KindNone Kind = iota
	KindClientIdent
	KindServerIdent
	KindMissingFeatures
	KindReconnect
	KindReconnectOK
	KindRetry
	KindRetryGlobal
	KindReset
	KindWait
)

var kindNames = [...]string{
	"none", "CLIENT_IDENT", "SERVER_IDENT", "IDENT_MISSING_FEATURES", "SESSION_RECONNECT", "SESSION_RECONNECT_OK",
	"SESSION_RETRY", "SESSION_RETRY_GLOBAL", "SESSION_RESET", "WAIT",
}

// String is the name in the protocol text.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("frame(%d)", uint8(k))
}

// KindOf is the kind of a frame, KindNone for one that has no place here.
func KindOf(f session.Frame) Kind {
	switch f.(type) {
	case wire2.ClientIdent:
		return KindClientIdent
	case wire2.ServerIdent:
		return KindServerIdent
	case wire2.IdentMissingFeatures:
		return KindMissingFeatures
	case wire2.SessionReconnect:
		return KindReconnect
	case wire2.SessionReconnectOK:
		return KindReconnectOK
	case wire2.SessionRetry:
		return KindRetry
	case wire2.SessionRetryGlobal:
		return KindRetryGlobal
	case wire2.SessionReset:
		return KindReset
	case WaitFrame:
		return KindWait
	}
	return KindNone
}

// Opens says that f is a frame of an acceptor after which the connection is open.
func Opens(f session.Frame) bool {
	k := KindOf(f)
	return k == KindServerIdent || k == KindReconnectOK
}

// frameName names a frame in errors.
func frameName(f session.Frame) string {
	if f, ok := f.(session.OtherFrame); ok {
		return f.Name
	}
	return KindOf(f).String()
}
