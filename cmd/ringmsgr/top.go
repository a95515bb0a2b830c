package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
)

func topCommand() command {
	return command{
		name: "top", args: "[flags] PID|SOCKET", summary: "watch the cores and connections of a running process",
		help: `Shows what a process that serves statistics is doing, such as "ringmsgr serve
--stats auto": its cores and its connections, with rates per second. A PID finds
the socket @ringmsgr-stats-PID; anything else is the path of the socket, or an
abstract name that begins with @.

On a terminal it draws each interval until it is interrupted, as much as there is room
for; otherwise use --once or --json. A process that hands over to a successor is
followed if it was named by path.`,
		example: "ringmsgr top --once $(pidof ringmsgr)",
		json: `{"time":"...","pid":N,"name":"...","addrs":"...","backend":"...","steering":"...",
 "open":N,"half_open":N,"made":N,"in_flight":N,"seconds":N,
 "total":{"in_per_s":N,"out_per_s":N,"mb_in_per_s":N,"mb_out_per_s":N},
 "cores":[{"core":N,"conns":N,"busy":N,"in_per_s":N,...,"writes_per_s":N,"syscalls_per_s":N,
  "shares":{"tasks":N,"send":N,"receive":N,"dispatch":N},"in_flight":N,"overflows":N,"rearms":N,
  "receive":"auto|buffers|ready","by_buffers":N,"paused":N,"stalls":N,"stalled":false}],
 "conns":[{"id":N,"peer":"...","entity":"...","remote":"...","state":"...","policy":"...",
  "protocol":"...","mode":"...",
  "core":N,"intended":N,"by":"...","reason":"...","in_per_s":N,...,"queued":N,"sent":N,
  "held_bytes":N,"ack_lag":N,"throttled":false,"receive":"buffers|ready",
  "receive_why":"...","in_seq":N,"out_seq":N,"reconnects":N,"error":"..."}]}
one for each interval; busy is the share of time outside of the wait, -1 if it is not known; core
is where a connection is, intended where it was meant to be, reason why those differ; receive is
whether it receives into the ring's buffers or waits for readiness and reads, receive_why why,
and by_buffers how many of a core do the former`,
		setup: func(fs *flag.FlagSet) runner {
			t := &top{order: "rate"}
			fs.BoolVar(&t.json, "json", false, "write JSON")
			fs.BoolVar(&t.once, "once", false, "show one interval and end")
			fs.DurationVar(&t.every, "every", time.Second, "`DURATION` of an interval")
			fs.Var(&t.order, "sort", "`ORDER` of connections: rate, bytes, queue, lag, core, peer or id")
			return t.run
		},
	}
}

type top struct {
	json, once bool
	every      time.Duration
	order      topOrder
}

// topPatience is how often in a row a process may not answer before it counts
// as gone.
const topPatience = 3

func (t *top) run(ctx context.Context, e env, args []string) error {
	if len(args) != 1 {
		return cli.Usagef("want one PID or socket, got %d arguments", len(args))
	}
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

// terminalSize is that of the terminal behind w, if there is one.
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

// ended is nil if the user has ended it.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	if gone(err) {
		return errors.New("the process is gone")
	}
	return err
}
