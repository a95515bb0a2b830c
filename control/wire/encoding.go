package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Reader takes values off the front of a byte slice. After the first error every call
// returns a zero value, so that a decoder can read all its fields and look at [Reader.Err]
// once.
//
// The returned slices alias the input. The zero Reader is an empty input. A Reader is not
// safe for concurrent use.
type Reader struct {
	buf []byte
	off int
	err error
}

// NewReader returns a reader of p. It keeps p and never writes to it.
func NewReader(p []byte) *Reader { return &Reader{buf: p} }

// Err returns the first error, or nil. It wraps [ErrMalformed] unless it was set
// with [Reader.Fail].
func (r *Reader) Err() error { return r.err }

// Fail makes the reader fail with err unless it has failed before.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// Len returns the number of bytes not read yet; 0 after a failure.
func (r *Reader) Len() int {
	if r.err != nil {
		return 0
	}
	return len(r.buf) - r.off
}

// Bytes returns the next n bytes without copying them; nil after a failure.
func (r *Reader) Bytes(n int) []byte {
	if r.err != nil {
		return nil
	}
	if n < 0 || n > len(r.buf)-r.off {
		r.err = fmt.Errorf("%w: need %d bytes at offset %d, have %d", ErrTruncated, n, r.off, len(r.buf)-r.off)
		return nil
	}
	p := r.buf[r.off : r.off+n : r.off+n]
	r.off += n
	return p
}

// Skip passes over n bytes.
func (r *Reader) Skip(n int) { r.Bytes(n) }

// Copy fills dst with the next len(dst) bytes, or with zeros after a failure.
func (r *Reader) Copy(dst []byte) {
	if p := r.Bytes(len(dst)); p != nil {
		copy(dst, p)
		return
	}
	clear(dst)
}

// U8 reads one byte.
func (r *Reader) U8() uint8 {
	if p := r.Bytes(1); p != nil {
		return p[0]
	}
	return 0
}

// Bool reads one byte; every value but 0 is true.
func (r *Reader) Bool() bool { return r.U8() != 0 }

// U16 reads a little-endian uint16.
func (r *Reader) U16() uint16 {
	if p := r.Bytes(2); p != nil {
		return binary.LittleEndian.Uint16(p)
	}
	return 0
}

// U32 reads a little-endian uint32.
func (r *Reader) U32() uint32 {
	if p := r.Bytes(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

// U64 reads a little-endian uint64.
func (r *Reader) U64() uint64 {
	if p := r.Bytes(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

// S32 reads a little-endian int32.
func (r *Reader) S32() int32 { return int32(r.U32()) }

// S64 reads a little-endian int64.
func (r *Reader) S64() int64 { return int64(r.U64()) }

// Count reads a u32 element count and fails unless that many elements of at least
// elemSize bytes each fit into the remaining bytes. So an allocation of that many elements
// is bounded by the input.
func (r *Reader) Count(elemSize int) int {
	n := r.U32()
	if r.err != nil {
		return 0
	}
	if elemSize < 1 {
		elemSize = 1
	}
	if uint64(n)*uint64(elemSize) > uint64(r.Len()) {
		r.err = fmt.Errorf("%w: count %d at offset %d exceeds the %d bytes left", ErrTruncated, n, r.off-4, len(r.buf)-r.off)
		return 0
	}
	return int(n)
}

// Blob reads a u32 length and that many bytes, which alias the input.
func (r *Reader) Blob() []byte { return r.Bytes(r.Count(1)) }

// Str reads a u32 length and that many bytes as a string.
func (r *Reader) Str() string { return string(r.Blob()) }

// U32s reads a u32 count and that many uint32; nil if the count is 0.
func (r *Reader) U32s() []uint32 {
	n := r.Count(4)
	if n == 0 {
		return nil
	}
	out := make([]uint32, n)
	for i := range out {
		out[i] = r.U32()
	}
	return out
}

// ListOf reads a u32 count and that many elements, each of at least size bytes; nil if the count is 0.
func ListOf[T any](r *Reader, size int, read func(r *Reader) T) []T {
	n := r.Count(size)
	var out []T
	for i := 0; i < n && r.err == nil; i++ {
		out = append(out, read(r))
	}
	return slices.Clip(out)
}

// Utime reads the 8-byte time of the protocol: seconds and nanoseconds, both u32,
// since the Unix epoch. Nanoseconds of a second or more carry over.
func (r *Reader) Utime() time.Time {
	sec, nsec := r.U32(), r.U32()
	return time.Unix(int64(sec), int64(nsec)).UTC()
}

// Envelope reads a versioned envelope (Ceph's encoding.h): it calls body with the
// version of the writer and a reader that ends where the envelope ends, and
// then skips the bytes that body has not read. It fails with [ErrVersion], without
// calling body, if the writer demands a reader newer than known. An error in the body
// is an error of r too.
func (r *Reader) Envelope(known uint8, body func(version uint8, r *Reader)) {
	if version, inner, ok := r.open(known); ok {
		body(version, &inner)
		r.err = inner.err
	}
}

// open is the beginning of Envelope. The caller reads inner if ok, and makes its error
// that of r.
func (r *Reader) open(known uint8) (version uint8, inner Reader, ok bool) {
	version, compat := r.U8(), r.U8()
	size := r.Count(1)
	inner = Reader{buf: r.Bytes(size)}
	if r.err != nil {
		return 0, inner, false
	}
	if compat > known {
		r.err = fmt.Errorf("%w: needs a reader of version %d, this is %d", ErrVersion, compat, known)
		return 0, inner, false
	}
	return version, inner, true
}

var le = binary.LittleEndian

// AppendBlob appends a u32 length and p.
func AppendBlob(dst, p []byte) []byte {
	return append(le.AppendUint32(dst, uint32(len(p))), p...)
}

// AppendString appends a u32 length and the bytes of s.
func AppendString(dst []byte, s string) []byte {
	return append(le.AppendUint32(dst, uint32(len(s))), s...)
}

// AppendU32s appends a u32 count and the elements.
func AppendU32s(dst []byte, list []uint32) []byte {
	dst = le.AppendUint32(dst, uint32(len(list)))
	for _, v := range list {
		dst = le.AppendUint32(dst, v)
	}
	return dst
}

// AppendBool appends one byte, 0 or 1.
func AppendBool(dst []byte, b bool) []byte {
	if b {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// AppendUtime appends t as u32 seconds and u32 nanoseconds since the Unix epoch. The
// zero time is written as zero; the field ends in the year 2106.
func AppendUtime(dst []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	}
	dst = le.AppendUint32(dst, uint32(t.Unix()))
	return le.AppendUint32(dst, uint32(t.Nanosecond()))
}

// BeginEnvelope appends the head of a versioned envelope (Ceph's encoding.h). Append
// the body next, then call [EndEnvelope] with the returned mark.
func BeginEnvelope(dst []byte, version, compat uint8) (out []byte, mark int) {
	dst = append(dst, version, compat, 0, 0, 0, 0)
	return dst, len(dst)
}

// EndEnvelope fills in the length of the envelope that [BeginEnvelope] opened at mark.
func EndEnvelope(dst []byte, mark int) []byte {
	le.PutUint32(dst[mark-4:mark], uint32(len(dst)-mark))
	return dst
}

// Errors of the decoders, for [errors.Is]. The returned errors name the place in the input.
var (
	// ErrMalformed is the root of every decoding error.
	ErrMalformed = errors.New("malformed input")
	// ErrTruncated means that the input ended before the value did. It wraps
	// [ErrMalformed].
	ErrTruncated = fmt.Errorf("%w: truncated", ErrMalformed)
	// ErrVersion means that the writer demands a newer reader than this one. It
	// wraps [ErrMalformed].
	ErrVersion = fmt.Errorf("%w: incompatible version", ErrMalformed)

	// ErrBadBanner means that the peer does not speak this protocol at all.
	ErrBadBanner = errors.New("bad banner")
	// ErrV1Peer means that the peer speaks protocol version 1. It wraps
	// [ErrBadBanner].
	ErrV1Peer = fmt.Errorf("%w: peer speaks protocol v1", ErrBadBanner)

	// errSyntax means that a text form could not be parsed.
	errSyntax = errors.New("invalid syntax")
)
