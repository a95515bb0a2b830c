package handshake1

import (
	"context"
	"errors"
	"net/netip"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// StageConnect is the stage of the connect messages, beside those of package handshake:
// handshake.StageHello is that of the addresses here.
const StageConnect handshake.Stage = "ident"

// Reasons why a handshake fails, beside those of the packages wire, handshake and auth, and
// of the link.
var (
	// ErrAddress means that the acceptor is not the one that was dialled.
	ErrAddress = errors.New("another address than dialled")
	// ErrUnexpected means that an answer is not legal here.
	ErrUnexpected = errors.New("unexpected answer")
)

// maxRounds bounds the connect messages of one Ask: the first one, the answer to a
// challenge, and those with a fresh authorizer after a refusal.
const maxRounds = 8

// Authorizes says whether a connector of that type shows an authorizer to the acceptor.
// A monitor wants none of anybody but monitors.
func Authorizes(connector, acceptor wire.EntityType) bool {
	return acceptor != wire.Mon || connector == wire.Mon
}

// conn is the part of both roles: the link, the current step, the exchange under way, which is of type X, and
// the outcome.
type conn[X any] struct {
	handshake.Run
	link       handshake.Transport
	opts       *Options
	remote     wire.Addr    // the peer's address, for the old header
	x          X            // nil: none is under way
	method     auth.Method  // of x
	authorizer []byte       // of the last connect message
	res        *auth.Result // of the last authorizer that was good; nil: there was none
}

// fail ends the handshake, and wraps err with where it happened; nil stays nil.
func (c *conn[X]) fail(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	c.link.Flush(ctx)
	c.Wipe()
	return c.Fail(ctx, err)
}

// Auth is the outcome of authentication, nil without an authorizer. Its secrets are there
// until Release.
func (c *conn[X]) Auth() *auth.Result { return c.res }

// Wipe overwrites the secrets, and ends an exchange under way.
func (c *conn[X]) Wipe() {
	c.forget()
	c.res.Wipe()
}

// forget ends the exchange under way.
func (c *conn[X]) forget() {
	handshake.Wipe(c.x)
	c.x = *new(X)
}

// tapped shows a part of the handshake to the tap.
func (c *conn[X]) tapped(sent bool, kind probe.PartKind, p []byte) {
	if c.opts.Tap != nil {
		c.opts.Tap.Part(probe.Part{Sent: sent, Kind: kind, Bytes: p})
	}
}

// probed asks the probe before and after a step.
func (c *conn[X]) probed(ctx context.Context, s probe.Step, do func() error) error {
	return c.link.Probed(ctx, probe.Point{Step: s}, do)
}

// writeAt writes at a point of the probe.
func (c *conn[X]) writeAt(ctx context.Context, s probe.Step, p []byte) error {
	return c.probed(ctx, s, func() error { return c.link.Write(ctx, p) })
}

// readAt reads at a point of the probe.
func (c *conn[X]) readAt(ctx context.Context, s probe.Step, p []byte) error {
	return c.probed(ctx, s, func() error { return c.link.ReadFull(ctx, p) })
}

// readHello reads size bytes, which begin with the banner.
func (c *conn[X]) readHello(ctx context.Context, size int) ([]byte, error) {
	c.At(handshake.StageBanner, "read the banner")
	p := make([]byte, size)
	err := c.probed(ctx, probe.BannerRead, func() error {
		return c.link.ReadBanner(ctx, p[:wire1.BannerSize], wire1.BannerSize, wire1.CheckBanner)
	})
	if err != nil {
		return nil, err
	}
	c.At(handshake.StageHello, "read addresses")
	return p, c.readAt(ctx, probe.BannerPayloadRead, p[wire1.BannerSize:])
}

func (c *conn[X]) readSeq(ctx context.Context) (wire1.Seq, error) {
	var p [wire1.SeqSize]byte
	c.At(StageConnect, "read the sequence")
	if err := c.readAt(ctx, probe.SeqRead, p[:]); err != nil {
		return wire1.Seq{}, err
	}
	c.tapped(false, probe.PartSeq, p[:])
	return wire1.DecodeSeq(p[:])
}

// adopt checks the outcome of authentication.
func (c *conn[X]) adopt(res *auth.Result, m auth.Method) error {
	if err := handshake.CheckResult(res, m); err != nil {
		res.Wipe()
		return err
	}
	if m == auth.Cephx { // Release needs a key; the peer can still be refused here
		if _, err := cephx.NewSigner(res.SessionKey, true); err != nil {
			res.Wipe()
			return err
		}
	}
	clear(res.ConnectionSecret)
	res.ConnectionSecret, res.Method, res.Mode = nil, m, auth.CRC
	c.res.Wipe()
	c.res = res
	return nil
}

// Options are those of both roles.
type Options struct {
	// EntityType is the own type.
	EntityType wire.EntityType
	// Own is the own address; blank, or with a blank IP, if it is not known. A connector
	// learns the IP then.
	Own wire.Addr
	// NoDataCRC is that of frame1.Config.
	NoDataCRC bool
	// Limits of received messages; zero: frame.DefaultLimits.
	Limits frame.Limits
	// Probe and Tap are those of handshake2.Options.
	Probe *probe.Socket
	Tap   probe.Tap
}

// ConnectConfig configures [Connect].
type ConnectConfig struct {
	Options
	// Target is the address that was dialled, exactly as it is known, nonce included; a
	// nonce of 0 accepts any acceptor.
	Target wire.Addr
	// PeerType is the type of entity to reach. The acceptor does not say its own.
	PeerType wire.EntityType
	// Auth makes the authorizers. Required, unless the peer wants none (Authorizes).
	Auth auth.Client
}

// AcceptConfig configures [Accept].
type AcceptConfig struct {
	Options
	PeerAddr netip.AddrPort // of the socket
	// Auth verifies authorizers. Required, unless no peer needs one.
	Auth auth.Server
	// Room is that of handshake2.AcceptConfig, and is asked for each authorizer.
	Room func(n int) error
}

// Release gives up the codecs for a connection with these features, which both sides
// support, and overwrites the secrets. Messages are signed if the authorizer was one of
// cephx and both sides have MSG_AUTH; the form of the signature is that of CEPHX_V2 if
// both have that. The decoder has the limits of the options.
func (c *conn[X]) Release(features wire.Features) (*frame1.Encoder, *frame1.Decoder, error) {
	defer c.Wipe()
	cfg := frame1.Config{Form: wire1.FormOf(features), NoDataCRC: c.opts.NoDataCRC}
	var signers [2]frame1.Signer
	if !cfg.OldFooter && c.res != nil && c.res.Method == auth.Cephx {
		for i := range signers {
			var err error
			if signers[i], err = cephx.NewSigner(c.res.SessionKey, features.Has(wire1.FeatureCephxV2)); err != nil {
				return nil, nil, err
			}
		}
	}
	limits := c.opts.Limits
	if limits == (frame.Limits{}) {
		limits = frame.DefaultLimits()
	}
	peer := [wire1.AddrSize]byte(c.remote.AppendLegacyTo(nil))
	return frame1.NewEncoder(cfg, signers[0], peer), frame1.NewDecoder(cfg, signers[1], limits), nil
}
