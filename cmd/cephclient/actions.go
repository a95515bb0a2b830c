package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
)

// actions are the commands of a command, on an object or a pool.
type actions[T any] []struct {
	name, args string
	do         func(ctx context.Context, e env, on T, args []string) error
}

// help names the actions and their arguments.
func (a actions[T]) help() string {
	var all strings.Builder
	for i, c := range a {
		all.WriteString(c.name)
		switch {
		case i+1 == len(a) || a[i+1].args != c.args:
			all.WriteString(strings.TrimRight(" "+c.args, " ") + "; ")
		default:
			all.WriteString("|")
		}
	}
	return strings.TrimSuffix(all.String(), "; ")
}

// run carries out the action that the first argument names.
func (a actions[T]) run(ctx context.Context, e env, on T, args []string) error {
	for _, c := range a {
		want := len(strings.Fields(c.args))
		switch {
		case c.name != args[0]:
		case len(args)-1 != want:
			return cli.Usagef("%s has %d arguments, want %d", c.name, len(args)-1, want)
		default:
			return c.do(ctx, e, on, args[1:])
		}
	}
	return cli.Usagef("no action %q, want one of: %s", args[0], a.help())
}

// lines writes a list, one name a line.
func lines(e env, names []string, err error) error {
	fmt.Fprint(e.stdout, strings.Join(append(names, ""), "\n"))
	return err
}

var xattrs = actions[rados.Object]{
	{"list", "", func(ctx context.Context, e env, o rados.Object, _ []string) error {
		all, err := o.Xattrs(ctx)
		return lines(e, slices.Sorted(maps.Keys(all)), err)
	}},
	{"get", "NAME", func(ctx context.Context, e env, o rados.Object, args []string) error {
		value, err := o.Xattr(ctx, args[0])
		if errors.Is(err, syscall.ENODATA) {
			err = fmt.Errorf("there is no attribute %q: %w", args[0], err)
		}
		fmt.Fprintf(e.stdout, "%s", value)
		return err
	}},
	{"set", "NAME VALUE", func(ctx context.Context, _ env, o rados.Object, args []string) error {
		return o.SetXattr(ctx, args[0], []byte(args[1]))
	}},
	{"rm", "NAME", func(ctx context.Context, _ env, o rados.Object, args []string) error {
		return o.RemoveXattr(ctx, args[0])
	}},
}

var omaps = actions[rados.Object]{
	{"list", "", func(ctx context.Context, e env, o rados.Object, _ []string) error {
		all := func(ctx context.Context) iter.Seq2[rados.Pair, error] { return o.Omap(ctx, "", "") }
		return through(ctx, e, all, func(out io.Writer, p rados.Pair) { fmt.Fprintf(out, "%q %q\n", p.Key, p.Value) })
	}},
	{"get", "KEY", func(ctx context.Context, e env, o rados.Object, args []string) error {
		var op rados.ReadOp
		found := op.OmapByKeys(args[0])
		_, err := o.Operate(ctx, &op)
		value, ok := found.Value[args[0]]
		if err == nil && !ok {
			err = fmt.Errorf("the omap of object %s has no key %q: %w", o.Name(), args[0], syscall.ENODATA)
		}
		fmt.Fprintf(e.stdout, "%s", value)
		return err
	}},
	{"set", "KEY VALUE", func(ctx context.Context, _ env, o rados.Object, args []string) error {
		return o.SetOmap(ctx, map[string][]byte{args[0]: []byte(args[1])})
	}},
	{"rm", "KEY", func(ctx context.Context, _ env, o rados.Object, args []string) error {
		return o.RemoveOmap(ctx, args[0])
	}},
	{"clear", "", func(ctx context.Context, _ env, o rados.Object, _ []string) error { return o.ClearOmap(ctx) }},
}

var locks = actions[rados.Object]{
	{"list", "", func(ctx context.Context, e env, o rados.Object, _ []string) error {
		names, err := o.Locks(ctx)
		return lines(e, names, err)
	}},
	{"info", "NAME", func(ctx context.Context, e env, o rados.Object, args []string) error {
		lockers, shared, tag, err := o.Lockers(ctx, args[0])
		if err != nil {
			return err
		}
		return printJSON(e.stdout, map[string]any{"shared": shared, "tag": tag, "lockers": append([]rados.Locker{}, lockers...)})
	}},
	{"take", "NAME COOKIE", take(false)},
	{"share", "NAME COOKIE", take(true)},
	{"unlock", "NAME COOKIE", func(ctx context.Context, _ env, o rados.Object, args []string) error {
		return breakLock(ctx, o, args[0], func(l rados.Locker) bool { return l.Cookie == args[1] })
	}},
	{"break", "NAME", func(ctx context.Context, _ env, o rados.Object, args []string) error {
		return breakLock(ctx, o, args[0], func(rados.Locker) bool { return true })
	}},
}

func take(shared bool) func(context.Context, env, rados.Object, []string) error {
	return func(ctx context.Context, e env, o rados.Object, args []string) error {
		err := o.Lock(ctx, rados.Lock{Name: args[0], Cookie: args[1], Shared: shared, Duration: e.options.duration})
		if errors.Is(err, syscall.EBUSY) {
			err = fmt.Errorf("another owner has lock %q (lock info names it): %w", args[0], err)
		}
		return err
	}
}

// breakLock takes a lock from some of its owners. An owner is a session and a cookie: a later
// run of this program is another session, and can only break the lock.
func breakLock(ctx context.Context, o rados.Object, name string, these func(rados.Locker) bool) error {
	lockers, _, _, err := o.Lockers(ctx, name)
	if err != nil {
		return err
	}
	lockers = slices.DeleteFunc(lockers, func(l rados.Locker) bool { return !these(l) })
	if len(lockers) == 0 {
		return fmt.Errorf("lock %q of object %s: nobody has it, or not with this cookie: %w", name, o.Name(), syscall.ENOENT)
	}
	for _, l := range lockers {
		err = errors.Join(err, o.BreakLock(ctx, name, l))
	}
	return err
}

var snaps = actions[rados.Pool]{
	{"list", "", func(ctx context.Context, e env, p rados.Pool, _ []string) error {
		list, err := p.Snaps(ctx)
		var names []string
		for _, s := range list {
			names = append(names, fmt.Sprintf("%d\t%s\t%s", s.ID, s.Time.Format(time.RFC3339), s.Name))
		}
		return lines(e, names, err)
	}},
	{"create", "NAME", func(ctx context.Context, _ env, p rados.Pool, args []string) error { return p.CreateSnap(ctx, args[0]) }},
	{"rm", "NAME", func(ctx context.Context, _ env, p rados.Pool, args []string) error { return p.RemoveSnap(ctx, args[0]) }},
	{"rollback", "NAME OBJECT", func(ctx context.Context, _ env, p rados.Pool, args []string) error {
		s, err := p.LookupSnap(ctx, args[0])
		if err != nil {
			return err
		}
		return p.Object(args[1]).Rollback(ctx, s.ID)
	}},
}

// watch prints notifications until ctx ends, or the watch is lost.
func watch(ctx context.Context, e env, o rados.Object, _ []string) error {
	watching, end := context.WithCancelCause(ctx)
	defer end(nil)
	told := func(n rados.Notification) []byte {
		if err := cli.WriteJSON(e.stdout, map[string]any{"notifier": n.Notifier, "payload": string(n.Payload)}); err != nil {
			end(err)
		}
		return nil
	}
	var w *rados.Watch
	err := e.within(ctx, func(ctx context.Context) (err error) {
		w, err = o.Watch(ctx, e.options.Timeout, rados.Handler{Notified: told, Lost: end})
		return err
	})
	if err != nil {
		return err
	}
	if <-watching.Done(); ctx.Err() == nil {
		return context.Cause(watching)
	}
	return e.within(context.WithoutCancel(ctx), w.Close)
}

// notify prints the answers. Each watcher has --timeout to answer.
func notify(ctx context.Context, e env, o rados.Object, args []string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*e.options.Timeout)
	defer cancel()
	answers, err := o.Notify(ctx, []byte(args[0]), e.options.Timeout)
	for _, a := range answers {
		err = errors.Join(err, cli.WriteJSON(e.stdout, struct {
			Client uint64 `json:"client"`
			Cookie uint64 `json:"cookie"`
			Answer string `json:"answer"`
			Missed bool   `json:"missed,omitempty"`
		}{a.Client, a.Cookie, string(a.Data), a.Missed}))
	}
	return err
}
