package frame

import "errors"

// ErrFrame is wrapped by every error of this package. On the receiving side it
// means that the stream is not usable any more: the connection must be closed
// (a "fault" of ProtocolV2.cc).
var ErrFrame = errors.New("bad frame")

// Finer causes; all of them wrap ErrFrame.
var (
	// ErrTruncated: fewer or more bytes were handed in than the part of the
	// frame has, or a header of a message is too short.
	ErrTruncated error = cause("wrong number of bytes")
	// ErrPreambleCRC: the crc of the preamble does not match. In secure mode
	// of revision 0 a forged or damaged preamble shows up as this error too.
	ErrPreambleCRC error = cause("preamble crc does not match")
	// errSegmentCount: no segment, more than four or than the tag can have, or
	// a last one that is empty.
	errSegmentCount error = cause("bad number of segments")
	// ErrTag: the protocol does not have the tag.
	ErrTag error = cause("unknown tag")
	// errCompressed: a compressed frame where no compression was negotiated,
	// or where the whole frame is needed to decompress it.
	errCompressed error = cause("frame is compressed")
	// ErrTooLarge: a segment beyond the Limits or beyond the bound of its tag, or
	// a length that no frame can carry.
	ErrTooLarge error = cause("segment too large")
	// ErrSegmentCRC: the crc of a segment does not match.
	ErrSegmentCRC error = cause("segment crc does not match")
	// ErrAuthTag: a part of the frame was not encrypted with our key and
	// nonce, or was changed on the way.
	ErrAuthTag error = cause("authentication tag does not match")
	// errLateStatus: neither complete nor aborted.
	errLateStatus error = cause("bad late status")
	// ErrDecompress: a segment does not decompress.
	ErrDecompress error = cause("segment does not decompress")
	// errNonceExhausted: the next operation would use the initial nonce again.
	errNonceExhausted error = cause("nonces used up")
	// ErrKeys: key material is unusable, was already set, or was wiped.
	ErrKeys error = cause("no usable keys")
	// errMisuse: the caller broke the contract, for example with a header
	// that is not the one which Open returned.
	errMisuse error = cause("codec misused")
)

// cause is a sentinel below ErrFrame.
type cause string

func (c cause) Error() string { return ErrFrame.Error() + ": " + string(c) }
func (c cause) Unwrap() error { return ErrFrame }
