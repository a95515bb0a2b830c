package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// failure is what ping and send write when they fail.
type failure struct {
	Error string        `json:"error"`
	Stage control.Stage `json:"stage"`
}

// explain says in words why a connection to a peer failed: what the library
// reports, with a hint where experience has one. limit is --timeout.
func explain(err error, to wire.Addr, limit time.Duration) failure {
	f := failure{Stage: control.StageConnect}
	doing, cause := "", err
	var ce *control.Error
	if errors.As(err, &ce) {
		f.Stage, cause = ce.Stage, ce.Err
	}
	var he *handshake.Error
	if errors.As(err, &he) {
		doing, cause = he.State+": ", he.Err
	}
	var se *stageError
	if errors.As(err, &se) {
		f.Stage = se.stage
		if ce == nil {
			cause = se.err
		}
	}
	text := cause.Error()
	if timedOut(cause) {
		text = fmt.Sprintf("no answer within %v", limit)
	}
	f.Error = fmt.Sprintf("%v: %s%s", to, doing, text)
	if h := hint(cause, f.Stage); h != "" {
		f.Error += ": " + h
	}
	f.Error = strings.ReplaceAll(f.Error, "\n", "; ")
	return f
}

// explain says it with the detour that --via makes.
func (o *networkOptions) explain(err error, to wire.Addr, limit time.Duration) failure {
	f := explain(err, to, limit)
	if o.via != "" && (f.Stage == control.StageConnect || f.Stage == control.StageBanner) {
		f.Error += "; the way there is --via " + o.via
	}
	return f
}

func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, control.ErrHandshakeTimeout)
}

// hint is what an administrator would look at first; "" if the error says all.
func hint(err error, stage control.Stage) string {
	if errors.Is(err, handshake.ErrPeerType) {
		return "name its type with --peer"
	}
	if timedOut(err) {
		err = control.ErrHandshakeTimeout // whose deadline it was does not matter
	}
	return (&control.Error{Stage: stage, Err: err}).Advice()
}
