package control

import (
	"context"
	"net"

	"github.com/ringmsgr/ringmsgr/control/internal/handover"
	"github.com/ringmsgr/ringmsgr/control/internal/localsock"
	"github.com/ringmsgr/ringmsgr/control/internal/sessions"
)

// HandOver gives the listeners, the steering and all lossless sessions to another process,
// which calls TakeOver at the other end of conn, as the same user or as root.
//
// No connect is refused: the listening sockets are passed. A session passes with its cookies,
// numbers and queues: its peer sees one reconnect, and no message is lost or doubled. Messages
// that wait for Dispatcher.Queued are dispatched first, and replies that are due (Conn.Later)
// have 2 s, so that they pass, too: until then Send works. From there on it fails with
// ErrHandedOver, and SendContext waits for the outcome.
// Message.Context and SetUserData do not pass; Message.Free runs here, with
// dataplane.OutcomeHandedOver.
//
// The successor decides: until its confirmation at the very end an error of either side, its
// death, or the end of ctx leave this messenger as it was, after one reconnect of the sessions.
// After nil the sessions are over here, without a reset event; lossy connections go on until
// they end, or until Shutdown. To let them finish, wait until Conns is empty.
//
// The caller closes conn, which is of no further use. One hand-over runs at a time. Not on a
// core.
func (m *Messenger) HandOver(ctx context.Context, conn *net.UnixConn) error {
	return m.s.HandOver(ctx, conn)
}

// TakeOver makes a messenger that continues another one, which calls HandOver at the other end
// of conn. It is bound to the predecessor's addresses, started with chain, and has all of its
// lossless sessions.
//
// cfg must have the predecessor's Name, and its Nonce if set. All other fields may differ, the
// number of cores too. A session keeps its policy; its throttles and times are those of cfg's policy for
// the peer's type.
//
// After an error the predecessor goes on. The caller closes conn, which is of no further use.
func TakeOver(ctx context.Context, cfg Config, conn *net.UnixConn, chain ...*Dispatcher) (*Messenger, error) {
	s := &successor{cfg: cfg, chain: chain, ctx: ctx}
	if err := handover.Take(ctx, conn, s); err != nil {
		return nil, err
	}
	return s.m, nil
}

// successor makes the messenger that takes another one over: the steps of package handover that
// the Manager does not have.
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
// with "@" and has no protection. At no moment is the path missing or open to others. Close
// removes the path, unless another process has taken it. It is meant for hand-overs.
func ListenPrivate(path string) (net.Listener, error) { return localsock.Listen(path) }
