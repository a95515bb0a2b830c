package sessions

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake1"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/session1"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

// The handshake of msgr1 authenticates in the messages of the session: the peer's identity
// changes after the machine has taken the first frame.

// msgr1 is the older protocol.
type msgr1 struct{}

// Msgr1 is Info.Protocol of a connection in msgr1.
const Msgr1 = "msgr1"

func (msgr1) seqLocked(m *Manager) *session.GlobalSeq { return &m.globalSeq1 }
func (msgr1) alias(*session.Peer) wire.Addr           { return wire.Addr{} }

func (msgr1) session(m *Manager, p *Policy, peer session.Peer) session.Protocol {
	rules := p.rules()
	rules.Required = p.Required // msgr1 needs no feature of its own
	s := session1.New(m.cfg.Name.Type, rules, peer, m.cfg.Backoff)
	return &s
}

// allowed implements protocol.
func (msgr1) allowed(c *Config) error {
	if modes := c.Handshake.Modes; modes != nil && !slices.Contains(modes, auth.CRC) {
		return fmt.Errorf("%w: v1 addresses have mode crc alone, and Modes are %v", ErrConfig, modes)
	}
	return nil
}

// options1 are the options of both roles.
func (m *Manager) options1(a *attempt, own wire.Addr) handshake1.Options {
	return handshake1.Options{EntityType: m.cfg.Name.Type, Own: own, NoDataCRC: m.cfg.Handshake.NoDataCRC, Limits: m.cfg.Limits, Probe: a.probe, Tap: a.tap}
}

// nobody1 is the result of authentication without an authorizer.
func nobody1() *auth.Result { return &auth.Result{Method: auth.None, Mode: auth.CRC} }

// connect implements protocol, up to the addresses.
func (msgr1) connect(d *dialling) error {
	m := d.c.m
	m.lock()
	own := m.own1(d.a.link.LocalAddr(), false)
	if own.IsBlank() && !d.c.told1.IsBlank() {
		own = d.c.told1
	}
	m.unlock()
	c, err := handshake1.Connect(d.ctx, d.a.link, handshake1.ConnectConfig{
		Options: m.options1(d.a, own), Target: d.target, PeerType: d.peerType, Auth: m.auth.Load().client,
	})
	if err != nil {
		return d.wrap(stats.StageBanner, err)
	}
	d.a.talk = &connector1{Connector: c, d: d}
	d.a.peer = &handshake.Peer{EntityType: d.peerType, SeenAs: c.SeenAs(), Mode: auth.CRC, Auth: nobody1()}
	m.lock()
	defer m.unlock()
	m.learnLocked(d.a.link.LocalAddr(), c.SeenAs())
	d.c.told1 = c.Own()
	return nil
}

// accept implements protocol, up to the addresses.
func (msgr1) accept(a *accepting) error {
	m := a.m
	m.lock()
	m.learnLocked(a.link.LocalAddr(), wire.Addr{})
	own := m.own1(a.link.LocalAddr(), true)
	m.unlock()
	c, err := handshake1.Accept(a.ctx, steps{a.link, a}, handshake1.AcceptConfig{
		Options: m.options1(a.att, own), PeerAddr: a.link.PeerAddr(), Auth: m.auth.Load().server, Room: a.room,
	})
	if err != nil {
		return err
	}
	a.att.talk = &acceptor1{Acceptor: c, a: a, own: own}
	a.att.peer = &handshake.Peer{Mode: auth.CRC, Auth: nobody1()}
	return nil
}

// talk1 is the part of a talk of msgr1 that does not depend on the role.
type talk1 struct{}

func (talk1) queues() bool     { return false }
func (talk1) protocol() string { return Msgr1 }

// connector1 is the talk of a connector of msgr1.
type connector1 struct {
	*handshake1.Connector
	talk1
	d   *dialling
	ask wire1.Connect
}

// send keeps a connect message for receive, which sends it and reads the answer.
func (c *connector1) send(ctx context.Context, f session.Frame) error {
	switch f := f.(type) {
	case wire1.Connect:
		c.ask = f
		return nil
	case wire1.Seq:
		return c.WriteSeq(ctx, f)
	}
	return fmt.Errorf("%w: %v is no frame of a connector", session.ErrProtocol, f)
}

func (c *connector1) receive(ctx context.Context) (session.Frame, error) {
	a, err := c.Ask(ctx, c.ask)
	if err != nil {
		return nil, err
	}
	if res := c.Auth(); res != nil {
		c.d.a.peer.Auth = res
		m := c.d.c.m
		m.lock()
		defer m.unlock()
		m.numberedLocked(res.GlobalID)
	}
	return a, nil
}

func (*connector1) sender(session.Frame) session.Sender { return session.Sender{} }
func (*connector1) last(f session.Frame) bool           { _, is := f.(wire1.Seq); return is }

func (c *connector1) codec(features wire.Features) (dataplane.Codec, error) {
	return codec1(c.Release(features))
}

func codec1(enc *frame1.Encoder, dec *frame1.Decoder, err error) (dataplane.Codec, error) {
	return dataplane.Msgr1(enc, dec), err
}

// acceptor1 is the talk of an acceptor of msgr1.
type acceptor1 struct {
	*handshake1.Acceptor
	talk1
	a   *accepting
	own wire.Addr // our own address, as the peer got it
	seq bool      // the peer's SEQ is due
}

func (c *acceptor1) send(ctx context.Context, f session.Frame) error {
	r, ok := f.(session1.Answer)
	if !ok {
		return fmt.Errorf("%w: %v is no frame of an acceptor", session.ErrProtocol, f)
	}
	c.seq = r.Tag == wire1.TagSeq
	return c.Reply(ctx, r)
}

func (c *acceptor1) receive(ctx context.Context) (session.Frame, error) {
	if c.seq {
		return decoded(c.ReadSeq(ctx))
	}
	m, err := c.ReadConnect(ctx)
	if err != nil {
		return nil, err
	}
	return c.asked(ctx, m)
}

// asked is a connect message, with the verdict about its authorizer. The first one names the
// type of the peer, and so its policy.
func (c *acceptor1) asked(ctx context.Context, m wire1.Connect) (session.Frame, error) {
	a := c.a
	own, peer := a.m.cfg.Name.Type, a.att.peer
	required := c.begin(m.HostType)
	f := session1.Asked{Connect: m, Authorizer: session1.AuthorizerBad} // until it is verified
	if auth.Method(m.AuthMethod) == auth.Cephx && handshake1.Authorizes(peer.EntityType, own) {
		f.Required = wire1.FeatureCephxV2 // our challenge, without which an authorizer could be shown again
	}
	if session1.Refuse(&m, required|f.Required, wire1.Protocol(peer.EntityType, own)) != 0 {
		return f, nil
	}
	var err error
	if f.Authorizer, err = c.Verify(ctx); err != nil || f.Authorizer != session1.AuthorizerGood || c.Auth() == nil {
		return f, err
	}
	if was := peer.Auth; was.Method != auth.None && was.Entity != c.Auth().Entity {
		return nil, fmt.Errorf("%w: %v was %v before", session.ErrWrongPeer, c.Auth().Entity, was.Entity)
	}
	peer.Auth = c.Auth()
	return f, checkClaimed(peer)
}

// begin makes the session of the socket when its peer has named its type, and returns the
// features that it requires.
func (c *acceptor1) begin(peer wire.EntityType) wire.Features {
	a := c.a
	a.m.lock()
	defer a.m.unlock()
	if a.s.Lifecycle == nil {
		a.att.peer.EntityType = peer
		a.beginLocked()
	}
	return a.s.Policy.Required
}

func (c *acceptor1) sender(session.Frame) session.Sender {
	return session.Sender{Addrs: wire.AddrVec{c.From()}, Target: c.own}
}

func (*acceptor1) last(f session.Frame) bool { return f.(session1.Answer).Tag == wire1.TagReady }

func (c *acceptor1) codec(features wire.Features) (dataplane.Codec, error) {
	return codec1(c.Release(features))
}

// own1 is our own address for a peer of msgr1; local is our end of its socket. It is our v1
// address, or one with our nonce if we have none. Accepted: the one by which the peer has
// reached us. Without any address of our own the IP is blank: the peer says how it sees us,
// which counts for this peer only, as a session is known by it.
func (id *identity) own1(local netip.AddrPort, accepted bool) wire.Addr {
	ip := local.Addr().Unmap().WithZone("")
	for i, a := range id.addrs {
		if a.Type != wire.AddrLegacy || accepted && a.AddrPort.Port() != local.Port() {
			continue
		}
		if wildcard := len(id.places) == len(id.addrs) && id.places[i].Addr().IsUnspecified(); accepted && (wildcard || a.IsBlank()) {
			a.AddrPort = netip.AddrPortFrom(ip, local.Port())
		}
		return a
	}
	own := wire.Addr{Type: wire.AddrLegacy, Nonce: id.nonce}
	if front := id.addrs.Front(); id.bound && !front.IsBlank() {
		own.AddrPort = netip.AddrPortFrom(front.AddrPort.Addr(), 0)
	}
	return own
}
