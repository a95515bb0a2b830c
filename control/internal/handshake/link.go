package handshake

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// Link is one TCP connection. Both calls return when ctx is done at the latest; the
// connection is of no use after an error. They are never called at the same time.
type Link interface {
	// ReadFull fills p. A link may prefetch, but keeps the bytes beyond p for the next
	// reader.
	ReadFull(ctx context.Context, p []byte) error
	// Write writes all of p and does not keep it. It must not wait for the peer to send
	// something first, as both sides begin with a write.
	Write(ctx context.Context, p []byte) error
}

// BufferedLink is a Link that needs a switch to another thread for each call that waits.
// A handshake without a probe makes few of those: it queues its writes, and waits for
// several frames at once where the protocol lets the peer send them without an answer.
type BufferedLink interface {
	Link
	// Queue leaves p, which it does not keep, to the next call that waits: a ReadFull or an
	// Await that has to wait sends it before, and so does a Write or a Flush. The next owner
	// of the connection sends the rest.
	Queue(p []byte)
	// Flush writes the queued bytes.
	Flush(ctx context.Context) error
	// Await sends the queued bytes. It returns when enough reports true for the bytes that
	// ReadFull would return next, and also when no more of them come. It consumes nothing.
	// enough sees the same bytes each time, and more. It runs on any thread, may still run
	// when Await has returned because of ctx, and does not keep the bytes.
	Await(ctx context.Context, enough func(unread []byte) bool) error
}

// Transport is a Link as a handshake uses it. Its zero value is of no use before Begin.
// Its errors are those of the link, the probe and the context.
type Transport struct {
	link  Link
	buf   BufferedLink // link, if writes are queued; nil with a probe, which sees each on its own
	probe *probe.Socket
}

// Begin takes the link, and the probe if there is one.
func (t *Transport) Begin(link Link, p *probe.Socket) {
	if t.link, t.probe = link, p; p == nil {
		t.buf, _ = link.(BufferedLink)
	}
}

// Queues says that Write leaves bytes to the link, and so does not wait.
func (t *Transport) Queues() bool { return t.buf != nil }

// ReadFull fills p.
func (t *Transport) ReadFull(ctx context.Context, p []byte) error {
	if ctx.Err() != nil {
		return transport(context.Cause(ctx))
	}
	return transport(t.link.ReadFull(ctx, p))
}

// ReadBanner fills p with the first bytes of the connection. It reads those of the magic one
// at a time, and asks check about all so far: a peer of another protocol is refused at its first
// wrong byte, as it may wait for our answer and send no more. The bytes after the magic can be
// anything and come together. [io.EOF] means that nothing came.
func (t *Transport) ReadBanner(ctx context.Context, p []byte, magic int, check func(begun []byte) error) error {
	for n := 0; n < len(p); {
		next := n + 1
		if n == magic {
			next = len(p)
		}
		if err := t.ReadFull(ctx, p[n:next]); err != nil {
			if n > 0 && errors.Is(err, io.EOF) {
				err = transport(io.ErrUnexpectedEOF)
			}
			return err
		}
		if err := check(p[:next]); err != nil {
			return err
		}
		n = next
	}
	return nil
}

// Write writes p, or queues it.
func (t *Transport) Write(ctx context.Context, p []byte) error {
	if ctx.Err() != nil {
		return transport(context.Cause(ctx))
	}
	if t.buf != nil {
		t.buf.Queue(p)
		return nil
	}
	return transport(t.link.Write(ctx, p))
}

// Await is that of a [BufferedLink]. Call it only if the link queues.
func (t *Transport) Await(ctx context.Context, enough func(unread []byte) bool) error {
	if ctx.Err() != nil {
		return transport(context.Cause(ctx))
	}
	return transport(t.buf.Await(ctx, enough))
}

// Flush sends the queued bytes to a peer that is not read any more: they may tell it why.
// The connection ends then, so the result does not matter.
func (t *Transport) Flush(ctx context.Context) {
	if t.buf != nil {
		_ = t.buf.Flush(ctx)
	}
}

// Step asks the probe before or after a step.
func (t *Transport) Step(ctx context.Context, p probe.Point, w probe.When) error {
	if t.probe == nil {
		return nil
	}
	return transport(t.probe.Step(ctx, p, w))
}

// Probed does a step, which the probe is asked about before and after.
func (t *Transport) Probed(ctx context.Context, p probe.Point, do func() error) error {
	if err := t.Step(ctx, p, probe.Before); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return t.Step(ctx, p, probe.After)
}

// transportError is an error of the link or the probe, which says nothing about the
// authentication.
type transportError struct{ err error }

func (e *transportError) Error() string { return e.err.Error() }
func (e *transportError) Unwrap() error { return e.err }

func transport(err error) error {
	if err == nil {
		return nil
	}
	return &transportError{err}
}

// Peer is the other side of a handshake, as far as it is known. msgr1 has no revision,
// features or compression.
type Peer struct {
	// EntityType is the type that the peer claims. An acceptor must expect unknown values.
	EntityType wire.EntityType
	// Revision is the framing that both sides use.
	Revision frame.Revision
	// Features are the banner features that both sides support.
	Features uint64
	// SeenAs is the own address as an acceptor sees it: source IP and ephemeral port. Only
	// set on the connector.
	SeenAs wire.Addr
	// Target is the address that a connector meant to reach. Only set on the acceptor.
	Target wire.Addr
	// Auth is the outcome of authentication. msgr2 has wiped its secrets.
	Auth *auth.Result
	// Mode protects the frames from AUTH_SIGNATURE on.
	Mode auth.Mode
	// Compression is the method that was agreed; [wire.CompressionNone] without negotiation.
	Compression wire.CompressionMethod
}

// CheckResult refuses the outcome of a method that proves identity if there is no key.
func CheckResult(res *auth.Result, m auth.Method) error {
	if res == nil || m != auth.None && len(res.SessionKey) == 0 {
		return fmt.Errorf("%w: method %v", ErrNoSessionKey, m)
	}
	return nil
}

// Wipe tells an exchange that it is not needed any more.
func Wipe(exchange any) {
	if w, ok := exchange.(auth.Wiper); ok {
		w.Wipe()
	}
}

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

// cause adds why the context is done to an error that only says that it is.
func cause(ctx context.Context, err error) error {
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

// Run is the step under way of a handshake, in either protocol and either role, and the error
// with which it fails.
type Run struct {
	Peer  fmt.Stringer // its address, for errors
	stage Stage
	state state
	// Refused: the peer was told that its authentication failed.
	Refused bool
	// Authenticated: what can still fail is no authentication.
	Authenticated bool
}

// state is the current step. Its text is made when a handshake fails.
type state struct {
	before string
	tag    frame.Tag // 0: before says it all
	behind string
}

func (s state) String() string {
	if s.tag == 0 {
		return s.before
	}
	return s.before + s.tag.String() + s.behind
}

// At records the current step.
func (r *Run) At(stage Stage, what string) { r.stage, r.state = stage, state{before: what} }

// AtFrame is At for a step with a frame, whose name stands between the two texts.
func (r *Run) AtFrame(stage Stage, before string, tag frame.Tag, behind string) {
	r.stage, r.state = stage, state{before, tag, behind}
}

// Fail wraps err with where it happened.
func (r *Run) Fail(ctx context.Context, err error) *Error {
	err = cause(ctx, err)
	failed := r.Refused || r.stage == StageAuth && !r.Authenticated && aboutAuth(err)
	return &Error{Stage: r.stage, Peer: r.Peer.String(), State: r.state.String(), Err: err, auth: failed}
}

// aboutAuth reports whether an error in the stage of authentication is one of the
// authentication itself.
func aboutAuth(err error) bool {
	damaged := errors.Is(err, frame.ErrFrame) && !errors.Is(err, frame.ErrAuthTag) && !errors.Is(err, frame.ErrKeys)
	_, broken := errors.AsType[*transportError](err)
	return !broken && !IsContext(err) && !damaged &&
		!errors.Is(err, ErrNoRoom) && !errors.Is(err, ErrConfig) && !errors.Is(err, auth.ErrBusy)
}
