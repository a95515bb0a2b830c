package session

import (
	"errors"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The life of a connection between its sockets, in either protocol: it dials, faults,
// waits, stands by, is frozen, ends.

// Live has a new connection dial.
func (Connect) Live(l *Lifecycle, p Protocol, r *Run) {
	l.dial(r, p, OnConnect)
}

// dial begins an attempt of our own (Ceph's ProtocolV2.cc).
func (l *Lifecycle) dial(r *Run, p Protocol, t Trigger) {
	if !l.move(r, t) {
		return
	}
	l.GlobalSeq = max(r.Env.Seq.Next(), l.GlobalSeq+1)
	p.Begin(r, t)
	l.Attempt++
	l.rounds = 0
	// in_seq is final once the last socket is closed.
	r.Do(Suspend{ReplyTo: l.Attempt}, Count{Attempts}, Dial{Attempt: l.Attempt})
}

// Live has a session that stands by dial.
func (Queued) Live(l *Lifecycle, p Protocol, r *Run) {
	l.IO.Queued = true
	if l.State == Standby && !l.Policy.Server && !l.Frozen {
		l.dial(r, p, OnQueued)
	}
}

// Live has a session dial after its pause.
func (ev TimerFired) Live(l *Lifecycle, p Protocol, r *Run) {
	if l.State == Wait && l.Timer == ev.Run && !l.Frozen {
		l.dial(r, p, OnTimer)
	}
}

// Live is the fault of the data phase.
func (ev Lost) Live(l *Lifecycle, p Protocol, r *Run) {
	if ev.Notification <= l.lastNotification {
		return // of a socket before the present one
	}
	l.IO = ev.IO
	if l.State == Ready {
		if l.useless++; ev.Useful {
			l.useless = 0
			l.Useless.Reset()
		}
		l.fault(r, p, ev.Err, errors.Is(ev.Err, ErrClosed))
	}
}

// Live is the fault of an attempt.
func (ev Failed) Live(l *Lifecycle, p Protocol, r *Run) {
	if l.owns(r, ev.Attempt, Connecting, Establishing, Replacing) {
		l.fault(r, p, ev.Err, ev.Terminal)
	}
}

// fault applies the fault rule.
func (l *Lifecycle) fault(r *Run, p Protocol, err error, terminal bool) {
	from := l.State
	r.Do(Faulted{From: from, Err: err})
	f := Failure{
		From: from, Terminal: terminal || errors.Is(err, ErrWrongPeer), Waited: errors.Is(err, ErrWait), Once: l.Once,
		Work: l.work(r), Dialable: dialable(r, p),
		Useless: l.useless > 1,
	}
	switch remedy := FaultRule(l.Policy, f); remedy {
	case Refuse:
		r.Do(Log{Text: "connection refused for good"})
		l.Close(r, p, Close{Reset: true})
	case Drop:
		if l.Policy.Lossy && from != Connecting {
			r.Do(Log{Text: "lossy connection ended"})
		}
		l.Close(r, p, Close{Reset: true})
	case StandBy:
		r.Do(Log{Text: "session in standby"})
		if l.move(r, OnStandby) {
			r.Do(Suspend{Notify: !l.Policy.Server})
		}
	case WaitMax, WaitNext, WaitUse:
		pauses := &l.Backoff
		if remedy == WaitUse {
			pauses = &l.Useless
		}
		if l.move(r, OnBackoff) {
			l.Timer++
			r.Do(Suspend{}, StartTimer{Run: l.Timer, After: pauses.Next(remedy == WaitMax)})
		}
	case Redial:
		r.Do(Log{Text: "session lost, dialling"})
		l.dial(r, p, OnRedial)
	}
}

// dialable says whether the peer could dial us.
func dialable(r *Run, p Protocol) bool { return p.Address(r.Env.Addrs).AddrPort.Port() != 0 }

// Live ends the connection for good.
func (ev Close) Live(l *Lifecycle, p Protocol, r *Run) { l.Close(r, p, ev) }

// Close ends the connection for good, as ev says.
func (l *Lifecycle) Close(r *Run, p Protocol, ev Close) {
	if l.State == Closing || !l.move(r, OnClose) {
		return
	}
	r.Do(Silence{}, StopTimer{}, Cancel{Err: ev.Err}) // no message is dispatched after the reset event
	p.Leave(r)
	r.Do(End{Err: ev.Err})
	if ev.Reset {
		r.Do(TellReset{Replace: ev.Replace}, Count{Resets})
	}
	r.Do(CloseIO{})
}

// Live has the session stand still: it has neither socket nor attempt nor
// timer, and nobody begins another one.
func (Freeze) Live(l *Lifecycle, _ Protocol, r *Run) {
	if !l.move(r, OnFreeze) {
		return
	}
	l.Frozen = true
	l.Attempt++
	r.Do(StopTimer{}, Cancel{Err: ErrFrozen}, Suspend{ReplyTo: l.Attempt})
}

// Live keeps the snapshot of a session that stands still.
func (ev FrozenSnapshot) Live(l *Lifecycle, _ Protocol, _ *Run) {
	if l.Frozen {
		l.IO = ev.IO
	}
}

// Live is the fault rule for a session that stood still.
func (Thaw) Live(l *Lifecycle, p Protocol, r *Run) {
	if l.State == Closing || !l.Frozen {
		return
	}
	l.Frozen = false
	f := Failure{From: Ready, Work: l.work(r), Dialable: dialable(r, p)}
	switch {
	case l.State == Wait:
		l.dial(r, p, OnTimer)
	case FaultRule(l.Policy, f) == StandBy:
		r.Do(Suspend{Notify: !l.Policy.Server})
	default:
		l.dial(r, p, OnQueued)
	}
}

// Live makes a session of another process ours.
func (ev Restore) Live(l *Lifecycle, p Protocol, r *Run) {
	if !l.move(r, OnRestore) {
		return
	}
	l.Frozen = true
	l.IO = ev.IO
	l.PeerGlobalSeq, l.ConnectSeq, l.Features = ev.PeerGlobalSeq, ev.ConnectSeq, ev.Features
	p.Recall(ev.Record)
}

// Live judges a claim.
func (ev Checked) Live(_ *Lifecycle, p Protocol, r *Run) { p.Judge(r, ev) }

// Live makes the connection to ourselves.
func (Loopback) Live(l *Lifecycle, _ Protocol, r *Run) {
	if l.move(r, OnLoopback) {
		l.Local = true
	}
}

// Live follows our addresses on the connection to ourselves.
func (ev Readdressed) Live(l *Lifecycle, p Protocol, _ *Run) {
	if l.Local {
		l.Peer.Target, l.Peer.Addrs = p.Address(ev.Addrs), ev.Addrs
		l.Peer.Dialled = !l.Peer.Target.IsBlank()
	}
}

// Ready completes a handshake: the handler gets the socket.
func (l *Lifecycle) Ready(r *Run) {
	l.Backoff.Reset()
	l.strange = 0
	r.Do(StopTimer{}, Count{Readies})
	l.move(r, OnReady)
	r.Do(Open{Attempt: l.Attempt})
}

// The socket of an attempt: an accepted socket until the decision about its connection, the
// connection that it takes over, and the end of every handshake.

// Live begins with an accepted socket.
func (Accept) Live(l *Lifecycle, _ Protocol, r *Run) { l.move(r, OnAccept) }

// maxRounds bounds the session frames of an accepted socket. maxRetries bounds the frames by
// which one attempt of ours resumes its session: each RETRY raises one of our numbers, and an
// honest peer sends only a few.
const (
	maxRounds  = 32
	maxRetries = 16
)

// Live answers a frame of an accepted socket.
func (ev Request) Live(l *Lifecycle, p Protocol, r *Run) {
	if l.State != Accepting {
		r.Do(Superseded{})
		return
	}
	more := l.MayGoOn()
	if err := p.Asked(r, ev); err != nil {
		l.hangup(r, err)
	} else if l.State == Accepting && !more {
		l.hangup(r, ErrEndless)
	}
}

// View has the facts for the tables of an acceptor about its connection for the peer's
// address.
type View struct {
	Exists        bool
	OtherEntity   bool // it belongs to another entity than the peer has proven to be
	Replacing     bool
	Lossy         bool
	PeerGlobalSeq uint64
	ConnectSeq    uint64
	PeerWins      bool // the peer's outgoing connection has precedence
	Settled       bool // no handshake is under way that is older than its numbers
}

// View is the connection e, as an accepted socket sees it.
func (l *Lifecycle) View(r *Run, e Protocol, ev *Request) View {
	s := e.Life()
	return View{
		Exists: true,
		// Stricter than real daemons, which compare claimed names: only the peer for
		// which a session was authenticated gets it. A session that we dialled has no
		// proven entity until its peer has dialled us.
		OtherEntity:   !s.Is(&l.Peer),
		Replacing:     s.State == Replacing,
		Lossy:         s.Policy.Lossy,
		PeerGlobalSeq: s.PeerGlobalSeq,
		ConnectSeq:    s.ConnectSeq,
		PeerWins:      PeerWins(s.Policy, e.Address(r.Env.Addrs), e.Address(s.Peer.Addrs)),
		Settled:       ev.Settled,
	}
}

// MayGoOn counts a session frame of an accepted socket, and says whether one more may follow.
func (l *Lifecycle) MayGoOn() bool {
	l.rounds++
	return l.rounds < maxRounds
}

// MayRetry counts a frame by which our attempt resumes its session, and returns why it is one too
// many.
func (l *Lifecycle) MayRetry() error {
	if l.rounds++; l.rounds > maxRetries {
		return fmt.Errorf("%w: session retried without end", ErrProtocol)
	}
	return nil
}

// Exceed numbers our attempt anew, above the number that the peer has on record. Other sessions go on
// with our own numbers: a peer could raise these up to Numbers.Max, attempt by attempt.
func (l *Lifecycle) Exceed(r *Run, n Numbers, known uint64) error {
	if own := max(uint64(*r.Env.Seq), l.GlobalSeq); !n.Believable(known, own) { // one number for all our peers
		return fmt.Errorf("%w: RETRY_GLOBAL with %d, we are at %d", ErrProtocol, known, own)
	}
	l.GlobalSeq = max(r.Env.Seq.Next(), l.GlobalSeq+1, known+1)
	r.Do(Count{Retries})
	return nil
}

// ErrEndless: the two sides do not agree on a session.
var ErrEndless = fmt.Errorf("%w: session handshake without end", ErrProtocol)

// hangup closes the socket without a frame.
func (l *Lifecycle) hangup(r *Run, err error) {
	l.move(r, OnClose)
	r.Do(Hangup{Err: err})
}

// Establish makes a connection of the accepted socket, on which a new session
// begins. The peer is found under the address of ev from now on if the policy says so.
func (l *Lifecycle) Establish(r *Run, ev *Request, replaceLossy bool) {
	r.Do(NewConn{ReplaceLossy: replaceLossy})
	l.move(r, OnEstablish)
	l.Attempt = 1
	if l.Policy.Findable() {
		l.Peer.Target, l.Peer.Near = ev.From, ev.Near // address to dial if the session is ours to resume
	}
}

// Rename adopts the peer's addresses.
func (l *Lifecycle) Rename(r *Run, addrs wire.AddrVec, also bool) {
	r.Do(Renamed{From: l.Peer.Addrs.Front(), To: addrs.Front(), Also: also})
	l.Peer.Addrs = addrs
}

// TellWait sends the frame by which the peer of an accepted socket waits, and keeps the socket
// until the peer hangs up. Probe: our own connection is kept alive.
func (l *Lifecycle) TellWait(r *Run, probe bool, f Frame) {
	l.move(r, OnWaitSent)
	r.Do(Count{WaitsSent})
	if probe {
		r.Do(Probe{})
	}
	r.Do(Send{Frame: f})
}

// Give lets the existing connection e have the accepted socket.
func (l *Lifecycle) Give(r *Run, e *Lifecycle, reset bool) error {
	if e.Frozen {
		return ErrFrozen
	}
	if _, err := Next(e.State, OnReplace); err != nil {
		return fmt.Errorf("%w: state %v cannot be replaced", ErrProtocol, e.State)
	}
	l.move(r, OnReplace)
	r.Do(TakeOver{Reset: reset})
	return nil
}

// Live has an accepted socket take over: the attempt that owned the connection's socket ends
// first.
func (ev Replace) Live(l *Lifecycle, _ Protocol, r *Run) {
	if !l.move(r, OnReplace) {
		return
	}
	l.replace = &ev
	l.Attempt++
	l.rounds = 0
	l.Backoff.Reset()
	r.Do(Cancel{}, StopTimer{}, Count{Replaced}, Suspend{ReplyTo: l.Attempt})
}

// Live moves the handler, which is not open, to the core of the accepted
// socket.
func (ev Suspended) Live(l *Lifecycle, _ Protocol, r *Run) {
	if !l.owns(r, ev.Attempt, Replacing) {
		return
	}
	l.observe(ev.IO)
	r.Do(MoveHandler{Attempt: l.Attempt, Accepted: true})
}

// Live begins the session handshake of our attempt.
func (ev Authenticated) Live(l *Lifecycle, p Protocol, r *Run) {
	if l.owns(r, ev.Attempt, Connecting) {
		l.observe(ev.IO)
		l.check(r, p, p.Start(r))
	}
}

// Live judges the peer's next frame on the socket of an attempt.
func (ev Answer) Live(l *Lifecycle, p Protocol, r *Run) {
	if l.negotiates(r, ev.Attempt) {
		l.check(r, p, p.Answered(r, ev.Frame))
	}
}

// Live goes on when the handler is on the core of the socket.
func (ev HandlerMoved) Live(l *Lifecycle, p Protocol, r *Run) {
	if !l.negotiates(r, ev.Attempt) {
		return
	}
	switch l.State {
	case Connecting:
		p.Arrived(r)
	case Establishing:
		p.Accept(r)
	default:
		by := *l.replace
		l.replace = nil
		if by.Proven && l.Peer.Entity == (wire.EntityName{}) { // a name that is only said keeps nobody out
			l.Peer.Entity = by.Entity
		}
		l.Peer.Proven = l.Peer.Proven || by.Proven
		l.check(r, p, p.Resume(r, by))
	}
}

// Live ends a handshake whose last frame was ours.
func (ev Sent) Live(l *Lifecycle, p Protocol, r *Run) {
	if l.negotiates(r, ev.Attempt) {
		p.Finish(r)
	}
}

// negotiates is owns in the states of a session handshake.
func (l *Lifecycle) negotiates(r *Run, attempt uint64) bool {
	return l.owns(r, attempt, Connecting, Establishing, Replacing)
}

// check has an error be a fault of the attempt.
func (l *Lifecycle) check(r *Run, p Protocol, err error) {
	if err != nil {
		l.fault(r, p, err, false)
	}
}

// Forget forgets the session (Ceph's ProtocolV2.cc): all of it, with the queue, or the state that
// depends on the peer's memory. After a full reset messages may have any first number.
func (l *Lifecycle) Forget(r *Run, full, anywhere bool) {
	l.ConnectSeq = 0
	l.IO.InSeq = 0
	if full {
		l.PeerGlobalSeq = 0
		l.IO = Snapshot{}
		r.Do(Count{RemoteResets})
	}
	r.Do(ResetIO{Full: full, Anywhere: full && anywhere})
	if full {
		r.Do(TellRemoteReset{})
	}
}
