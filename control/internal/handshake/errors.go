package handshake

import (
	"context"
	"errors"
	"fmt"
)

// Stage is the part of the handshake in which it failed.
type Stage string

// The stages.
const (
	StageBanner Stage = "banner"
	StageHello  Stage = "hello"
	StageAuth   Stage = "auth" // up to the signatures and the compression negotiation
)

// Reasons why a handshake fails, beside those of handshake2, handshake1, wire, frame and
// auth, and of the link.
var (
	// ErrAuth says that the reason of an [Error] is the authentication: a refusal, nothing
	// in common, a wrong proof, signature or secret, a peer that breaks the rules. A broken
	// connection, a time limit, a damaged frame and a busy server are other reasons. Ask for
	// it with [errors.Is]; nothing wraps it.
	ErrAuth = errors.New("authentication failed")
	// ErrFeatures means that one side requires a banner feature that the other one lacks.
	// Terminal.
	ErrFeatures = errors.New("banner features do not match")
	// ErrPeerType means that the peer is not of the type that was to be reached. Terminal.
	ErrPeerType = errors.New("wrong peer type")
	// ErrGaveUp means that the auth client has nothing more to offer. Terminal.
	ErrGaveUp = errors.New("auth client gave up")
	// ErrNoSessionKey means that a method that proves identity ended without a key.
	ErrNoSessionKey = errors.New("no session key")
	// ErrTooManyRounds means that the authentication does not come to an end.
	ErrTooManyRounds = errors.New("too many authentication rounds")
	// ErrNoRoom means that other connections hold all the room for what comes before
	// authentication.
	ErrNoRoom = errors.New("no room left for handshakes")
	// ErrConfig means that the handshake cannot start with this configuration.
	ErrConfig = errors.New("invalid configuration")
)

// Error is the error of a handshake.
type Error struct {
	Stage Stage
	Peer  string // address of the peer, as configured
	State string // the step that failed, as "read HELLO"
	Err   error  // the reason
	auth  bool
}

// NewError makes an [Error], with the address of the peer. failed says that the reason is
// the authentication.
func NewError(stage Stage, peer, state string, err error, failed bool) *Error {
	return &Error{Stage: stage, Peer: peer, State: state, Err: err, auth: failed}
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("handshake with %s: %s: %s: %v", e.Peer, e.Stage, e.State, e.Err)
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is [ErrAuth] and the authentication has failed.
func (e *Error) Is(target error) bool { return target == ErrAuth && e.auth }

// Terminal reports whether dialling again is pointless, so that the connection has to be
// given up: the protocol says so for banner features, the peer type, and an auth client
// that gave up. Everything else is a fault that a connector retries after a back-off.
func (e *Error) Terminal() bool {
	return errors.Is(e.Err, ErrFeatures) || errors.Is(e.Err, ErrPeerType) ||
		errors.Is(e.Err, ErrGaveUp) || errors.Is(e.Err, ErrConfig)
}

// GaveUp marks an error of the auth client as terminal. A context that is done says
// nothing about the next attempt.
func GaveUp(err error) error {
	if IsContext(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrGaveUp, err)
}

// Cause adds why the context is done to an error that only says that it is.
func Cause(ctx context.Context, err error) error {
	if why := context.Cause(ctx); why != nil && IsContext(err) && !errors.Is(err, why) {
		return fmt.Errorf("%w (%w)", why, &transportError{err})
	}
	return err
}

// IsContext reports whether err is about the context, which says nothing about the peer
// or the configuration.
func IsContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
