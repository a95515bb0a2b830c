package wire2

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

const (
	bannerMagic = "ceph v2\n"

	// Msgr1Banner is the first thing that both sides of msgr1 send. Package wire1 has the
	// rest of that protocol.
	Msgr1Banner = "ceph v027"

	// BannerPrefixSize is the number of bytes that [ParseBannerPrefix] needs.
	BannerPrefixSize = len(bannerMagic) + 2
	// BannerPayloadSize is the number of payload bytes that this package writes, and the
	// least that it accepts.
	BannerPayloadSize = 16
	// BannerSize is the size of a whole banner as written by [Banner.AppendTo].
	BannerSize = BannerPrefixSize + BannerPayloadSize
)

// Banner is the first thing that each side sends (Ceph's ProtocolV2.cc).
type Banner struct {
	Supported uint64 // features of the sender
	Required  uint64 // features that the sender needs of its peer
}

// AppendTo appends the whole banner, prefix included.
func (b Banner) AppendTo(dst []byte) []byte {
	dst = le.AppendUint16(append(dst, bannerMagic...), BannerPayloadSize)
	return le.AppendUint64(le.AppendUint64(dst, b.Supported), b.Required)
}

// ParseBannerPrefix checks the first [BannerPrefixSize] bytes of a connection and
// returns how many payload bytes follow. It returns a [*BannerError] if the peer
// speaks something else.
func ParseBannerPrefix(p []byte) (payloadLen int, err error) {
	if len(p) < BannerPrefixSize {
		return 0, fmt.Errorf("%w: %d bytes of banner", wire.ErrTruncated, len(p))
	}
	if err := CheckBanner(p[:BannerPrefixSize]); err != nil {
		return 0, err
	}
	return int(le.Uint16(p[len(bannerMagic):])), nil
}

// DecodeBanner reads the payload of a banner, the part behind the prefix.
func DecodeBanner(payload []byte) (Banner, error) {
	r := wire.NewReader(payload)
	b := Banner{Supported: r.U64(), Required: r.U64()}
	return b, wrap("banner", r.Err())
}

// RevisionOf is the revision of frames between two sides that both have these features.
func RevisionOf(features uint64) frame.Revision {
	if features&wire.BannerRevision1 != 0 {
		return frame.Rev1
	}
	return frame.Rev0
}

// Speech is what the first bytes of a connection look like. The zero value is the
// banner of this protocol, or a beginning of it.
type Speech string

// What peers speak that come to the wrong port, or that are dialled by mistake.
const (
	SpeechBanner Speech = ""
	SpeechMsgr1  Speech = "msgr1" // the older protocol of the same daemons
	SpeechMsgr2  Speech = "msgr2" // this protocol, where the older one is spoken
	SpeechHTTP   Speech = "http"  // a request or an answer
	SpeechTLS    Speech = "tls"   // a hello or an alert
	SpeechSSH    Speech = "ssh"
	SpeechOther  Speech = "other"
)

// beginnings are how the others begin. No two of different speech agree in their
// first byte, apart from msgr1, which begins like our own.
var beginnings = map[Speech][]string{
	SpeechMsgr1: {Msgr1Banner},
	SpeechHTTP: {
		"GET ", "HEAD ", "POST ", "PUT ", "DELETE ", "OPTIONS ", "CONNECT ", "TRACE ", "PATCH ", "PRI * HTTP/", "HTTP/",
	},
	SpeechTLS: {"\x16\x03", "\x15\x03"},
	SpeechSSH: {"SSH-"},
}

// MatchBanner says what the first bytes of a connection look like, as far as they
// have come. As long as they can be a banner that is [SpeechBanner]; from the first
// wrong byte on it never is again. Of another protocol it takes any part of its
// beginning, so the fewer bytes there are, the more it is a guess.
func MatchBanner(got []byte) Speech {
	s := string(got[:min(len(got), BannerPrefixSize)])
	if agree(s, bannerMagic) {
		return SpeechBanner
	}
	for speech, known := range beginnings {
		if slices.ContainsFunc(known, func(begin string) bool { return agree(s, begin) }) {
			return speech
		}
	}
	return SpeechOther
}

// agree reports whether one is the beginning of the other.
func agree(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }

// BannerError means that the first bytes of a connection are no banner. It wraps
// [wire.ErrV1Peer] if they are of the older protocol, else [wire.ErrBadBanner].
type BannerError struct {
	Speech Speech // what they look like, not [SpeechBanner]
	Got    []byte // the first of them, a copy
}

// CheckBanner returns a [*BannerError] as soon as got, the first bytes of a
// connection as far as they have come, can be no banner.
func CheckBanner(got []byte) error {
	speech := MatchBanner(got)
	if speech == SpeechBanner {
		return nil
	}
	return &BannerError{Speech: speech, Got: slices.Clone(got[:min(len(got), BannerPrefixSize)])}
}

// Error implements error.
func (e *BannerError) Error() string {
	return fmt.Sprintf("%v: %q, looks like %s", e.Unwrap(), e.Got, e.Speech)
}

// Unwrap returns [wire.ErrV1Peer] or [wire.ErrBadBanner].
func (e *BannerError) Unwrap() error {
	if e.Speech == SpeechMsgr1 {
		return wire.ErrV1Peer
	}
	return wire.ErrBadBanner
}
