package handshake2

import (
	"context"
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Compression decides about on-wire compression. It is read only while handshakes use
// it.
type Compression struct {
	// Methods are the own methods, most preferred first.
	Methods []wire.CompressionMethod
	// Want reports whether to compress towards a peer of that type on a connection with
	// that mode. In mode secure compression can leak the content.
	Want func(peer wire.EntityType, mode auth.Mode) bool
	// Install switches the agreed method on: frames of the session that follow may come
	// compressed, a short ident too if the peer's least size is small.
	Install func(*frame.Encoder, *frame.Decoder, wire.CompressionMethod)
}

// offerCompression asks, as a connector, and returns the method to use.
func (r *run) offerCompression(ctx context.Context, c *Compression) (wire.CompressionMethod, error) {
	req := wire2.CompressionRequest{Compress: c.Want(r.peer.EntityType, r.peer.Mode), Preferred: numbers(c.Methods)}
	if err := r.s.WriteFrame(ctx, frame.TagCompressionRequest, req.AppendTo(r.s.Scratch())); err != nil {
		return 0, err
	}
	done, err := receive(ctx, r, frame.TagCompressionDone, wire2.DecodeCompressionDone)
	if err != nil {
		return 0, err
	}
	if !done.Compress || !req.Compress {
		return wire.CompressionNone, nil
	}
	m := wire.CompressionMethod(done.Method)
	if !slices.Contains(c.Methods, m) {
		return 0, fmt.Errorf("%w: COMPRESSION_DONE chooses %v, which was not offered", ErrUnexpectedFrame, m)
	}
	return m, nil
}

// chooseCompression answers, as an acceptor, and returns the method to use.
func (r *run) chooseCompression(ctx context.Context, c *Compression) (wire.CompressionMethod, error) {
	req, err := receive(ctx, r, frame.TagCompressionRequest, wire2.DecodeCompressionRequest)
	if err != nil {
		return 0, err
	}
	method := wire.CompressionNone
	if req.Compress && c.Want(r.peer.EntityType, r.peer.Mode) {
		for _, m := range values[wire.CompressionMethod](req.Preferred) {
			if m != wire.CompressionNone && slices.Contains(c.Methods, m) {
				method = m
				break
			}
		}
	}
	done := wire2.CompressionDone{Compress: method != wire.CompressionNone, Method: uint32(method)}
	return method, r.s.WriteFrame(ctx, frame.TagCompressionDone, done.AppendTo(r.s.Scratch()))
}
