package wire

import (
	"errors"
	"fmt"
)

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
