package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
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
		return nil, o.startError(err)
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

// attemptTime is what one attempt may take if there is only one: a little less
// than limit, because its own deadline says how far it came.
func attemptTime(limit time.Duration) time.Duration { return limit - limit/20 }

// attemptGrace is how long the outcome of an attempt may take beyond the limit, on
// a machine that is short of CPU time.
const attemptGrace = 2 * time.Second

// waitReady waits until c is ready or over. once says that c makes a single
// attempt, within attemptTime: its error is worth the wait for it.
func waitReady(ctx context.Context, c *control.Conn, once bool) error {
	limit, ok := ctx.Deadline()
	if !once || !ok {
		return c.WaitReady(ctx)
	}
	late, cancel := context.WithDeadline(context.WithoutCancel(ctx), limit.Add(attemptGrace))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			cancel() // the user's wish, not the deadline
		}
	})
	defer stop()
	return c.WaitReady(late)
}

// stageError is a failure with the stage at which it happened.
type stageError struct {
	stage control.Stage
	err   error
}

func (s *stageError) Error() string { return fmt.Sprintf("%s: %v", s.stage, s.err) }

func (s *stageError) Unwrap() error { return s.err }

// peerReport is the "peer" object of the JSON.
type peerReport struct {
	Type     wire.EntityType `json:"type"`
	Addrs    wire.AddrVec    `json:"addrs"`
	GID      int64           `json:"gid"`
	Features wire.Features   `json:"-"`
	Hex      string          `json:"features"` // too large for the numbers of many JSON readers
}

// negotiated is what ping and send say about their connection.
type negotiated struct {
	Peer     peerReport `json:"peer"`
	Protocol string     `json:"protocol"`
	Auth     string     `json:"auth"`
	Mode     string     `json:"mode"`
	Backend  string     `json:"backend"`
}

func negotiatedBy(m *control.Messenger, info control.Info) negotiated {
	return negotiated{
		Peer:     peerReport{Type: info.PeerType, Addrs: info.PeerAddrs, GID: info.PeerNumber, Features: info.Features, Hex: info.Features.String()},
		Protocol: info.Protocol, Auth: info.Auth.String(), Mode: info.Mode.String(),
		Backend: string(m.Plane().Info().Backend),
	}
}

func (n *negotiated) rows(t *table) {
	t.row("peer", "%v %v, number %d, features %s", n.Peer.Type, n.Peer.Addrs, n.Peer.GID, n.Peer.Hex)
	t.row("session", "%s, auth %s, mode %s", n.Protocol, n.Auth, n.Mode)
}
