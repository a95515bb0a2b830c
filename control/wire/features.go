package wire

import "fmt"

// Features is the 64-bit set of the ident frames (protocol section 2). Bits were
// recycled over the years, so a named feature is a mask: its own bit and those of its
// incarnation. Test with [Features.Has], never with a single bit.
type Features uint64

const (
	incarnation2 = 1 << 57
	incarnation3 = 1<<57 | 1<<28
)

// The features that matter to a messenger.
const (
	FeatureNoSrcAddr      Features = 1 << 1 // msgr1: the short message header
	FeatureReconnectSeq   Features = 1 << 6
	FeatureOSDReplyMux    Features = 1 << 12 // required by the data clients
	FeatureMsgAuth        Features = 1 << 23 // msgr1: room for signatures
	FeatureMsgrKeepalive2 Features = 1 << 42
	FeatureMsgAddr2       Features = 1 << 59 // mandatory in protocol v2
	FeatureCephxV2        Features = 1 << 61 // msgr1: challenges, and the second form of signatures
	FeatureServerJewel    Features = 1 << 57
	FeatureServerLuminous Features = 1<<21 | incarnation2
	FeatureServerMimic    Features = 1<<28 | incarnation2
	FeatureServerNautilus Features = 1<<2 | incarnation3
	FeatureServerOctopus  Features = 1<<16 | incarnation3
	FeatureServerTentacle Features = 1<<50 | incarnation2
	FeaturesPacific       Features = 0x3f01cfbdfffdffff // everything that 16.2.15 supports
)

// Has reports whether f holds every bit of mask.
func (f Features) Has(mask Features) bool { return f&mask == mask }

// Missing returns the bits of required that f lacks.
func (f Features) Missing(required Features) Features { return required &^ f }

// String returns the set in hexadecimal, the way logs show it.
func (f Features) String() string { return fmt.Sprintf("0x%016x", uint64(f)) }

// The features of the banner (protocol section 4), a set of its own.
const (
	// BannerRevision1 selects msgr2.1 when both sides have it.
	BannerRevision1 uint64 = 1 << 0
	// BannerCompression adds the compression negotiation when both sides have it.
	BannerCompression uint64 = 1 << 1
)
