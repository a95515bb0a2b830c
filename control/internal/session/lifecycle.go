package session

import "errors"

// The life of a connection between its sockets, in either protocol: it dials, faults,
// waits, stands by, is frozen, ends.

// Live has a new connection dial.
func (Connect) Live(l *Lifecycle, p Protocol, r *Run) {
	l.Announced = true
	l.dial(r, p, OnConnect)
}

// dial begins an attempt of our own (Ceph's ProtocolV2.cc).
func (l *Lifecycle) dial(r *Run, p Protocol, t Trigger) {
	if !l.move(r, t) {
		return
	}
	l.GlobalSeq = r.Env.Seq.Next(0)
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
		l.fault(r, p, ev.Err, ev.Terminal || errors.Is(ev.Err, ErrClosed))
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
		Work: l.work(r), Dialable: p.Address(r.Env.Addrs).AddrPort.Port() != 0,
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
	case WaitMax, WaitNext:
		if l.move(r, OnBackoff) {
			l.Timer++
			r.Do(Suspend{}, StartTimer{Run: l.Timer, After: l.Backoff.Next(remedy == WaitMax)})
		}
	case WaitUse:
		if l.move(r, OnBackoff) {
			l.Timer++
			r.Do(Suspend{}, StartTimer{Run: l.Timer, After: l.Useless.Next(false)})
		}
	case Redial:
		r.Do(Log{Text: "session lost, dialling"})
		l.dial(r, p, OnRedial)
	}
}

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
	if ev.Reset && l.Announced {
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
	f := Failure{From: Ready, Work: l.work(r), Dialable: true}
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
	l.Frozen, l.Announced = true, true
	l.IO = ev.IO
	l.PeerGlobalSeq, l.ConnectSeq, l.Features = ev.PeerGlobalSeq, ev.ConnectSeq, ev.Features
	p.Recall(ev.Record)
}

// Live judges a claim.
func (ev Checked) Live(_ *Lifecycle, p Protocol, r *Run) { p.Judge(r, ev) }

// Live makes the connection to ourselves.
func (Loopback) Live(l *Lifecycle, _ Protocol, r *Run) {
	if l.move(r, OnLoopback) {
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
	l.move(r, OnReady)
	r.Do(Open{Attempt: l.Attempt})
}
