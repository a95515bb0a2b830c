package wire

import (
	"fmt"
	"strings"
)

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
