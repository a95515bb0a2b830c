package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

func topCommand(e env) cli.Command {
	fs := cli.NewFlags("top")
	t := &top{order: topOrders["rate"]}
	fs.BoolVar(&t.json, "json", false, "write JSON")
	fs.BoolVar(&t.once, "once", false, "show one interval and end")
	fs.DurationVar(&t.every, "every", time.Second, "`DURATION` of an interval")
	fs.Func("sort", "`ORDER` of connections: rate, bytes, queue, lag, core, peer or id (default rate)", t.setOrder)
	return cli.Command{
		Name: "top", Args: "PID|SOCKET", Help: "watch the cores and connections of a running process", Flags: fs,
		Example: "  ringmsgr top --once $(pidof ringmsgr)",
		Text: `Shows what a process that serves statistics is doing, such as "ringmsgr serve
--stats auto": its cores and its connections, with rates per second. A PID finds
the socket @ringmsgr-stats-PID; anything else is the path of the socket, or an
abstract name that begins with @.

On a terminal it draws each interval until it is interrupted, as much as there is room
for; otherwise use --once or --json. A process that hands over to a successor is
followed if it was named by path.` + shapes(`{"time":"...","pid":N,"name":"...","addrs":"...","backend":"...","steering":"...",
 "open":N,"half_open":N,"made":N,"in_flight":N,"seconds":N,
 "total":{"in_per_s":N,"out_per_s":N,"mb_in_per_s":N,"mb_out_per_s":N},
 "cores":[{"core":N,"conns":N,"cpu":N,"in_per_s":N,...,"writes_per_s":N,"syscalls_per_s":N,
  "in_flight":N,"overflows":N,"rearms":N,
  "receive":"auto|buffers|ready","by_buffers":N,"paused":N,"stalls":N,"stalled":false}],
 "conns":[{"id":N,"peer":"...","entity":"...","remote":"...","state":"...","policy":"...",
  "protocol":"...","mode":"...",
  "core":N,"intended":N,"by":"...","reason":"...","in_per_s":N,...,"queued":N,"sent":N,
  "held_bytes":N,"ack_lag":N,"throttled":false,"receive":"buffers|ready",
  "receive_why":"...","in_seq":N,"out_seq":N,"reconnects":N,"error":"..."}]}
one for each interval; cpu is the share of a CPU that a core takes, -1 if it is not known; core
is where a connection is, intended where it was meant to be, reason why those differ; receive is
whether it receives into the ring's buffers or waits for readiness and reads, receive_why why,
and by_buffers how many of a core do the former`),
		Run: func(ctx context.Context, args []string) error { return t.run(ctx, e, args) },
	}
}

type top struct {
	json, once bool
	every      time.Duration
	order      topOrder // of connections
}

// topPatience is the number of failed reads in a row after which a process counts as gone.
const topPatience = 3

func (t *top) run(ctx context.Context, e env, args []string) error {
	if t.every < 10*time.Millisecond {
		return cli.Usagef("--every %v: want at least 10ms", t.every)
	}
	_, _, terminal := terminalSize(e.stdout)
	live := !t.once && !t.json
	if live && !terminal {
		return cli.Usagef("the output is no terminal: use --once or --json")
	}
	path := args[0]
	if pid, err := strconv.ParseUint(path, 10, 31); err == nil {
		path = control.StatsSocket(int(pid))
	}
	before, err := control.ReadStats(ctx, path)
	if err != nil {
		return statsError(path, err)
	}
	tick := time.NewTicker(t.every)
	defer tick.Stop()
	for {
		now, err := next(ctx, path, tick.C)
		if err != nil {
			return ended(ctx, err)
		}
		f := newTopFrame(before, now)
		f.sort(t.order)
		before = now
		switch {
		case t.json:
			err = cli.WriteJSON(e.stdout, f)
		case live:
			width, height, _ := terminalSize(e.stdout)
			_, err = io.WriteString(e.stdout, "\x1b[H\x1b[2J"+fit(f.render(), width, height))
		default:
			_, err = io.WriteString(e.stdout, f.render())
		}
		if t.once || err != nil {
			return err
		}
	}
}

// next waits for the end of the interval and takes the snapshot that ends it.
func next(ctx context.Context, path string, tick <-chan time.Time) (*control.Snapshot, error) {
	var err error
	for range topPatience {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick:
		}
		var s *control.Snapshot
		if s, err = control.ReadStats(ctx, path); err == nil {
			return s, nil
		}
	}
	return nil, err
}

// terminalSize is the size of the terminal that w is, if it is one.
func terminalSize(w io.Writer) (width, height int, ok bool) {
	f, ok := w.(*os.File)
	if !ok {
		return 0, 0, false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	if size.Col == 0 || size.Row == 0 {
		return 80, 24, true
	}
	return int(size.Col), int(size.Row), true
}

// fit cuts a text to a screen.
func fit(text string, width, height int) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	lines = lines[:min(len(lines), height)]
	for i, line := range lines {
		if r := []rune(line); len(r) > width {
			lines[i] = string(r[:width-1]) + "…"
		}
	}
	return strings.Join(lines, "\n")
}

// ended is the result of top after err: nil if the user has interrupted it.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	if gone(err) {
		return errors.New("the process is gone")
	}
	return err
}

// topFrame has the rates between two snapshots.
type topFrame struct {
	Time     time.Time `json:"time"`
	PID      int       `json:"pid"`
	Name     string    `json:"name"`
	Addrs    string    `json:"addrs"`
	Backend  string    `json:"backend"`
	Steering string    `json:"steering"`
	Open     int       `json:"open"`
	HalfOpen int       `json:"half_open"`
	Made     uint64    `json:"made"`
	InFlight int64     `json:"in_flight"`
	Seconds  float64   `json:"seconds"`
	Total    topRates  `json:"total"`
	Cores    []topCore `json:"cores"`
	Conns    []topConn `json:"conns"`

	engine string // the backend, with the reason if it is not the configured one
}

type topRates struct {
	In    float64 `json:"in_per_s"` // messages
	Out   float64 `json:"out_per_s"`
	MBIn  float64 `json:"mb_in_per_s"` // 10^6 bytes
	MBOut float64 `json:"mb_out_per_s"`
}

type topCore struct {
	Core  int     `json:"core"`
	Conns int64   `json:"conns"`
	CPU   float64 `json:"cpu"` // share of a CPU that the core's thread took; -1: not known
	topRates
	Writes    float64 `json:"writes_per_s"`
	Syscalls  float64 `json:"syscalls_per_s"`
	InFlight  uint64  `json:"in_flight"` // operations that the kernel has: the depth of the ring
	Overflows uint64  `json:"overflows"`
	Rearms    uint64  `json:"rearms"`
	// Receive is the receive mode; with auto, ByBuffers of the connections receive into
	// the ring's buffers now.
	Receive   string `json:"receive"`
	ByBuffers int64  `json:"by_buffers"`
	Paused    uint64 `json:"paused"` // times that a throttle stopped a reader
	Stalls    uint64 `json:"stalls"`
	Stalled   bool   `json:"stalled"`
	State     string `json:"state,omitempty"` // running, draining or failed
}

type topConn struct {
	ID       uint64 `json:"id"`
	Peer     string `json:"peer"`
	Entity   string `json:"entity,omitempty"` // its name
	Remote   string `json:"remote,omitempty"` // address of its socket
	State    string `json:"state"`
	Policy   string `json:"policy"`
	Protocol string `json:"protocol"`
	Mode     string `json:"mode"`
	Core     int    `json:"core"`
	Intended int    `json:"intended"` // core
	By       string `json:"by"`       // the rule that chose the intended core
	Reason   string `json:"reason,omitempty"`
	topRates
	Queued     int    `json:"queued"`
	Sent       int    `json:"sent"`
	Held       int64  `json:"held_bytes"` // of both
	AckLag     uint64 `json:"ack_lag"`
	Throttled  bool   `json:"throttled"`
	Receive    string `json:"receive,omitempty"` // buffers or ready
	ReceiveWhy string `json:"receive_why,omitempty"`
	InSeq      uint64 `json:"in_seq"`
	OutSeq     uint64 `json:"out_seq"`
	Reconnects uint64 `json:"reconnects"`
	Error      string `json:"error,omitempty"`
}

// newTopFrame compares two snapshots. After a hand-over they are of two processes, and the
// rates are 0.
func newTopFrame(before, now *control.Snapshot) *topFrame {
	m := &now.Messenger
	f := &topFrame{
		Time: now.Time, PID: now.PID, Name: m.Name, Addrs: m.Addrs, Backend: m.Backend, Steering: "none",
		Open: m.Open, HalfOpen: m.HalfOpen, Made: m.Counters.Conns, InFlight: m.InFlight,
		Cores: []topCore{}, Conns: []topConn{}, engine: m.Backend,
	}
	if m.Fallback != "" {
		f.engine += " (" + m.Fallback + ")"
	}
	if m.Steering.Active {
		f.Steering = strings.Join(m.Steering.Rules, ",")
	}
	if before.PID != now.PID {
		before = now
	}
	f.Seconds = round(now.Time.Sub(before.Time).Seconds(), 3)
	for i := range m.Cores {
		old := dataplane.CoreStats{} // of a core that was added meanwhile
		for j := range before.Messenger.Cores {
			if b := &before.Messenger.Cores[j]; b.Core == m.Cores[i].Core {
				old = *b
			}
		}
		c := f.core(&old, &m.Cores[i])
		f.Total.add(c.topRates)
		f.Cores = append(f.Cores, c)
	}
	olds := make(map[uint64]*control.ConnStats, len(before.Conns))
	for i := range before.Conns {
		olds[before.Conns[i].ID] = &before.Conns[i]
	}
	for i := range now.Conns {
		old := olds[now.Conns[i].ID]
		if old == nil {
			old = &control.ConnStats{} // it is younger than the interval
		}
		f.Conns = append(f.Conns, f.conn(old, &now.Conns[i]))
	}
	return f
}

// per is the rate of a counter: 0 if it is lower than before, as the counters of a stalled
// core, which are not known.
func (f *topFrame) per(before, now uint64) float64 {
	if f.Seconds <= 0 || now < before {
		return 0
	}
	return round(float64(now-before)/f.Seconds, 1)
}

func (f *topFrame) core(before, now *dataplane.CoreStats) topCore {
	c := topCore{
		Core: now.Core, Conns: now.Handlers, CPU: -1, Stalls: now.Stalls, Stalled: now.Stalled, State: now.State,
		topRates: topRates{
			In: f.per(before.MessagesIn, now.MessagesIn), Out: f.per(before.MessagesOut, now.MessagesOut),
			MBIn: round(f.per(before.BytesIn, now.BytesIn)/1e6, 3), MBOut: round(f.per(before.BytesOut, now.BytesOut)/1e6, 3),
		},
		Writes: f.per(before.Writes, now.Writes), Syscalls: f.per(before.Driver.Syscalls, now.Driver.Syscalls),
		InFlight: now.Driver.InFlight, Overflows: now.Driver.Overflows, Rearms: now.Rearms, Paused: now.Paused,
		Receive: now.Receive, ByBuffers: now.Receiving,
	}
	if now.CPU > 0 && now.CPU >= before.CPU && f.Seconds > 0 {
		c.CPU = round((now.CPU-before.CPU).Seconds()/f.Seconds, 3)
	}
	return c
}

func (f *topFrame) conn(before, now *control.ConnStats) topConn {
	a, b := &before.IO, &now.IO
	c := topConn{
		ID: now.ID, Peer: now.Peer, Entity: now.Entity, Remote: now.Remote,
		State: now.State, Policy: now.Policy, Protocol: now.Protocol, Mode: now.Mode,
		Core: now.Placement.Core, Intended: now.Placement.Intended, By: now.Placement.By, Reason: now.Placement.Reason,
		topRates: topRates{
			In: f.per(a.MessagesIn, b.MessagesIn), Out: f.per(a.MessagesOut, b.MessagesOut),
			MBIn: round(f.per(a.BytesIn, b.BytesIn)/1e6, 3), MBOut: round(f.per(a.BytesOut, b.BytesOut)/1e6, 3),
		},
		Queued: b.Queued, Sent: b.Sent, Held: now.HeldBytes, AckLag: b.AckLag, Throttled: b.Throttled,
		Receive: string(b.Receive), ReceiveWhy: string(b.ReceiveWhy), InSeq: b.InSeq, OutSeq: b.OutSeq, Error: now.Error,
	}
	if n := now.Counters.Ready; n > 0 {
		c.Reconnects = n - 1
	}
	return c
}

func (r *topRates) add(o topRates) {
	r.In, r.Out = round(r.In+o.In, 1), round(r.Out+o.Out, 1)
	r.MBIn, r.MBOut = round(r.MBIn+o.MBIn, 3), round(r.MBOut+o.MBOut, 3)
}

// topOrder compares two connections.
type topOrder func(a, b *topConn) int

var topOrders = map[string]topOrder{
	"rate":  func(a, b *topConn) int { return cmp.Compare(b.In+b.Out, a.In+a.Out) },
	"bytes": func(a, b *topConn) int { return cmp.Compare(b.MBIn+b.MBOut, a.MBIn+a.MBOut) },
	"queue": func(a, b *topConn) int { return cmp.Compare(b.Queued+b.Sent, a.Queued+a.Sent) },
	"lag":   func(a, b *topConn) int { return cmp.Compare(b.AckLag, a.AckLag) },
	"core":  func(a, b *topConn) int { return cmp.Compare(a.Core, b.Core) },
	"peer":  func(a, b *topConn) int { return cmp.Or(cmp.Compare(a.Entity, b.Entity), cmp.Compare(a.Peer, b.Peer)) },
	"id":    func(a, b *topConn) int { return 0 },
}

// setOrder parses --sort.
func (t *top) setOrder(s string) error {
	if t.order = topOrders[s]; t.order == nil {
		return errors.New("want rate, bytes, queue, lag, core, peer or id")
	}
	return nil
}

// sort orders the connections, equal ones by age.
func (f *topFrame) sort(o topOrder) {
	slices.SortFunc(f.Conns, func(a, b topConn) int { return cmp.Or(o(&a, &b), cmp.Compare(a.ID, b.ID)) })
}

// render draws the frame as text: a line for each core and for each connection.
func (f *topFrame) render() string {
	var b strings.Builder
	fmt.Fprintf(&b, "ringmsgr top   %s   %s   pid %d   steering %s   %s\n", f.Name, f.engine, f.PID, f.Steering, f.Addrs)
	fmt.Fprintf(&b, "%s   in %s/s %s   out %s/s %s   %s held   %d open, %d half open, %d made\n\n", f.Time.Format("15:04:05"),
		count(f.Total.In), bandwidth(f.Total.MBIn), count(f.Total.Out), bandwidth(f.Total.MBOut), cli.Bytes(f.InFlight), f.Open, f.HalfOpen, f.Made)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CORE\tCPU\tCONNS\tIN/s\tOUT/s\tIN\tOUT\tCALLS/s\tWRITES/s\tRING\tOVERFLOWS\tBY-BUFS\tSTALLS")
	for i := range f.Cores {
		c := &f.Cores[i]
		fmt.Fprintf(t, "%d\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\n", c.Core, c.cpuText(), c.Conns, count(c.In), count(c.Out),
			bandwidth(c.MBIn), bandwidth(c.MBOut), count(c.Syscalls), count(c.Writes),
			c.InFlight, c.Overflows, c.ByBuffers, c.Stalls)
	}
	_ = t.Flush() // a Builder takes everything
	fmt.Fprintln(&b)
	fmt.Fprintln(t, "ID\tPEER\tSTATE\tIN/s\tOUT/s\tIN\tOUT\tLAG\tQUEUED\tSENT\tCORE\tRECONN\tPOLICY")
	for i := range f.Conns {
		c := &f.Conns[i]
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%d\t%s\n", c.ID, c.peerText(), c.State, count(c.In), count(c.Out),
			bandwidth(c.MBIn), bandwidth(c.MBOut), c.AckLag, c.Queued, c.Sent, c.coreText(), c.Reconnects, c.policyText())
	}
	_ = t.Flush()
	return b.String()
}

// cpuText is the share of a CPU that a core takes, or why it takes none.
func (c *topCore) cpuText() string {
	switch {
	case c.State == "failed":
		return "FAILED"
	case c.State == "draining":
		return "being removed"
	case c.Stalled:
		return "STALLED"
	case c.CPU < 0 && c.topRates == (topRates{}):
		return "idle"
	case c.CPU < 0:
		return "not known"
	}
	return fmt.Sprintf("%.0f%%", c.CPU*100)
}

// peerText is the name and the address of the peer.
func (c *topConn) peerText() string {
	if c.Entity == "" || c.Remote == "" {
		return clean(c.Peer)
	}
	return clean(c.Entity) + " " + c.Remote
}

// coreText is the core, and the intended one if it differs.
func (c *topConn) coreText() string {
	if c.Core != c.Intended {
		return fmt.Sprintf("%d≠%d", c.Core, c.Intended)
	}
	return fmt.Sprint(c.Core)
}

func (c *topConn) policyText() string {
	text := c.Policy
	if c.Mode == "secure" {
		text += ", secure"
	}
	if c.Throttled {
		text += ", throttled"
	}
	if c.Error != "" {
		text += ": " + clean(c.Error)
	}
	return text
}

// count is a number per second in at most seven columns.
func count(v float64) string { return strings.ReplaceAll(cli.Rate(v, ""), " ", "") }

// bandwidth is a rate given in 10^6 bytes per second.
func bandwidth(mb float64) string {
	if mb == 0 {
		return "0"
	}
	return cli.Rate(mb*1e6, "B/s")
}
