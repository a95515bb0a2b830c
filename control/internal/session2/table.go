package session2

import "github.com/ringmsgr/ringmsgr/control/internal/session"

// The decisions of an acceptor of msgr2 about a peer that it may know already: two tables, as
// pure functions of the numbers of both sides (Ceph's ProtocolV2.cc). The rows are tested in
// order, the first that matches decides. Both follow the sharded implementation; the classic one
// differs only in ways that a peer cannot see, and looks for the whole address vector instead of
// its first address.

// View has the facts for the tables about the acceptor's connection for the peer's address.
type View struct {
	session.View
	ClientCookie uint64
	ServerCookie uint64
}

// Verdict is the decision of the acceptor.
type Verdict uint8

// The verdicts.
const (
	DoEstablish    Verdict = iota // new session
	DoReplaceLossy                // close the lossy one with a reset event, new session
	DoReuse                       // the existing connection takes the socket
	DoReuseReset                  // the same, after a full reset of its session
	DoWait                        // WAIT, and keep our own attempt alive
	DoWaitOnly                    // WAIT
	DoFault                       // close without a frame: another entity
	DoResetFull                   // SESSION_RESET(full)
	DoResetPartial                // SESSION_RESET(partial)
	DoRetryGlobal                 // SESSION_RETRY_GLOBAL(peer_global_seq)
	DoRetry                       // SESSION_RETRY(connect_seq)
	DoStale                       // close without a frame: the numbers on record are still to be believed
)

// DecideIdent answers CLIENT_IDENT.
func DecideIdent(e View, clientCookie, globalSeq uint64, resetCheck bool) Verdict {
	switch {
	case !e.Exists:
		return DoEstablish
	case e.OtherEntity:
		return DoFault
	case e.Replacing:
		return DoWaitOnly
	case e.PeerGlobalSeq > globalSeq && !e.Settled:
		return DoStale // an attempt that was overtaken by a later one
	case e.Lossy:
		return DoReplaceLossy
	case e.ServerCookie != 0 && e.ClientCookie != clientCookie:
		// The peer has lost its session.
		if resetCheck {
			return DoReuseReset
		}
		return DoReuse
	case e.ClientCookie == clientCookie:
		return DoReuse // it never saw our SERVER_IDENT, if we sent one
	case e.PeerWins:
		return DoReuse // both dial at once, and ours loses
	default:
		return DoWait
	}
}

// DecideReconnect answers SESSION_RECONNECT.
func DecideReconnect(e View, clientCookie, globalSeq, connectSeq uint64, resetCheck bool) Verdict {
	switch {
	case !e.Exists:
		return DoResetFull
	case e.OtherEntity:
		return DoFault
	case e.Replacing:
		return DoRetryGlobal
	case e.ClientCookie != clientCookie:
		if resetCheck {
			return DoResetFull
		}
		return DoResetPartial
	case e.ServerCookie == 0:
		return DoResetPartial // we never saw the peer's SERVER_IDENT
	case numbers.Implausible(e.PeerGlobalSeq, globalSeq) || numbers.Implausible(e.ConnectSeq, connectSeq):
		if e.Settled {
			return DoReuse
		}
		return DoStale
	case e.PeerGlobalSeq > globalSeq:
		return DoRetryGlobal
	case e.ConnectSeq > connectSeq:
		return DoRetry
	case e.ConnectSeq == connectSeq && !e.PeerWins:
		return DoWaitOnly // both reconnect at once, and the peer's loses
	default:
		return DoReuse
	}
}

// numbers are the bounds of msgr2: half of the number that would wrap, even with the time in
// nanoseconds to begin with. A global_seq that a CLIENT_IDENT does not reach counts, too, only as long
// as a handshake can be under way that is older: the peer is not told of it.
var numbers = session.Numbers{Max: 1 << 62, Lead: 1 << 32}

// checkReceived judges the number that the peer claims to have received from us.
func (s *Session) checkReceived(r *session.Run, msgSeq uint64) error {
	anew, err := s.CheckReceived(msgSeq)
	if anew {
		s.reset(r, false)
	}
	return err
}
