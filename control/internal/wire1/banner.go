package wire1

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

var le = binary.LittleEndian

// Sizes, in bytes.
const (
	BannerSize  = len(wire2.Msgr1Banner)
	AddrSize    = 136 // the legacy form
	ConnectSize = 33  // without the authorizer
	ReplySize   = 26  // without the authorizer
	SeqSize     = 8

	// AcceptorHelloSize is what an acceptor begins with, ConnectorHelloSize what a
	// connector does.
	AcceptorHelloSize  = BannerSize + 2*AddrSize
	ConnectorHelloSize = BannerSize + AddrSize
)

// CheckBanner returns a [*wire2.BannerError], which wraps [wire.ErrBadBanner], as soon as got, the first
// bytes of a connection as far as they have come, can be no banner of msgr1.
func CheckBanner(got []byte) error {
	n := min(len(got), BannerSize)
	if string(got[:n]) == wire2.Msgr1Banner[:n] {
		return nil
	}
	speech := wire2.MatchBanner(got)
	if speech == wire2.SpeechBanner {
		speech = wire2.SpeechMsgr2
	}
	return &wire2.BannerError{Speech: speech, Got: bytes.Clone(got[:n])}
}

// AcceptorHello is the first message of an acceptor, which it sends at once.
type AcceptorHello struct {
	Own  wire.Addr // its own address
	Seen wire.Addr // the connector's, as the socket has it
}

// AppendTo appends the hello, with the banner.
func (h AcceptorHello) AppendTo(dst []byte) []byte {
	return h.Seen.AppendLegacyTo(h.Own.AppendLegacyTo(append(dst, wire2.Msgr1Banner...)))
}

// DecodeAcceptorHello reads all [AcceptorHelloSize] bytes.
func DecodeAcceptorHello(p []byte) (h AcceptorHello, err error) {
	if p, err = behindBanner(p, AcceptorHelloSize); err != nil {
		return h, err
	}
	if h.Own, err = DecodeAddr(p[:AddrSize]); err != nil {
		return h, err
	}
	h.Seen, err = DecodeAddr(p[AddrSize:])
	return h, err
}

// ConnectorHello is the banner of a connector, and its own address behind it: port 0
// if it is not bound, and perhaps without an IP.
type ConnectorHello struct{ Own wire.Addr }

// AppendTo appends the hello, with the banner.
func (h ConnectorHello) AppendTo(dst []byte) []byte {
	return h.Own.AppendLegacyTo(append(dst, wire2.Msgr1Banner...))
}

// DecodeConnectorHello reads all [ConnectorHelloSize] bytes.
func DecodeConnectorHello(p []byte) (h ConnectorHello, err error) {
	if p, err = behindBanner(p, ConnectorHelloSize); err != nil {
		return h, err
	}
	h.Own, err = DecodeAddr(p)
	return h, err
}

func behindBanner(p []byte, size int) ([]byte, error) {
	if err := CheckBanner(p); err != nil {
		return nil, err
	}
	if len(p) != size {
		return nil, fmt.Errorf("decode hello: %w: %d bytes of %d", wire.ErrTruncated, len(p), size)
	}
	return p[BannerSize:], nil
}

// DecodeAddr reads an address in the legacy form, the only one of the handshake. Its
// type is [wire.AddrLegacy], or [wire.AddrNone] if it has no address family.
func DecodeAddr(p []byte) (wire.Addr, error) {
	if len(p) != AddrSize {
		return wire.Addr{}, fmt.Errorf("decode address: %w: %d bytes", wire.ErrTruncated, len(p))
	}
	if p[0] != 0 {
		return wire.Addr{}, fmt.Errorf("decode address: %w: form %d", wire.ErrMalformed, p[0])
	}
	a, err := wire.DecodeAddr(p)
	if err == nil && !a.AddrPort.Addr().IsValid() {
		a.Type = wire.AddrNone
	}
	return a, err
}

// Protocol is the protocol version that a connector and an acceptor of these types
// must agree on (Ceph's msgr.h): among daemons of one type that of their own
// protocol, else that of the acceptor's type. Unequal numbers end in BADPROTOVER.
func Protocol(connector, acceptor wire.EntityType) uint32 {
	if connector == acceptor {
		switch acceptor {
		case wire.Mon:
			return 13
		case wire.OSD:
			return 10
		case wire.MDS:
			return 36
		}
		return 0
	}
	switch acceptor {
	case wire.Mon:
		return 15
	case wire.OSD:
		return 24
	case wire.MDS:
		return 32
	}
	return 0
}
