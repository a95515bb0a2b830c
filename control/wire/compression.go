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

// ParseCompression returns the method of that name, such as "zstd". Brotli has no
// compressor here, so its name is refused as every unknown one.
func ParseCompression(name string) (CompressionMethod, error) {
	for m := CompressionNone; m < CompressionBrotli; m++ {
		if m.String() == name {
			return m, nil
		}
	}
	return 0, fmt.Errorf("unknown compression %q, want one of %s", name, strings.Join(compressionNames[:CompressionBrotli], ", "))
}
