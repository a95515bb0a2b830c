package control

import (
	"context"
	"net/netip"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Bind listens on one or more addresses, each on every core, in msgr2 at a v2: address, in
// msgr1 at a v1: one, and returns them with their ports. Port 0 stands for the next free port
// of Config.Binding.Ports, or of the kernel. A port of another process is never shared: the
// error is ErrNoPort, after Config.Binding.Retries. After an error no address is bound, and the
// messenger stays usable. A messenger that never binds is a client only.
//
// An address without an IP (0.0.0.0, ::) listens on all of them. Peers then get the IP of our
// end of the first connection, or the IP by which they came.
//
// A messenger is bound once; Rebind gives it other ports. Not on a core.
func (m *Messenger) Bind(addrs ...wire.Addr) (wire.AddrVec, error) { return m.s.Bind(addrs...) }

// Rebind gives a bound messenger other ports and another nonce, for example when the cluster
// has declared the old address dead, and returns the new addresses. The ports come from
// Config.Binding.Ports, or from the kernel; none is a present port or in avoid. After Unbind it
// listens again.
//
// All connections are marked down, also the one to ourselves, with Conn.Err ErrRebound. For
// peers they are broken connections; peers that keep a session should mark it down, as the old
// address is gone for good.
//
// The new address accepts before the old one stops, so that an error leaves everything as it
// was: ErrNoPort, ErrShutdown, ErrHandedOver, or the cause of ctx, which bounds
// Config.Binding.Retries, and the wait for a hand-over, for changes of cores and for another
// Rebind.
//
// Owner hints and pins (PinPeer) hold for the new address. A successor (HandOver) gets the new
// nonce; its Config.Nonce must be nil.
//
// Others may send, connect and accept meanwhile. Not on a core.
func (m *Messenger) Rebind(ctx context.Context, avoid ...uint16) (wire.AddrVec, error) {
	return m.s.Rebind(ctx, avoid...)
}

// Unbind closes the listeners of all cores. Connections and their sessions go on, and Addrs
// does not change. Rebind listens again. Not on a core.
func (m *Messenger) Unbind() error { return m.s.Unbind() }

// ErrUnsteered: no steering table is in force.
var ErrUnsteered = steering.ErrUnsteered

// PinPeer has new connections from peer accepted by core; port 0 stands for any port, and a pin
// with a port has precedence. It needs the rule table in Config.Steer, and a bound messenger,
// else the error is ErrUnsteered. A full table forgets the pins that were not used for longest.
// Existing connections do not move.
func (m *Messenger) PinPeer(peer netip.AddrPort, core int) error {
	return m.s.Pin(&core, func(p *bpf.Steering) error { return p.Pin(peer, core) })
}

// UnpinPeer removes a pin, if it exists.
func (m *Messenger) UnpinPeer(peer netip.AddrPort) error {
	return m.s.Pin(nil, func(p *bpf.Steering) error { return p.Unpin(peer) })
}
