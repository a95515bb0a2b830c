package control

import (
	"errors"
	"log/slog"

	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/control/session"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// The machine of the protocol says what has to be done; this file does it. A
// step happens under the messenger's lock: what changes memory is done at once,
// what is for the handler, a timer or a log goes to the connection's outbox, and
// what is for the socket of an attempt goes back to the attempt.
//
// A behaviour that has a file of its own is done there: claim.go, connect.go,
// cores_leave.go, expire.go, linger.go. Those files step the machine too, through
// this one, so the calls into them run back up.

// levelState is the log level of state changes.
const levelState = slog.LevelDebug

// outcome is what a step means for the attempt whose event it was.
type outcome struct {
	send       session.Frame // to be sent; nil: nothing
	waits      bool          // the peer of an accepted socket is told to wait
	hangup     error         // why the socket has to be closed
	faulted    error         // the fault rule was applied
	superseded bool          // the connection has gone on
}

// record records what an action means for the attempt.
func (o *outcome) record(a session.Action) {
	switch a := a.(type) {
	case session.Send:
		o.send = a.Frame
	case session.Hangup:
		o.hangup = a.Err
	case session.Faulted:
		o.faulted = a.Err
	case session.Superseded:
		o.superseded = true
	case session.StateChanged:
		o.waits = o.waits || a.To == StateServerWait
	}
}

// stepLocked is one step: it takes the lock, steps, frees the lock, and carries out what
// the machine said.
func (c *Conn) stepLocked(ev session.Event) outcome {
	var n numbers
	switch ev.(type) {
	case session.Answer, session.HandlerMoved: // these may make a cookie
		n = c.m.drawNumbers()
	}
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	return c.stepWith(ev, n)
}

// step is play for who has the lock.
func (c *Conn) step(ev session.Event) outcome { return c.stepWith(ev, numbers{}) }

// stepWith is step with the random numbers that Connect, Answer and Arrived need.
// The lock is held.
func (c *Conn) stepWith(ev session.Event, n numbers) outcome {
	before, numbered := c.s.Peer, c.s.PeerGlobalSeq
	actions := c.s.step(ev, c.m.env(&c.s, c, n))
	if c.s.PeerGlobalSeq != numbered && c.att != nil {
		c.numbered = c.att.begun
	}
	c.m.names.showPeer(c, &before)
	return c.perform(actions)
}

// perform does the actions of a step that change memory, and puts the others into
// the outbox. The lock is held.
func (c *Conn) perform(actions []session.Action) (o outcome) {
	leave, open := false, false
	for _, a := range actions {
		o.record(a)
		switch a.(type) {
		case session.Faulted:
			leave = true
		case session.Open:
			leave, open = true, true
		}
		switch session.PlaceOf(a) {
		case session.Memory:
			c.performState(a)
		case session.IO:
			c.prepare(a)
		}
	}
	if open && o.send == nil {
		c.att = nil // it has nothing left to do for us
	}
	c.shown.publish(&c.s)
	if leave {
		c.leaveCore(c.h.Core())
	}
	return o
}

// env is what a step of s may ask of the messenger; c is its connection, nil for an
// accepted socket. The lock is held.
func (m *Messenger) env(s *machine, c *Conn, n numbers) session.Env {
	e := session.Env{Addrs: m.addrs, Number: m.number, Seq: &m.globalSeq, Cookie: n.cookie, OwnerCookie: func() uint64 { return n.owner(m, c) }}
	if s.msgr1 != nil {
		e.Seq = &m.globalSeq1
	}
	if c != nil {
		messages, _ := c.h.QueuedOut()
		e.Unsent = messages > 0
		e.Contested = func() bool { return session.Contested(c.s.Lifecycle, lives(m.names.of[c.s.Peer.Target])) }
	}
	return e
}

// performState does what changes our own memory. The lock is held.
func (c *Conn) performState(a session.Action) {
	m := c.m
	switch a := a.(type) {
	case session.StateChanged:
		c.moved(a)
	case session.Illegal:
		m.counters.IllegalTransitions++
		peer := c.s.peerText()
		c.out.put(func() { m.cfg.Logger.Error("illegal transition", "conn", c.id, "peer", peer, "err", a.Err) })
	case session.Faulted:
		c.faulted(a)
	case session.Count:
		c.count(a.What)
	case session.Renamed:
		m.names.renamed(c, a)
	case session.Only:
		c.endDoubles()
	case session.Disproved:
		m.names.disprove(a.Addr)
	case session.HintReceived:
		if d := c.att.dial; d != nil {
			d.adoptHint(a.Cookie)
		}
	case session.HintDropped:
		c.hint.to = steering.Owner{}
	case session.Remember:
		m.rememberEnd(a)
	case session.Silence:
		c.h.Refuse()
	case session.End:
		if a.Err != nil {
			c.shown.err = a.Err
		}
		m.names.forget(c)
		if c.local {
			m.local = nil
		}
		delete(m.all, c)
		m.counters.Closed++
	}
}

// moved tells of a new state. The lock is held.
func (c *Conn) moved(a session.StateChanged) {
	c.shown.stateChanged()
	if a.To == StateStandby {
		c.beginStandby()
	} else {
		c.endStandby()
	}
	log, ctx, peer := c.m.cfg.Logger, c.m.ctx, c.s.peerText()
	c.out.put(func() {
		if log.Enabled(ctx, levelState) {
			log.Log(ctx, levelState, "state", "conn", c.id, "peer", peer, "from", a.From, "event", a.By, "to", a.To)
		}
	})
}

// faulted keeps why. The lock is held.
func (c *Conn) faulted(a session.Faulted) {
	c.shown.err = a.Err
	if e := (*Error)(nil); !errors.As(a.Err, &e) {
		stage := StageSession
		if a.From == StateConnecting {
			stage = StageIdent
		}
		c.shown.err = &Error{Stage: stage, Peer: c.s.peerText(), State: a.From, Err: a.Err}
	}
	if a.From == StateConnecting {
		c.streak.attemptFailed(c, c.shown.err)
	}
	c.counters.Faults++
	countAuthFailure(&c.counters.AuthFailures, a.Err)
}

// count counts for the connection or the messenger. The lock is held.
func (c *Conn) count(what session.Counter) {
	switch n := &c.counters; what {
	case session.Attempts:
		n.Attempts++
	case session.Idents:
		n.Idents++
	case session.Reconnects:
		n.Reconnects++
	case session.Retries:
		n.Retries++
	case session.Replaced:
		n.Replaced++
	case session.Readies:
		n.Ready++
		c.streak = streak{}
	case session.Resets:
		n.Resets++
	case session.RemoteResets:
		n.RemoteResets++
	}
}

// prepare puts an action on the handler, the timer or the log into the outbox.
// The lock is held.
func (c *Conn) prepare(a session.Action) {
	m, h := c.m, c.h
	switch a := a.(type) {
	case session.Suspend:
		var answer func(dataplane.Snapshot)
		if a.ReplyTo != 0 {
			told := make(chan dataplane.Snapshot, 1)
			c.told = told
			answer = func(mirror dataplane.Snapshot) { told <- mirror }
		}
		c.out.put(func() { h.Delay(a.Notify, answer) })
	case session.Requeue:
		c.out.put(h.RequeueSent)
	case session.RequeueUpTo:
		c.out.put(func() { h.RequeueSentUpTo(a.Seq) })
	case session.ResetPeer:
		c.out.put(h.ResetPeerState)
	case session.ResetIO:
		randomly := a.Full && c.s.msgr1 != nil && c.s.Features.Has(wire.FeatureMsgAuth)
		c.out.put(func() {
			h.ResetSession(a.Full)
			if randomly {
				h.BeginAfter(m.random.next() & (1<<31 - 1)) // msgr1.md, section 15
			}
		})
	case session.TellReset: // it and CloseIO wait for what is queued here
		c.tellReset(resetEvent{a.Replace})
	case session.TellRemoteReset:
		c.out.put(func() { h.Notify(remoteResetEvent{}) })
	case session.MoveHandler:
		c.prepareMove(c.att, dataplane.MoveCause{Accepted: a.Accepted, Replace: a.Replace})
	case session.Open:
		c.prepareOpen(c.att)
	case session.CloseIO:
		c.closeIO()
	case session.StartTimer:
		c.out.put(func() {
			c.stopTimer = m.cfg.Clock.AfterFunc(a.After, func() { c.stepLocked(session.TimerFired{Run: a.Run}) })
		})
	case session.StopTimer:
		c.out.put(func() {
			if c.stopTimer != nil {
				c.stopTimer()
				c.stopTimer = nil
			}
		})
	case session.Log:
		peer, err := c.s.peerText(), c.shown.err
		if c.streak.goesOn(err, a.Text) {
			return
		}
		c.out.put(func() { m.lines.Info(a.Text, "conn", c.id, "peer", peer, "err", err) })
	case session.Dial:
		c.prepareDial(a.Attempt)
	case session.Cancel:
		if att := c.att; att != nil {
			err := a.Err
			if err == nil {
				err = errSuperseded
			}
			c.out.put(func() { att.cancel(err) })
		}
	}
}

// prepareMove brings the handler to the socket of an attempt. The lock is held.
func (c *Conn) prepareMove(a *attempt, why dataplane.MoveCause) {
	if acc := a.accepted; acc != nil {
		c.shown.place = acc.place
		c.m.counters.Placement.count(acc.place)
	}
	c.shown.keep(&c.s, a) // for the event that says that the handler has arrived
	link, moved, there := a.link, a.moved, a.together
	c.out.put(func() {
		if !there && coreGone(link) {
			moved <- dataplane.ErrStopped
			return
		}
		c.h.Move(link.Core(), why, func() { moved <- nil })
	})
}

// prepareOpen gives the handler the socket of an attempt. The lock is held.
func (c *Conn) prepareOpen(a *attempt) {
	m := c.m
	c.shown.err = nil
	if a.dial != nil {
		c.shown.place = c.shown.place.dialled(a.link.Core())
	}
	c.shown.keep(&c.s, a)
	c.opened = a.begun.Add(a.took)
	if c.claim.wanted {
		c.checkClaim(c.opened)
	}
	opt := m.cfg.openOptions()
	opt.Lossy, opt.Throttles, opt.Probe, opt.Tap = c.s.Policy.Lossy, &c.receiving.limits, a.probe, a.tap
	opt.Source = dataplane.Source{Type: uint8(m.cfg.Name.Type), Num: m.number}
	link, talk, features := a.link, a.talk, c.s.Features
	c.out.put(func() {
		if err := talk.release(&opt, features); err != nil {
			link.Close()
			go c.endFor(err)
			return
		}
		c.h.Open(link, opt)
	})
}

// endFor ends a connection that cannot be opened.
func (c *Conn) endFor(err error) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	c.close(true, err)
}

// prepareDial begins an attempt of our own. The lock is held.
func (c *Conn) prepareDial(number uint64) {
	m := c.m
	a := m.newAttempt()
	a.number, a.prev, a.suspended = number, c.att, c.told
	c.att = a
	if !m.work.enter() {
		close(a.done)
		return // shutting down: the connection is being closed
	}
	d := &dialling{c: c, a: a, target: c.s.Peer.Target, peerType: c.s.Peer.Type}
	a.dial = d
	c.out.put(func() { go d.run() })
}

// close ends the connection, at once if it lingers. The lock is held. reset: tell
// the user.
func (c *Conn) close(reset bool, err error) {
	c.step(session.Close{Reset: reset, Err: err})
	if !reset {
		c.endLingering(false)
	}
}
