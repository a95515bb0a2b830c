package main

import (
	"runtime"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/server"
)

// variant is a server that can be compared.
type variant struct {
	name   string
	about  string
	extra  bool   // compared only when it is named
	detail bool   // not compared by --quick, unless it is named
	raw    bool   // echoes bytes: no handshake, no frames
	msgr1  bool   // speaks msgr1
	rival  bool   // is in the module of the rivals, where its start function is
	own    bool   // has a client of its own there
	tags   string // build tags of its flavour, used with --tags-build
	config serverConfig
	start  startFunc
}

// serverConfig is what a variant passes to its start function.
type serverConfig struct {
	Backend string        // of the messenger: "io_uring" or "epoll"
	Receive string        // receive mode of the messenger, empty: its own choice
	Spin    time.Duration // how long the messenger polls before it sleeps
	Secure  bool          // mode secure, for all connections
	Cores   int           // of the messenger, 0: one; of others the CPUs, 0: all
	Msgr1   bool          // the protocol of the messenger, which has no mode secure
	// What a program can do about its garbage collector.
	Nice  int   // of the messenger's core
	Procs int   // GOMAXPROCS above the cores, 0: as it is
	Room  int64 // bytes between two collections, 0: as the heap grows
}

// startFunc starts a server on a free port of the loopback address.
type startFunc func(cfg serverConfig) (child.Server, error)

// rivalModule is where the servers are that the library does not depend on.
const rivalModule = "bench/rivals"

// everyVariant lists the servers that can be compared: those of this build, and the
// rivals.
func everyVariant() []variant {
	list := variants()
	for _, r := range child.Rivals() {
		list = append(list, variant{name: r.Name, about: r.About, extra: true, rival: true, own: r.OwnClient})
	}
	return list
}

// variants lists the servers of this build.
func variants() []variant {
	list := []variant{
		{
			name: "floor", about: "bare echo of bytes on one locked epoll loop: what TCP alone costs", raw: true,
			start: func(serverConfig) (child.Server, error) { return child.Started(server.NewFloor()) },
		},
		{
			name: "floor+store", about: "the same loop, which gathers each request in a buffer before it sends it", raw: true, detail: true,
			start: func(serverConfig) (child.Server, error) { return child.Started(server.NewFloorStore()) },
		},
		{
			name: "loop", about: "bare echo of requests on one core of the messenger's loop, without its frames", raw: true, detail: true,
			start: func(serverConfig) (child.Server, error) { return child.Started(server.NewLoop()) },
		},
		{
			name: "net", about: "package net, a goroutine per connection, the same frames",
			start: func(cfg serverConfig) (child.Server, error) {
				if cfg.Cores > 0 {
					runtime.GOMAXPROCS(cfg.Cores)
				}
				return child.Started(server.NewNet(cfg.Secure))
			},
		},
	}
	return append(list, messengerVariants()...)
}
