package stats

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/ringmsgr/ringmsgr/control/internal/door"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake1"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake2"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Stage says how far a connection attempt came.
type Stage string

// The stages.
const (
	StageConnect   Stage = "connect"
	StageBanner    Stage = "banner"
	StageHello     Stage = "hello"
	StageAuth      Stage = "auth"
	StageIdent     Stage = "ident"
	StageSession   Stage = "session"
	StageKeepalive Stage = "keepalive"
)

// Error is a failed connection attempt or a fault of a session.
type Error struct {
	Stage Stage
	Peer  string        // address
	State session.State // of the connection
	Err   error
}

func (e *Error) Error() string {
	doing, err := e.Reason()
	if doing != "" {
		doing += ": "
	}
	return fmt.Sprintf("%s: peer %s, state %v: %s%v", e.Stage, e.Peer, e.State, doing, err)
}

func (e *Error) Unwrap() error { return e.Err }

// Reason is the step of the handshake that failed, such as "read HELLO", and its error,
// without the stage and the peer; elsewhere doing is empty, and err is Err.
func (e *Error) Reason() (doing string, err error) {
	if he, ok := e.Err.(*handshake.Error); ok {
		return he.State, he.Err
	}
	return "", e.Err
}

// Terminal reports whether dialling again does not help, so that the connection is given up.
func (e *Error) Terminal() bool { return Terminal(e.Err) }

// Terminal is the method of [Error], for an error that is none yet.
func Terminal(err error) bool {
	he, ok := errors.AsType[*handshake.Error](err)
	return ok && he.Terminal() || errors.Is(err, session.ErrWrongPeer)
}

// Advice is what to look at first when an attempt failed with this error, in a few
// words; empty if the error says all.
func (e *Error) Advice() string {
	err, stage := e.Err, e.Stage
	late := errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there"
	case errors.Is(err, syscall.EMFILE):
		return "each connection takes a descriptor: raise RLIMIT_NOFILE (ulimit -n)"
	case errors.Is(err, wire.ErrV1Peer):
		return "this is the v1 address of a daemon, want its v2 one"
	case errors.Is(err, handshake1.ErrAddress):
		return "another process is at the address; it must be its own, nonce included"
	case errors.Is(err, wire.ErrBadBanner):
		return bannerAdvice(err)
	case errors.Is(err, handshake.ErrPeerType):
		return "the daemon there is of another type"
	case late && stage == StageConnect:
		return "no host there, or a firewall drops the packets"
	case late && stage == StageBanner:
		return "it accepts connections and says nothing; it is frozen, or does not speak msgr2"
	case HungUp(err) && stage == StageBanner:
		return "the peer hung up; it may not speak msgr2, or expect TLS"
	case HungUp(err) && stage == StageIdent:
		return "the peer hung up; the address must be its own, nonce included"
	case HungUp(err):
		return "the peer hung up"
	}
	return ""
}

var speakers = map[wire2.Speech]string{
	wire2.SpeechMsgr2: "this is the v2 address of a daemon, want its v1 one", wire2.SpeechHTTP: "this is a web server",
	wire2.SpeechSSH: "this is an SSH server", wire2.SpeechTLS: "this is a TLS server",
}

// bannerAdvice says what a peer is that sends no banner of Ceph.
func bannerAdvice(err error) string {
	if e, ok := errors.AsType[*wire2.BannerError](err); ok && speakers[e.Speech] != "" {
		return speakers[e.Speech]
	}
	return "this is no Ceph daemon"
}

// HungUp says that the peer closed the socket.
func HungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, loop.ErrLinkClosed)
}

// FailureCounters count the handshakes of accepted sockets that failed, by
// cause: each failure once.
type FailureCounters struct {
	Banner    uint64 `json:"banner"`     // it was no banner, or one that does not fit
	Timeout   uint64 `json:"timeout"`    // not complete in time
	WrongPeer uint64 `json:"wrong_peer"` // it is not who it says, or wants somebody else
	Stale     uint64 `json:"stale"`      // a newer attempt is on record
	Auth      uint64 `json:"auth"`       // refused, or a wrong proof or signature
	Limits    uint64 `json:"limits"`     // a frame, or all of them, longer than is ever needed
	Evicted   uint64 `json:"evicted"`    // gave its place to a newcomer
	Other     uint64 `json:"other"`      // hung up, broke the protocol, our own shutdown
}

// CountFailure counts the failed handshake of an accepted socket.
func CountFailure(n *Counters, err error) {
	n.AcceptFailures++
	*n.Failures.of(err)++
	if errors.Is(err, handshake.ErrAuth) {
		n.AuthFailures++
	}
	n.BadBanners.count(err)
}

func (n *FailureCounters) of(err error) *uint64 {
	var he *handshake.Error
	switch {
	case errors.Is(err, door.ErrEvicted):
		return &n.Evicted
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &n.Timeout
	case errors.Is(err, frame.ErrTooLarge), errors.Is(err, handshake2.ErrTooLong),
		errors.Is(err, handshake.ErrNoRoom), errors.Is(err, handshake.ErrTooManyRounds):
		return &n.Limits
	case errors.Is(err, handshake.ErrAuth):
		return &n.Auth
	case errors.Is(err, session.ErrWrongPeer):
		return &n.WrongPeer
	case errors.Is(err, session.ErrStale):
		return &n.Stale
	case errors.Is(err, wire.ErrBadBanner), errors.Is(err, wire.ErrV1Peer), errors.Is(err, handshake.ErrFeatures),
		errors.As(err, &he) && he.Stage == handshake.StageBanner && errors.Is(err, wire.ErrMalformed):
		return &n.Banner
	}
	return &n.Other
}

// BannerCounters count accepted sockets that ended with their first wrong byte, as
// it can be in no banner, by what they look like ([wire2.MatchBanner]).
type BannerCounters struct {
	Msgr1 uint64 `json:"msgr1"` // the older protocol
	HTTP  uint64 `json:"http"`
	TLS   uint64 `json:"tls"`
	SSH   uint64 `json:"ssh"`
	Other uint64 `json:"other"`
}

// count counts the failure of a handshake, if that was it.
func (n *BannerCounters) count(err error) {
	e, ok := errors.AsType[*wire2.BannerError](err)
	if !ok {
		return
	}
	switch e.Speech {
	case wire2.SpeechMsgr1:
		n.Msgr1++
	case wire2.SpeechHTTP:
		n.HTTP++
	case wire2.SpeechTLS:
		n.TLS++
	case wire2.SpeechSSH:
		n.SSH++
	default:
		n.Other++
	}
}
