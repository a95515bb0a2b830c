package control

import (
	"errors"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// BannerCounters count accepted sockets that ended with their first wrong byte, as
// it can be in no banner, by what they look like ([wire.MatchBanner]).
type BannerCounters struct {
	Msgr1 uint64 `json:"msgr1"` // the older protocol
	HTTP  uint64 `json:"http"`
	TLS   uint64 `json:"tls"`
	SSH   uint64 `json:"ssh"`
	Other uint64 `json:"other"`
}

// count counts the failure of a handshake, if that was it.
func (n *BannerCounters) count(err error) {
	e, ok := errors.AsType[*wire.BannerError](err)
	if !ok {
		return
	}
	switch e.Speech {
	case wire.SpeechMsgr1:
		n.Msgr1++
	case wire.SpeechHTTP:
		n.HTTP++
	case wire.SpeechTLS:
		n.TLS++
	case wire.SpeechSSH:
		n.SSH++
	default:
		n.Other++
	}
}
