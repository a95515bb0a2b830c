package main

import (
	"slices"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/server"
	"github.com/ringmsgr/ringmsgr/bench/internal/session"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

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
	add("io_uring",
		"ringmsgr, one core, frames through a ring; each connection chooses how it "+
			"receives", false, serverConfig{Backend: ring})
	add("epoll", "ringmsgr, one core, the same loop over epoll", false, serverConfig{Backend: epoll})
	add("io_uring+v1", "the ring with msgr1, the older protocol, always in its mode crc", false, serverConfig{Backend: ring, Msgr1: true})
	add("epoll+v1", "epoll with msgr1", false, serverConfig{Backend: epoll, Msgr1: true})
	add("io_uring+spin", "the ring, polling 50 us before it sleeps", true, serverConfig{Backend: ring, Spin: spinTime})
	add("io_uring+limit",
		"the ring, GOGC off and a memory limit 256 MiB above what "+
			"lives", true, serverConfig{Backend: ring, Room: calmRoom})
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

func (s *messenger) RoomBeforeGC() int64 { return s.cfg.Room }

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
