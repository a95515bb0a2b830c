package wire

import (
	"encoding/binary"
	"time"
)

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
