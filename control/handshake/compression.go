package handshake

import (
	"context"
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// CompressionMethod is a method of on-wire compression (protocol section 7.6).
type CompressionMethod uint32

// The compression methods.
const (
	CompressionNone   CompressionMethod = 0
	CompressionSnappy CompressionMethod = 1
	CompressionZlib   CompressionMethod = 2
	CompressionZstd   CompressionMethod = 3
	CompressionLZ4    CompressionMethod = 4
	CompressionBrotli CompressionMethod = 5
)

var compressionNames = [...]string{"none", "snappy", "zlib", "zstd", "lz4", "brotli"}

// String returns the usual name, such as "zstd".
func (m CompressionMethod) String() string {
	if int64(m) < int64(len(compressionNames)) {
		return compressionNames[m]
	}
	return fmt.Sprintf("compression(%d)", uint32(m))
}

// Compression decides about on-wire compression. It is read only while handshakes use
// it.
type Compression struct {
	// Methods are the own methods, most preferred first.
	Methods []CompressionMethod
	// Want reports whether to compress towards a peer of that type on a connection with
	// that mode. Nil stands for the default of the protocol: only towards OSDs, and not in
	// mode secure, where compression can leak what encryption hides.
	Want func(peer wire.EntityType, mode auth.Mode) bool
}

func (c *Compression) want(peer wire.EntityType, mode auth.Mode) bool {
	if c.Want != nil {
		return c.Want(peer, mode)
	}
	return peer == wire.OSD && mode == auth.CRC
}

// negotiateConnector asks and returns the method to use.
func (c *Compression) negotiateConnector(ctx context.Context, s *Stream, peer *Peer) (CompressionMethod, error) {
	req := wire.CompressionRequest{Compress: c.want(peer.EntityType, peer.Mode)}
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
	done, err := wire.DecodeCompressionDone(payload)
	if err != nil {
		return 0, err
	}
	if !done.Compress || !req.Compress {
		return CompressionNone, nil
	}
	m := CompressionMethod(done.Method)
	if !slices.Contains(c.Methods, m) {
		return 0, fmt.Errorf("%w: COMPRESSION_DONE chooses %v, which was not offered", ErrUnexpectedFrame, m)
	}
	return m, nil
}

// negotiateAcceptor answers and returns the method to use.
func (c *Compression) negotiateAcceptor(ctx context.Context, s *Stream, peer *Peer) (CompressionMethod, error) {
	tag, payload, err := s.ReadFrame(ctx)
	if err != nil {
		return 0, err
	}
	if tag != frame.TagCompressionRequest {
		return 0, unexpected(tag, frame.TagCompressionRequest)
	}
	req, err := wire.DecodeCompressionRequest(payload)
	if err != nil {
		return 0, err
	}
	method := CompressionNone
	if req.Compress && c.want(peer.EntityType, peer.Mode) {
		for _, m := range req.Preferred {
			if m := CompressionMethod(m); m != CompressionNone && slices.Contains(c.Methods, m) {
				method = m
				break
			}
		}
	}
	done := wire.CompressionDone{Compress: method != CompressionNone, Method: uint32(method)}
	return method, s.WriteFrame(ctx, frame.TagCompressionDone, done.AppendTo(s.Scratch()))
}

// unexpected makes the error for a frame that is not legal in this state.
func unexpected(got frame.Tag, want ...frame.Tag) error {
	return fmt.Errorf("%w: %v, want %v", ErrUnexpectedFrame, got, want)
}
