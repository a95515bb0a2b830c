package control

// What an acceptor does with a peer that it may know already: two tables, as
// pure functions of what both sides said (msgr2.md 9.5 and 9.6). The rows are
// tested in order, the first that matches decides. Both follow the sharded
// implementation; the classic one differs only where a peer cannot tell, and in
// looking for the whole address vector instead of its first address.

// known is the connection that the acceptor has for the peer's address.
type known struct {
	exists        bool
	otherEntity   bool // it belongs to another entity than the peer proved to be
	replacing     bool
	lossy         bool
	peerGlobalSeq uint64
	connectSeq    uint64
	clientCookie  uint64
	serverCookie  uint64
	peerWins      bool // the peer's outgoing connection has precedence
}

// verdict is what the acceptor does.
type verdict uint8

const (
	doEstablish    verdict = iota // new session
	doReplaceLossy                // close the lossy one with a reset event, new session
	doReuse                       // the existing connection takes the socket
	doReuseReset                  // the same, after a full reset of its session
	doWait                        // WAIT, and keep our own attempt alive
	doWaitOnly                    // WAIT
	doFault                       // close without a frame
	doResetFull                   // SESSION_RESET(full)
	doResetPartial                // SESSION_RESET(partial)
	doRetryGlobal                 // SESSION_RETRY_GLOBAL(peer_global_seq)
	doRetry                       // SESSION_RETRY(connect_seq)
)

// decideIdent answers CLIENT_IDENT.
func decideIdent(e known, clientCookie, globalSeq uint64, resetCheck bool) verdict {
	switch {
	case !e.exists:
		return doEstablish
	case e.otherEntity:
		return doFault
	case e.replacing:
		return doWaitOnly
	case e.peerGlobalSeq > globalSeq:
		return doFault // an attempt that was overtaken by a later one
	case e.lossy:
		return doReplaceLossy
	case e.serverCookie != 0 && e.clientCookie != clientCookie:
		// The peer has lost its session.
		if resetCheck {
			return doReuseReset
		}
		return doReuse
	case e.serverCookie != 0:
		return doReuse // it never saw our SERVER_IDENT
	case e.clientCookie == clientCookie:
		return doReuse
	case e.peerWins:
		return doReuse // both dial at once, and ours loses
	default:
		return doWait
	}
}

// decideReconnect answers SESSION_RECONNECT.
func decideReconnect(e known, clientCookie, globalSeq, connectSeq uint64, resetCheck bool) verdict {
	switch {
	case !e.exists:
		return doResetFull
	case e.otherEntity:
		return doFault
	case e.replacing:
		return doRetryGlobal
	case e.clientCookie != clientCookie:
		if resetCheck {
			return doResetFull
		}
		return doResetPartial
	case e.serverCookie == 0:
		return doResetPartial // we never saw the peer's SERVER_IDENT
	case e.peerGlobalSeq > globalSeq:
		return doRetryGlobal
	case e.connectSeq > connectSeq:
		return doRetry
	case e.connectSeq == connectSeq && !e.peerWins:
		return doWaitOnly // both reconnect at once, and the peer's loses
	default:
		return doReuse
	}
}
