package sessions

import (
	"context"
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/compress"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake2"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/session2"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// msgr2 is the newer protocol. Its handshake authenticates before the session.
type msgr2 struct{}

func (msgr2) allowed(*Config) error                   { return nil }
func (msgr2) seqLocked(m *Manager) *session.GlobalSeq { return &m.globalSeq }

func (msgr2) session(m *Manager, p *Policy, peer session.Peer) session.Protocol {
	s := session2.New(p.rules(), peer, m.cfg.Backoff)
	return &s
}

// alias implements protocol: a daemon may have a v1 address, too.
func (msgr2) alias(peer *session.Peer) wire.Addr { return peer.Addrs.V1() }

func (msgr2) connect(d *dialling) error {
	m := d.c.m
	t, err := m.connect2(d.ctx, d.a, d.a.link, d.target, d.peerType)
	if err != nil {
		return d.wrap(stats.StageBanner, err)
	}
	d.a.talk, d.a.peer = t, t.peer
	d.checkHint()
	m.lock()
	defer m.unlock()
	m.learnLocked(d.a.link.LocalAddr(), t.peer.SeenAs)
	if len(m.addrs) == 0 {
		return d.wrap(stats.StageHello, fmt.Errorf("%w: the peer does not see our address", session.ErrProtocol))
	}
	m.numberedLocked(t.peer.Auth.GlobalID)
	return nil
}

// connect2 runs the handshake of a connector.
func (m *Manager) connect2(ctx context.Context, a *attempt, link *loop.Link, target wire.Addr, peer wire.EntityType) (*talk2, error) {
	stream, p, err := handshake2.Connect(ctx, link, handshake2.ConnectConfig{
		Options: m.options2(a), Target: target, PeerType: peer, Auth: m.auth.Load().client,
	})
	if err != nil {
		return nil, err
	}
	return &talk2{stream, m, p}, nil
}

func (msgr2) accept(a *accepting) error {
	m := a.m
	stream, peer, err := handshake2.Accept(a.ctx, steps{a.link, a}, handshake2.AcceptConfig{
		Options: m.options2(a.att), PeerAddr: a.link.PeerAddr(), Auth: m.auth.Load().server, Room: a.room,
	})
	if err != nil {
		return err
	}
	a.att.talk, a.att.peer = &talk2{stream, m, peer}, peer
	if err := checkClaimed(peer); err != nil {
		return err
	}
	m.lock()
	defer m.unlock()
	a.beginLocked()
	m.learnLocked(a.link.LocalAddr(), peer.Target)
	return nil
}

// options2 are the options of both roles.
func (m *Manager) options2(a *attempt) handshake2.Options {
	o := m.cfg.Handshake
	o.EntityType, o.Compression, o.Probe, o.Tap, o.KeyLog = m.cfg.Name.Type, m.compression.negotiate, a.probe, a.tap, m.keyLog
	return o
}

// talk2 is the talk of msgr2, in both roles.
type talk2 struct {
	*handshake2.Stream
	m    *Manager
	peer *handshake.Peer
}

func (t *talk2) send(ctx context.Context, f session.Frame) error {
	tag, payload := encode(t.Scratch(), f)
	return t.WriteFrame(ctx, tag, payload)
}

func (t *talk2) receive(ctx context.Context) (session.Frame, error) {
	tag, payload, err := t.ReadFrame(ctx)
	if err != nil {
		return nil, err
	}
	return decode(tag, payload)
}

func (*talk2) sender(f session.Frame) session.Sender { return session2.SenderOf(f) }
func (*talk2) last(f session.Frame) bool             { return session2.Opens(f) }
func (t *talk2) queues() bool                        { return t.Queues() }
func (t *talk2) protocol() string                    { return t.peer.Revision.String() }

func (t *talk2) codec(wire.Features) (dataplane.Codec, error) {
	enc, dec := t.Release()
	dec.SetLimits(t.m.cfg.Limits)
	return dataplane.Msgr2(enc, dec), nil
}

// frames are the tags and the decoders of the frames of a session, by their kind. The machine
// sends no others.
var frames = [...]struct {
	tag    frame.Tag
	decode func(p []byte) (session.Frame, error)
}{
	session2.KindClientIdent:     {frame.TagClientIdent, decoder(wire2.DecodeClientIdent)},
	session2.KindServerIdent:     {frame.TagServerIdent, decoder(wire2.DecodeServerIdent)},
	session2.KindMissingFeatures: {frame.TagIdentMissingFeatures, decoder(wire2.DecodeIdentMissingFeatures)},
	session2.KindReconnect:       {frame.TagSessionReconnect, decoder(wire2.DecodeSessionReconnect)},
	session2.KindReconnectOK:     {frame.TagSessionReconnectOK, decoder(wire2.DecodeSessionReconnectOK)},
	session2.KindRetry:           {frame.TagSessionRetry, decoder(wire2.DecodeSessionRetry)},
	session2.KindRetryGlobal:     {frame.TagSessionRetryGlobal, decoder(wire2.DecodeSessionRetryGlobal)},
	session2.KindReset:           {frame.TagSessionReset, decoder(wire2.DecodeSessionReset)},
	session2.KindWait:            {frame.TagWait, decoder(func([]byte) (session2.WaitFrame, error) { return session2.WaitFrame{}, nil })},
}

func decoder[T any](decode func([]byte) (T, error)) func([]byte) (session.Frame, error) {
	return func(p []byte) (session.Frame, error) { return decoded(decode(p)) }
}

func decoded[T any](f T, err error) (session.Frame, error) { return f, err }

// encode is a frame of the session on the wire; the payload may take the memory of dst.
func encode(dst []byte, f session.Frame) (frame.Tag, []byte) {
	if payload, ok := f.(interface{ AppendTo(dst []byte) []byte }); ok {
		dst = payload.AppendTo(dst)
	}
	return frames[session2.KindOf(f)].tag, dst
}

// decode is the other side of encode.
func decode(tag frame.Tag, p []byte) (session.Frame, error) {
	for _, f := range frames {
		if f.tag == tag {
			return f.decode(p)
		}
	}
	return session.OtherFrame{Name: tag.String()}, nil
}

// DefaultCompressionMin is the smallest frame that is compressed, in bytes of
// its segments, as the daemons have it.
const DefaultCompressionMin = 1024

// Compression of frames on the wire (Ceph's compression_onwire.cc). It is off unless Methods
// has a method, and then used with peers that have that method and want compression: daemons of
// release 17 and later may, those of 16 and earlier cannot.
type Compression struct {
	// Methods that may be used, most preferred first; the connector's order decides. Empty: the
	// feature is not announced.
	Methods []wire.CompressionMethod
	// Min is the smallest frame to compress, in bytes; 0: 1024, negative: every frame.
	// The peer has a bound of its own for its frames.
	Min int
	// Peers are the types of peers to compress towards; nil: OSDs only.
	Peers []wire.EntityType
	// Secure compresses in mode secure, too. The length of an encrypted frame then
	// leaks information about its content: leave it off if others can choose a part
	// of the payload.
	Secure bool
}

// compression is a Compression at work.
type compression struct {
	negotiate *handshake2.Compression // nil: not announced
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

// start makes the state that the connections of a messenger share.
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
	w.negotiate = &handshake2.Compression{
		Methods: slices.Clone(c.Methods),
		Want: func(peer wire.EntityType, mode auth.Mode) bool {
			return slices.Contains(peers, peer) && (mode == auth.CRC || secure)
		},
		Install: func(enc *frame.Encoder, dec *frame.Decoder, m wire.CompressionMethod) {
			enc.Compress(w.methods[m], w.min)
			dec.Decompress(w.methods[m])
		},
	}
	return w, nil
}
