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
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// The handshake of msgr1, in both roles. It authenticates in the messages of the
// session, so what is known of the peer changes while the machine is asked already.

// msgr1 says why we do not speak msgr1, nil if we do.
func (c *Config) msgr1() error {
	if modes := c.Handshake.Modes; modes != nil && !slices.Contains(modes, auth.CRC) {
		return fmt.Errorf("%w: v1 addresses have mode crc alone, and Modes are %v", ErrConfig, modes)
	}
	return nil
}

// handshake1Options are what both roles of msgr1 have in common.
func (m *Manager) handshake1Options(a *attempt, own wire.Addr) handshake1.Options {
	return handshake1.Options{EntityType: m.cfg.Name.Type, Own: own, NoDataCRC: m.cfg.Handshake.NoDataCRC, Limits: m.cfg.Limits, Probe: a.probe, Tap: a.tap}
}

// nobody1 is what authentication has found where there was no authorizer.
func nobody1() *auth.Result { return &auth.Result{Method: auth.None, Mode: auth.CRC} }

// connector1 is the talk of a connector of msgr1.
type connector1 struct {
	*handshake1.Connector
	d   *dialling
	ask wire1.Connect
}

// handshake1 is handshake in msgr1.
func (d *dialling) handshake1() error {
	m := d.c.m
	m.lock()
	own := m.own1(d.a.link.LocalAddr(), false)
	if own.IsBlank() && !d.c.told1.IsBlank() {
		own = d.c.told1
	}
	m.unlock()
	c, err := handshake1.Connect(d.ctx, d.a.link, handshake1.ConnectConfig{
		Options: m.handshake1Options(d.a, own), Target: d.target, PeerType: d.peerType, Auth: m.auth.Load().client,
	})
	if err != nil {
		return err
	}
	d.a.talk = &connector1{Connector: c, d: d}
	d.a.peer = &handshake.Peer{EntityType: d.peerType, SeenAs: c.SeenAs(), Mode: auth.CRC, Auth: nobody1()}
	m.lock()
	defer m.unlock()
	m.learnLocked(d.a.link.LocalAddr(), c.SeenAs())
	d.c.told1 = c.Own()
	return nil
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
	return fmt.Errorf("%w: %v is no frame of a connector", session.ErrProtocol, session.FrameText(f))
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

func (c *connector1) last(f session.Frame) bool { _, is := f.(wire1.Seq); return is }
func (c *connector1) queues() bool              { return false }
func (c *connector1) protocol() string          { return Msgr1 }

func (c *connector1) release(opt *dataplane.OpenOptions, features wire.Features) error {
	enc, dec, err := c.Release(features)
	opt.Codec = dataplane.Msgr1(enc, dec)
	return err
}

// Msgr1 is Info.Protocol of a connection in msgr1.
const Msgr1 = "msgr1"

// acceptor1 is the talk of an acceptor of msgr1.
type acceptor1 struct {
	*handshake1.Acceptor
	a   *accepting
	own wire.Addr // who the peer was told that we are
	seq bool      // what the peer has received is due
}

// handshake1 is handshake in msgr1.
func (a *accepting) handshake1() error {
	m := a.m
	m.lock()
	m.learnLocked(a.link.LocalAddr(), wire.Addr{})
	own := m.own1(a.link.LocalAddr(), true)
	m.unlock()
	c, err := handshake1.Accept(a.ctx, steps{a.link, a}, handshake1.AcceptConfig{
		Options: m.handshake1Options(a.att, own), PeerAddr: a.link.PeerAddr(), Auth: m.auth.Load().server, Room: a.room,
	})
	if err != nil {
		return err
	}
	a.att.talk = &acceptor1{Acceptor: c, a: a, own: own}
	a.att.peer = &handshake.Peer{Mode: auth.CRC, Auth: nobody1()}
	return nil
}

func (c *acceptor1) send(ctx context.Context, f session.Frame) error {
	r, ok := f.(session1.Answer)
	if !ok {
		return fmt.Errorf("%w: %v is no frame of an acceptor", session.ErrProtocol, session.FrameText(f))
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
	return c.a.asked1(ctx, m, c.Acceptor)
}

// asked1 is a connect message with what is made of its authorizer. The first one says of
// which type the peer is, and with that what its session is.
func (a *accepting) asked1(ctx context.Context, m wire1.Connect, c *handshake1.Acceptor) (session.Frame, error) {
	if m.HostType > 0xff {
		return nil, fmt.Errorf("%w: host type %d", session.ErrProtocol, m.HostType)
	}
	own, peer := a.m.cfg.Name.Type, a.att.peer
	required := a.begin1(wire.EntityType(m.HostType))
	f := session1.Asked{Connect: m}
	if auth.Method(m.AuthMethod) == auth.Cephx && handshake1.Authorizes(peer.EntityType, own) {
		f.Required = wire.FeatureCephxV2 // our challenge, without which an authorizer could be shown again
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

// begin1 makes the session of the socket when its peer has said of which type it is, and
// returns the features that it requires.
func (a *accepting) begin1(peer wire.EntityType) wire.Features {
	m := a.m
	m.lock()
	defer m.unlock()
	if a.s.Lifecycle == nil {
		a.att.peer.EntityType = peer
		a.policy = m.policies.get(peer)
		a.s = m.newSession1(a.policy, session.Peer{Type: peer, From: a.link.PeerAddr().Addr()})
		a.began = a.s.advance(session.Accept{}, m.envLocked(&a.s, nil, numbers{}))
	}
	return a.s.Policy.Required
}

// request1Locked is request in msgr1.
func (a *accepting) request1Locked(f session.Frame) (session.Event, *Conn) {
	c := a.att.talk.(*acceptor1)
	m, from, peer := a.m, c.From(), a.att.peer.Auth
	if a.conn == nil {
		a.s.Peer.Entity, a.s.Peer.Proven = peer.Entity, isProven(peer)
	}
	ev := session1.Request{
		Asked: f.(session1.Asked), From: from, Near: from.AddrPort.Addr().Unmap() == a.link.PeerAddr().Addr().Unmap(),
		Gone: !m.ours(c.own, a.link.LocalAddr()), Frozen: m.handing.Frozen(), Refuse: a.refuseLocked(),
	}
	e := m.meant1Locked(from, a.s.Peer)
	if e != nil {
		ev.Existing, ev.Settled = e.s.msgr1, a.settledLocked(e)
	} else if e = m.foreign1Locked(from, a.s.Peer); e != nil {
		ev.Foreign = e.s.Lifecycle
	}
	return ev, e
}

// meant1Locked is meant for msgr1, where a session goes by its address alone.
func (m *Manager) meant1Locked(from wire.Addr, peer session.Peer) *Conn {
	known := m.names.speakingLocked(from, true)
	if i := session.Meant(peer, wire.AddrVec{from}, livesLocked(known), func(int) bool { return true }); i >= 0 {
		return known[i]
	}
	return nil
}

// foreign1Locked is the session of msgr2 with the peer that says that it has this v1
// address, too; nil for none.
func (m *Manager) foreign1Locked(from wire.Addr, peer session.Peer) *Conn {
	for _, c := range m.names.speakingLocked(from, false) {
		if c.s.Peer.Addrs.V1() == from && c.s.Is(&peer) {
			return c
		}
	}
	return nil
}

func (c *acceptor1) last(f session.Frame) bool { return f.(session1.Answer).Tag == wire1.TagReady }
func (c *acceptor1) queues() bool              { return false }
func (c *acceptor1) protocol() string          { return Msgr1 }

func (c *acceptor1) release(opt *dataplane.OpenOptions, features wire.Features) error {
	enc, dec, err := c.Release(features)
	opt.Codec = dataplane.Msgr1(enc, dec)
	return err
}

// own1 is our own address for a peer of msgr1, local our end of its socket: our v1
// address, and what makes this process instance unique if we have none. Accepted: the
// one by which the peer has reached us. Without any address of our own its IP is blank: the
// peer says how it sees us, which holds for nobody else, as a session goes by it.
func (id *identity) own1(local netip.AddrPort, accepted bool) wire.Addr {
	ip := local.Addr().Unmap().WithZone("")
	for i, a := range id.addrs {
		if !isMsgr1(a) || accepted && a.AddrPort.Port() != local.Port() {
			continue
		}
		if wildcard := len(id.places) == len(id.addrs) && id.places[i].IsUnspecified(); accepted && (wildcard || a.IsBlank()) {
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
