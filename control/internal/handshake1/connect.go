package handshake1

import (
	"context"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/session1"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// Connector is a connector after the exchange of addresses.
type Connector struct {
	conn[auth.ClientExchange]
	cfg   ConnectConfig
	own   wire.Addr
	seen  wire.Addr
	modes []auth.Mode // of the last authorizer
}

// Connect exchanges banners and addresses with an acceptor. The next step is Ask.
//
// An error of it and of the methods is a [*handshake.Error]; ask it whether it is
// terminal. The link is of no use then, and the caller closes it. Give ctx a deadline.
func Connect(ctx context.Context, link handshake.Link, cfg ConnectConfig) (*Connector, error) {
	c := &Connector{cfg: cfg}
	c.conn = conn[auth.ClientExchange]{Run: handshake.Run{Peer: &c.cfg.Target}, opts: &c.cfg.Options, remote: cfg.Target}
	c.link.Begin(link, cfg.Probe)
	if err := c.addresses(ctx); err != nil {
		return nil, c.fail(ctx, err)
	}
	return c, nil
}

// Own is the own address as the acceptor was told: with the IP that it has seen, if that
// was not known.
func (c *Connector) Own() wire.Addr { return c.own }

// SeenAs is the own address as the acceptor sees it: source IP and ephemeral port.
func (c *Connector) SeenAs() wire.Addr { return c.seen }

func (c *Connector) addresses(ctx context.Context) error {
	c.At(handshake.StageBanner, "start")
	if c.cfg.Auth == nil && Authorizes(c.cfg.EntityType, c.cfg.PeerType) {
		return fmt.Errorf("%w: no auth client", handshake.ErrConfig)
	}
	p, err := c.readHello(ctx, wire1.AcceptorHelloSize)
	if err != nil {
		return err
	}
	c.tapped(false, probe.PartAcceptorHello, p)
	h, err := wire1.DecodeAcceptorHello(p)
	if err != nil {
		return err
	}
	if !sameAcceptor(h.Own, c.cfg.Target) {
		return fmt.Errorf("%w: %v, dialled %v", ErrAddress, h.Own, c.cfg.Target)
	}
	c.seen = h.Seen
	c.own = c.cfg.Own
	if c.own.IsBlank() && !h.Seen.IsBlank() { // the IP alone is learned, never port or nonce, and a known one stays
		c.own = h.Seen.WithPort(c.own.AddrPort.Port()).WithNonce(c.own.Nonce)
	}
	c.own.Type = wire.AddrLegacy
	c.At(handshake.StageHello, "write addresses")
	hello := wire1.ConnectorHello{Own: c.own}.AppendTo(nil)
	c.tapped(true, probe.PartConnectorHello, hello)
	return c.writeAt(ctx, probe.BannerWrite, hello)
}

// sameAcceptor compares the address that the acceptor claims with the dialled one. The
// acceptor may not know its IP. A dialled nonce of 0 accepts any acceptor.
func sameAcceptor(said, dialled wire.Addr) bool {
	if dialled.Nonce == 0 {
		said.Nonce = 0
	}
	if said.IsBlank() && !dialled.IsBlank() {
		return said.Nonce == dialled.Nonce && said.AddrPort.Port() == dialled.AddrPort.Port()
	}
	return said == dialled
}

// Ask sends a connect message of the machine with an authorizer, and returns the answer.
// If that opens the connection, the acceptor's proof in it was verified. Ask itself
// answers challenges, and tries a fresh authorizer after a refused one; if that is refused
// too, it is an error. Later calls show the authorizer again that has answered the challenge: an
// acceptor of Ceph challenges once on a socket, and refuses an authorizer without the answer
// (Ceph's ProtocolV1.cc). Where the acceptor refuses it, there is a whole exchange once more.
func (c *Connector) Ask(ctx context.Context, m wire1.Connect) (session1.Answer, error) {
	if !Authorizes(c.cfg.EntityType, c.cfg.PeerType) {
		a, _, err := c.exchange(ctx, m, nil)
		if err == nil && a.Tag == wire1.TagChallengeAuthorizer {
			err = fmt.Errorf("%w: %v without an authorizer", ErrUnexpected, a.Tag)
		}
		return a, c.fail(ctx, err)
	}
	a, err := c.authorized(ctx, m)
	return a, c.fail(ctx, err)
}

// authorized is Ask with an authorizer.
func (c *Connector) authorized(ctx context.Context, m wire1.Connect) (a session1.Answer, err error) {
	again := c.x != nil
	if !again {
		if err := c.start(ctx); err != nil {
			return a, err
		}
	}
	for range maxRounds {
		if _, err := auth.PickMode(c.method, c.modes, []auth.Mode{auth.CRC}); err != nil {
			return a, handshake.GaveUp(err) // msgr1 has no other
		}
		m.AuthMethod = uint32(c.method)
		var proof []byte
		if a, proof, err = c.exchange(ctx, m, c.authorizer); err != nil {
			return a, err
		}
		switch a.Tag {
		case wire1.TagChallengeAuthorizer:
			c.At(handshake.StageAuth, "answer a challenge")
			if c.authorizer, err = c.x.ReplyMore(ctx, proof); err != nil {
				return a, handshake.GaveUp(err)
			}
		case wire1.TagBadAuthorizer:
			if again { // it was good before: this acceptor wants a whole exchange
				again = false
				if err := c.start(ctx); err != nil {
					return a, err
				}
				continue
			}
			c.At(handshake.StageAuth, "make another authorizer")
			if err := c.x.BadMethod(ctx, c.method, auth.EACCES, []auth.Method{c.method}, c.modes); err != nil {
				return a, handshake.GaveUp(err)
			}
			if err := c.request(ctx); err != nil {
				return a, err
			}
		case wire1.TagReady, wire1.TagSeq:
			c.At(handshake.StageAuth, "verify the acceptor")
			res, err := c.x.Done(ctx, 0, auth.CRC, proof)
			if err != nil {
				res.Wipe()
				return a, err
			}
			c.forget()
			return a, c.adopt(res, c.method)
		default:
			return a, nil
		}
	}
	return a, fmt.Errorf("%w: %d authorizers", handshake.ErrTooManyRounds, maxRounds)
}

// start begins an exchange, in place of one that may be under way.
func (c *Connector) start(ctx context.Context) error {
	c.forget()
	c.At(handshake.StageAuth, "make an authorizer")
	x, err := c.cfg.Auth.Start(ctx, c.cfg.PeerType)
	if err != nil {
		return handshake.GaveUp(err)
	}
	c.x = x
	return c.request(ctx)
}

// request makes a fresh authorizer.
func (c *Connector) request(ctx context.Context) (err error) {
	if c.method, c.modes, c.authorizer, err = c.x.Request(ctx); err != nil {
		err = handshake.GaveUp(err)
	}
	return err
}

// exchange sends one connect message, and reads the answer to it with all that belongs to
// it.
func (c *Connector) exchange(ctx context.Context, m wire1.Connect, authorizer []byte) (a session1.Answer, proof []byte, err error) {
	c.At(StageConnect, "write connect")
	if len(authorizer) > wire1.MaxAuthorizer {
		return a, nil, fmt.Errorf("%w: authorizer of %d bytes", handshake.ErrConfig, len(authorizer))
	}
	m.AuthorizerLen = uint32(len(authorizer))
	p := m.AppendTo(nil)
	c.tapped(true, probe.PartConnect, p)
	if err := c.writeAt(ctx, probe.ConnectWrite, append(p, authorizer...)); err != nil {
		return a, nil, err
	}
	c.At(StageConnect, "read the answer to connect")
	err = c.probed(ctx, probe.ReplyRead, func() (err error) {
		a, proof, err = c.readReply(ctx)
		return err
	})
	return a, proof, err
}

// readReply reads an answer, with its proof and sequence.
func (c *Connector) readReply(ctx context.Context) (a session1.Answer, proof []byte, err error) {
	var p [wire1.ReplySize]byte
	if err := c.link.ReadFull(ctx, p[:]); err != nil {
		return a, nil, err
	}
	if a.Reply, err = wire1.DecodeReply(p[:]); err != nil {
		return a, nil, err
	}
	c.tapped(false, probe.PartReply, p[:])
	proof = make([]byte, a.AuthorizerLen) // bounded
	if err := c.link.ReadFull(ctx, proof); err != nil {
		return a, nil, err
	}
	a.AuthorizerLen = 0
	if a.Tag != wire1.TagSeq {
		return a, proof, nil
	}
	var q [wire1.SeqSize]byte
	if err := c.link.ReadFull(ctx, q[:]); err != nil {
		return a, nil, err
	}
	c.tapped(false, probe.PartSeq, q[:])
	seq, err := wire1.DecodeSeq(q[:])
	a.Received = seq.Received
	return a, proof, err
}

// WriteSeq sends what we have received, after an answer with wire1.TagSeq.
func (c *Connector) WriteSeq(ctx context.Context, s wire1.Seq) error {
	c.At(StageConnect, "write the sequence")
	p := s.AppendTo(nil)
	c.tapped(true, probe.PartSeq, p)
	return c.fail(ctx, c.writeAt(ctx, probe.SeqWrite, p))
}
