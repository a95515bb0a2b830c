package sessions

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/resize"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// The machine of the protocol decides; this file carries its actions out. A step happens
// under the lock of sessions. A change of memory happens at once, work for the handler, a
// timer or a log goes to the connection's outbox, and work for the socket of an attempt
// goes back to the attempt.

// levelState is the log level of state changes.
const levelState = slog.LevelDebug

// runner is the session of a connection, and the state that its steps leave. The
// messenger's lock guards it.
type runner struct {
	c *Conn
	machine
	notifications dataplane.Ordered[notification]
	att           *attempt                  // the attempt whose socket the handler does not have yet; nil: it has it
	told          <-chan dataplane.Snapshot // the snapshot that the handler gives for the last Suspend that asked for one
	opened        time.Time                 // the last time that it was ready
	numbered      time.Time                 // the begin of the socket that brought the peer's numbers
	numberedBy    uint64                    // the number of that socket
	seen          time.Time                 // when the last socket was lost
	streak        streak                    // of failed attempts
	counters      stats.ConnCounters
	stopTimer     func() bool // of the back-off; owner: the goroutine that runs the outbox
}

// outcome is the result of a step for the attempt whose event it was.
type outcome struct {
	send       session.Frame // to be sent; nil: no frame
	waits      bool          // the peer of an accepted socket gets WAIT
	hangup     error         // why the socket has to be closed
	faulted    error         // the fault rule was applied
	superseded bool          // the connection has gone on
}

// record records the meaning of an action for the attempt.
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
		o.waits = o.waits || a.To == session.ServerWait
	}
}

// step takes the lock, runs one step, and frees the lock. Then the actions are carried out, by
// another goroutine if one runs the outbox already.
func (r *runner) step(ev session.Event) outcome {
	c := r.c
	var n numbers
	switch ev.(type) {
	case session.Answer, session.HandlerMoved: // these may make a cookie
		n = c.m.drawNumbers()
	}
	c.m.lock()
	defer c.m.unlock()
	return r.stepWithLocked(ev, n)
}

// stepLocked runs one step.
func (r *runner) stepLocked(ev session.Event) { r.stepWithLocked(ev, numbers{}) }

// stepWithLocked is step with the random numbers that Connect, Answer and HandlerMoved need.
func (r *runner) stepWithLocked(ev session.Event, n numbers) outcome {
	c := r.c
	before, numbered := r.Peer, r.PeerGlobalSeq
	actions := session.Advance(r.rules, ev, c.m.envLocked(&r.machine, c, n))
	if r.PeerGlobalSeq != numbered && r.att != nil {
		r.numbered, r.numberedBy = r.att.begun, r.att.serial
	}
	c.m.names.showPeerLocked(c, &before)
	return r.performLocked(actions)
}

// performLocked does the actions of a step that change memory, and puts the others into the
// outbox.
func (r *runner) performLocked(actions []session.Action) (o outcome) {
	c := r.c
	leave := false
	for _, a := range actions {
		o.record(a)
		switch a.(type) {
		case session.Faulted, session.Open:
			leave = true
		}
		r.performOneLocked(a)
	}
	c.shown.publishLocked(&r.machine)
	if leave {
		c.leaveLocked(resize.StepEnded, c.h.Core())
	}
	return o
}

// envLocked is the part of the messenger that a step of s may use; c is its connection, nil for
// an accepted socket.
func (m *Manager) envLocked(s *machine, c *Conn, n numbers) session.Env {
	m.asker.n, m.asker.c = n, c
	e := m.asker.env
	e.Addrs, e.Number, e.Seq = m.addrs, m.number, s.speaks().seqLocked(m)
	if c == nil {
		e.Contested = nil
		return e
	}
	messages, _ := c.h.QueuedOut()
	e.Unsent = messages > 0
	return e
}

// asker answers the questions of a step (session.Env). One is enough, as the lock is held
// during a step; the lock guards it.
type asker struct {
	env session.Env // with the functions alone, which are made once
	// Of the step under way.
	c *Conn
	n numbers
}

// begin makes the functions.
func (a *asker) begin(m *Manager) {
	a.env.Cookie = func() uint64 { return a.n.client }
	a.env.OwnerCookie = func() uint64 { return a.n.owner(m, a.c) }
	a.env.Contested = func() bool {
		return session.Contested(a.c.s.Lifecycle, livesLocked(m.names.at(a.c.s.Peer.Target).conns))
	}
}

// performOneLocked carries out an action that changes our own memory. The others are for the
// outbox, or for the attempt.
func (r *runner) performOneLocked(a session.Action) {
	c, m := r.c, r.c.m
	switch a := a.(type) {
	case session.StateChanged:
		r.movedLocked(a)
	case session.Illegal:
		m.counters.IllegalTransitions++
		peer := r.peerText()
		c.out.PutLocked(func() { m.cfg.Logger.Error("illegal transition", "conn", c.id, "peer", peer, "err", a.Err) })
	case session.Faulted:
		r.faultedLocked(a)
	case session.Count:
		m.countLocked(&r.counters, a.What)
	case session.Renamed:
		m.names.renamedLocked(c, a)
	case session.Only:
		r.endDoublesLocked()
	case session.Disproved:
		m.names.disproveLocked(a.Addr)
	case session.HintReceived:
		if d := r.att.dial; d != nil {
			d.adoptHintLocked(a.Cookie)
		}
	case session.HintDropped:
		c.hint.to = steering.Owner{}
	case session.Remember:
		if m.halfOpen+int(m.arriving.Load()) > 0 { // a handshake under way may be about it
			m.ended.Remember(a.Name, a.PeerGlobalSeq)
		}
	case session.Silence:
		c.h.Refuse()
	case session.End:
		if a.Err != nil {
			c.shown.err = a.Err
		}
		m.names.forgetLocked(c)
		if c.local {
			m.local = nil
		}
		m.all.Remove(c.listed)
		m.counters.Closed++
	default:
		r.prepareLocked(a)
	}
}

// endDoublesLocked ends our other sessions with a peer that we dialled.
func (r *runner) endDoublesLocked() {
	for _, o := range r.c.m.names.at(r.Peer.Target).conns {
		if o != r.c && o.s.Doubles(r.Lifecycle) {
			o.s.stepLocked(session.Close{Reset: true, Replace: true, Err: ErrReplaced})
		}
	}
}

// movedLocked publishes and logs a new state.
func (r *runner) movedLocked(a session.StateChanged) {
	c := r.c
	c.shown.stateChangedLocked()
	c.dialsLocked(a.To)
	if a.To == session.Ready {
		r.streak = streak{}
	}
	switch {
	case a.To != session.Standby:
		c.endStandbyLocked()
	case !r.Frozen: // else goOnLocked does
		c.beginStandbyLocked(0)
	}
	target, addrs := r.Peer.Target, r.Peer.Addrs
	c.out.PutLocked(func() {
		if log, ctx := c.m.cfg.Logger, c.m.ctx; log.Enabled(ctx, levelState) {
			log.Log(ctx, levelState, "state", "conn", c.id, "peer", peerText(target, addrs), "from", a.From, "event", a.By, "to", a.To)
		}
	})
}

// faultedLocked keeps the reason of a fault.
func (r *runner) faultedLocked(a session.Faulted) {
	c := r.c
	c.shown.err = a.Err
	if e := (*stats.Error)(nil); !errors.As(a.Err, &e) {
		stage := stats.StageSession
		if a.From == session.Connecting {
			stage = stats.StageIdent
		}
		c.shown.err = &stats.Error{Stage: stage, Peer: r.peerText(), State: a.From, Err: a.Err}
	}
	if a.From == session.Connecting {
		r.streak.attemptFailedLocked(c, c.shown.err)
	}
	r.counters.Faults++
	if errors.Is(a.Err, handshake.ErrAuth) {
		r.counters.AuthFailures++
	}
}

// goOnLocked has a session that stood still go on. We have closed its socket, as those of all others:
// its peer needs the longest pause between two attempts to come back. If its core was removed, or
// failed, during the handshake that the hand-over has ended, it leaves that core now.
func (r *runner) goOnLocked() {
	r.stepLocked(session.Thaw{})
	if r.State == session.Standby {
		r.c.beginStandbyLocked(r.c.m.cfg.Backoff.Max)
		r.c.dialsLocked(session.Standby)
	}
	r.c.leaveLocked(resize.Arrival, r.c.h.Core())
}

// countLocked counts for a connection, or an answer to an accepted socket for the messenger.
func (m *Manager) countLocked(n *stats.ConnCounters, what session.Counter) {
	all := &m.counters
	*[...]*uint64{
		session.Attempts: &n.Attempts, session.Idents: &n.Idents, session.Reconnects: &n.Reconnects, session.Retries: &n.Retries,
		session.Replaced: &n.Replaced, session.Readies: &n.Ready, session.Resets: &n.Resets, session.RemoteResets: &n.RemoteResets,
		session.WaitsSent: &all.WaitsSent, session.RetriesSent: &all.RetriesSent, session.ResetsSent: &all.ResetsSent,
		session.PartialResetsSent: &all.PartialResetsSent,
	}[what]++
}

// prepareLocked puts an action on the handler, the timer or the log into the outbox.
func (r *runner) prepareLocked(a session.Action) {
	c, m, h := r.c, r.c.m, r.c.h
	switch a := a.(type) {
	case session.Suspend:
		var answer func(dataplane.Snapshot)
		if a.ReplyTo != 0 {
			told := make(chan dataplane.Snapshot, 1)
			r.told = told
			answer = func(snap dataplane.Snapshot) { told <- snap }
		}
		c.out.PutLocked(func() { h.Delay(a.Notify, answer) })
	case session.Requeue:
		c.out.PutLocked(h.RequeueSent)
	case session.RequeueUpTo:
		c.out.PutLocked(func() { h.RequeueSentUpTo(a.Seq) })
	case session.ResetPeer:
		c.out.PutLocked(h.ResetPeerState)
	case session.ResetIO:
		c.out.PutLocked(func() {
			h.ResetSession(a.Full)
			if a.Anywhere {
				h.BeginAfter(m.random.next() & (1<<31 - 1)) // ProtocolV1.cc
			}
		})
	case session.TellReset: // it and CloseIO wait for the messages that are queued here
		m.lingering.tellResetLocked(c, Reset{a.Replace})
	case session.TellRemoteReset:
		c.out.PutLocked(func() { h.Notify(RemoteReset{}) })
	case session.MoveHandler:
		r.prepareMoveLocked(r.att, dataplane.MoveCause{Accepted: a.Accepted, Replace: a.Replace})
	case session.Open:
		r.prepareOpenLocked(r.att)
		r.att = nil // its work for us is done
	case session.CloseIO:
		if _, lingers := m.lingering[c]; !lingers {
			endIOLocked(c)
		}
	case session.StartTimer:
		c.out.PutLocked(func() {
			r.stopTimer = m.cfg.Clock.AfterFunc(a.After, func() { r.step(session.TimerFired{Run: a.Run}) })
		})
	case session.StopTimer:
		c.out.PutLocked(func() {
			if r.stopTimer != nil {
				r.stopTimer()
				r.stopTimer = nil
			}
		})
	case session.Log:
		peer, err := r.peerText(), c.shown.err
		if r.streak.goesOnLocked(err, a.Text) {
			return
		}
		c.out.PutLocked(func() { m.lines.Info(a.Text, "conn", c.id, "peer", peer, "err", err) })
	case session.Dial:
		r.prepareDialLocked(a.Attempt)
	case session.Cancel:
		if att := r.att; att != nil {
			err := a.Err
			if err == nil {
				err = errSuperseded
			}
			c.out.PutLocked(func() { att.cancel(err) })
		}
	}
}

// prepareMoveLocked brings the handler to the socket of an attempt.
func (r *runner) prepareMoveLocked(a *attempt, why dataplane.MoveCause) {
	c := r.c
	if acc := a.accepted; acc != nil {
		c.shown.place = acc.place
		stats.CountPlacement(&c.m.counters.Placement, acc.place)
	}
	c.shown.keepLocked(&r.machine, a) // for the event that says that the handler has arrived
	link, moved := a.link, a.moved
	there := a.accepted != nil && !a.accepted.takingOver // from the start: the user hears of the connection in any case
	c.out.PutLocked(func() {
		if !there && coreGone(link) {
			moved <- loop.ErrStopped
			return
		}
		c.h.Move(link.Core(), why, func() { moved <- nil })
	})
}

// prepareOpenLocked gives the handler the socket of an attempt.
func (r *runner) prepareOpenLocked(a *attempt) {
	c, m := r.c, r.c.m
	c.shown.err = nil
	if a.dial != nil {
		c.shown.place = dialledPlace(c.shown.place, a.link.Core())
	}
	c.shown.keepLocked(&r.machine, a)
	r.opened = a.begun.Add(a.took)
	if c.claim != nil && c.claim.wanted {
		checkClaimLocked(c, r.opened)
	}
	opt := m.cfg.Open
	opt.Lossy, opt.Throttles, opt.Probe, opt.Tap = r.Policy.Lossy, &c.throttles, a.probe, a.tap
	opt.Source = dataplane.Source{Type: uint8(m.cfg.Name.Type), Num: m.number}
	link, talk, features := a.link, a.talk, r.Features
	c.out.PutLocked(func() {
		var err error
		if opt.Codec, err = talk.codec(features); err != nil {
			link.Close()
			go func() {
				m.lock()
				defer m.unlock()
				r.closeLocked(true, err)
			}()
			return
		}
		c.h.Open(link, opt)
	})
}

func (r *runner) prepareDialLocked(number uint64) {
	c, m := r.c, r.c.m
	a := m.newAttempt()
	a.number, a.prev, a.suspended = number, r.att, r.told
	r.att = a
	if !m.work.Enter() {
		close(a.done)
		return // shutting down: the connection is being closed
	}
	d := &dialling{c: c, a: a, target: r.Peer.Target, peerType: r.Peer.Type}
	a.dial = d
	c.out.PutLocked(func() { go d.run() })
}

// closeLocked ends the connection, at once if it lingers. reset: with a reset event.
func (r *runner) closeLocked(reset bool, err error) {
	c := r.c
	r.stepLocked(session.Close{Reset: reset, Err: err})
	if !reset {
		c.m.lingering.endLocked(c, false)
	}
}

// expireLocked ends a connection after its peer has not come back.
func (r *runner) expireLocked() {
	r.c.m.counters.Expired++
	r.closeLocked(true, ErrExpired)
}

// notification is a notification of a handler to the protocol. It has a number, as the
// notifications of one handler can come from different cores.
type notification struct {
	conn     *Conn
	n        uint64
	lost     bool // its socket is lost, with err and snapshot; else there is a message to send
	err      error
	snapshot dataplane.Snapshot
	at       time.Time // when it was read
}

// notificationQueue brings notifications from the cores to one goroutine of the messenger.
type notificationQueue struct {
	mu    sync.Mutex
	queue []notification // guarded by mu
	more  chan struct{}  // capacity 1
	stop  chan struct{}  // closed by Close
	done  chan struct{}  // closed when readNotifications has ended
}

// notify is called by cores; it does not block.
func (m *Manager) notify(n notification) {
	b := &m.notifications
	b.mu.Lock()
	b.queue = append(b.queue, n)
	b.mu.Unlock()
	b.wake()
}

// wake has readNotifications look for notifications. It does not block.
func (b *notificationQueue) wake() {
	select {
	case b.more <- struct{}{}:
	default:
	}
}

// readNotifications runs until the Manager is closed.
func (m *Manager) readNotifications() {
	b := &m.notifications
	defer close(b.done)
	for {
		select {
		case <-b.more:
		case <-b.stop:
			return
		}
		b.mu.Lock()
		notes := b.queue
		b.queue = nil
		b.mu.Unlock()
		now := m.cfg.Clock.Now()
		for i := range notes {
			notes[i].at = now
			m.lock()
			notes[i].conn.s.notifiedLocked(notes[i])
			m.unlock()
		}
		if !m.marked.empty() {
			m.lock() // closes them
			m.unlock()
		}
	}
}

// notifiedLocked handles a notification, once all with lower numbers are handled.
func (r *runner) notifiedLocked(n notification) {
	c := r.c
	for ok := r.notifications.Arrive(n.n, n); ok; n, ok = r.notifications.Next() {
		if !n.lost {
			r.stepLocked(session.Queued{})
			continue
		}
		r.seen = n.at
		useful := n.snapshot.Useful || n.at.Sub(r.opened) >= c.m.cfg.Backoff.Max
		if !useful {
			c.m.cameToNothingLocked(c.shown.info, n.at)
		}
		why := n.err
		if errors.Is(why, dataplane.ErrCloseReceived) {
			why = fmt.Errorf("%w (%w)", session.ErrClosed, why)
		}
		r.stepLocked(session.Lost{Notification: n.n, IO: snapshot(n.snapshot), Err: why, Useful: useful})
	}
}

// Faulted has the session hear that its socket is lost; the User of the connection passes
// it on (dataplane.Owner). On its core; it does not wait.
func (c *Conn) Faulted(n uint64, err error, snap dataplane.Snapshot) {
	c.m.notify(notification{conn: c, n: n, lost: true, err: err, snapshot: snap})
}

// Queued tells the session that there is a message to send, like Faulted.
func (c *Conn) Queued(n uint64) { c.m.notify(notification{conn: c, n: n}) }
