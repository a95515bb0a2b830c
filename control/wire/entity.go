package wire

import (
	"fmt"
	"strings"
)

// EntityType is the kind of process of an entity (Ceph's msgr.h).
type EntityType uint8

// The entity types.
const (
	Mon    EntityType = 0x01 // monitor
	MDS    EntityType = 0x02 // metadata server
	OSD    EntityType = 0x04 // storage daemon
	Client EntityType = 0x08 // any client library or command line tool
	Mgr    EntityType = 0x10 // manager
	Auth   EntityType = 0x20 // only a service id inside cephx, never a peer
	Any    EntityType = 0xFF // wildcard
)

var entityTypeNames = []struct {
	typ  EntityType
	name string
}{
	{Mon, "mon"}, {MDS, "mds"}, {OSD, "osd"}, {Client, "client"}, {Mgr, "mgr"}, {Auth, "auth"}, {Any, "any"},
}

// String returns the usual short name, such as "mon", or "type(0x..)" for an
// unknown value.
func (t EntityType) String() string {
	for _, e := range entityTypeNames {
		if e.typ == t {
			return e.name
		}
	}
	return fmt.Sprintf("type(0x%02x)", uint8(t))
}

// ParseEntityType parses the name of a known type.
func ParseEntityType(s string) (EntityType, error) {
	for _, e := range entityTypeNames {
		if e.name == s {
			return e.typ, nil
		}
	}
	return 0, fmt.Errorf("%w: unknown entity type %q", errSyntax, s)
}

// MarshalText implements [encoding.TextMarshaler].
func (t EntityType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (t *EntityType) UnmarshalText(text []byte) error {
	return unmarshal(t, text, ParseEntityType)
}

// EntityName is the name with which an entity authenticates, for example client.admin
// (Ceph's entity_name.h). The zero value is no name.
type EntityName struct {
	Type EntityType
	ID   string
}

// String returns the text form, "type.id"; "" for the zero value.
func (n EntityName) String() string {
	if n == (EntityName{}) {
		return ""
	}
	return n.Type.String() + "." + n.ID
}

// ParseEntityName parses "type.id". The id may contain dots but may not be empty.
func ParseEntityName(s string) (EntityName, error) {
	typ, id, ok := strings.Cut(s, ".")
	if !ok || id == "" {
		return EntityName{}, fmt.Errorf("%w: entity name %q is not of the form type.id", errSyntax, s)
	}
	t, err := ParseEntityType(typ)
	if err != nil {
		return EntityName{}, fmt.Errorf("entity name %q: %w", s, err)
	}
	return EntityName{Type: t, ID: id}, nil
}

// MarshalText implements [encoding.TextMarshaler].
func (n EntityName) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. Empty text is the zero value.
func (n *EntityName) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*n = EntityName{}
		return nil
	}
	return unmarshal(n, text, ParseEntityName)
}

// AppendTo appends the wire form: type as u32, id as a string.
func (n EntityName) AppendTo(dst []byte) []byte {
	return AppendString(le.AppendUint32(dst, uint32(n.Type)), n.ID)
}

// maxIDLen bounds the id of an entity name, in bytes: peers that have proven nothing send names,
// and a session keeps that of its peer.
const maxIDLen = 4096

// EntityName reads the wire form of an entity name. A type that does not fit into one
// byte is malformed, and so is an id of more than 4096 bytes.
func (r *Reader) EntityName() EntityName {
	typ := r.U32()
	id := r.Blob()
	switch {
	case r.err != nil:
		return EntityName{}
	case typ > 0xFF:
		r.Fail(fmt.Errorf("%w: entity type 0x%x", ErrMalformed, typ))
		return EntityName{}
	case len(id) > maxIDLen:
		r.Fail(fmt.Errorf("%w: entity name of %d bytes, limit %d", ErrMalformed, len(id), maxIDLen))
		return EntityName{}
	}
	return EntityName{Type: EntityType(typ), ID: string(id)}
}

// unmarshal sets a value from its text form, if that can be parsed.
func unmarshal[T any](to *T, text []byte, parse func(string) (T, error)) error {
	v, err := parse(string(text))
	if err == nil {
		*to = v
	}
	return err
}

// Features is the 64-bit set of the ident frames (Ceph's ceph_features.h). Bits were recycled
// over the years: the mask of a newer feature also has the bits of its incarnation.
type Features uint64

// The features that matter to a messenger, but for those of msgr1 alone.
const (
	FeatureMsgAddr2    Features = 1 << 59 // mandatory in protocol v2
	FeatureServerJewel Features = 1 << 57
	FeaturesPacific    Features = 0x3f01cfbdfffdffff // everything that 16.2.15 supports
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
