package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// open makes a messenger, starts it with d and binds it to the addresses of
// --listen, if there are any.
func (o *sessionOptions) open(cfg control.Config, d *control.Dispatcher) (*control.Messenger, error) {
	if len(o.listen.addrs) > 0 {
		if err := o.accepts(&cfg); err != nil {
			return nil, err
		}
	}
	m, err := control.New(cfg)
	if err != nil {
		if o.engine.Backend == uring.IOUring && errors.As(err, new(*uring.SetupError)) {
			err = fmt.Errorf("--backend %s: %w", o.engine.Backend, err)
		}
		return nil, err
	}
	if err = m.Start(d); err == nil && len(o.listen.addrs) > 0 {
		if _, err = m.Bind(o.listen.addrs...); err != nil {
			err = o.listen.bindError(err)
		}
	}
	if err != nil {
		_ = scope.Close(m) // the first error tells more
		return nil, err
	}
	return m, nil
}

// attemptGrace is the time beyond --timeout for the result of the only attempt of a connection, which names the
// stage that it reached, on a machine that is short of CPU time.
const attemptGrace = 2 * time.Second

// peerReport is the "peer" object of the JSON.
type peerReport struct {
	Type     wire.EntityType `json:"type"`
	Addrs    wire.AddrVec    `json:"addrs"`
	GID      int64           `json:"gid"`
	Features string          `json:"features"` // in hex: too large for the numbers of many JSON readers
}

// negotiated is the report of ping and send about their connection.
type negotiated struct {
	Peer        peerReport `json:"peer"`
	Protocol    string     `json:"protocol"`
	Auth        string     `json:"auth"`
	Mode        string     `json:"mode"`
	Compression string     `json:"compression,omitempty"` // of a ping
	Backend     string     `json:"backend"`
	keyUnused   bool       // monitors take keys at v1 addresses in messages, which ping and send do not send
}

func (o *sessionOptions) negotiatedBy(m *control.Messenger, info control.Info) negotiated {
	return negotiated{
		Peer:     peerReport{Type: info.PeerType, Addrs: info.PeerAddrs, GID: info.PeerNumber, Features: info.Features.String()},
		Protocol: info.Protocol, Auth: info.Auth.String(), Mode: info.Mode.String(),
		Backend: string(m.Driver().Backend), keyUnused: o.auth == "cephx" && info.Auth == auth.None,
	}
}

func (n *negotiated) rows(t *table) {
	method := n.Auth
	if n.keyUnused {
		method += " (no key was sent: monitors take keys at v1 addresses in messages, and this command sends none)"
	}
	t.row("peer", "%v %v, number %d, features %s", n.Peer.Type, n.Peer.Addrs, n.Peer.GID, n.Peer.Features)
	t.row("session", "%s, auth %s, mode %s", n.Protocol, method, n.Mode)
}

func readVia(text string) (netip.AddrPort, error) {
	via, err := netip.ParseAddrPort(text)
	if err != nil || via.Port() == 0 || via.Addr().IsUnspecified() {
		err = errors.New("want IP:PORT")
	}
	return via, err
}

// detour is a driver that connects to another address than the dialled one. The handshake
// still names the dialled one.
type detour struct {
	uring.Driver
	via netip.AddrPort
}

func (d detour) Connect(local, _ netip.AddrPort, opt uring.SocketOptions, user uint64) (uring.Socket, uring.Op, error) {
	return d.Driver.Connect(local, d.via, opt, user)
}

// listenFlag is --listen. The addresses are known once read has parsed it.
type listenFlag struct {
	texts []string
	addrs wire.AddrVec
}

// read parses the addresses. Addresses without a protocol have proto; empty is v2. A wildcard
// is an error, as peers compare the address with the dialled one.
func (l *listenFlag) read(ctx context.Context, lookup scope.Lookup, proto string) error {
	for _, text := range l.texts {
		own := proto
		if strings.HasPrefix(text, "v1:") || strings.HasPrefix(text, "v2:") {
			own = ""
		}
		a, err := scope.AddressReader{Proto: own, Lookup: lookup, AnyPort: true}.Parse(ctx, text)
		if err != nil {
			return err
		}
		l.addrs = append(l.addrs, a)
	}
	return nil
}

// failure is the JSON of ping and send when they fail.
type failure struct {
	Error string        `json:"error"`
	Stage control.Stage `json:"stage"`
}

// explain says why a connection to a peer failed: the error of the library, a hint if there is one, and the
// detour of --via.
func (o *sessionOptions) explain(err error, to wire.Addr) failure {
	f := failure{Stage: control.StageConnect}
	doing, cause := "", err
	if ce, ok := errors.AsType[*control.Error](err); ok {
		f.Stage = ce.Stage
		if doing, cause = ce.Reason(); doing != "" {
			doing += ": "
		}
	}
	text := cause.Error()
	if errors.Is(cause, context.DeadlineExceeded) || errors.Is(cause, control.ErrHandshakeTimeout) {
		text = fmt.Sprintf("no answer within %v", o.Timeout)
		cause = control.ErrHandshakeTimeout // both deadlines have the same advice
	}
	f.Error = fmt.Sprintf("%v: %s%s", to, doing, text)
	advice := (&control.Error{Stage: f.Stage, Err: cause}).Advice()
	switch {
	case errors.Is(cause, control.ErrPeerType):
		advice = "name its type with --peer"
	case errors.Is(cause, cephx.ErrNoTicket):
		advice = "monitors give tickets, for which ping and send do not ask: with cephx they reach monitors alone, cephclient reaches OSDs"
	}
	if advice != "" {
		f.Error += ": " + advice
	}
	f.Error = strings.ReplaceAll(f.Error, "\n", "; ")
	if o.via.IsValid() && (f.Stage == control.StageConnect || f.Stage == control.StageBanner) {
		f.Error += "; the way there is --via " + o.via.String()
	}
	return f
}

// bindError names the address that cannot be bound, and the remedy.
func (l *listenFlag) bindError(err error) error {
	text := fmt.Sprintf("--listen %s: %s", strings.Join(l.texts, ", "), cli.Cause(err))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		text += ": another process has it, which \"ss -tanp\" names; port 0 takes any free one"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		text += ": this machine does not have that IP address; \"ip addr\" lists those that it has"
	case errors.Is(err, syscall.EACCES):
		text += ": a port below 1024 needs CAP_NET_BIND_SERVICE, or root"
	}
	return errors.New(text)
}

// statsError explains why another process gave no statistics.
func statsError(path string, err error) error {
	switch {
	case gone(err):
		return fmt.Errorf("no statistics at %s: %s: does the process serve statistics, as by serve --stats?", path, cli.Cause(err))
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("no statistics at %s: the process answers its own user and root alone: be one of them", path)
	}
	why := strings.TrimPrefix(cli.Cause(err).Error(), fmt.Sprintf("%v: %s: ", control.ErrStats, path))
	return fmt.Errorf("no statistics at %s: %s", path, why)
}

// gone says whether no process serves a Unix socket any more.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, net.ErrClosed)
}
