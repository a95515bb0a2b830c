package control

import (
	"errors"
	"os"

	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

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

// count counts the failure of a handshake.
func (n *FailureCounters) count(err error) { *n.of(err)++ }

func (n *FailureCounters) of(err error) *uint64 {
	var he *handshake.Error
	switch {
	case errors.Is(err, ErrEvicted):
		return &n.Evicted
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &n.Timeout
	case errors.Is(err, frame.ErrTooLarge), errors.Is(err, handshake.ErrTooLong), errors.Is(err, handshake.ErrNoRoom), errors.Is(err, handshake.ErrTooManyRounds):
		return &n.Limits
	case errors.Is(err, ErrAuth):
		return &n.Auth
	case errors.Is(err, ErrWrongPeer):
		return &n.WrongPeer
	case errors.Is(err, ErrStale):
		return &n.Stale
	case errors.Is(err, wire.ErrBadBanner), errors.Is(err, wire.ErrV1Peer), errors.Is(err, handshake.ErrFeatures),
		errors.As(err, &he) && he.Stage == handshake.StageBanner && errors.Is(err, wire.ErrMalformed):
		return &n.Banner
	}
	return &n.Other
}
