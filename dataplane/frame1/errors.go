package frame1

import "github.com/ringmsgr/ringmsgr/dataplane/frame"

// Causes that only msgr1 has. All of them wrap [frame.ErrFrame], as do those of
// package frame that this package returns: [frame.ErrTag], [frame.ErrTruncated],
// [frame.ErrTooLarge], [frame.ErrSegmentCRC].
var (
	// errHeaderCRC: the crc of a message header does not match.
	errHeaderCRC error = cause("header crc does not match")
	// errAborted: the sender has given the message up. msgr1 has no way to go on
	// behind it.
	errAborted error = cause("message was aborted")
	// errUnsigned: a message without a signature where each must have one.
	errUnsigned error = cause("message is not signed")
	// ErrSignature: the signature of a message is wrong.
	ErrSignature error = cause("signature does not match")
)

// cause is a sentinel below frame.ErrFrame.
type cause string

func (c cause) Error() string { return frame.ErrFrame.Error() + ": " + string(c) }
func (c cause) Unwrap() error { return frame.ErrFrame }
