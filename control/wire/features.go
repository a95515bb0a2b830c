package wire

import (
	"fmt"
	"strings"
)

// Features is the 64-bit set of the ident frames (Ceph's ceph_features.h). Bits were recycled
// over the years: the mask of a newer feature also has the bits of its incarnation.
type Features uint64

// The features that matter to a messenger.
const (
	FeatureNoSrcAddr      Features = 1 << 1 // msgr1: the short message header
	FeatureReconnectSeq   Features = 1 << 6
	FeatureMsgAuth        Features = 1 << 23 // msgr1: room for signatures
	FeatureMsgrKeepalive2 Features = 1 << 42
	FeatureMsgAddr2       Features = 1 << 59 // mandatory in protocol v2
	FeatureCephxV2        Features = 1 << 61 // msgr1: challenges, and the second form of signatures
	FeatureServerJewel    Features = 1 << 57
	FeaturesPacific       Features = 0x3f01cfbdfffdffff // everything that 16.2.15 supports
)

// Has reports whether f holds every bit of mask.
func (f Features) Has(mask Features) bool { return f&mask == mask }

// Missing returns the bits of required that f lacks.
func (f Features) Missing(required Features) Features { return required &^ f }

// String returns the set in hexadecimal, the way logs show it.
func (f Features) String() string { return fmt.Sprintf("0x%016x", uint64(f)) }

// The features of the banner (Ceph's msgr.h), a set of its own.
const (
	// BannerRevision1 selects msgr2.1 when both sides have it.
	BannerRevision1 uint64 = 1 << 0
	// BannerCompression adds the compression negotiation when both sides have it.
	BannerCompression uint64 = 1 << 1
)

// IdentLossy is the flag of CLIENT_IDENT and SERVER_IDENT that marks the sender's
// policy as lossy. In SERVER_IDENT it is authoritative for both.
const IdentLossy uint64 = 1 << 0

// CompressionMethod is a method of on-wire compression (Ceph's ProtocolV2.cc).
type CompressionMethod uint32

// The compression methods.
const (
	CompressionNone   CompressionMethod = 0
	CompressionSnappy CompressionMethod = 1
	CompressionZlib   CompressionMethod = 2
	CompressionZstd   CompressionMethod = 3
	CompressionLZ4    CompressionMethod = 4
	CompressionBrotli CompressionMethod = 5
)

var compressionNames = [...]string{"none", "snappy", "zlib", "zstd", "lz4", "brotli"}

// String returns the usual name, such as "zstd".
func (m CompressionMethod) String() string {
	if int64(m) < int64(len(compressionNames)) {
		return compressionNames[m]
	}
	return fmt.Sprintf("compression(%d)", uint32(m))
}

// ParseCompression returns the method with a name, for example "zstd". There is no
// compressor for brotli: its name is an error, like an unknown name.
func ParseCompression(name string) (CompressionMethod, error) {
	for m := CompressionNone; m < CompressionBrotli; m++ {
		if m.String() == name {
			return m, nil
		}
	}
	return 0, fmt.Errorf("unknown compression %q, want one of %s", name, strings.Join(compressionNames[:CompressionBrotli], ", "))
}
