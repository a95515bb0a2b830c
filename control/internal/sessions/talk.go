package sessions

import (
	"context"
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/compress"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// talk is a handshake that has come to the session, in the protocol of its socket. The
// goroutine of the attempt uses it until the connection is open.
type talk interface {
	// send sends what the machine says.
	send(ctx context.Context, f session.Frame) error
	// receive returns what the peer says, for the machine.
	receive(ctx context.Context) (session.Frame, error)
	// last says that an acceptor, or a connector of msgr1, does not wait for an answer to f.
	last(f session.Frame) bool
	// queues says that send does not wait.
	queues() bool
	// protocol is the name in statistics.
	protocol() string
	// Wipe overwrites the secrets of a handshake that has failed.
	Wipe()
	// release gives up the codecs, for a connection with these features.
	release(opt *dataplane.OpenOptions, features wire.Features) error
}

// msgr2Talk is the talk of msgr2.
type msgr2Talk struct {
	*handshake.Stream
	m    *Manager
	peer *handshake.Peer
}

func (s msgr2Talk) send(ctx context.Context, f session.Frame) error {
	tag, payload := encode(s.Scratch(), f)
	return s.WriteFrame(ctx, tag, payload)
}

func (s msgr2Talk) receive(ctx context.Context) (session.Frame, error) {
	tag, payload, err := s.ReadFrame(ctx)
	if err != nil {
		return nil, err
	}
	return decode(tag, payload)
}

func (s msgr2Talk) last(session.Frame) bool { return true }
func (s msgr2Talk) queues() bool            { return s.Queues() }
func (s msgr2Talk) protocol() string        { return s.peer.Revision.String() }

func (s msgr2Talk) release(opt *dataplane.OpenOptions, _ wire.Features) error {
	enc, dec := s.Release()
	dec.SetLimits(s.m.cfg.Limits)
	opt.Codec = dataplane.Msgr2(enc, dec)
	return nil
}

// handshakeOptions are what both roles have in common.
func (m *Manager) handshakeOptions(a *attempt) handshake.Options {
	o := m.cfg.Handshake
	o.EntityType, o.Compression, o.Probe, o.Tap, o.KeyLog = m.cfg.Name.Type, m.compression.negotiate, a.probe, a.tap, m.keyLog
	return o
}

// encode is a frame of the session on the wire; the payload may take the memory of dst.
func encode(dst []byte, f session.Frame) (frame.Tag, []byte) {
	switch f := f.(type) {
	case wire2.ClientIdent:
		return frame.TagClientIdent, f.AppendTo(dst)
	case wire2.ServerIdent:
		return frame.TagServerIdent, f.AppendTo(dst)
	case wire2.IdentMissingFeatures:
		return frame.TagIdentMissingFeatures, f.AppendTo(dst)
	case wire2.SessionReconnect:
		return frame.TagSessionReconnect, f.AppendTo(dst)
	case wire2.SessionReconnectOK:
		return frame.TagSessionReconnectOK, f.AppendTo(dst)
	case wire2.SessionRetry:
		return frame.TagSessionRetry, f.AppendTo(dst)
	case wire2.SessionRetryGlobal:
		return frame.TagSessionRetryGlobal, f.AppendTo(dst)
	case wire2.SessionReset:
		return frame.TagSessionReset, f.AppendTo(dst)
	default: // session.WaitFrame: the machine sends no other
		return frame.TagWait, nil
	}
}

// decode is the other side of encode.
func decode(tag frame.Tag, p []byte) (session.Frame, error) {
	switch tag {
	case frame.TagClientIdent:
		return decoded(wire2.DecodeClientIdent(p))
	case frame.TagServerIdent:
		return decoded(wire2.DecodeServerIdent(p))
	case frame.TagIdentMissingFeatures:
		return decoded(wire2.DecodeIdentMissingFeatures(p))
	case frame.TagSessionReconnect:
		return decoded(wire2.DecodeSessionReconnect(p))
	case frame.TagSessionReconnectOK:
		return decoded(wire2.DecodeSessionReconnectOK(p))
	case frame.TagSessionRetry:
		return decoded(wire2.DecodeSessionRetry(p))
	case frame.TagSessionRetryGlobal:
		return decoded(wire2.DecodeSessionRetryGlobal(p))
	case frame.TagSessionReset:
		return decoded(wire2.DecodeSessionReset(p))
	case frame.TagWait:
		return session.WaitFrame{}, nil
	}
	return session.OtherFrame{Name: tag.String()}, nil
}

func decoded[T any](f T, err error) (session.Frame, error) { return f, err }

// DefaultCompressionMin is the smallest frame that is compressed, in bytes of
// its segments, as the daemons have it.
const DefaultCompressionMin = 1024

// Compression of frames on the wire (msgr2.md 7.6). It is off unless Methods
// has something, and then used with peers that have it too and want it for us:
// daemons of release 17 and later can, those of 16 and earlier cannot. See
// package compress for what was tested.
type Compression struct {
	// Methods that may be used, most preferred first; the connector's order
	// decides. Empty: the feature is not announced to anybody.
	Methods []wire.CompressionMethod
	// Min is the smallest frame to compress; 0: 1024, negative: every frame.
	// The peer decides for itself about what it sends.
	Min int
	// Peers are the types of peers to compress towards; nil: OSDs only.
	Peers []wire.EntityType
	// Secure compresses in mode secure, too. The length of what is encrypted
	// then tells about its content: leave it off where others can choose a part
	// of what is sent.
	Secure bool
}

// compression is a Compression at work.
type compression struct {
	negotiate *handshake.Compression // nil: not announced
	min       int
	methods   map[wire.CompressionMethod]frame.Compressor
}

// Validate checks the methods.
func (c *Compression) Validate() error {
	for _, m := range c.Methods {
		if !slices.Contains(compress.Methods(), m) {
			return fmt.Errorf("%w: compression method %v", ErrConfig, m)
		}
	}
	return nil
}

// start makes what the connections of a messenger share.
func (c *Compression) start() (*compression, error) {
	if len(c.Methods) == 0 {
		return &compression{}, nil
	}
	w := &compression{min: c.Min, methods: make(map[wire.CompressionMethod]frame.Compressor)}
	switch {
	case c.Min == 0:
		w.min = DefaultCompressionMin
	case c.Min < 0:
		w.min = 0
	}
	for _, m := range c.Methods {
		var err error
		if w.methods[m], err = compress.New(m); err != nil {
			return nil, fmt.Errorf("control: %w", err)
		}
	}
	peers, secure := c.Peers, c.Secure
	if peers == nil {
		peers = []wire.EntityType{wire.OSD}
	}
	w.negotiate = &handshake.Compression{
		Methods: slices.Clone(c.Methods),
		Want: func(peer wire.EntityType, mode auth.Mode) bool {
			return slices.Contains(peers, peer) && (mode == auth.CRC || secure)
		},
		Install: w.install,
	}
	return w, nil
}

// install has both directions use the method that was agreed.
func (c *compression) install(enc *frame.Encoder, dec *frame.Decoder, m wire.CompressionMethod) {
	enc.Compress(c.methods[m], c.min)
	dec.Decompress(c.methods[m])
}
