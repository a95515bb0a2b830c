package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// failure is the JSON of ping and send when they fail.
type failure struct {
	Error string        `json:"error"`
	Stage control.Stage `json:"stage"`
}

// explain says why a connection to a peer failed: the error of the library, and a hint if
// there is one. limit is --timeout.
func explain(err error, to wire.Addr, limit time.Duration) failure {
	f := failure{Stage: control.StageConnect}
	doing, cause := "", err
	var ce *control.Error
	if errors.As(err, &ce) {
		f.Stage = ce.Stage
		if doing, cause = ce.Reason(); doing != "" {
			doing += ": "
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

// explain also names the detour of --via.
func (o *networkOptions) explain(err error, to wire.Addr, limit time.Duration) failure {
	f := explain(err, to, limit)
	if o.via.IsValid() && (f.Stage == control.StageConnect || f.Stage == control.StageBanner) {
		f.Error += "; the way there is --via " + o.via.String()
	}
	return f
}

func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, control.ErrHandshakeTimeout)
}

// hint names the first thing that an administrator should check; "" if the error is clear.
func hint(err error, stage control.Stage) string {
	if errors.Is(err, control.ErrPeerType) {
		return "name its type with --peer"
	}
	if timedOut(err) {
		err = control.ErrHandshakeTimeout // both deadlines have the same advice
	}
	return (&control.Error{Stage: stage, Err: err}).Advice()
}

// bindError names the address that cannot be bound, and the remedy.
func (l *listenFlag) bindError(err error) error {
	where := l.addrs.String()
	if len(l.addrs) == 1 {
		where = l.addrs[0].String()
	}
	text := fmt.Sprintf("--listen %s: %s", where, scope.Cause(err))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		text += ": another process listens there, which \"ss -ltnp\" names; port 0 takes any free one"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		text += ": this machine does not have that IP address; \"ip addr\" lists those that it has"
	case errors.Is(err, syscall.EACCES):
		text += ": a port below 1024 needs CAP_NET_BIND_SERVICE, or root"
	}
	return errors.New(text)
}

// startError names the flag that asked for a ring, if there is none.
func (o *machineOptions) startError(err error) error {
	var refused *uring.SetupError
	if o.engine.Backend == uring.IOUring && errors.As(err, &refused) {
		return fmt.Errorf("--backend %s: %w", o.engine.Backend, err)
	}
	return err
}

// statsError explains why another process gave no statistics.
func statsError(path string, err error) error {
	switch {
	case gone(err):
		return fmt.Errorf("no statistics at %s: %s: does the process serve statistics, as by serve --stats?", path, scope.Cause(err))
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("no statistics at %s: the process answers its own user and root alone: be one of them", path)
	}
	return fmt.Errorf("no statistics at %s: %s", path, scope.Cause(err))
}

// gone says whether no process serves a Unix socket any more.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, net.ErrClosed)
}
