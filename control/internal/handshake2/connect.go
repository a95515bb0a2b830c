package handshake2

import (
	"context"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Connect runs the connector's side of the handshake over link (Ceph's ProtocolV2.cc). The next
// frame to write to the stream is CLIENT_IDENT or SESSION_RECONNECT.
//
// An error is an [*Error]; ask it whether it is terminal. The link is of no use then,
// and the caller closes it. Give ctx a deadline.
func Connect(ctx context.Context, link handshake.Link, cfg ConnectConfig) (*Stream, *handshake.Peer, error) {
	c := &connector{cfg: cfg}
	c.begin(link, &c.cfg.Target, &c.cfg.Options)
	return c.end(ctx, c.handshake(ctx))
}

type connector struct {
	run
	cfg ConnectConfig
}

func (c *connector) handshake(ctx context.Context) error {
	c.At(handshake.StageBanner, "start")
	if c.cfg.Auth == nil {
		return fmt.Errorf("%w: no auth client", handshake.ErrConfig)
	}
	if err := c.banners(ctx); err != nil {
		return err
	}
	hello, err := c.hello(ctx, c.cfg.Target)
	if err != nil {
		return err
	}
	c.peer.SeenAs = hello.PeerAddr
	if want := c.cfg.PeerType; want != 0 && want != wire.Any && want != hello.EntityType {
		return fmt.Errorf("%w: %v, want %v", handshake.ErrPeerType, hello.EntityType, want)
	}
	keys, err := c.authenticate(ctx)
	if err != nil {
		return err
	}
	if err := c.sign(ctx, keys); err != nil {
		return err
	}
	return c.compression(ctx, c.offerCompression)
}

// authenticate runs the exchange up to AUTH_DONE and returns the keys of mode secure.
func (c *connector) authenticate(ctx context.Context) (*frame.Keys, error) {
	c.At(handshake.StageAuth, "start authentication")
	x, err := c.cfg.Auth.Start(ctx, c.peer.EntityType)
	if err != nil {
		return nil, handshake.GaveUp(err)
	}
	defer handshake.Wipe(x)
	method, offered, err := c.request(ctx, x)
	if err != nil {
		return nil, err
	}
	requests, rounds := 1, 0
	for {
		c.At(handshake.StageAuth, "read the answer to authentication")
		tag, payload, err := c.expect(ctx, frame.TagAuthBadMethod, frame.TagAuthReplyMore, frame.TagAuthDone)
		if err != nil {
			return nil, err
		}
		c.AtFrame(handshake.StageAuth, "", tag, "")
		switch tag {
		case frame.TagAuthBadMethod:
			if err := c.badMethod(ctx, x, method, payload); err != nil {
				return nil, err
			}
			if requests++; requests > maxAuthRequests {
				return nil, fmt.Errorf("%w: %d requests", handshake.ErrTooManyRounds, maxAuthRequests)
			}
			if method, offered, err = c.request(ctx, x); err != nil {
				return nil, err
			}
			rounds = 0
		case frame.TagAuthReplyMore:
			if rounds++; rounds > maxAuthRounds {
				return nil, fmt.Errorf("%w: %d rounds", handshake.ErrTooManyRounds, maxAuthRounds)
			}
			if err := c.replyMore(ctx, x, payload); err != nil {
				return nil, err
			}
		default:
			return c.done(ctx, x, method, offered, payload)
		}
	}
}

// request sends AUTH_REQUEST with the next offer of the auth client.
func (c *connector) request(ctx context.Context, x auth.ClientExchange) (auth.Method, []auth.Mode, error) {
	c.At(handshake.StageAuth, "make AUTH_REQUEST")
	method, modes, payload, err := x.Request(ctx)
	if err != nil {
		return 0, nil, handshake.GaveUp(err)
	}
	offered := c.opts.restrict(modes)
	if len(offered) == 0 {
		return 0, nil, handshake.GaveUp(fmt.Errorf("%w: method %v has %v, allowed are %v", auth.ErrNoMode, method, modes, c.opts.Modes))
	}
	req := wire2.AuthRequest{Method: uint32(method), PreferredModes: numbers(offered), Payload: payload}
	return method, offered, c.write(ctx, handshake.StageAuth, frame.TagAuthRequest, req.AppendTo(c.s.Scratch()))
}

// badMethod asks the auth client whether it has another offer.
func (c *connector) badMethod(ctx context.Context, x auth.ClientExchange, method auth.Method, payload []byte) error {
	bad, err := wire2.DecodeAuthBadMethod(payload)
	if err != nil {
		return err
	}
	if auth.Method(bad.Method) != method {
		return fmt.Errorf("%w: AUTH_BAD_METHOD for %v, requested was %v", ErrUnexpectedFrame, auth.Method(bad.Method), method)
	}
	err = x.BadMethod(ctx, method, bad.Result, values[auth.Method](bad.AllowedMethods), values[auth.Mode](bad.AllowedModes))
	if err != nil {
		return handshake.GaveUp(err)
	}
	return nil
}

// replyMore answers one round.
func (c *connector) replyMore(ctx context.Context, x auth.ClientExchange, payload []byte) error {
	more, err := wire2.DecodeAuthMore(payload)
	if err != nil {
		return err
	}
	answer, err := x.ReplyMore(ctx, more.Payload)
	if err != nil {
		return handshake.GaveUp(err)
	}
	return c.write(ctx, handshake.StageAuth, frame.TagAuthRequestMore, wire2.AuthMore{Payload: answer}.AppendTo(c.s.Scratch()))
}

// done takes the acceptor's decision, which must be one that was offered.
func (c *connector) done(ctx context.Context, x auth.ClientExchange, method auth.Method, offered []auth.Mode, payload []byte) (*frame.Keys, error) {
	done, err := wire2.DecodeAuthDone(payload)
	if err != nil {
		return nil, err
	}
	mode := auth.Mode(done.Mode)
	if err := auth.CheckMode(method, offered, mode); err != nil {
		return nil, err
	}
	res, err := x.Done(ctx, done.GlobalID, mode, done.Payload)
	if err != nil {
		res.Wipe()
		return nil, err
	}
	keys, err := c.adopt(res, method, mode, true)
	c.logKeys(keys, payload)
	return keys, err
}

func numbers[T ~uint32](list []T) []uint32 { return values[uint32](list) }

// values has the elements of a list in another type.
func values[To, T ~uint32](list []T) []To {
	out := make([]To, len(list))
	for i, v := range list {
		out[i] = To(v)
	}
	return out
}
