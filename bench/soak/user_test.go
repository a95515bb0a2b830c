package soak

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

var errWrong = errors.New("soak: a lossless session is not what it promises")

// timeouts are those of both ends: short, so that they are reached.
var timeouts = control.Timeouts{
	Handshake: 5 * time.Second, KeepaliveEvery: 500 * time.Millisecond, Keepalive: 3 * time.Second,
	MaxBackoff: 2 * time.Second,
}

// user is one end of a lossless session with a server. It must never be reset.
type user struct {
	who string
	m   *control.Messenger
	c   *control.Conn

	mu    sync.Mutex
	wrong error // guarded by mu: the first error
}

// detour is a driver whose connections go through a proxy.
type detour struct {
	uring.Driver
	via netip.AddrPort
}

func (d detour) Connect(local, _ netip.AddrPort, opt uring.SocketOptions, user uint64) (uring.Socket, uring.Op, error) {
	return d.Driver.Connect(local, d.via, opt, user)
}

// open connects to a server as number n, over a proxy if there is one. A peer listens, too.
func (u *user) open(
	n int, peer bool, to wire.Addr, through netip.AddrPort, queued func(*control.Conn, *control.Message),
) error {
	policy, who := control.LosslessClient(), wire.EntityName{Type: wire.Client, ID: fmt.Sprint(n)}
	if peer {
		policy, who.Type = control.LosslessPeer(), wire.OSD
	}
	cfg := control.Config{
		Name: who, Number: int64(n), Default: &policy, Plane: loop.Config{Cores: 1}, Timeouts: timeouts,
	}
	if through.IsValid() {
		cfg.Plane.Open = func(int) (uring.Driver, error) {
			d, err := uring.Open(uring.Config{})
			if err != nil {
				return nil, err
			}
			return detour{d, through}, nil
		}
	}
	m, err := control.New(cfg)
	if err != nil {
		return err
	}
	u.m = m
	err = m.Start(&control.Dispatcher{
		Queued:      queued,
		Reset:       func(*control.Conn, bool) { u.fail(errors.New("reset")) },
		RemoteReset: func(*control.Conn) { u.fail(errors.New("reset by the server")) },
	})
	if err == nil && peer {
		_, err = m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	}
	if err == nil {
		u.c, err = m.Connect(to, wire.OSD)
	}
	if err != nil {
		return errors.Join(err, u.close())
	}
	return nil
}

func (u *user) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return u.m.Shutdown(ctx)
}

// fail keeps the first error. It takes mu.
func (u *user) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.wrong == nil {
		u.wrong = fmt.Errorf("%w: %s: %w", errWrong, u.who, err)
	}
}

// trouble is the first error.
func (u *user) trouble() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.wrong
}
