package control

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/control/session"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
	"github.com/ringmsgr/ringmsgr/dataplane/tap"
)

// runner.go begins attempts, and an attempt tells the machine what it sees, so its
// calls of stepLocked run back up.

// attempt is one goroutine that works on a socket for a connection. Whoever takes
// the connection over cancels it and waits for done; what it does after that
// changes nothing, as the machine knows its number.
type attempt struct {
	number    uint64 // in its session
	ctx       context.Context
	cancelCtx atomic.Pointer[context.CancelCauseFunc] // of ctx; nil: it has ended
	done      chan struct{}
	prev      *attempt                  // that it interrupted; ends before it goes on
	suspended <-chan dataplane.Snapshot // from the handler, once its last socket is closed
	moved     chan error                // the handler is on the core of the socket; capacity 1
	// together: the handler is on the core of the socket from the start, and nobody
	// waits until it knows.
	together bool

	// Of its goroutine until the connection is ready.
	begun time.Time
	took  time.Duration // the whole handshake
	link  *dataplane.Link
	probe *probe.Socket // nil: none
	tap   tap.Tap       // nil: nobody watches the socket
	talk  talk
	peer  *handshake.Peer // as far as it is known

	dial     *dialling  // we dialled; else
	accepted *accepting // we accepted
}

// errSuperseded ends an attempt whose connection has moved on, and errReported one
// whose failure the machine knows. They are never shown.
var (
	errSuperseded = errors.New("overtaken")
	errReported   = errors.New("reported")
)

func (m *Messenger) newAttempt() *attempt {
	a := &attempt{done: make(chan struct{}), moved: make(chan error, 1)}
	ctx, cancel := context.WithCancelCause(m.ctx)
	a.ctx = ctx
	a.cancelCtx.Store(&cancel)
	return a
}

// cancel ends the attempt because of cause, unless it has ended. Any goroutine.
func (a *attempt) cancel(cause error) {
	if cancel := a.cancelCtx.Load(); cancel != nil {
		(*cancel)(cause)
	}
}

// release drops everything but what others wait for: the connection keeps the
// attempt until the next one begins.
func (a *attempt) release() {
	a.cancelCtx.Store(nil)
	a.ctx, a.prev, a.suspended, a.link, a.probe, a.talk, a.peer, a.dial, a.accepted = nil, nil, nil, nil, nil, nil, nil, nil, nil
	a.tap = nil
}

// wipe overwrites the secrets of a handshake that has failed.
func (a *attempt) wipe() {
	if a.talk != nil {
		a.talk.Wipe()
	}
}

// interrupt waits until the attempt that this one interrupted has ended.
func (a *attempt) interrupt() {
	if a.prev != nil {
		<-a.prev.done
		a.prev = nil // so that no chain of them is kept
	}
}

// awaitHandler waits until the handler is on the core of the socket, and tells the
// machine.
func (a *attempt) awaitHandler(c *Conn) (outcome, error) {
	if !a.together {
		if err := <-a.moved; err != nil {
			return outcome{}, err
		}
	}
	if err := context.Cause(c.m.ctx); err != nil {
		return outcome{}, err
	}
	a.took = c.m.cfg.Clock.Now().Sub(a.begun)
	return a.check(c.s.stepLocked(session.HandlerMoved{Attempt: a.number}))
}

// check says whether the attempt goes on after a step.
func (a *attempt) check(o outcome) (outcome, error) {
	switch {
	case o.superseded:
		return o, errSuperseded
	case o.faulted != nil:
		return o, errReported
	}
	return o, nil
}

// fail has the fault rule applied to an attempt, unless that has happened, or the
// connection has moved on.
func (a *attempt) fail(c *Conn, err error) error {
	if errors.Is(err, errSuperseded) || errors.Is(err, errReported) {
		return err
	}
	if o := c.s.stepLocked(session.Failed{Attempt: a.number, Err: err, Terminal: terminal(err)}); o.superseded {
		return errSuperseded
	}
	return err
}

// terminal says that dialling again would not help.
func terminal(err error) bool {
	if errors.Is(err, ErrWrongPeer) {
		return true
	}
	var he *handshake.Error
	return errors.As(err, &he) && he.Terminal()
}

// coreGone says that the core of a link has ended, and the socket with it: the
// handler cannot move there.
func coreGone(l *dataplane.Link) bool {
	s := l.Core().State()
	return s == dataplane.CoreFailed || s == dataplane.CoreStopped
}

// snapshot converts what a handler says to the form of the machine.
func snapshot(m dataplane.Snapshot) session.Snapshot {
	return session.Snapshot{InSeq: m.InSeq, OutSeq: m.OutSeq, Queued: m.Queued, Sent: m.Sent, Notifications: m.Notifications}
}
