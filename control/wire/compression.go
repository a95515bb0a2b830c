package wire

import (
	"fmt"
	"strings"
)

// CompressionMethod is a method of on-wire compression (protocol section 7.6).
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

// CompressionRequest is the payload of COMPRESSION_REQUEST.
type CompressionRequest struct {
	Compress  bool     // the connector wants compression
	Preferred []uint32 // methods, most preferred first
}

// AppendTo appends the payload.
func (c CompressionRequest) AppendTo(dst []byte) []byte {
	return AppendU32s(AppendBool(dst, c.Compress), c.Preferred)
}

// DecodeCompressionRequest reads the payload of COMPRESSION_REQUEST.
func DecodeCompressionRequest(p []byte) (CompressionRequest, error) {
	r := NewReader(p)
	c := CompressionRequest{Compress: r.Bool(), Preferred: r.U32s()}
	return c, wrap("COMPRESSION_REQUEST", r.Err())
}

// CompressionDone is the payload of COMPRESSION_DONE.
type CompressionDone struct {
	Compress bool   // a method was found
	Method   uint32 // it; 0 is none
}

// AppendTo appends the payload.
func (c CompressionDone) AppendTo(dst []byte) []byte {
	return le.AppendUint32(AppendBool(dst, c.Compress), c.Method)
}

// DecodeCompressionDone reads the payload of COMPRESSION_DONE.
func DecodeCompressionDone(p []byte) (CompressionDone, error) {
	r := NewReader(p)
	c := CompressionDone{Compress: r.Bool(), Method: r.U32()}
	return c, wrap("COMPRESSION_DONE", r.Err())
}
