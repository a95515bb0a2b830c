package control

import (
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/control/handshake1"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// Advice is what to look at first when an attempt failed with this error, in a few
// words; empty if the error says all.
func (e *Error) Advice() string {
	err, stage := e.Err, e.Stage
	late := errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there"
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
	case hungUp(err) && stage == StageBanner:
		return "the peer hung up; it may not speak msgr2, or expect TLS"
	case hungUp(err) && stage == StageIdent:
		return "the peer hung up; the address must be its own, nonce included"
	case hungUp(err):
		return "the peer hung up"
	}
	return ""
}

// bannerAdvice says what a peer is that sends no banner of Ceph.
func bannerAdvice(err error) string {
	if e, ok := errors.AsType[*wire.BannerError](err); ok {
		switch e.Speech {
		case wire.SpeechMsgr2:
			return "this is the v2 address of a daemon, want its v1 one"
		case wire.SpeechHTTP:
			return "this is a web server"
		case wire.SpeechSSH:
			return "this is an SSH server"
		case wire.SpeechTLS:
			return "this is a TLS server"
		}
	}
	return "this is no Ceph daemon"
}

// hungUp says that the peer closed the socket.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, dataplane.ErrLinkClosed)
}
