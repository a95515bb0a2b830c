package handshake2

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Accept runs the acceptor's side of the handshake over link (Ceph's ProtocolV2.cc). The next
// frame to read from the stream is CLIENT_IDENT or SESSION_RECONNECT.
//
// An error is an [*Error]. The link is of no use then, and the caller closes it without
// a further frame. Give ctx a deadline: a peer may stay silent for ever.
func Accept(ctx context.Context, link handshake.Link, cfg AcceptConfig) (*Stream, *handshake.Peer, error) {
	a := &acceptor{cfg: cfg}
	a.begin(link, &a.cfg.PeerAddr, &a.cfg.Options)
	a.acceptor, a.s.room = true, cfg.Room
	return a.end(ctx, a.handshake(ctx))
}

// acceptor is one piece of memory: the stream, the peer and the buffers live as long as
// the handshake does.
type acceptor struct {
	run
	cfg     AcceptConfig
	refusal error // the last AUTH_BAD_METHOD, in case the peer then leaves
}

func (a *acceptor) handshake(ctx context.Context) error {
	a.At(handshake.StageBanner, "start")
	if a.cfg.Auth == nil {
		return fmt.Errorf("%w: no auth server", handshake.ErrConfig)
	}
	if err := a.banners(ctx); err != nil {
		return err
	}
	ip := a.cfg.PeerAddr.Addr().Unmap() // what a dual-stack socket reports for IPv4
	hello, err := a.hello(ctx, wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.AddrPortFrom(ip, a.cfg.PeerAddr.Port())})
	if err != nil {
		return err
	}
	a.peer.Target = hello.PeerAddr
	keys, err := a.authenticate(ctx)
	if err != nil {
		return err
	}
	if err := a.sign(ctx, keys); err != nil {
		return err
	}
	return a.compression(ctx, a.chooseCompression)
}

// authenticate takes requests until one succeeds, sends AUTH_DONE, and returns the keys
// of mode secure.
func (a *acceptor) authenticate(ctx context.Context) (*frame.Keys, error) {
	for range maxAuthRequests {
		a.At(handshake.StageAuth, "read AUTH_REQUEST")
		req, err := receive(ctx, &a.run, frame.TagAuthRequest, wire2.DecodeAuthRequest)
		if err != nil {
			return nil, a.afterRefusal(err)
		}
		keys, refusal, err := a.exchange(ctx, req)
		if refusal == nil || err != nil {
			a.Refused = false // an earlier request does not matter any more
			return keys, err
		}
		a.refusal, a.Refused = refusal, true
		if err := a.badMethod(ctx, auth.Method(req.Method), refusal); err != nil {
			return nil, a.afterRefusal(err)
		}
	}
	return nil, a.afterRefusal(fmt.Errorf("%w: %d requests", handshake.ErrTooManyRounds, maxAuthRequests))
}

// afterRefusal adds the refusal to the error of a peer that leaves after it.
func (a *acceptor) afterRefusal(err error) error {
	if a.refusal == nil {
		return err
	}
	return fmt.Errorf("%w (after refusing the peer: %w)", err, a.refusal)
}

// exchange runs one AUTH_REQUEST and the rounds that belong to it. A refusal leaves the
// connection open for another request; an error ends it.
func (a *acceptor) exchange(ctx context.Context, req wire2.AuthRequest) (keys *frame.Keys, refusal, err error) {
	a.At(handshake.StageAuth, "answer AUTH_REQUEST")
	method := auth.Method(req.Method)
	mode, err := a.pick(ctx, method, req.PreferredModes)
	if err != nil {
		return nil, err, nil
	}
	x, err := a.cfg.Auth.Start(ctx, a.peer.EntityType, method, mode)
	if err != nil {
		refusal, err = told(err)
		return nil, refusal, err
	}
	defer handshake.Wipe(x)
	payload := req.Payload
	for round := 0; ; round++ {
		reply, res, err := x.Handle(ctx, payload)
		if err != nil {
			res.Wipe()
			refusal, err = told(err)
			return nil, refusal, err
		}
		if res != nil {
			keys, err := a.done(ctx, res, method, mode, reply)
			return keys, nil, err
		}
		if round == maxAuthRounds {
			return nil, nil, fmt.Errorf("%w: %d rounds", handshake.ErrTooManyRounds, maxAuthRounds)
		}
		if err := a.write(ctx, handshake.StageAuth, frame.TagAuthReplyMore, wire2.AuthMore{Payload: reply}.AppendTo(a.s.Scratch())); err != nil {
			return nil, nil, err
		}
		a.At(handshake.StageAuth, "read AUTH_REQUEST_MORE")
		more, err := receive(ctx, &a.run, frame.TagAuthRequestMore, wire2.DecodeAuthMore)
		if err != nil {
			return nil, nil, err
		}
		payload = more.Payload
	}
}

// pick checks the method and chooses the mode.
func (a *acceptor) pick(ctx context.Context, m auth.Method, preferred []uint32) (auth.Mode, error) {
	if !slices.Contains(a.cfg.Auth.Methods(ctx, a.peer.EntityType), m) {
		return 0, fmt.Errorf("%w: peer requests %v", auth.ErrNoMethod, m)
	}
	allowed, _ := a.cfg.Auth.Modes(ctx, a.peer.EntityType, m)
	preferred = preferred[:min(len(preferred), maxModes)] // an error names them all
	return auth.PickMode(m, values[auth.Mode](preferred), a.opts.restrict(allowed))
}

// done sends AUTH_DONE, once everything that it promises is known to hold.
func (a *acceptor) done(ctx context.Context, res *auth.Result, method auth.Method, mode auth.Mode, reply []byte) (*frame.Keys, error) {
	keys, err := a.adopt(res, method, mode, false)
	if err != nil {
		return nil, err
	}
	done := wire2.AuthDone{GlobalID: res.GlobalID, Mode: uint32(mode), Payload: reply}.AppendTo(a.s.Scratch())
	a.logKeys(keys, done)
	if err := a.write(ctx, handshake.StageAuth, frame.TagAuthDone, done); err != nil {
		if keys != nil {
			keys.Wipe()
		}
		return nil, err
	}
	return keys, nil
}

// badMethod tells the peer of its refusal, with the methods and modes that are allowed.
func (a *acceptor) badMethod(ctx context.Context, m auth.Method, refusal error) error {
	_, announced := a.cfg.Auth.Modes(ctx, a.peer.EntityType, m)
	bad := wire2.AuthBadMethod{
		Method:         uint32(m),
		Result:         auth.Errno(refusal),
		AllowedMethods: numbers(a.cfg.Auth.Methods(ctx, a.peer.EntityType)),
		AllowedModes:   numbers(a.opts.restrict(announced)),
	}
	return a.write(ctx, handshake.StageAuth, frame.TagAuthBadMethod, bad.AppendTo(a.s.Scratch()))
}

// told says whether an error of the auth server is a refusal, which the peer is told. It is none if
// the server is busy or the context is done: then the connection is closed without a frame.
func told(err error) (refusal, fatal error) {
	if errors.Is(err, auth.ErrBusy) || handshake.IsContext(err) {
		return nil, err
	}
	return err, nil
}
