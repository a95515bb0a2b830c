package wire

import (
	"fmt"
	"strings"
)

const (
	bannerMagic = "ceph v2\n"
	v1Magic     = "ceph v027"

	// BannerPrefixSize is the number of bytes that [ParseBannerPrefix] needs.
	BannerPrefixSize = len(bannerMagic) + 2
	// BannerPayloadSize is the number of payload bytes that this package writes, and the
	// least that it accepts.
	BannerPayloadSize = 16
	// BannerSize is the size of a whole banner as written by [Banner.AppendTo].
	BannerSize = BannerPrefixSize + BannerPayloadSize
)

// Banner is the first thing that each side sends (protocol section 4).
type Banner struct {
	Supported uint64 // what the sender can do
	Required  uint64 // what the sender insists on
}

// AppendTo appends the whole banner, prefix included.
func (b Banner) AppendTo(dst []byte) []byte {
	dst = le.AppendUint16(append(dst, bannerMagic...), BannerPayloadSize)
	return le.AppendUint64(le.AppendUint64(dst, b.Supported), b.Required)
}

// ParseBannerPrefix checks the first [BannerPrefixSize] bytes of a connection and
// returns how many payload bytes follow. It returns an error wrapping [ErrV1Peer] if
// the peer speaks the older protocol, [ErrBadBanner] if it speaks something else.
func ParseBannerPrefix(p []byte) (payloadLen int, err error) {
	if len(p) < BannerPrefixSize {
		return 0, fmt.Errorf("%w: %d bytes of banner", ErrTruncated, len(p))
	}
	if s := string(p[:BannerPrefixSize]); strings.HasPrefix(s, v1Magic) {
		return 0, ErrV1Peer
	} else if !strings.HasPrefix(s, bannerMagic) {
		return 0, fmt.Errorf("%w: %q", ErrBadBanner, s)
	}
	return int(le.Uint16(p[len(bannerMagic):])), nil
}

// DecodeBanner reads the payload of a banner, the part behind the prefix.
func DecodeBanner(payload []byte) (Banner, error) {
	r := NewReader(payload)
	b := Banner{Supported: r.U64(), Required: r.U64()}
	return b, wrap("banner", r.Err())
}
