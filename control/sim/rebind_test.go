//go:build !race

package sim_test

import (
	"context"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// rebind gives a server another address while everything goes on. For its peers
// that is a death and a birth; its own connections are as if marked down, and
// the messages that it held for them are released.
func (n *node) rebind() {
	w := n.w
	w.net.Note("rebind node %d", n.id)
	w.cover.Rebinds++
	w.woken = true
	var addrs wire.AddrVec
	var err error
	n.rebinding = true
	w.wait("rebind", func() {
		before := n.m.Conns()
		if addrs, err = n.m.Rebind(context.Background()); err != nil {
			return
		}
		for _, c := range before {
			<-c.Closed()
		}
	})
	n.rebinding = false
	if err != nil {
		w.fail("node %d: %v", n.id, err)
		return
	}
	if addrs[0].AddrPort.Port() == n.addr.AddrPort.Port() || addrs[0].Nonce == n.addr.Nonce {
		w.fail("node %d: rebound from %v to %v", n.id, n.addr, addrs[0])
	}
	for c, v := range n.conns {
		if !v.down && c.State() == control.StateClosing && v.resets == 0 {
			v.down = true
			w.cover.RebindsDown++
		}
	}
	n.addr, n.addrs = addrs[0], addrs
	n.life++
}
