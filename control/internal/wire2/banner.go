package wire2

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/wire"
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
