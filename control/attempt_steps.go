package control

import (
	"context"
	"errors"

	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/control/session"
)

// What an attempt tells the machine in both roles. connect.go and accept.go have the rest.

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
