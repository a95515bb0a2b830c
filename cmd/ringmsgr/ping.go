package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

func pingCommand(e env) *cobra.Command {
	p := &pinger{}
	c := &cobra.Command{
		Use: "ping ADDR", Short: "connect, print the result of the handshake, measure round trips",
		Example: "  ringmsgr ping --count 100 v2:127.0.0.1:3300",
		Long: `Connects to ADDR, goes through the handshake and measures round trips of
keepalives, each from its send on the core until the answer.
Ends within --timeout in any case.` + shapes(`{"peer":{"type":"mon","addrs":"[v2:...]","gid":0,"features":"0x..."},
 "protocol":"msgr2.1|msgr2.0|msgr1","auth":"none|cephx","mode":"crc|secure",
 "compression":"none","backend":"io_uring|epoll","handshake_us":N,
 "rtt_us":{"min":N,"mean":N,"p50":N,"p90":N,"p99":N,"p999":N,"max":N},"count":N}
on failure:
{"error":"...","stage":"connect|banner|hello|auth|ident|session|keepalive"}`),
		RunE: func(c *cobra.Command, args []string) error { return p.client(c.Context(), e, "ping", args, p.run) },
	}
	fs := c.Flags()
	p.sessionOptions.register(fs, "client.admin", 1, 10*time.Second, "bound of the whole command")
	peerVar(fs, &p.peer)
	cli.IntVar(fs, &p.count, "count", 10, 1, math.MaxInt, "`NUMBER` of round trips")
	return c
}

type pinger struct {
	sessionOptions
	peer  wire.EntityType
	count int
}

// pong is the JSON of a ping.
type pong struct {
	negotiated
	Handshake float64     `json:"handshake_us"`
	RTT       cli.Summary `json:"rtt_us"`
	Count     int         `json:"count"`
}

func (p *pinger) run(ctx context.Context, e env, cfg control.Config, to wire.Addr) error {
	cli.GrowProcs(cfg.Plane.Cores)
	trips, answer := &trips{}, (*pong)(nil)
	m, err := p.open(cfg, &control.Dispatcher{
		// A mon sends messages to every client; their content does not matter
		// here.
		Fast:         func(*control.Conn, *control.Message) bool { return true },
		KeepaliveAck: func(*control.Conn, time.Time) { trips.end(nil) },
		Reset:        func(*control.Conn, bool) { trips.end(control.ErrClosed) },
	})
	if err == nil {
		answer, err = p.measure(ctx, m, trips, to)
		err = errors.Join(err, scope.Close(m))
	}
	switch {
	case cli.IsUsage(err):
		return err
	case err != nil:
		return fail(e, "ping", p.json, p.explain(err, to))
	}
	return p.show(e, answer)
}

func (p *pinger) measure(ctx context.Context, m *control.Messenger, trips *trips, to wire.Addr) (*pong, error) {
	conn, err := m.Connect(to, p.peer, control.Once())
	if err != nil {
		return nil, err
	}
	late, end := context.WithTimeout(ctx, p.Timeout+attemptGrace)
	defer end()
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	if err := conn.WaitReady(late); err != nil {
		return nil, err
	}
	info := conn.Info()
	defer context.AfterFunc(ctx, func() { trips.end(context.Cause(ctx)) })()
	kind := "first" // is started from outside, and does not count
	calls, err := cli.Loop(1, uint64(p.count)+1, 0, func(_ int, done func(string, error)) {
		of := kind
		ended := func(err error) { done(of, err) }
		kind = "trip"
		trips.due.Store(&ended)
		conn.Keepalive()
		if ctx.Err() != nil || conn.State() == control.StateClosing { // it found none under way
			trips.end(cmp.Or(context.Cause(ctx), control.ErrClosed))
		}
	})
	if err != nil {
		failed := control.Error{Err: cmp.Or(conn.Err(), err)}
		if ce, ok := errors.AsType[*control.Error](failed.Err); ok {
			failed = *ce
		}
		if n := calls.Of("trip").Count(); n > 1 && errors.Is(failed.Err, context.DeadlineExceeded) { // the last one was under way
			failed.Err = fmt.Errorf("%d of %d round trips within %v", n-1, p.count, p.Timeout)
		}
		failed.Stage = control.StageKeepalive
		return nil, &failed
	}
	n := p.negotiatedBy(m, info)
	n.Compression = info.Compression
	return &pong{negotiated: n, Handshake: cli.Microseconds(info.Handshake), Count: p.count, RTT: calls.Of("trip").Summary()}, nil
}

func (a *pong) print(w io.Writer) {
	t := &table{w}
	a.rows(t)
	t.row("compression", "%s", a.Compression)
	t.row("backend", "%s", a.Backend)
	t.row("handshake", "%s", cli.Micros(a.Handshake))
	t.latency("round trip", &a.RTT, fmt.Sprintf(", of %d", a.Count))
}

// trips are round trips, one after the other on the core of the connection: no hand-over to a
// goroutine is part of them.
type trips struct{ due atomic.Pointer[func(error)] }

// end ends the one that is under way, if there is one.
func (t *trips) end(err error) {
	if done := t.due.Swap(nil); done != nil {
		(*done)(err)
	}
}
