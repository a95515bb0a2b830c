package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

func serveCommand(e env) *cobra.Command {
	s := &server{}
	c := &cobra.Command{
		Use: "serve", Short: "echo every message back",
		Example: "  ringmsgr serve --name mon.a --listen v2:127.0.0.1:3300",
		Long: `Accepts connections and sends every message back with its type, transaction
id, front, middle and data. CEPH_MSG_PING is a message like any other, so that
"ceph ping mon.a" gets its answer from "serve --name mon.a".

Prints one line that begins with "listening" when it is ready. SIGTERM,
SIGINT and SIGHUP end it: it stops accepting, lets queued replies go out for at
most --drain, and exits with status 0. A second SIGTERM or SIGINT kills it.

With --handover it gives way to a successor: a serve with the same arguments and
--take-over. The successor gets the listening sockets and the lossless sessions,
so that no connect is refused and no message of a session is lost or doubled,
and says "listening" as well. Lossy connections stay: the old process serves them
until they end, at most --linger, then drains and exits with status 0. If the
successor fails, the old process serves on.

With --auth cephx as a mon it is one to real clients as well: it proves those in
its keyring, renews their tickets, and gives them a map of a cluster with one mon.
It knows no commands. All other messages are echoed.

With --stats it answers "ringmsgr top".` + shapes(`{"listening":"[v2:...]","name":"mon.a","policy":"...","cores":N,
 "backend":"io_uring|epoll","fallback":"..."}
and at the end:
{"messages_in":N,"messages_out":N,"bytes_in":N,"bytes_out":N,"accepted":N,"accept_failures":N,
 "drained":true}
with "handed_over":true as well if a successor goes on.`),
		RunE: func(c *cobra.Command, _ []string) error { return s.run(c.Context(), e) },
	}
	fs := c.Flags()
	s.sessionOptions.register(fs, "mon.a", 0, 10*time.Second, "bound of the handshake of a peer")
	s.succession.register(fs)
	fs.StringVar(&s.stats, "stats", "", "`PATH` of a Unix socket that serves statistics, or auto for @ringmsgr-stats-PID")
	cli.DurationVar(fs, &s.ticketLife, "ticket-life", cephx.DefaultServiceTTL, 1,
		"cephx, as a mon: `DURATION` that the tickets for services live")
	cli.Var(fs, &s.authOptions.kinds, "ciphers", "aes256k,aes",
		"cephx, as a mon: kinds of keys that may log in; secrets for services are of the first: `LIST` of "+
			"aes256k and aes", ciphers, "aes256k", "aes", "aes256k,aes")
	cli.DurationVar(fs, &s.drain, "drain", 2*time.Second, 0, "`DURATION` that queued replies get at the end")
	return c
}

type server struct {
	sessionOptions
	succession
	stats string
	drain time.Duration
	monitor
}

// listening is the first line of JSON.
type listening struct {
	Listening wire.AddrVec `json:"listening"`
	Name      string       `json:"name"`
	Policy    string       `json:"policy"`
	Cores     int          `json:"cores"`
	Backend   string       `json:"backend"`
	Fallback  string       `json:"fallback,omitempty"`
}

// served is the last line of JSON.
type served struct {
	MessagesIn     uint64 `json:"messages_in"`
	MessagesOut    uint64 `json:"messages_out"`
	BytesIn        uint64 `json:"bytes_in"`
	BytesOut       uint64 `json:"bytes_out"`
	Accepted       uint64 `json:"accepted"`
	AcceptFailures uint64 `json:"accept_failures"`
	Drained        bool   `json:"drained"` // all replies went out
	HandedOver     bool   `json:"handed_over,omitempty"`
}

func (s *server) run(ctx context.Context, e env) (err error) {
	if len(s.listen.texts) == 0 {
		s.listen.texts = []string{"127.0.0.1:0"}
	}
	cfg, err := s.config(ctx, e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Recording.Close()) }()
	if cfg.Default == nil {
		p := control.StatelessServer()
		cfg.Default = &p
	}
	cli.GrowProcs(cfg.Plane.Cores)
	s.monitor.since, s.monitor.kinds = time.Now(), s.authOptions.kinds
	m, err := s.begin(ctx, cfg)
	if err != nil {
		return err
	}
	s.monitor.m.Store(m)
	serve := func(handed <-chan struct{}) error { return s.serve(ctx, e, m, &cfg, handed) }
	return errors.Join(scope.Stats(m, s.stats, func() error { return s.offer(ctx, m, cfg.Logger, serve) }), scope.Close(m))
}

// begin makes the messenger, or continues that of another process.
func (s *server) begin(ctx context.Context, cfg control.Config) (*control.Messenger, error) {
	d := &control.Dispatcher{Fast: echo, Queued: echoLater}
	s.monitor.attend(&cfg, d)
	if s.from == "" {
		return s.open(cfg, d)
	}
	if err := errors.Join(s.accepts(&cfg), listens("--handover", s.path), listens("--stats", s.stats)); err != nil {
		return nil, err
	}
	return s.takeOver(ctx, cfg, d)
}

// serve runs until it is told to end, or has handed over to a successor.
func (s *server) serve(ctx context.Context, e env, m *control.Messenger, cfg *control.Config, handed <-chan struct{}) error {
	info, end := m.Driver(), served{}
	err := s.show(e, &listening{
		Listening: m.Addrs(), Name: m.Name().String(), Policy: cfg.Default.Name, Cores: len(m.Cores()),
		Backend: string(info.Backend), Fallback: info.Fallback,
	})
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-handed:
		end.HandedOver = true
		s.lingers(ctx, m)
	case err := <-m.Failures():
		return fmt.Errorf("a core broke: %w", err)
	}
	draining, cancel := context.WithTimeout(context.Background(), s.drain)
	defer cancel()
	undelivered := m.Drain(draining)
	if undelivered != nil {
		cfg.Logger.Warn("replies were not delivered", "err", undelivered)
	}
	end.Drained = undelivered == nil
	st, err := m.Stats()
	if err != nil && !errors.Is(err, loop.ErrStopped) { // that says only that it is down
		return err
	}
	end.Accepted, end.AcceptFailures = st.Counters.Accepted, st.Counters.AcceptFailures
	for i := range st.Cores {
		c := &st.Cores[i]
		end.MessagesIn += c.MessagesIn
		end.MessagesOut += c.MessagesOut
		end.BytesIn += c.BytesIn
		end.BytesOut += c.BytesOut
	}
	return s.show(e, &end)
}

func (s *served) print(w io.Writer) {
	word := "ended"
	if s.HandedOver {
		word = "handed over"
	}
	fmt.Fprintf(w, "%s: %d messages in, %d out, %d connections accepted, %d refused\n", word,
		s.MessagesIn, s.MessagesOut, s.Accepted, s.AcceptFailures)
}

func (l *listening) print(w io.Writer) {
	var addrs []string
	for _, a := range l.Listening {
		addrs = append(addrs, a.String())
	}
	fmt.Fprintf(w, "listening %s as %s, policy %s, cores %d, backend %s\n",
		strings.Join(addrs, " "), l.Name, l.Policy, l.Cores, l.Backend)
}

// echo sends a message back, on the core that received it and without a copy of a large payload.
// If the sending queue is full it leaves this message, and all later ones of the connection as
// long as one waits, to echoLater. Waiting messages count against the receive budget, so that the
// peer is not read until it acknowledges messages.
func echo(c *control.Conn, m *control.Message) bool {
	waiting, ok := c.UserData().(*atomic.Int64)
	if !ok {
		waiting = new(atomic.Int64)
		c.SetUserData(waiting)
	}
	if waiting.Load() == 0 {
		m.Retain()
		err := c.Send(m)
		if err != nil {
			m.Release()
		}
		if !errors.Is(err, control.ErrQueueFull) { // after all other errors the connection has ended
			return true
		}
	}
	waiting.Add(1)
	return false
}

// echoLater sends the messages that wait for room, in order (control.Dispatcher.Queued). The end of
// the connection ends every wait.
func echoLater(c *control.Conn, m *control.Message) {
	m.Retain()
	if err := c.SendContext(context.Background(), m); err != nil {
		m.Release()
	}
	c.UserData().(*atomic.Int64).Add(-1)
}
