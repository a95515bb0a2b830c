package compress

import (
	"errors"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

var (
	// ErrMethod: there is no such algorithm here.
	ErrMethod = errors.New("compress: unknown method")
	// ErrCorrupt: what was received is no output of the algorithm.
	ErrCorrupt = errors.New("compress: corrupt input")
	// ErrTooLarge: the original is larger than allowed.
	ErrTooLarge = errors.New("compress: original is too large")
)

// Methods are the algorithms of this package.
func Methods() []handshake.CompressionMethod {
	return []handshake.CompressionMethod{
		handshake.CompressionSnappy, handshake.CompressionZlib, handshake.CompressionZstd, handshake.CompressionLZ4,
	}
}

// Parse returns the method of that name, such as "zstd". "none" is none.
func Parse(name string) (handshake.CompressionMethod, error) {
	for _, m := range append(Methods(), handshake.CompressionNone) {
		if m.String() == name {
			return m, nil
		}
	}
	return 0, fmt.Errorf("%w: %q, want none or one of %v", ErrMethod, name, Methods())
}

// New makes a compressor. It is safe for concurrent use, so that all
// connections of a messenger share one: some algorithms need a megabyte of
// memory for each goroutine that compresses.
func New(m handshake.CompressionMethod) (frame.Compressor, error) {
	switch m {
	case handshake.CompressionSnappy:
		return snappyBlock{}, nil
	case handshake.CompressionZlib:
		return newDeflate(), nil
	case handshake.CompressionZstd:
		return newZstd()
	case handshake.CompressionLZ4:
		return newLZ4(), nil
	}
	return nil, fmt.Errorf("%w: %v", ErrMethod, m)
}

// corrupt wraps what an algorithm complains about.
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
