//go:build !race

package sim_test

import (
	"flag"
	"fmt"
	"net/netip"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Ten of 16 seeds have worlds of msgr2 alone, four of msgr1 alone. In the other two,
// nodes have both protocols, and some of them msgr1 alone.

// simProtocol is what a world speaks.
type simProtocol string

const (
	simMsgr2 simProtocol = "msgr2"
	simMsgr1 simProtocol = "msgr1"
	simMixed simProtocol = "mixed"
)

var simOneProtocol = flag.String("sim.protocol", "", "what all worlds speak: msgr2, msgr1 or mixed; without it the seed decides")

// protocolOf is what the world of a seed speaks. Seeds that have found something in
// msgr2 keep it.
func protocolOf(seed uint64) simProtocol {
	if *simOneProtocol != "" {
		return simProtocol(*simOneProtocol)
	}
	switch seed % 16 {
	case 1, 4, 7, 10:
		return simMsgr1
	case 3, 12:
		return simMixed
	}
	return simMsgr2
}

// flags are those that repeat the world of a seed.
func (w *world) flags() string {
	text := fmt.Sprintf("-sim.first=%d -sim.seeds=1", w.seed)
	of := protocolOf
	if w.foe != nil {
		of = adversaryProtocol
	}
	if w.plan.protocol != "" && w.plan.protocol != of(w.seed) || *simOneProtocol != "" {
		text += " -sim.protocol=" + string(w.plan.protocol)
	}
	return text
}

// old says that a node has msgr1 alone.
func (n *node) old() bool {
	switch n.w.plan.protocol {
	case simMsgr1:
		return true
	case simMixed:
		return n.id != 0 && (n.w.seed/16+uint64(n.id))%2 == 0
	}
	return false
}

// binds are the addresses on which a server listens.
func (n *node) binds() wire.AddrVec {
	v2 := wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.AddrPortFrom(n.host.IP(), 6800)}
	v1 := v2.WithType(wire.AddrLegacy)
	switch {
	case n.old():
		return wire.AddrVec{v1}
	case n.w.plan.protocol == simMixed:
		return wire.AddrVec{v2, v1.WithPort(6801)}
	}
	return wire.AddrVec{v2}
}

// dial connects to another node, by msgr2 if both ends have it, but for a user who means
// the other address now and then. That ends the session of msgr2 with a reset, so nobody
// does where only an adversary may disturb.
func (n *node) dial(to *node, opts ...control.ConnectOption) (*control.Conn, error) {
	if n.old() || n.w.plan.protocol == simMixed && n.w.rng.IntN(8) == 0 && !n.w.foe.calm() {
		return n.m.Connect(to.addrs.V1(), wire.OSD, opts...)
	}
	return n.m.ConnectTo(to.addrs, wire.OSD, opts...)
}

// comeBack connects to another node by each protocol that both have, unless it is. A
// session that a client has left ends when the client is back by the same protocol: by the
// other one it is another session, and the first one stays until Policy.StandbyAge.
func (n *node) comeBack(to *node) {
	n.channelTo(to)
	if n.w.plan.protocol != simMixed || n.old() {
		return
	}
	for _, a := range to.addrs {
		conn, err := n.m.Connect(a, wire.OSD)
		if err != nil {
			n.w.fail("connect: %v", err)
			return
		}
		if n.conns[conn] == nil {
			n.channel(conn, to, to.life, 1)
		}
	}
}
