package handshake1

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/session1"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// Acceptor is an acceptor after the exchange of addresses.
type Acceptor struct {
	conn[auth.ServerExchange]
	cfg     AcceptConfig
	connect wire1.Connect // the last
	proof   []byte        // for the next reply that has room for it
	refusal error         // why the last authorizer was bad
}

// Accept exchanges banners and addresses with a connector. The next step is
// ReadConnect.
//
// An error of it and of the methods is a [*handshake.Error]. The link is of no use then,
// and the caller closes it. Give ctx a deadline: a peer may stay silent for ever.
func Accept(ctx context.Context, link handshake.Link, cfg AcceptConfig) (*Acceptor, error) {
	a := &Acceptor{cfg: cfg}
	a.conn = conn[auth.ServerExchange]{Run: handshake.Run{Peer: &a.cfg.PeerAddr}, opts: &a.cfg.Options}
	a.link.Begin(link, cfg.Probe)
	if err := a.addresses(ctx); err != nil {
		return nil, a.fail(ctx, err)
	}
	return a, nil
}

// From is the address that the peer says it has, with the IP of its socket if it says none.
// Sessions are found by it.
func (a *Acceptor) From() wire.Addr { return a.remote }

func (a *Acceptor) addresses(ctx context.Context) error {
	ip := a.cfg.PeerAddr.Addr().Unmap() // what a dual-stack socket reports for IPv4
	seen := wire.Addr{Type: wire.AddrLegacy, AddrPort: netip.AddrPortFrom(ip, a.cfg.PeerAddr.Port())}
	a.At(handshake.StageBanner, "write the banner")
	hello := wire1.AcceptorHello{Own: a.cfg.Own, Seen: seen}.AppendTo(nil)
	a.tapped(true, probe.PartAcceptorHello, hello)
	if err := a.writeAt(ctx, probe.BannerWrite, hello); err != nil {
		return err
	}
	p, err := a.readHello(ctx, wire1.ConnectorHelloSize)
	if err != nil {
		return err
	}
	a.tapped(false, probe.PartConnectorHello, p)
	h, err := wire1.DecodeConnectorHello(p)
	if err != nil {
		return err
	}
	a.remote = h.Own.WithType(wire.AddrLegacy)
	if h.Own.IsBlank() {
		a.remote.AddrPort = netip.AddrPortFrom(ip, h.Own.AddrPort.Port())
	}
	return nil
}

// ReadConnect reads the peer's next connect message, and the authorizer that follows it, which
// waits for Verify.
func (a *Acceptor) ReadConnect(ctx context.Context) (wire1.Connect, error) {
	if err := a.readConnect(ctx); err != nil {
		if a.refusal != nil {
			a.Refused = !handshake.IsContext(err)
			err = fmt.Errorf("%w (after refusing the peer: %w)", err, a.refusal)
		}
		return wire1.Connect{}, a.fail(ctx, err)
	}
	return a.connect, nil
}

func (a *Acceptor) readConnect(ctx context.Context) (err error) {
	a.At(StageConnect, "read connect")
	a.proof = nil
	return a.probed(ctx, probe.ConnectRead, func() error {
		var p [wire1.ConnectSize]byte
		if err := a.link.ReadFull(ctx, p[:]); err != nil {
			return err
		}
		if a.connect, err = wire1.DecodeConnect(p[:]); err != nil {
			return err
		}
		a.tapped(false, probe.PartConnect, p[:])
		n := int(a.connect.AuthorizerLen) // bounded
		if a.cfg.Room != nil && n > 0 {
			if err := a.cfg.Room(n); err != nil {
				return err
			}
		}
		a.authorizer = make([]byte, n)
		return a.link.ReadFull(ctx, a.authorizer)
	})
}

// Verify judges the authorizer of the last connect message. Call it when session1.Refuse
// has not refused that message.
func (a *Acceptor) Verify(ctx context.Context) (session1.Authorizer, error) {
	if !Authorizes(a.connect.HostType, a.cfg.EntityType) {
		return session1.AuthorizerGood, nil
	}
	a.At(handshake.StageAuth, "verify an authorizer")
	v, err := a.verify(ctx)
	if err != nil {
		if errors.Is(err, auth.ErrBusy) || handshake.IsContext(err) || errors.Is(err, handshake.ErrConfig) {
			return 0, a.fail(ctx, err)
		}
		a.forget() // the next one starts afresh
		a.refusal = err
		return session1.AuthorizerBad, nil
	}
	a.refusal = nil
	return v, nil
}

func (a *Acceptor) verify(ctx context.Context) (session1.Authorizer, error) {
	if a.cfg.Auth == nil {
		return 0, fmt.Errorf("%w: no auth server", handshake.ErrConfig)
	}
	peer, m := a.connect.HostType, auth.Method(a.connect.AuthMethod)
	if m == 0 && len(a.authorizer) == 0 {
		m = auth.None // a peer without an authorizer names no method; the server judges it as an empty payload
	}
	if a.x == nil || m != a.method {
		a.forget()
		if !slices.Contains(a.cfg.Auth.Methods(ctx, peer), m) {
			return 0, fmt.Errorf("%w: peer has %v", auth.ErrNoMethod, m)
		}
		allowed, _ := a.cfg.Auth.Modes(ctx, peer, m)
		if _, err := auth.PickMode(m, []auth.Mode{auth.CRC}, allowed); err != nil {
			return 0, err // msgr1 has no other
		}
		x, err := a.cfg.Auth.Start(ctx, peer, m, auth.CRC)
		if err != nil {
			return 0, err
		}
		a.x, a.method = x, m
	}
	proof, res, err := a.x.Handle(ctx, a.authorizer)
	if err != nil {
		res.Wipe()
		return 0, err
	}
	if len(proof) > wire1.MaxAuthReply {
		res.Wipe()
		return 0, fmt.Errorf("%w: authorizer reply of %d bytes", handshake.ErrConfig, len(proof))
	}
	a.proof = proof
	if res == nil {
		return session1.AuthorizerChallenge, nil
	}
	a.forget()
	return session1.AuthorizerGood, a.adopt(res, m)
}

// Reply sends an answer of the machine. It adds the bytes of the authentication to a
// challenge and to an answer that opens the connection.
func (a *Acceptor) Reply(ctx context.Context, r session1.Answer) error {
	var proof []byte
	switch r.Tag {
	case wire1.TagChallengeAuthorizer, wire1.TagReady, wire1.TagSeq:
		proof = a.proof
	}
	r.AuthorizerLen = uint32(len(proof))
	p := r.Reply.AppendTo(nil)
	a.tapped(true, probe.PartReply, p)
	p = append(p, proof...)
	if r.Tag == wire1.TagSeq {
		p = wire1.Seq{Received: r.Received}.AppendTo(p)
		a.tapped(true, probe.PartSeq, p[len(p)-wire1.SeqSize:])
	}
	a.At(StageConnect, "write "+r.Tag.String())
	return a.fail(ctx, a.writeAt(ctx, probe.ReplyWrite, p))
}

// ReadSeq reads what the connector has received, after an answer with wire1.TagSeq.
func (a *Acceptor) ReadSeq(ctx context.Context) (wire1.Seq, error) {
	s, err := a.readSeq(ctx)
	return s, a.fail(ctx, err)
}
