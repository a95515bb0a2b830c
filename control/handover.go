package control

import (
	"context"
	"net"

	"github.com/ringmsgr/ringmsgr/control/internal/handover"
	"github.com/ringmsgr/ringmsgr/control/internal/localsock"
	"github.com/ringmsgr/ringmsgr/control/internal/sessions"
)

// HandOver gives the listeners, the steering of connections and all lossless
// sessions to another process, which calls TakeOver at the other end of conn,
// as the same user or as root.
//
// No connect is refused: the listening sockets are passed, and who connects in
// between waits in their queues. A session passes with its cookies, its
// sequence numbers and its queues: its peer sees one reconnect, and no message
// is lost or doubled. What Dispatcher.Queued has been given before is finished
// first, so that its replies pass, too. While the sessions stand still, and
// after that, Send fails with ErrHandedOver; SendContext waits for the outcome.
// Message.Context and SetUserData do not pass; Message.Free runs here, with dataplane.OutcomeHandedOver.
//
// The successor decides: until it has confirmed, at the very end, an error of
// either side, its death, or the end of ctx leave this messenger as it was, but
// for one reconnect of the sessions if they stood still already. After a return
// of nil the sessions are over here, without a reset event, and nothing is
// accepted; connections that the peer's policy or ours makes lossy go on until
// they end, or until Shutdown, which their peers see as a reset. To let them
// finish, wait until Conns is empty.
//
// conn is of no use afterwards; the caller closes it. One hand-over runs at a
// time. Not for a dispatcher on a core.
func (m *Messenger) HandOver(ctx context.Context, conn *net.UnixConn) error {
	return m.s.HandOver(ctx, conn)
}

// TakeOver makes a messenger that continues another one: the predecessor calls
// HandOver at the other end of conn. It comes back bound to the predecessor's
// addresses, started with chain, and with all of its lossless sessions, which
// Conns, Lookup and Connect find.
//
// cfg must have the predecessor's Name; its Nonce, if set, must be the same.
// Everything else may differ. The number of cores may, too: with more of them
// further sockets join the group of each address, with fewer a core serves
// several. The policy of a session is the one that it had; the throttles are
// those of cfg's policy for the peer's type.
//
// After an error nothing was taken over, and the predecessor goes on. conn is
// of no use afterwards; the caller closes it.
func TakeOver(ctx context.Context, cfg Config, conn *net.UnixConn, chain ...*Dispatcher) (*Messenger, error) {
	s := &successor{cfg: cfg, chain: chain, ctx: ctx}
	if err := handover.Take(ctx, conn, s); err != nil {
		return nil, err
	}
	return s.m, nil
}

// successor makes the messenger that takes another one over: it carries out those steps
// of package handover that are not the Manager's.
type successor struct {
	*sessions.Successor // from Start on
	cfg                 Config
	chain               []*Dispatcher
	ctx                 context.Context // of the call of TakeOver
	m                   *Messenger      // from Start on
}

// Hello is our identity by the configuration.
func (s *successor) Hello() (handover.Hello, error) {
	if err := s.cfg.Validate(); err != nil {
		return handover.Hello{}, err
	}
	h := handover.Hello{Entity: s.cfg.Name, AnyNonce: s.cfg.Nonce == nil}
	if s.cfg.Nonce != nil {
		h.Nonce = *s.cfg.Nonce
	}
	return h, nil
}

// Start makes the messenger, with the predecessor's nonce.
func (s *successor) Start(o handover.Offer) (err error) {
	s.cfg.Nonce = &o.Nonce
	if s.m, err = New(s.cfg); err != nil {
		return err
	}
	s.Successor = s.m.s.Succeed(o.Addrs)
	return s.m.Start(s.chain...)
}

// Undo ends the messenger, if there is one.
func (s *successor) Undo() error {
	if s.m == nil {
		return nil
	}
	return s.m.Shutdown(context.WithoutCancel(s.ctx))
}

// ListenPrivate listens on a Unix socket to which only processes of our user can connect: at a
// path, where it replaces the socket of another process, or under an abstract name that begins
// with "@" and has no such protection. The path is never missing or open to others meanwhile.
// Close removes the path, unless another process has taken it. A hand-over uses it for the
// socket to which successors come.
func ListenPrivate(path string) (net.Listener, error) { return localsock.Listen(path) }
