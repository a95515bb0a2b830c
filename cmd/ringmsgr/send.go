package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

func sendCommand(e env) *cobra.Command {
	s := &sender{}
	c := &cobra.Command{
		Use: "send ADDR", Short: "send messages to an echo, verify and measure them",
		Example: "  ringmsgr send --messages 1000000 --size 4KiB --depth 64 --policy lossless-client v2:127.0.0.1:3300",
		Long: `Sends messages to a peer that echoes them, such as "ringmsgr serve", and checks
every byte of every echo and their order. All messages share the memory of one
payload; each connection takes 35 KiB for latencies, whatever the number of messages.

With a lossless policy on both sides it survives faults: connections reconnect,
and every message still arrives exactly once and in order. On a lossy connection,
which the server's policy decides as well, a fault is a failure.

With --duration it sends for that long, and then waits for the last echoes.

Each lossless connection is the session of a client of its own, with --cores
cores. Lossy ones share the cores and one identity, so several of them need a
server that keeps no sessions, which is the default of serve.` +
			shapes(`{"peer":{...},"protocol":"...","auth":"...","mode":"...","backend":"io_uring|epoll",
 "policy":"...","lossy":false,"conns":N,"depth":N,"size":N,
 "messages":N,"verified":N,"seconds":N,"messages_per_s":N,"mb_per_s":N,
 "latency_us":{"min":N,"mean":N,"p50":N,"p90":N,"p99":N,"p999":N,"max":N},
 "resident_bytes":N,"resident_peak_bytes":N,
 "reconnects":N,"duplicates":0,"losses":0,"corrupt":0}
with "latency_us":null if no echo came;
with "error" and "stage" as well if it failed while messages were under way;
if it could not connect:
{"error":"...","stage":"connect|banner|hello|auth|ident|session"}`),
		RunE: func(c *cobra.Command, args []string) error { return s.client(c.Context(), e, "send", args, s.run) },
	}
	fs := c.Flags()
	s.sessionOptions.register(fs, "client.admin", 1, 30*time.Second,
		"bound of getting connected, and of a time without any echo")
	peerVar(fs, &s.peer)
	cli.DurationVar(fs, &s.duration, "duration", 0, 0, "`DURATION` to send for; --messages, if given, is a limit then")
	cli.Var(fs, &s.messages, "messages", "",
		"`NUMBER` of messages, over all connections (default 10000, or with --duration without end)",
		func(text string) (uint64, error) {
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil || n == 0 {
				err = errors.New("want a number, at least 1")
			}
			return n, err
		})
	cli.BytesVar(fs, &s.size, "size", 64, 0, int64(frame.DefaultLimits().Data), "payload of a message: `BYTES`, such as 64, 16KiB or 4MiB")
	cli.IntVar(fs, &s.depth, "depth", 16, 1, maxDepth, "`NUMBER` of messages under way on each connection")
	cli.IntVar(fs, &s.conns, "conns", 1, 1, maxConns, "`NUMBER` of connections")
	return c
}

type sender struct {
	sessionOptions
	peer     wire.EntityType
	messages uint64        // 0: not given
	duration time.Duration // 0: until all messages are sent
	size     int64
	depth    int
	conns    int
}

// Bounds of one run.
const (
	maxDepth = 1 << 16
	maxConns = 1 << 12
)

// sent is the JSON of a run.
type sent struct {
	negotiated
	Policy     string        `json:"policy"`
	Lossy      bool          `json:"lossy"`
	Conns      int           `json:"conns"`
	Depth      int           `json:"depth"`
	Size       int           `json:"size"`
	Messages   uint64        `json:"messages"`
	Verified   uint64        `json:"verified"`
	Seconds    float64       `json:"seconds"`
	Rate       float64       `json:"messages_per_s"`
	Bandwidth  float64       `json:"mb_per_s"`       // 10^6 bytes of payload, one way
	Latency    *cli.Summary  `json:"latency_us"`     // nil: no echo came
	Memory     int64         `json:"resident_bytes"` // of this process, at the end
	Peak       int64         `json:"resident_peak_bytes"`
	Reconnects uint64        `json:"reconnects"`
	Duplicates uint64        `json:"duplicates"`
	Losses     uint64        `json:"losses"`
	Corrupt    uint64        `json:"corrupt"`
	Error      string        `json:"error,omitempty"`
	Stage      control.Stage `json:"stage,omitempty"`
}

func (s *sender) run(ctx context.Context, e env, cfg control.Config, to wire.Addr) error {
	if s.messages == 0 {
		s.messages = 10000
		if s.duration > 0 {
			s.messages = math.MaxUint64
		}
	}
	switch lossless := !cfg.Default.Lossy; {
	case lossless && s.conns > 1 && len(s.listen.addrs) > 0:
		return cli.Usagef("--listen and several lossless connections exclude each other: each would need an address of its own")
	case lossless && s.conns > 1 && cfg.Nonce != nil:
		return cli.Usagef("--name %s, whose nonce is %d, and --conns %d exclude each other with policy %s: "+
			"sessions are told apart by their nonce, which must be random then",
			s.Name, *cfg.Nonce, s.conns, cfg.Default.Name)
	case lossless: // an attempt fails, and says why, before the whole time is over
		cfg.Timeouts.Handshake = min(10*time.Second, s.Timeout/2)
	}
	// A peer that comes back waits a second at most.
	cfg.Timeouts.MaxBackoff = min(time.Second, s.Timeout)

	l := &load{s: s, to: to, pattern: newPattern(int(s.size))}
	err := l.open(cfg)
	if err == nil {
		err = l.connect(ctx)
	}
	switch {
	case cli.IsUsage(err):
		return errors.Join(err, l.close())
	case err != nil:
		f := s.explain(err, to)
		if f.Stage == control.StageIdent && l.policy.Lossy && s.conns > 1 {
			f.Error += "; several lossy connections need a server that keeps no sessions"
		}
		return errors.Join(fail(e, "send", s.json, f), l.close())
	}
	if l.conns[0].Info().Lossy && !l.policy.Lossy {
		fmt.Fprintln(e.stderr, "ringmsgr send: the peer's policy makes the connection lossy: a fault will be a failure")
	}
	err = l.transfer(ctx)
	r := l.report(ctx, err)
	if err == nil {
		l.part()
	}
	if e := l.close(); e != nil && err == nil {
		return e
	}
	if err := s.show(e, r); err != nil || r.Error == "" {
		return err
	}
	if !s.json {
		fmt.Fprintf(e.stderr, "ringmsgr send: %s\n", r.Error)
	}
	return cli.ErrReported
}

func (r *sent) print(w io.Writer) {
	t := &table{w}
	r.rows(t)
	loss := "lossless"
	if r.Lossy {
		loss = "lossy"
	}
	t.row("policy", "%s, the connection is %s", r.Policy, loss)
	t.row("backend", "%s", r.Backend)
	t.row("load", "%d messages of %s, %d connections, depth %d", r.Messages, cli.Bytes(int64(r.Size)), r.Conns, r.Depth)
	t.row("verified", "%d echoes in %.3f s, %d duplicates, %d losses, %d corrupt", r.Verified, r.Seconds, r.Duplicates, r.Losses, r.Corrupt)
	t.row("rate", "%s messages/s, %s each way", cli.Count(r.Rate), cli.Rate(r.Bandwidth*1e6, "B/s"))
	t.latency("latency", r.Latency, "")
	t.row("memory", "%s resident, %s at most", cli.Bytes(r.Memory), cli.Bytes(r.Peak))
	t.row("reconnects", "%d", r.Reconnects)
}
