package control_test

import (
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// FT-25 for the answers that a session rarely gives: a connection is disturbed
// at SESSION_RESET, SESSION_RETRY, SESSION_RETRY_GLOBAL, WAIT and
// IDENT_MISSING_FEATURES, and the session comes about all the same.

// answer is one of them, as the acceptor's script gives it.
type answer struct {
	name    string
	tag     frame.Tag
	opens   bool // it answers CLIENT_IDENT, else SESSION_RECONNECT
	payload interface{ AppendTo([]byte) []byte }
	goesOn  bool // on the same socket
}

var answers = []answer{
	{"RESET", frame.TagSessionReset, false, wire.SessionReset{Full: true}, true},
	{"PARTIAL_RESET", frame.TagSessionReset, false, wire.SessionReset{}, true},
	{"RETRY", frame.TagSessionRetry, false, wire.SessionRetry{ConnectSeq: 7}, true},
	{"RETRY_GLOBAL", frame.TagSessionRetryGlobal, false, wire.SessionRetryGlobal{GlobalSeq: 1 << 20}, true},
	{"WAIT", frame.TagWait, false, nil, false},
	{"WAIT", frame.TagWait, true, nil, false},
	{"IDENT_MISSING_FEATURES", frame.TagIdentMissingFeatures, true, wire.IdentMissingFeatures{Features: 1}, false},
}
