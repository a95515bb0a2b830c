package main

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/server"
	"github.com/ringmsgr/ringmsgr/bench/internal/session"
	"github.com/ringmsgr/ringmsgr/bench/internal/storage"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// variant is a server that can be compared.
type variant struct {
	name   string
	about  string
	extra  bool // compared only when it is named
	detail bool // not compared by --quick, unless it is named
	raw    bool // has neither handshake nor frames
	msgr1  bool // speaks msgr1
	rival  bool // is in the module of the rivals, where its start function is
	own    bool // has a client of its own there
	// original is the directory of a release of Ceph, or a backend of ours, in --original.
	original string
	config   serverConfig
	start    startFunc
	// storage starts a server of the file; nil: an echo server.
	storage func(storage.Config) (child.Server, error)
}

// serverConfig is the argument of a variant's start function.
type serverConfig struct {
	Backend string        // of the messenger: "io_uring" or "epoll"
	Spin    time.Duration // the longest time of polling before the messenger sleeps
	Secure  bool          // mode secure, for all connections
	Cores   int           // of the messenger, 0: one; of others the CPUs, 0: all
	Msgr1   bool          // the protocol of the messenger, which has no mode secure
	Room    int64         // bytes between two collections, 0: as the heap grows
}

// startFunc starts a server on a free port of the loopback address.
type startFunc func(cfg serverConfig) (child.Server, error)

// everyVariant lists the echo servers: those of this build, and the rivals.
func everyVariant() []variant {
	list := variants()
	for _, r := range child.Rivals() {
		list = append(list, variant{name: r.Name, about: r.About, extra: true, rival: true, own: r.OwnClient})
	}
	return list
}

// variants lists the echo servers of this build.
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

func find(all []variant, name string) (variant, error) {
	if i := slices.IndexFunc(all, func(v variant) bool { return v.name == name }); i >= 0 {
		return all[i], nil
	}
	return variant{}, fmt.Errorf("unknown server %q", name)
}

// usualServers lists the echo servers that are compared if none is named.
func usualServers(quick bool) string {
	return names(slices.DeleteFunc(variants(), func(v variant) bool { return v.extra || quick && v.detail }))
}

func names(all []variant) string {
	var list []string
	for _, v := range all {
		list = append(list, v.name)
	}
	return strings.Join(list, ",")
}

// storageVariants lists the storage servers of this build, the floor first.
func storageVariants() []variant {
	messenger := func(backend uring.Backend) func(storage.Config) (child.Server, error) {
		return func(cfg storage.Config) (child.Server, error) {
			return child.Started(storage.NewMessenger(cfg, string(backend)))
		}
	}
	list := []variant{
		{
			name: "ring", raw: true, about: "a bare loop over a ring, without frames: the floor",
			storage: func(cfg storage.Config) (child.Server, error) {
				return child.Started(storage.NewRing(cfg, string(uring.IOUring)))
			},
		},
		{
			name: "io_uring", about: "ringmsgr, one core, which reads and writes through the ring",
			storage: messenger(uring.IOUring),
		},
		{
			name: "epoll", about: "ringmsgr over epoll, one core, with Linux AIO or threads for files",
			storage: messenger(uring.Epoll),
		},
		{
			name: "net", about: "package net, a goroutine per connection, which calls ReadAt and WriteAt",
			storage: func(cfg storage.Config) (child.Server, error) { return child.Started(storage.NewBlocking(cfg)) },
		},
	}
	if uring.Flavour == uring.Epoll { // it has no ring
		return slices.DeleteFunc(list, func(v variant) bool { return v.name == "ring" || v.name == "io_uring" })
	}
	return list
}

// spinTime bounds the polling of the spinning variants.
const spinTime = 50 * time.Microsecond

// calmRoom is the room of the collector with a memory limit, in bytes.
const calmRoom = 256 << 20

// messengerVariants lists the flavours of the messenger that this build can
// start.
func messengerVariants() []variant {
	var list []variant
	add := func(name, about string, extra bool, cfg serverConfig) {
		list = append(list, variant{
			name: name, about: about, extra: extra, detail: cfg.Msgr1, msgr1: cfg.Msgr1, config: cfg, start: startMessenger,
		})
	}
	ring, epoll := string(uring.IOUring), string(uring.Epoll)
	const usual = "ringmsgr, one core, frames through a ring; each connection chooses how it receives"
	add("io_uring", usual, false, serverConfig{Backend: ring})
	add("epoll", "ringmsgr, one core, the same loop over epoll", false, serverConfig{Backend: epoll})
	add("io_uring+v1", "the ring with msgr1, the older protocol, always in its mode crc", false, serverConfig{Backend: ring, Msgr1: true})
	add("epoll+v1", "epoll with msgr1", false, serverConfig{Backend: epoll, Msgr1: true})
	add("io_uring+spin", "the ring, polling 50 us before it sleeps", true, serverConfig{Backend: ring, Spin: spinTime})
	const limited = "the ring, GOGC off and a memory limit 256 MiB above what lives"
	add("io_uring+limit", limited, true, serverConfig{Backend: ring, Room: calmRoom})
	if uring.Flavour == uring.Epoll { // it has no ring
		return slices.DeleteFunc(list, func(v variant) bool { return v.config.Backend == ring })
	}
	return list
}

// messenger is an echo server on one core of the messenger, with the limits that
// a messenger has by default.
type messenger struct {
	*server.Messenger
	cfg serverConfig
}

// messengerConfig leaves every limit at its default, as users have it.
func messengerConfig(cfg serverConfig) (c control.Config, err error) {
	nonce := uint32(1)
	c = control.Config{
		Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Nonce: &nonce,
		Plane: loop.Config{
			Cores: max(1, cfg.Cores), Spin: cfg.Spin,
			Driver: uring.Config{Backend: uring.Backend(cfg.Backend)},
		},
	}
	if cfg.Secure && !cfg.Msgr1 {
		c.Name.Type = wire.Mon
		c.Auth.Server, err = session.NewSecureServer()
	}
	return c, err
}

// echo sends a message back, on the core that received it.
func echo(c *control.Conn, m *control.Message) bool {
	m.Retain()
	if c.Send(m) != nil {
		m.Release() // the connection is gone
	}
	return true
}

func startMessenger(cfg serverConfig) (child.Server, error) {
	c, err := messengerConfig(cfg)
	if err != nil {
		return nil, err
	}
	m, err := server.StartMessenger(c, cfg.Msgr1, echo)
	return child.Started(&messenger{m, cfg}, err)
}

func (s *messenger) Settings() map[string]string {
	set := s.Messenger.Settings()
	set["spin"] = s.cfg.Spin.String()
	if s.cfg.Room > 0 {
		set["room before GC"] = cli.Bytes(s.cfg.Room)
	}
	if s.cfg.Msgr1 {
		set["protocol"] = control.Msgr1
	}
	if st, err := dataplane.StatsOf(s.Core(0)); err == nil {
		set["receive"] = st.Receive + ": " + st.ReceiveWhy
	}
	return set
}
