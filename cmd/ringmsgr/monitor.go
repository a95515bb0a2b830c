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

// monitor is the part of a mon that real clients need to stay: it renews their tickets and
// gives them the monmap.
type monitor struct {
	m     atomic.Pointer[control.Messenger] // nil until it is made
	since time.Time                         // of the map
	kinds cephx.Ciphers                     // of the map
}

// ping is the type of the message that a mon answers with its state. A ping with data is
// echoed.
const ping = 2

// attend has d answer as a mon, if cfg has the name of one: pings of real tools and, with a
// keyring, the requests of clients that stay. d handles all other messages as before.
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

// monStatus is the answer to a ping: the fields of real monitors that serve can fill in.
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

// monMap is the map of a cluster with one monitor, this one. It has no epoch before there is
// a messenger, as an early client would keep an empty map.
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
