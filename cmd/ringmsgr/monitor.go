package main

import (
	"crypto/sha256"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// monitor is the part of a mon without which real clients do not stay: it
// renews their tickets and gives them the monmap.
type monitor struct {
	m     atomic.Pointer[control.Messenger] // nil until it is there
	since time.Time                         // of the map
}

// ping is the message that a mon answers with itself, as we echo it anyway.
const ping = 2

// attend has d answer as a mon, if cfg makes us one with a keyring; all other
// messages are left to what d did before.
func (n *monitor) attend(cfg *control.Config, d *control.Dispatcher) {
	server, ok := cfg.AuthServer.(*cephx.Server)
	if !ok || cfg.Name.Type != wire.Mon || server == nil {
		return
	}
	answers := mon.NewServer(mon.ServerConfig{Map: func() mon.MonMap { return n.monMap(cfg.Name.ID) }}).Fast
	rest := d.Fast
	d.Fast = func(c *control.Conn, m *control.Message) bool {
		if m.Type != ping && answers(c, m) {
			return true
		}
		return rest(c, m)
	}
}

// monMap is a cluster with one monitor: us. There is none before the messenger
// is there: a client that is early would be left with an empty one for ever.
func (n *monitor) monMap(id string) mon.MonMap {
	m := n.m.Load()
	if m == nil {
		return mon.MonMap{}
	}
	addrs := m.Addrs()
	out := mon.MonMap{Epoch: 1, Changed: n.since, Mons: []mon.Mon{{Name: id, Addrs: addrs}}}
	// The same for a successor, which has our addresses.
	sum := sha256.Sum256([]byte(addrs.String()))
	copy(out.FSID[:], sum[:])
	return out
}
