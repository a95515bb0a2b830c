package handshake2

import (
	"context"
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
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
	// that mode. Nil stands for the default of the protocol: only towards OSDs, and not in
	// mode secure, where compression can leak the content.
	Want func(peer wire.EntityType, mode auth.Mode) bool
	// Install switches the agreed method on: frames of the session that follow may come
	// compressed, a short ident too if the peer's least size is small.
	Install func(*frame.Encoder, *frame.Decoder, wire.CompressionMethod)
}

func (c *Compression) want(peer wire.EntityType, mode auth.Mode) bool {
	if c.Want != nil {
		return c.Want(peer, mode)
	}
	return peer == wire.OSD && mode == auth.CRC
}

// negotiateConnector asks and returns the method to use.
func (c *Compression) negotiateConnector(ctx context.Context, s *Stream, peer *handshake.Peer) (wire.CompressionMethod, error) {
	req := wire2.CompressionRequest{Compress: c.want(peer.EntityType, peer.Mode)}
	for _, m := range c.Methods {
		req.Preferred = append(req.Preferred, uint32(m))
	}
	if err := s.WriteFrame(ctx, frame.TagCompressionRequest, req.AppendTo(s.Scratch())); err != nil {
		return 0, err
	}
	tag, payload, err := s.ReadFrame(ctx)
	if err != nil {
		return 0, err
	}
	if tag != frame.TagCompressionDone {
		return 0, unexpected(tag, frame.TagCompressionDone)
	}
	done, err := wire2.DecodeCompressionDone(payload)
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

// negotiateAcceptor answers and returns the method to use.
func (c *Compression) negotiateAcceptor(ctx context.Context, s *Stream, peer *handshake.Peer) (wire.CompressionMethod, error) {
	tag, payload, err := s.ReadFrame(ctx)
	if err != nil {
		return 0, err
	}
	if tag != frame.TagCompressionRequest {
		return 0, unexpected(tag, frame.TagCompressionRequest)
	}
	req, err := wire2.DecodeCompressionRequest(payload)
	if err != nil {
		return 0, err
	}
	method := wire.CompressionNone
	if req.Compress && c.want(peer.EntityType, peer.Mode) {
		for _, m := range req.Preferred {
			if m := wire.CompressionMethod(m); m != wire.CompressionNone && slices.Contains(c.Methods, m) {
				method = m
				break
			}
		}
	}
	done := wire2.CompressionDone{Compress: method != wire.CompressionNone, Method: uint32(method)}
	return method, s.WriteFrame(ctx, frame.TagCompressionDone, done.AppendTo(s.Scratch()))
}
