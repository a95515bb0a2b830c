package cephx

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/auth"
)

// clientExchange is a [login] or an [authorizer] behind [auth.ClientExchange].
type clientExchange struct {
	c     *Client
	steps steps
	step  step
	modes []auth.Mode
}

// steps are the connector's steps with a monitor or with a service. clientExchange takes each at
// most once, in this order: a service that has not challenged us is refused. One that has may do so
// again.
type steps interface {
	// first returns the payload of the request.
	first() ([]byte, error)
	// answer takes the challenge of the acceptor, and returns the payload that answers it.
	answer(challenge []byte) ([]byte, error)
	// done takes the reply of the acceptor, with the global id of AUTH_DONE or MAuthReply, and
	// returns keys and global id. The connection secret is nil unless mode is [auth.Secure].
	done(globalID uint64, mode auth.Mode, reply []byte) (*auth.Result, error)
	// again returns the steps of the next try after a refusal. err is nil if there are fewer
	// modes to offer, else the reason to give up.
	again(result int32, err error) (steps, error)
	auth.Wiper
}

// step is how far an exchange has come.
type step uint8

const (
	stepNew      step = iota
	stepAsked         // the request is made
	stepAnswered      // and the answer to the challenge
	stepDone
)

// take takes the step that follows last, if that was the last one.
func (e *clientExchange) take(last step, what string, do func() error) error {
	if e.step != last {
		return fmt.Errorf("%s: %w", what, errOutOfOrder)
	}
	err := do()
	if err == nil {
		e.step++
	}
	return err
}

// Request implements [auth.ClientExchange].
func (e *clientExchange) Request(context.Context) (_ auth.Method, _ []auth.Mode, p []byte, err error) {
	err = e.take(stepNew, "request", func() (err error) { p, err = e.steps.first(); return err })
	return auth.Cephx, e.modes, p, err
}

// BadMethod implements [auth.ClientExchange]. It tries again with the modes that both sides
// have, if they are fewer, or if the steps know better. Neither can happen for ever.
func (e *clientExchange) BadMethod(_ context.Context, _ auth.Method, result int32, methods []auth.Method, modes []auth.Mode) error {
	next, err := fewerModes(e.modes, result, methods, modes)
	if err == nil {
		e.modes = next
	}
	again, err := e.steps.again(result, err)
	if err != nil {
		return err
	}
	if again != e.steps {
		e.steps.Wipe()
		e.steps = again
	}
	e.step = stepNew
	return nil
}

// ReplyMore implements [auth.ClientExchange]. An acceptor of msgr1 may challenge again when the
// authorizer is shown again.
func (e *clientExchange) ReplyMore(_ context.Context, payload []byte) (p []byte, err error) {
	if _, service := e.steps.(*authorizer); service && e.step == stepAnswered {
		e.step = stepAsked
	}
	err = e.take(stepAsked, "challenge", func() (err error) { p, err = e.steps.answer(payload); return err })
	return p, err
}

// Done implements [auth.ClientExchange].
func (e *clientExchange) Done(_ context.Context, globalID uint64, mode auth.Mode, payload []byte) (res *auth.Result, err error) {
	if err := auth.CheckMode(auth.Cephx, e.modes, mode); err != nil {
		return nil, err
	}
	err = e.take(stepAnswered, "done", func() (err error) { res, err = e.steps.done(globalID, mode, payload); return err })
	if err != nil {
		return nil, err
	}
	res.Entity, res.Mode, res.Method = e.c.name, mode, auth.Cephx
	return res, nil
}

// Wipe implements [auth.Wiper].
func (e *clientExchange) Wipe() { e.steps.Wipe() }

// fewerModes are the modes to offer after AUTH_BAD_METHOD, or nil and the reason to give up.
func fewerModes(offered []auth.Mode, result int32, methods []auth.Method, modes []auth.Mode) ([]auth.Mode, error) {
	err := auth.BadMethod(auth.Cephx, result, methods, modes)
	if !errors.Is(err, auth.ErrNoMode) {
		return nil, err
	}
	common := slices.DeleteFunc(slices.Clone(offered), func(m auth.Mode) bool { return !slices.Contains(modes, m) })
	if len(common) == 0 || len(common) == len(offered) {
		return nil, err
	}
	return common, nil
}
