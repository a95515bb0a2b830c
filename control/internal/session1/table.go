package session1

import "github.com/ringmsgr/ringmsgr/control/internal/session"

// The acceptor's decision about a peer that it may know already, as a pure function of the
// numbers of both sides (Ceph's ProtocolV1.cc). The rows are tested in order, the first that
// matches decides; they have the numbers of the protocol text. It follows the Pacific release.

// View has the facts for the table about the acceptor's connection for the peer's address.
type View struct {
	session.View
	Foreign    bool // it speaks another protocol
	Connecting bool // our own attempt is under way, or waits for its next
}

// Verdict is the decision of the acceptor.
type Verdict uint8

// The verdicts.
const (
	DoOpen         Verdict = iota // new session
	DoOpenInstead                 // close the existing connection with a reset event, new session
	DoReplace                     // the existing connection takes the socket
	DoReplaceReset                // the same, after a reset of its session
	DoResetSession                // RESETSESSION
	DoRetryGlobal                 // RETRY_GLOBAL(peer_global_seq)
	DoRetrySession                // RETRY_SESSION(connect_seq + 1)
	DoWait                        // WAIT, and keep our own attempt alive
	DoFault                       // close without a reply: another entity
	DoStale                       // close without a reply: the numbers on record are still to be believed
)

// Decide answers a connect message that Refuse and check have let through.
func Decide(e View, globalSeq, connectSeq uint64, resetCheck bool) Verdict {
	switch {
	case e.OtherEntity:
		return DoFault
	case (!e.Exists || e.Foreign) && connectSeq > 0: // rows 6, 7
		return DoResetSession
	case !e.Exists: // row 8
		return DoOpen
	case e.Foreign: // row 6
		return DoOpenInstead
	case numbers.Implausible(e.PeerGlobalSeq, globalSeq), connectSeq > 0 && numbers.Implausible(e.ConnectSeq, connectSeq):
		if !e.Settled {
			return DoStale
		}
	case e.Replacing, globalSeq < e.PeerGlobalSeq: // rows 10, 11
		return DoRetryGlobal
	}
	switch {
	case e.Lossy: // row 12
		return DoOpenInstead
	case connectSeq == 0 && e.ConnectSeq > 0: // row 13
		if resetCheck {
			return DoReplaceReset
		}
		return DoReplace
	case numbers.Implausible(e.ConnectSeq, connectSeq):
		return DoReplace
	case connectSeq < e.ConnectSeq: // row 14
		return DoRetrySession
	case connectSeq == e.ConnectSeq && !e.Connecting:
		if connectSeq == 0 && resetCheck { // row 15a
			return DoReplace
		}
		return DoRetrySession // row 15
	case connectSeq == e.ConnectSeq:
		if e.PeerWins { // row 16
			return DoReplace
		}
		return DoWait // row 17
	case resetCheck && e.ConnectSeq == 0: // row 18
		return DoResetSession
	default: // row 19
		return DoReplace
	}
}

// numbers are the bounds of msgr1. They have 32 bits, and a process may begin to count with the time
// in seconds.
var numbers = session.Numbers{Max: 1<<32 - 1<<24, Lead: 1 << 24}

// maxReceived bounds what a peer may have received before our first message, which has 64 bits:
// without reset check the peer resumes the session that it had with the connection before, and
// drops the messages up to that number (Ceph's ProtocolV1.cc).
const maxReceived = 1 << 62
