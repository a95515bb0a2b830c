package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

func topCommand(e env) *cobra.Command {
	t := &top{patience: 5 * time.Second}
	c := &cobra.Command{
		Use: "top PID|SOCKET", Short: "watch the cores and connections of a running process",
		Example: "  ringmsgr top --once $(pidof ringmsgr)",
		Long: `Shows what a process that serves statistics is doing, such as "ringmsgr serve
--stats auto": its cores and its connections, with rates per second. A PID finds
the socket @ringmsgr-stats-PID; anything else is the path of the socket, or an
abstract name that begins with @.

On a terminal it draws each interval until it is interrupted, as much as there is room
for; otherwise use --once or --json. A process that hands over to a successor is
followed if it was named by path.` + shapes(`{"time":"...","pid":N,"messenger":{...},"conns":[{...}]}
one for each interval: the statistics as the process serves them, with all counters and no
rates; see "go doc control/internal/stats.Snapshot" (jq '.messenger.cores[0]', for example)`),
		RunE: func(c *cobra.Command, args []string) error { return t.run(c.Context(), e, args) },
	}
	fs := c.Flags()
	fs.BoolVar(&t.json, "json", false, "write JSON")
	fs.BoolVar(&t.once, "once", false, "show one interval and end")
	cli.DurationVar(fs, &t.every, "every", time.Second, 10*time.Millisecond, "`DURATION` of an interval")
	cli.ChoiceVar(fs, &t.order, "sort", "rate", "`ORDER` of connections: rate, bytes, queue, lag, core, peer or id",
		"rate", "bytes", "queue", "lag", "core", "peer", "id")
	return c
}

type top struct {
	json, once bool
	every      time.Duration
	order      string        // of connections
	patience   time.Duration // with a process that does not answer, for example because it is stopped
}

// topPatience is the number of failed reads in a row after which a process counts as gone.
const topPatience = 3

func (t *top) run(ctx context.Context, e env, args []string) error {
	_, _, terminal := cli.Terminal(e.stdout)
	live := !t.once && !t.json
	if live && !terminal {
		return cli.Usagef("the output is no terminal: use --once or --json")
	}
	path := scope.StatsPath(args[0])
	before, err := t.read(ctx, path)
	if err != nil {
		return statsError(path, err)
	}
	tick := time.NewTicker(t.every)
	defer tick.Stop()
	for {
		now, err := t.next(ctx, path, tick.C)
		switch {
		case ctx.Err() != nil:
			return nil // the user has interrupted it
		case err != nil && gone(err):
			return errors.New("the process is gone")
		case err != nil:
			return statsError(path, err)
		}
		switch text := newTopFrame(before, now).render(topOrders[t.order]); {
		case t.json:
			err = cli.WriteJSON(e.stdout, now)
		case live:
			width, height, _ := cli.Terminal(e.stdout)
			_, err = io.WriteString(e.stdout, "\x1b[H\x1b[2J"+fit(text, width, height))
		default:
			_, err = io.WriteString(e.stdout, text)
		}
		before = now
		if t.once || err != nil {
			return err
		}
	}
}

// next waits for the end of the interval and takes the snapshot that ends it.
func (t *top) next(ctx context.Context, path string, tick <-chan time.Time) (*control.Snapshot, error) {
	var err error
	for range topPatience {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick:
		}
		var s *control.Snapshot
		if s, err = t.read(ctx, path); err == nil {
			return s, nil
		}
	}
	return nil, err
}

func (t *top) read(ctx context.Context, path string) (*control.Snapshot, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, t.patience, fmt.Errorf("no answer within %v", t.patience))
	defer cancel()
	return control.ReadStats(ctx, path)
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

// topFrame is what happened between two snapshots of a process. After a hand-over they are of two
// processes, and the rates are 0.
type topFrame struct {
	*control.Snapshot
	seconds float64
	total   topRates
	cores   []topCore
	conns   []topConn
}

// topRates are per second.
type topRates struct{ in, out, bytesIn, bytesOut float64 }

type topCore struct {
	*dataplane.CoreStats
	topRates
	cpu             float64 // share of a CPU that the core's thread took; -1: not known
	writes, syscall float64 // per second
}

type topConn struct {
	*control.ConnStats
	topRates
}

func newTopFrame(before, now *control.Snapshot) *topFrame {
	if before.PID != now.PID {
		before = now
	}
	f := &topFrame{Snapshot: now, seconds: now.Time.Sub(before.Time).Seconds()}
	cores := map[int]dataplane.CoreStats{} // without a core that was added meanwhile
	for _, c := range before.Messenger.Cores {
		cores[c.Core] = c
	}
	for i := range now.Messenger.Cores {
		c := &now.Messenger.Cores[i]
		old := cores[c.Core]
		t := topCore{
			CoreStats: c, cpu: -1, writes: f.per(old.Writes, c.Writes), syscall: f.per(old.Driver.Syscalls, c.Driver.Syscalls),
			topRates: topRates{
				f.per(old.MessagesIn, c.MessagesIn), f.per(old.MessagesOut, c.MessagesOut),
				f.per(old.BytesIn, c.BytesIn), f.per(old.BytesOut, c.BytesOut),
			},
		}
		if c.CPU > 0 && c.CPU >= old.CPU && f.seconds > 0 {
			t.cpu = (c.CPU - old.CPU).Seconds() / f.seconds
		}
		f.total.in, f.total.out = f.total.in+t.in, f.total.out+t.out
		f.total.bytesIn, f.total.bytesOut = f.total.bytesIn+t.bytesIn, f.total.bytesOut+t.bytesOut
		f.cores = append(f.cores, t)
	}
	olds := make(map[uint64]dataplane.HandlerStats, len(before.Conns)) // without those that are younger than the interval
	for i := range before.Conns {
		olds[before.Conns[i].ID] = before.Conns[i].IO
	}
	for i := range now.Conns {
		c := &now.Conns[i]
		a, b := olds[c.ID], &c.IO
		f.conns = append(f.conns, topConn{c, topRates{
			f.per(a.MessagesIn, b.MessagesIn), f.per(a.MessagesOut, b.MessagesOut),
			f.per(a.BytesIn, b.BytesIn), f.per(a.BytesOut, b.BytesOut),
		}})
	}
	return f
}

// per is the rate of a counter: 0 if it is lower than before, as the counters of a stalled
// core, which are not known.
func (f *topFrame) per(before, now uint64) float64 {
	if f.seconds <= 0 || now < before {
		return 0
	}
	return float64(now-before) / f.seconds
}

// topOrders compare two connections.
var topOrders = map[string]func(a, b *topConn) int{
	"rate":  func(a, b *topConn) int { return cmp.Compare(b.in+b.out, a.in+a.out) },
	"bytes": func(a, b *topConn) int { return cmp.Compare(b.bytesIn+b.bytesOut, a.bytesIn+a.bytesOut) },
	"queue": func(a, b *topConn) int { return cmp.Compare(b.IO.Queued+b.IO.Sent, a.IO.Queued+a.IO.Sent) },
	"lag":   func(a, b *topConn) int { return cmp.Compare(b.IO.AckLag, a.IO.AckLag) },
	"core":  func(a, b *topConn) int { return cmp.Compare(a.Placement.Core, b.Placement.Core) },
	"peer":  func(a, b *topConn) int { return cmp.Or(cmp.Compare(a.Entity, b.Entity), cmp.Compare(a.Peer, b.Peer)) },
	"id":    func(a, b *topConn) int { return 0 },
}

// render draws the frame as text: a line for each core and for each connection, those that are
// equal in the order by age.
func (f *topFrame) render(o func(a, b *topConn) int) string {
	var b strings.Builder
	m, steering := &f.Messenger, "none"
	if m.Steering.Active {
		steering = strings.Join(m.Steering.Rules, ",")
	}
	backend := m.Backend
	if m.Fallback != "" {
		backend += " (" + m.Fallback + ")"
	}
	fmt.Fprintf(&b, "ringmsgr top   %s   %s   pid %d   steering %s   %s\n", m.Name, backend, f.PID, steering, m.Addrs)
	in, out, bytesIn, bytesOut := f.total.text()
	fmt.Fprintf(&b, "%s   in %s/s %s   out %s/s %s   %s held   %d open, %d half open, %d made\n\n",
		f.Time.Format("15:04:05"), in, bytesIn, out, bytesOut, cli.Bytes(m.InFlight), m.Open, m.HalfOpen, m.Counters.Conns)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CORE\tCPU\tCONNS\tIN/s\tOUT/s\tIN\tOUT\tCALLS/s\tWRITES/s\tRING\tOVERFLOWS\tBY-BUFS\tSTALLS")
	for i := range f.cores {
		c := &f.cores[i]
		in, out, bytesIn, bytesOut := c.text()
		fmt.Fprintf(t, "%d\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\n", c.Core, c.cpuText(), c.Handlers, in, out, bytesIn, bytesOut,
			count(c.syscall), count(c.writes), c.Driver.InFlight, c.Driver.Overflows, c.Receiving, c.Stalls)
	}
	_ = t.Flush() // a Builder takes everything
	fmt.Fprintln(&b)
	fmt.Fprintln(t, "ID\tPEER\tSTATE\tIN/s\tOUT/s\tIN\tOUT\tLAG\tQUEUED\tSENT\tCORE\tRECONN\tPOLICY")
	slices.SortFunc(f.conns, func(a, b topConn) int { return cmp.Or(o(&a, &b), cmp.Compare(a.ID, b.ID)) })
	for i := range f.conns {
		c := &f.conns[i]
		in, out, bytesIn, bytesOut := c.text()
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%d\t%s\n", c.ID, c.peerText(), c.State, in, out, bytesIn, bytesOut,
			c.IO.AckLag, c.IO.Queued, c.IO.Sent, c.coreText(), max(c.Counters.Ready, 1)-1, c.policyText())
	}
	_ = t.Flush()
	lines := strings.Split(b.String(), "\n")
	for i, line := range lines {
		lines[i] = clean(line) // an abstract socket may be that of any user
	}
	return strings.Join(lines, "\n")
}

func (r *topRates) text() (in, out, bytesIn, bytesOut string) {
	return count(r.in), count(r.out), bandwidth(r.bytesIn), bandwidth(r.bytesOut)
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
	case c.cpu < 0 && c.topRates == (topRates{}):
		return "idle"
	case c.cpu < 0:
		return "not known"
	}
	return fmt.Sprintf("%.0f%%", c.cpu*100)
}

func (c *topConn) peerText() string {
	if c.Entity == "" || c.Remote == "" {
		return clean(c.Peer)
	}
	return clean(c.Entity) + " " + c.Remote
}

// coreText is the core, and the intended one if it differs.
func (c *topConn) coreText() string {
	if c.Placement.Core != c.Placement.Intended {
		return fmt.Sprintf("%d≠%d", c.Placement.Core, c.Placement.Intended)
	}
	return fmt.Sprint(c.Placement.Core)
}

func (c *topConn) policyText() string {
	text := c.Policy
	if c.Mode == "secure" {
		text += ", secure"
	}
	if c.IO.Throttled {
		text += ", throttled"
	}
	if c.Error != "" {
		text += ": " + clean(c.Error)
	}
	return text
}

// count is a number per second in at most seven columns.
func count(v float64) string { return strings.ReplaceAll(cli.Rate(v, ""), " ", "") }

func bandwidth(v float64) string {
	if v == 0 {
		return "0"
	}
	return cli.Rate(v, "B/s")
}
