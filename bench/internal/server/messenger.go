package server

import (
	"context"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// closeTimeout bounds the shutdown of a messenger at the end of a benchmark.
const closeTimeout = 5 * time.Second

// Messenger is a server on the messenger.
type Messenger struct {
	*control.Messenger
	addr wire.Addr
}

// StartMessenger starts one on a free port of the loopback address, in msgr2 or msgr1. onCore
// takes its messages (Dispatcher.Fast).
func StartMessenger(cfg control.Config, msgr1 bool, onCore func(*control.Conn, *control.Message) bool) (*Messenger, error) {
	m, err := control.New(cfg)
	if err != nil {
		return nil, err
	}
	s := &Messenger{Messenger: m}
	if err = m.Start(&control.Dispatcher{Fast: onCore}); err == nil {
		at := wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}
		if msgr1 {
			at.Type = wire.AddrLegacy
		}
		var addrs wire.AddrVec
		if addrs, err = m.Bind(at); err == nil {
			s.addr = addrs[0]
			return s, nil
		}
	}
	_ = s.Close()
	return nil, err
}

// Addr returns where it listens.
func (s *Messenger) Addr() net.Addr { return net.TCPAddrFromAddrPort(s.addr.AddrPort) }

// Nonce is that of its address.
func (s *Messenger) Nonce() uint32 { return s.addr.Nonce }

// Syscalls returns the number of system calls of its first core.
func (s *Messenger) Syscalls() uint64 {
	st, err := dataplane.StatsOf(s.Core(0))
	if err != nil {
		return 0
	}
	return st.Driver.Syscalls
}

// Settings has the backend.
func (s *Messenger) Settings() map[string]string {
	return map[string]string{"backend": string(s.Driver().Backend), "GOMAXPROCS": strconv.Itoa(runtime.GOMAXPROCS(0))}
}

// Close ends it and all connections, within a bound.
func (s *Messenger) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return s.Shutdown(ctx)
}
