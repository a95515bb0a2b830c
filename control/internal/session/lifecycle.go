package session

import "errors"

// What happens to a connection between its sockets, whatever protocol it speaks: it
// dials, faults, waits, stands by, stands still, ends.

// LifeEvent is an event that all protocols share. Live applies it to a connection
// of protocol p.
type LifeEvent interface {
	Live(l *Lifecycle, p Protocol, r *Run)
}

// Live has a new connection dial.
func (Connect) Live(l *Lifecycle, p Protocol, r *Run) {
	l.Announced = true
	l.Dial(r, p, OnConnect)
}

// Dial begins an attempt of our own (msgr2.md 9.8).
func (l *Lifecycle) Dial(r *Run, p Protocol, t Trigger) {
	if !l.Move(r, t) {
		return
	}
	l.GlobalSeq = r.Env.Seq.Next(0)
	p.Begin(r, t)
	l.Attempt++
	l.rounds = 0
	// What was received on the last socket is known once that is closed.
	r.Do(Suspend{ReplyTo: l.Attempt}, Count{Attempts}, Dial{Attempt: l.Attempt})
}

// Live has a session that stands by dial.
func (Queued) Live(l *Lifecycle, p Protocol, r *Run) {
	l.IO.Queued = true
	if l.State == Standby && !l.Policy.Server && !l.Frozen {
		l.Dial(r, p, OnQueued)
	}
}

// Live has a session dial whose pause is over.
func (ev TimerFired) Live(l *Lifecycle, p Protocol, r *Run) {
	if l.State == Wait && l.Timer == ev.Run && !l.Frozen {
		l.Dial(r, p, OnTimer)
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
		l.Fault(r, p, ev.Err, ev.Terminal)
	}
}

// Live is the fault of an attempt.
func (ev Failed) Live(l *Lifecycle, p Protocol, r *Run) {
	if l.Owns(r, ev.Attempt, Connecting, Establishing, Replacing) {
		l.Fault(r, p, ev.Err, ev.Terminal)
	}
}

// Fault applies the fault rule.
func (l *Lifecycle) Fault(r *Run, p Protocol, err error, terminal bool) {
	from := l.State
	r.Do(Faulted{From: from, Err: err})
	f := Failure{
		From: from, Terminal: terminal || errors.Is(err, ErrWrongPeer), Waited: errors.Is(err, ErrWait), Once: l.Once,
		Work: l.Work(r), Dialable: p.Address(r.Env.Addrs).AddrPort.Port() != 0,
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
		if l.Move(r, OnStandby) {
			r.Do(Suspend{Notify: !l.Policy.Server})
		}
	case WaitMax, WaitNext:
		if l.Move(r, OnBackoff) {
			l.Timer++
			r.Do(Suspend{}, StartTimer{Run: l.Timer, After: l.Backoff.Next(remedy == WaitMax)})
		}
	case WaitUse:
		if l.Move(r, OnBackoff) {
			l.Timer++
			r.Do(Suspend{}, StartTimer{Run: l.Timer, After: l.Useless.Next(false)})
		}
	case Redial:
		r.Do(Log{Text: "session lost, dialling"})
		l.Dial(r, p, OnRedial)
	}
}

// Live ends the connection for good.
func (ev Close) Live(l *Lifecycle, p Protocol, r *Run) { l.Close(r, p, ev) }

// Close ends the connection for good, as ev says.
func (l *Lifecycle) Close(r *Run, p Protocol, ev Close) {
	if l.State == Closing || !l.Move(r, OnClose) {
		return
	}
	r.Do(Silence{}, StopTimer{}, Cancel{Err: ev.Err}) // nothing is dispatched behind the reset event
	p.Leave(r)
	r.Do(End{Err: ev.Err})
	if ev.Reset && l.Announced {
		r.Do(TellReset{Replace: ev.Replace}, Count{Resets})
	}
	r.Do(CloseIO{})
}

// Live has the session stand still: it has neither socket nor attempt nor
// timer, and nobody begins another one.
func (Freeze) Live(l *Lifecycle, _ Protocol, r *Run) {
	if !l.Move(r, OnFreeze) {
		return
	}
	l.Frozen = true
	l.Attempt++
	r.Do(StopTimer{}, Cancel{Err: ErrFrozen}, Suspend{ReplyTo: l.Attempt})
}

// Live keeps what is left to be done for a session that stands still.
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
	f := Failure{From: Ready, Work: l.Work(r), Dialable: true}
	switch {
	case l.State == Wait:
		l.Dial(r, p, OnTimer)
	case FaultRule(l.Policy, f) == StandBy:
		r.Do(Suspend{Notify: !l.Policy.Server})
	default:
		l.Dial(r, p, OnQueued)
	}
}

// Restore makes a session of another process ours. The protocol's own numbers are
// left to the caller.
func (l *Lifecycle) Restore(r *Run, io Snapshot) bool {
	if !l.Move(r, OnRestore) {
		return false
	}
	l.Frozen, l.Announced = true, true
	l.IO = io
	return true
}

// Live makes the connection to ourselves.
func (Loopback) Live(l *Lifecycle, _ Protocol, r *Run) {
	if l.Move(r, OnLoopback) {
		l.Announced, l.Local = true, true
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
	l.Move(r, OnReady)
	r.Do(Open{Attempt: l.Attempt})
}
