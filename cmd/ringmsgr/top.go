package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"math"
	"strconv"
	"time"

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

In the live view, q quits, s and S change the order of the connections, g shows one
row for each peer, the arrows and page keys scroll, and space stops and continues.
What the screen has no room for is left out, the least important first. Without a
terminal, use --once or --json. A process that hands over to a successor is
followed if it was named by path.`,
		example: "ringmsgr top --once $(pidof ringmsgr)",
		json: `{"time":"...","pid":N,"name":"...","addrs":"...","backend":"...","steering":"...",
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
and by_buffers how many of a core do the former`,
		setup: func(fs *flag.FlagSet) runner {
			t := &top{order: orderRate}
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
	screen := newScreen(e.stdout)
	if screen == nil && !t.once && !t.json {
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
	if t.once || t.json {
		return t.print(ctx, e, path, before, screen)
	}
	return t.live(ctx, e, path, before, screen)
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
		if s, err = control.ReadStats(ctx, path); err == nil {
			return s, nil
		}
	}
	return nil, err
}

// printedWidth is that of what is no terminal.
const printedWidth = 132

// print writes one interval, or a line of JSON for each.
func (t *top) print(ctx context.Context, e env, path string, before *control.Snapshot, screen *screen) error {
	tick := time.NewTicker(t.every)
	defer tick.Stop()
	for {
		now, err := t.next(ctx, path, tick.C)
		if err != nil {
			return ended(ctx, err)
		}
		f := newTopFrame(before, now)
		f.sort(t.order)
		before = now
		if t.json {
			err = cli.WriteJSON(e.stdout, f)
		} else {
			v := topView{width: printedWidth, color: screen != nil && screen.color}
			if screen != nil {
				v.width, _ = screen.size()
			}
			_, err = io.WriteString(e.stdout, v.render(f, t.order))
		}
		if t.once || err != nil {
			return err
		}
	}
}

// live draws until the user quits.
func (t *top) live(ctx context.Context, e env, path string, before *control.Snapshot, screen *screen) error {
	leave, err := screen.enter(e.stdin)
	if err != nil {
		return err
	}
	defer leave()
	tick := time.NewTicker(t.every)
	defer tick.Stop()
	frame := newTopFrame(before, before)
	v := topView{color: screen.color, live: true, history: &topHistory{}}
	snapshots, failed := t.watch(ctx, path, tick.C)
	for {
		frame.sort(t.order)
		v.width, v.height = screen.size()
		if err := screen.draw(v.render(frame, t.order)); err != nil {
			return err
		}
		select {
		case k := <-screen.keys:
			if !t.press(&v, k) {
				return nil
			}
		case now := <-snapshots:
			if !v.stopped {
				frame = newTopFrame(before, now)
				v.history.add(frame)
			}
			before = now
		case err := <-failed:
			return ended(ctx, err)
		}
	}
}

// press does what a key is for, and says whether to go on.
func (t *top) press(v *topView, k keypress) bool {
	switch k {
	case 'q', 'Q', 3, 4:
		return false
	case 's':
		t.order = t.order.step(1)
	case 'S':
		t.order = t.order.step(-1)
	case 'g':
		v.group = !v.group
	case ' ':
		v.stopped = !v.stopped
	case keyUp, 'k':
		v.first--
	case keyDown, 'j':
		v.first++
	case keyPageUp, 'b':
		v.first -= v.page
	case keyPageDown, 'f':
		v.first += v.page
	case keyHome:
		v.first = 0
	case keyEnd:
		v.first = math.MaxInt32
	}
	v.first = max(0, v.first) // the end is known when it is drawn
	return true
}

// watch takes snapshots in the background, so that keys work meanwhile.
func (t *top) watch(ctx context.Context, path string, tick <-chan time.Time) (<-chan *control.Snapshot, <-chan error) {
	snapshots, failed := make(chan *control.Snapshot, 1), make(chan error, 1)
	go func() {
		for {
			s, err := t.next(ctx, path, tick)
			if err != nil {
				failed <- err
				return
			}
			select {
			case snapshots <- s:
			case <-ctx.Done():
				failed <- ctx.Err()
				return
			}
		}
	}()
	return snapshots, failed
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
