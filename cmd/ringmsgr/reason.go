package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
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

func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, control.ErrHandshakeTimeout)
}

// hint is what an administrator would look at first; "" if the error says all.
func hint(err error, stage control.Stage) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there"
	case errors.Is(err, wire.ErrV1Peer):
		return "this is the v1 address of a daemon, want its v2 one"
	case errors.Is(err, wire.ErrBadBanner):
		return bannerHint(err.Error())
	case errors.Is(err, handshake.ErrPeerType):
		return "name its type with --peer"
	case timedOut(err) && stage == control.StageConnect:
		return "no host there, or a firewall drops the packets"
	case timedOut(err) && stage == control.StageBanner:
		return "it accepts connections, but does not speak msgr2"
	case hungUp(err) && stage == control.StageBanner:
		return "the peer hung up; it may not speak msgr2, or expect TLS"
	case hungUp(err) && stage == control.StageIdent:
		return "the peer hung up; the address must be its own, nonce included"
	case hungUp(err):
		return "the peer hung up"
	}
	return ""
}

// bannerHint recognises what is no banner of Ceph; text quotes it.
func bannerHint(text string) string {
	switch {
	case strings.Contains(text, `"HTTP`):
		return "this is a web server"
	case strings.Contains(text, `"SSH`):
		return "this is an SSH server"
	case strings.Contains(text, `"\x15\x03`):
		return "this is a TLS server"
	}
	return "this is no Ceph daemon"
}

func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, dataplane.ErrLinkClosed)
}
