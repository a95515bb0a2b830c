package handshake2

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

const (
	// maxAuthRequests bounds the AUTH_REQUEST frames of one connection: the first one and
	// the retries after AUTH_BAD_METHOD.
	maxAuthRequests = 8
	// maxAuthRounds bounds the AUTH_REPLY_MORE frames that follow one AUTH_REQUEST.
	maxAuthRounds = 16
	// maxModes bounds the modes of an AUTH_REQUEST that count.
	maxModes = 64
)

// Reasons why a handshake fails, beside those of package handshake.
var (
	// ErrUnexpectedFrame means that the frame is not legal in this state, or is no control
	// frame at all.
	ErrUnexpectedFrame = errors.New("unexpected frame")
	// ErrSignature means that the peer's AUTH_SIGNATURE is wrong: the key differs, or a
	// byte was changed on the way.
	ErrSignature = errors.New("wrong signature")
	// ErrTooLong means that the peer sent more than is ever needed before authentication.
	ErrTooLong = errors.New("handshake is too long")
	// ErrReleased means that a stream was used after [Stream.Release].
	ErrReleased = errors.New("stream was released")
)

// run is the part of both roles: the stream, the current step, and the outcome.
type run struct {
	handshake.Run
	s        *Stream // own
	own      Stream
	opts     *Options
	peer     handshake.Peer
	acceptor bool
}

// begin makes the stream.
func (r *run) begin(link handshake.Link, peer fmt.Stringer, o *Options) {
	r.own.begin(link, o.Probe)
	r.own.tap = o.Tap
	r.s, r.opts, r.Peer = &r.own, o, peer
}

// end is the outcome of the handshake, which has failed with err; nil: it has not.
func (r *run) end(ctx context.Context, err error) (*Stream, *handshake.Peer, error) {
	if err == nil {
		return r.s, &r.peer, nil
	}
	r.s.link.Flush(ctx) // the queued bytes may tell the peer why
	r.peer.Auth.Wipe()
	r.s.Wipe()
	return nil, nil, r.Fail(ctx, err)
}

func (r *run) banners(ctx context.Context) error {
	r.At(handshake.StageBanner, "exchange banners")
	features, err := r.s.exchangeBanners(ctx, r.opts.banner())
	if err == nil && r.opts.NoDataCRC {
		r.s.enc.SetSegmentCRC(false)
		r.s.dec.SetSegmentCRC(false)
	}
	r.peer.Features, r.peer.Revision = features, wire2.RevisionOf(features)
	return err
}

// hello sends the own HELLO and reads the peer's. Neither side waits for the other.
func (r *run) hello(ctx context.Context, peerAddr wire.Addr) (wire2.Hello, error) {
	own := wire2.Hello{EntityType: r.opts.EntityType, PeerAddr: peerAddr}
	if err := r.write(ctx, handshake.StageHello, frame.TagHello, own.AppendTo(r.s.Scratch())); err != nil {
		return wire2.Hello{}, err
	}
	good := func(p []byte, _ *wire2.AuthSignature) bool { _, err := wire2.DecodeHello(p); return err == nil }
	if err := r.await(ctx, handshake.StageHello, frame.TagHello, wire2.AuthSignature{}, good); err != nil {
		return wire2.Hello{}, err
	}
	r.At(handshake.StageHello, "read HELLO")
	h, err := receive(ctx, r, frame.TagHello, wire2.DecodeHello)
	r.peer.EntityType = h.EntityType
	return h, err
}

// adopt checks the outcome of authentication and derives the keys of mode secure. It is
// called before anything is sent on the strength of that outcome.
func (r *run) adopt(res *auth.Result, m auth.Method, mode auth.Mode, connector bool) (*frame.Keys, error) {
	if err := handshake.CheckResult(res, m); err != nil {
		res.Wipe()
		return nil, err
	}
	res.Method, res.Mode = m, mode
	r.peer.Auth, r.peer.Mode = res, mode
	if mode != auth.Secure {
		return nil, nil
	}
	keys, err := frame.KeysFromSecret(res.ConnectionSecret, connector)
	if err != nil {
		return nil, err
	}
	return &keys, nil
}

// logKeys gives the secret of a connection in mode secure to who asked for it. done is
// the payload of AUTH_DONE.
func (r *run) logKeys(keys *frame.Keys, done []byte) {
	if keys != nil && r.opts.KeyLog != nil {
		r.opts.KeyLog(done, r.peer.Auth.ConnectionSecret)
	}
}

// sign switches the ciphers on and exchanges the signatures. Both sides send theirs
// without waiting.
func (r *run) sign(ctx context.Context, keys *frame.Keys) error {
	own, want := r.s.log.signatures(r.peer.Auth.SessionKey)
	r.peer.Auth.Wipe()
	if keys != nil {
		r.At(handshake.StageAuth, "switch to mode secure")
		err := r.s.secure(keys)
		keys.Wipe()
		if err != nil {
			return err
		}
	}
	if err := r.write(ctx, handshake.StageAuth, frame.TagAuthSignature, own.AppendTo(r.s.Scratch())); err != nil {
		return err
	}
	good := func(p []byte, want *wire2.AuthSignature) bool { return checkSignature(p, want) == nil }
	if err := r.await(ctx, handshake.StageAuth, frame.TagAuthSignature, want, good); err != nil {
		return err
	}
	r.At(handshake.StageAuth, "read AUTH_SIGNATURE")
	_, payload, err := r.expect(ctx, frame.TagAuthSignature)
	if err != nil {
		return err
	}
	if err := checkSignature(payload, &want); err != nil {
		return err
	}
	r.Authenticated = true // only the compression negotiation can still fail
	return nil
}

// checkSignature looks at the payload of AUTH_SIGNATURE.
func checkSignature(payload []byte, want *wire2.AuthSignature) error {
	got, err := wire2.DecodeAuthSignature(payload)
	if err == nil && subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
		err = ErrSignature
	}
	return err
}

// compression runs the negotiation if both banners have the feature.
func (r *run) compression(ctx context.Context, negotiate func(context.Context, *Compression) (wire.CompressionMethod, error)) (err error) {
	if r.peer.Features&wire.BannerCompression == 0 {
		return nil
	}
	r.At(handshake.StageAuth, "negotiate compression")
	c := r.opts.Compression
	r.peer.Compression, err = negotiate(ctx, c)
	if r.peer.Compression != wire.CompressionNone && c.Install != nil {
		c.Install(r.s.enc, r.s.dec, r.peer.Compression)
	}
	return err
}

func (r *run) write(ctx context.Context, stage handshake.Stage, tag frame.Tag, payload []byte) error {
	r.AtFrame(stage, "write ", tag, "")
	return r.s.WriteFrame(ctx, tag, payload)
}

// await waits for a frame of a connector and for the next one. After HELLO and after
// AUTH_SIGNATURE a connector sends another frame without an answer to them, so an acceptor
// need not look at them one by one. The reverse does not hold.
func (r *run) await(ctx context.Context, stage handshake.Stage, tag frame.Tag, want wire2.AuthSignature, good check) error {
	if !r.acceptor {
		return nil
	}
	r.AtFrame(stage, "wait for ", tag, " and the next frame")
	return r.s.await(ctx, tag, want, good)
}

// expect reads a frame that must have one of the tags.
func (r *run) expect(ctx context.Context, tags ...frame.Tag) (frame.Tag, []byte, error) {
	tag, payload, err := r.s.ReadFrame(ctx)
	if err != nil {
		return 0, nil, err
	}
	if !slices.Contains(tags, tag) {
		return 0, nil, fmt.Errorf("%w: %v, want %v", ErrUnexpectedFrame, tag, tags)
	}
	return tag, payload, nil
}

// receive reads a frame with that tag and what it says.
func receive[T any](ctx context.Context, r *run, tag frame.Tag, decode func([]byte) (T, error)) (v T, err error) {
	_, payload, err := r.expect(ctx, tag)
	if err == nil {
		v, err = decode(payload)
	}
	return v, err
}

// Options are those of both roles. The zero value offers both revisions and
// no compression.
type Options struct {
	// EntityType is the own type.
	EntityType wire.EntityType
	// Rev0Only leaves msgr2.1 out of the own banner, so that the peer talks msgr2.0.
	Rev0Only bool
	// Modes restricts the connection modes to these; nil leaves the choice to the auth
	// client or server alone.
	Modes []auth.Mode
	// Compression takes part in the compression negotiation; nil does not announce the
	// feature.
	Compression *Compression
	// NoDataCRC sends zeros in place of the crcs of segments, from the first frame on, and
	// ignores those of the peer; mode secure has none. The peer must be set alike
	// (ms_crc_data = false of later releases): one that checks refuses the first frame.
	NoDataCRC bool
	// Probe sees and disturbs every read and write; nil costs nothing. When the
	// probe is asked after a write, the link has it, and nothing later was written.
	Probe *probe.Socket
	// Tap is told of both banners and of each frame; nil costs nothing.
	Tap probe.Tap
	// KeyLog gets the key that decrypts a recorded connection in mode secure: the payload
	// of its AUTH_DONE, which names it, and the secret of the connection. Both
	// are valid during the call. nil: nobody gets it.
	KeyLog func(authDone, secret []byte)
}

func (o *Options) banner() wire2.Banner {
	var b wire2.Banner
	if !o.Rev0Only {
		b.Supported |= wire.BannerRevision1
	}
	if o.Compression != nil {
		b.Supported |= wire.BannerCompression
	}
	return b
}

// restrict returns the elements of modes that the options allow, in the same order.
func (o *Options) restrict(modes []auth.Mode) []auth.Mode {
	if o.Modes == nil {
		return modes
	}
	return slices.DeleteFunc(slices.Clone(modes), func(m auth.Mode) bool { return !slices.Contains(o.Modes, m) })
}

// ConnectConfig configures [Connect].
type ConnectConfig struct {
	Options
	// Target is the address that was dialled, exactly as it is known, nonce included.
	Target wire.Addr
	// PeerType is the type of entity to reach. Another one is a terminal error. 0 and
	// [wire.Any] accept every type.
	PeerType wire.EntityType
	// Auth authenticates this side. Required.
	Auth auth.Client
}

// AcceptConfig configures [Accept].
type AcceptConfig struct {
	Options
	// PeerAddr is the socket address of the peer, as returned by accept.
	PeerAddr netip.AddrPort
	// Auth authenticates the peer. Required.
	Auth auth.Server
	// Room is asked before the handshake keeps n more bytes of what it sends or
	// receives, until its end. An error of it, which should wrap [handshake.ErrNoRoom], fails the
	// handshake. nil: there is room.
	Room func(n int) error
}
