package main

import (
	"crypto/sha256"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
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
	kinds cephx.Ciphers                     // likewise
}

// ping is the message that a mon answers with how it is. One that carries
// something is an echo's.
const ping = 2

// attend has d answer as a mon, if cfg makes us one: pings of real tools, and with a
// keyring what clients ask for that stay. All other messages are left to what d did
// before.
func (n *monitor) attend(cfg *control.Config, d *control.Dispatcher) {
	if cfg.Name.Type != wire.Mon {
		return
	}
	server, _ := cfg.Auth.Server.(*cephx.Server)
	logins := mon.ServerConfig{
		Map:    func() mon.MonMap { return n.monMap(cfg.Name.ID) },
		Status: func() any { return n.status(cfg.Name.ID) },
	}
	if server != nil {
		logins.Authority = server.Authority()
	}
	answers := mon.NewServer(logins).Fast
	rest := d.Fast
	d.Fast = func(c *control.Conn, m *control.Message) bool {
		asked := server != nil && m.Type != ping || m.Type == ping && m.Size() == 0
		if asked && answers(c, m) {
			return true
		}
		return rest(c, m)
	}
}

// monStatus is what a ping is answered with, as much of what real monitors say as
// is true of us.
type monStatus struct {
	Health mon.Health `json:"health"`
	Status struct {
		Name    string `json:"name"`
		State   string `json:"state"`
		Version string `json:"version"`
		Addrs   string `json:"addrs"`
	} `json:"mon_status"`
}

func (n *monitor) status(id string) monStatus {
	s := monStatus{Health: mon.Health{Status: "HEALTH_OK"}}
	s.Status.Name, s.Status.State, s.Status.Version = id, "leader", "ringmsgr "+cli.ReadBuild().Version
	if m := n.m.Load(); m != nil {
		s.Status.Addrs = m.Addrs().String()
	}
	return s
}

// monMap is a cluster with one monitor: us. There is none before the messenger
// is there: a client that is early would be left with an empty one for ever.
func (n *monitor) monMap(id string) mon.MonMap {
	m := n.m.Load()
	if m == nil {
		return mon.MonMap{}
	}
	addrs := m.Addrs()
	out := mon.MonMap{Epoch: 1, Changed: n.since, Ciphers: n.kinds, Mons: []mon.Mon{{Name: id, Addrs: addrs}}}
	// The same for a successor, which has our addresses.
	sum := sha256.Sum256([]byte(addrs.String()))
	copy(out.FSID[:], sum[:])
	return out
}
