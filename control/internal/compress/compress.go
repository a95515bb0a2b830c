package compress

import (
	"errors"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

var (
	// ErrMethod: there is no such algorithm here.
	ErrMethod = errors.New("compress: unknown method")
	// ErrCorrupt: the received bytes are no output of the algorithm.
	ErrCorrupt = errors.New("compress: corrupt input")
	// ErrTooLarge: the original is larger than allowed.
	ErrTooLarge = errors.New("compress: original is too large")
)

// Methods are the algorithms of this package.
func Methods() []wire.CompressionMethod {
	return []wire.CompressionMethod{
		wire.CompressionSnappy, wire.CompressionZlib, wire.CompressionZstd, wire.CompressionLZ4,
	}
}

// New makes a compressor. It is safe for concurrent use, so that all
// connections of a messenger share one: some algorithms need a megabyte of
// memory for each goroutine that compresses.
func New(m wire.CompressionMethod) (frame.Compressor, error) {
	switch m {
	case wire.CompressionSnappy:
		return snappyBlock{}, nil
	case wire.CompressionZlib:
		return newDeflate(), nil
	case wire.CompressionZstd:
		return newZstd()
	case wire.CompressionLZ4:
		return newLZ4(), nil
	}
	return nil, fmt.Errorf("%w: %v", ErrMethod, m)
}

// corrupt wraps the error of an algorithm.
func corrupt(err error) error { return fmt.Errorf("%w: %w", ErrCorrupt, err) }

// grow makes room for n bytes behind dst and returns dst and the room.
func grow(dst []byte, n int) (all, room []byte) {
	if cap(dst)-len(dst) < n {
		bigger := make([]byte, len(dst), len(dst)+n)
		copy(bigger, dst)
		dst = bigger
	}
	return dst, dst[len(dst) : len(dst)+n]
}

// claim checks the length that the input claims for the original.
func claim(n uint64, limit int) error {
	if n > uint64(limit) {
		return fmt.Errorf("%w: %d bytes, allowed are %d", ErrTooLarge, n, limit)
	}
	return nil
}
