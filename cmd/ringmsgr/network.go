package main

import (
	"flag"
	"net/netip"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/uring"
)

// networkOptions are the flags for what lies between us and the peer.
type networkOptions struct {
	via       string
	keepalive time.Duration
}

func (o *networkOptions) register(fs *flag.FlagSet) {
	fs.StringVar(&o.via, "via", "", "`IP:PORT` to connect to, whatever the address of the peer: a tunnel or a proxy that leads there")
	fs.DurationVar(&o.keepalive, "keepalive", 0,
		"`DURATION` between keepalives; a connection without an answer for five of them is given up (default none)")
}

// silentKeepalives is how many keepalives stay without an answer until a
// connection is given up.
const silentKeepalives = 5

// apply sets cfg up. Its errors are usage errors.
func (o *networkOptions) apply(cfg *control.Config) error {
	if o.keepalive < 0 {
		return cli.Usagef("--keepalive %v: want 0 or more", o.keepalive)
	}
	cfg.KeepaliveEvery, cfg.KeepaliveTimeout = o.keepalive, silentKeepalives*o.keepalive
	if o.via == "" {
		return nil
	}
	via, err := netip.ParseAddrPort(o.via)
	if err != nil || via.Port() == 0 || via.Addr().IsUnspecified() {
		return cli.Usagef("--via %q: want IP:PORT", o.via)
	}
	driver := cfg.Plane.Driver
	cfg.Plane.Open = func(int) (uring.Driver, error) {
		d, err := uring.Open(driver)
		if err != nil {
			return nil, err
		}
		return detour{d, via}, nil
	}
	return nil
}

// detour is a driver whose connections go to another address than the one that
// is dialled. The peer sees nothing of it: it is still called by its own.
type detour struct {
	uring.Driver
	via netip.AddrPort
}

func (d detour) Connect(local, _ netip.AddrPort, opt uring.SocketOptions, user uint64) (uring.Socket, uring.Op, error) {
	return d.Driver.Connect(local, d.via, opt, user)
}
