package rados

import (
	"context"
	"fmt"
	"time"
)

// PieceSize is the most that one operation reads or writes, in bytes. It is well
// below what a frame and an OSD take.
const PieceSize = 16 << 20

// Write replaces an object by data, and returns when that is stored. The data
// must not be changed before; if Write fails, it may still be on its way then,
// and must not be changed at all.
//
// More than PieceSize is written piece by piece, front to back: others may see the
// object grow, and if Write fails it may have only the beginning.
func (c *Client) Write(ctx context.Context, pool, object string, data []byte) error {
	r := request{name: "write", op: opWriteFull, obj: object, mtime: time.Now()}
	for {
		n := min(len(data), PieceSize)
		piece := r
		piece.data = data[:n:n]
		if _, err := c.do(ctx, pool, &piece); err != nil {
			return err
		}
		if data = data[n:]; len(data) == 0 {
			return nil
		}
		r.op, r.offset = opWrite, r.offset+uint64(n)
	}
}

// Read returns a whole object, which is read piece by piece if it has PieceSize or
// more: what is written meanwhile may be in one piece and not in another.
func (c *Client) Read(ctx context.Context, pool, object string) ([]byte, error) {
	var all []byte
	for {
		piece, err := c.ReadAt(ctx, pool, object, uint64(len(all)), PieceSize)
		switch {
		case err != nil:
			return nil, err
		case len(piece) < PieceSize && all == nil:
			return piece, nil
		}
		if all = append(all, piece...); len(piece) < PieceSize {
			return all, nil
		}
	}
}

// ReadInto reads an object from offset on into p, piece by piece as Read does, until p is
// full or the object ends, and returns how many bytes there are. They are read from the
// socket straight into p, if they come neither encrypted nor compressed: p can be pages for
// direct I/O. Nobody else touches p before or after; what it has behind these bytes, or
// after an error, is undefined.
func (c *Client) ReadInto(ctx context.Context, pool, object string, offset uint64, p []byte) (int, error) {
	for n := 0; ; {
		piece := p[n:min(n+PieceSize, len(p))]
		if len(piece) == 0 {
			return n, nil
		}
		data, err := c.do(ctx, pool, &request{
			name: "read", op: opRead, obj: object, offset: offset + uint64(n), length: uint64(len(piece)), into: piece,
		})
		if err == nil {
			data, err = atMost(len(piece), data)
		}
		if n += len(data); err != nil || len(data) < len(piece) {
			return n, err
		}
	}
}

// ReadAt returns at most n bytes of an object from offset on, at most PieceSize;
// fewer are there if the object ends before, and none behind its end.
func (c *Client) ReadAt(ctx context.Context, pool, object string, offset uint64, n int) ([]byte, error) {
	if n <= 0 {
		return nil, nil
	}
	n = min(n, PieceSize)
	data, err := c.do(ctx, pool, &request{name: "read", op: opRead, obj: object, offset: offset, length: uint64(n)})
	if err != nil {
		return nil, err
	}
	return atMost(n, data)
}

// atMost refuses an answer to a read that is longer than what was asked for: a
// caller would take the surplus for bytes of the next piece.
func atMost(n int, data []byte) ([]byte, error) {
	if len(data) > n {
		return nil, fmt.Errorf("%w: %d bytes in answer to a read of %d", ErrMessage, len(data), n)
	}
	return data, nil
}
