package main

import (
	"net"
	"time"

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
	Msgr1   bool          // the protocol of the messenger, which has no mode secure
}

// startFunc starts a server on a free port of the loopback address.
type startFunc func(cfg serverConfig) (echoServer, error)

// echoServer is a running server, whatever it is made of.
type echoServer interface {
	// Addr returns where it listens.
	Addr() net.Addr
	// Close ends it. It is called once.
	Close() error
}

// syscallCounter is a server that knows how many system calls it has made.
type syscallCounter interface{ Syscalls() uint64 }

// noncer is a messenger whose address has a nonce, which clients must know.
type noncer interface{ Nonce() uint32 }

// describer is a server with settings worth reporting, such as its backend.
type describer interface{ Settings() map[string]string }

// variants lists the servers of this build.
func variants() []variant {
	list := []variant{
		{
			name: "floor", about: "bare echo of bytes on one locked epoll loop: what TCP alone costs", raw: true,
			start: func(serverConfig) (echoServer, error) { return started(server.NewFloor()) },
		},
		{
			name: "floor+store", about: "the same loop, which gathers each request in a buffer before it sends it", raw: true, detail: true,
			start: func(serverConfig) (echoServer, error) { return started(server.NewFloorStore()) },
		},
		{
			name: "loop", about: "bare echo of requests on one core of the messenger's loop, without its frames", raw: true, detail: true,
			start: func(serverConfig) (echoServer, error) { return started(server.NewLoop()) },
		},
		{
			name: "net", about: "package net, a goroutine per connection, the same frames",
			start: func(cfg serverConfig) (echoServer, error) { return started(server.NewNet(cfg.Secure)) },
		},
	}
	return append(list, messengerVariants()...)
}

// started avoids an interface that holds a nil pointer.
func started[S echoServer](s S, err error) (echoServer, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
