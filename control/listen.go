package control

import (
	"context"
	"net/netip"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Bind listens on one or more addresses, each on every core, and returns them with their
// ports. msgr2 is spoken at a v2: address, msgr1 at a v1: address. For port 0 it takes the
// next free port of Config.Binding.Ports, or without such a range one that the kernel chooses. A
// port on which another process listens is never shared with it: the error is ErrNoPort,
// after Config.Binding.Retries. If one of the addresses cannot be bound, none is, and the
// messenger stays usable. A messenger that never binds is a client only.
//
// An address without an IP (0.0.0.0, ::) listens on all of them. Our address then has the IP of
// our end of the first connection, for good; a peer that comes by another IP gets that IP as
// well.
//
// A messenger is bound once; Rebind gives it other ports. Not for a dispatcher on a core.
func (m *Messenger) Bind(addrs ...wire.Addr) (wire.AddrVec, error) { return m.s.Bind(addrs...) }

// Rebind gives a bound messenger other ports and another nonce, for example after the cluster
// has declared us dead under the old address. The ports come from Config.Binding.Ports, or
// from the kernel without such a range; none is one of the present ports or of avoid. It
// returns the new addresses.
//
// All connections are marked down, also that to ourselves: without a reset event here, with
// their queues dropped, and with Conn.Err ErrRebound. For peers they are broken connections,
// by their own policies; as the old address is gone for good, peers that keep a session should
// mark it down. Connections that are made or accepted from then on have the new address. A
// connection that is made while Rebind runs may be marked down with the others.
//
// The new address accepts before the old one stops, so that an error leaves
// everything as it was: the address, the nonce and all connections. Errors are
// ErrNoPort if all ports are in use or to be avoided, ErrShutdown,
// ErrHandedOver if a hand-over came first, and the cause of ctx. That bounds
// Config.Binding.Retries, and the wait for a hand-over, for cores that come and go,
// and for another Rebind. A messenger that does not listen because of Unbind
// listens again.
//
// Owner hints and pins (PinPeer) hold for the new address. A successor that
// takes over from here (HandOver) gets the new nonce; its Config.Nonce must be
// nil.
//
// It may be called at any time, while others send, connect or accept. Not for a
// dispatcher on a core.
func (m *Messenger) Rebind(ctx context.Context, avoid ...uint16) (wire.AddrVec, error) {
	return m.s.Rebind(ctx, avoid...)
}

// Unbind stops accepting: the listeners of all cores are closed. Connections and their
// sessions go on, and Addrs does not change. Rebind listens again. Not for a dispatcher on a
// core.
func (m *Messenger) Unbind() error { return m.s.Unbind() }

// ErrUnsteered is returned for pins where no table is in force.
var ErrUnsteered = steering.ErrUnsteered

// PinPeer has new connections from peer accepted by core; port 0 stands for any
// port, and a pin with a port goes before that. It needs the table among the rules of Config.Steer, and a messenger that is
// bound and steered, else it returns ErrUnsteered. The table forgets the pins
// that were not used for longest when it is full. A connection that exists
// stays where it is.
func (m *Messenger) PinPeer(peer netip.AddrPort, core int) error {
	return m.s.Pin(&core, func(p *bpf.Steering) error { return p.Pin(peer, core) })
}

// UnpinPeer takes that pin back. It is no error if there is none.
func (m *Messenger) UnpinPeer(peer netip.AddrPort) error {
	return m.s.Pin(nil, func(p *bpf.Steering) error { return p.Unpin(peer) })
}
