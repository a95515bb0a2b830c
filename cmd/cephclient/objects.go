package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
)

// pieces is how much is read or written at a time.
const pieces = 4 << 20

// pool is the pool of the arguments, as the flags want it.
func (o *options) pool(ctx context.Context, c *rados.Cluster, name string) (rados.Pool, error) {
	p, err := c.Pool(ctx, name)
	if err != nil {
		return p, err
	}
	p = p.WithNamespace(o.namespace).WithLocator(o.locator)
	if o.snap != "" {
		s, err := p.LookupSnap(ctx, o.snap)
		if err != nil {
			return p, err
		}
		p = p.WithSnap(s.ID)
	}
	return p, nil
}

// onObject makes a command of a function that has the object of the first two arguments, and the others.
func onObject(run func(ctx context.Context, e env, o rados.Object, args []string) error) verb {
	return func(ctx context.Context, e env, c *rados.Cluster, args []string) error {
		var p rados.Pool
		err := e.within(ctx, func(ctx context.Context) (err error) { p, err = e.options.pool(ctx, c, args[0]); return err })
		if err != nil {
			return err
		}
		return run(ctx, e, p.Object(args[1]), args[2:])
	}
}

// source opens the file that is written to an object.
func (e env) source(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(e.stdin), nil
	}
	return os.Open(name)
}

// within bounds a step of a command that moves much data by --timeout.
func (e env) within(ctx context.Context, step func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.options.Timeout)
	defer cancel()
	return step(ctx)
}

// copyFrom has write called with each piece of a file, in order, and at least once. How long the file takes, such as a
// pipe, does not count.
func (e env) copyFrom(ctx context.Context, name string, write func(ctx context.Context, at int64, piece []byte) error) error {
	in, err := e.source(name)
	if err != nil {
		return err
	}
	defer in.Close()
	for at := int64(0); ; {
		piece := make([]byte, pieces) // not used again: a write that fails may be on its way still
		n, err := io.ReadFull(in, piece)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return err
		}
		if n > 0 || at == 0 {
			if err := e.within(ctx, func(ctx context.Context) error { return write(ctx, at, piece[:n]) }); err != nil {
				return err
			}
		}
		if at += int64(n); last {
			return nil
		}
	}
}

func put(ctx context.Context, e env, o rados.Object, args []string) error {
	return e.copyFrom(ctx, args[0], func(ctx context.Context, at int64, piece []byte) error {
		at += e.options.offset
		switch {
		case at == 0:
			return o.WriteFull(ctx, piece)
		case len(piece) == 0:
			return nil
		}
		return o.Write(ctx, uint64(at), piece)
	})
}

func appendTo(ctx context.Context, e env, o rados.Object, args []string) error {
	return e.copyFrom(ctx, args[0], func(ctx context.Context, _ int64, piece []byte) error {
		if len(piece) == 0 {
			return nil
		}
		return o.Append(ctx, piece)
	})
}

// get makes no file before the object is known to exist.
func get(ctx context.Context, e env, o rados.Object, args []string) (err error) {
	piece := make([]byte, pieces)
	at, n := uint64(e.options.offset), 0
	read := func(ctx context.Context) (err error) { n, err = o.ReadInto(ctx, at, piece); return err }
	if err := e.within(ctx, read); err != nil {
		return err
	}
	out := e.stdout
	if args[0] != "-" {
		f, err := os.Create(args[0])
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		out = f
	}
	for {
		if _, err := out.Write(piece[:n]); err != nil || n < len(piece) {
			return err
		}
		at += uint64(n)
		if err := e.within(ctx, read); err != nil {
			return err
		}
	}
}

func truncate(ctx context.Context, _ env, o rados.Object, args []string) error {
	size, err := cli.ParseBytes(args[0], math.MaxInt64)
	if err != nil {
		return cli.Usagef("SIZE: %w", err)
	}
	return o.Truncate(ctx, uint64(size))
}

func stat(ctx context.Context, e env, o rados.Object, _ []string) error {
	i, err := o.Stat(ctx)
	if err != nil {
		return err
	}
	return printJSON(e.stdout, i)
}

// remove removes all that it can.
func remove(ctx context.Context, e env, c *rados.Cluster, args []string) error {
	p, err := e.options.pool(ctx, c, args[0])
	if err != nil {
		return err
	}
	var failed []error
	for _, name := range args[1:] {
		failed = append(failed, p.Object(name).Remove(ctx))
	}
	return errors.Join(failed...)
}

func list(ctx context.Context, e env, c *rados.Cluster, args []string) error {
	p, err := e.options.pool(ctx, c, args[0])
	if err != nil {
		return err
	}
	if e.options.all {
		p = p.WithNamespace(rados.AllNamespaces)
	}
	out := bufio.NewWriter(e.stdout)
	for o, err := range p.Objects(ctx) {
		if err != nil {
			return errors.Join(err, out.Flush())
		}
		if e.options.all {
			fmt.Fprintf(out, "%s\t", o.Namespace)
		}
		fmt.Fprintln(out, o.Name)
	}
	return out.Flush()
}

// words runs the action that the first argument names, with as many others as it takes.
func words(args []string, actions map[string]func(args []string) error, takes map[string]int) error {
	run, ok := actions[args[0]]
	if want := takes[args[0]]; !ok || len(args)-1 != want {
		var names []string
		for name := range actions {
			names = append(names, name)
		}
		slices.Sort(names)
		if !ok {
			return cli.Usagef("no action %q, want one of %q", args[0], names)
		}
		return cli.Usagef("%s has %d arguments, want %d", args[0], len(args)-1, want)
	}
	return run(args[1:])
}

func xattr(ctx context.Context, e env, o rados.Object, args []string) error {
	return words(args, map[string]func([]string) error{
		"list": func([]string) error {
			all, err := o.Xattrs(ctx)
			if err != nil {
				return err
			}
			var names []string
			for name := range all {
				names = append(names, name)
			}
			slices.Sort(names)
			for _, name := range names {
				fmt.Fprintln(e.stdout, name)
			}
			return nil
		},
		"get": func(args []string) error {
			value, err := o.Xattr(ctx, args[0])
			if err == nil {
				_, err = e.stdout.Write(value)
			}
			return err
		},
		"set": func(args []string) error { return o.SetXattr(ctx, args[0], []byte(args[1])) },
		"rm":  func(args []string) error { return o.RemoveXattr(ctx, args[0]) },
	}, map[string]int{"get": 1, "set": 2, "rm": 1})
}

func omap(ctx context.Context, e env, o rados.Object, args []string) error {
	return words(args, map[string]func([]string) error{
		"list": func([]string) error {
			out := bufio.NewWriter(e.stdout)
			for pair, err := range o.Omap(ctx, "", "") {
				if err != nil {
					return errors.Join(err, out.Flush())
				}
				fmt.Fprintf(out, "%q %q\n", pair.Key, pair.Value)
			}
			return out.Flush()
		},
		"get": func(args []string) error {
			var op rados.ReadOp
			found := op.OmapByKeys(args[0])
			if _, err := o.Operate(ctx, &op); err != nil {
				return err
			}
			value, ok := found.Value[args[0]]
			if !ok {
				return fmt.Errorf("the omap has no key %q", args[0])
			}
			_, err := e.stdout.Write(value)
			return err
		},
		"set":   func(args []string) error { return o.SetOmap(ctx, map[string][]byte{args[0]: []byte(args[1])}) },
		"rm":    func(args []string) error { return o.RemoveOmap(ctx, args[0]) },
		"clear": func([]string) error { return o.ClearOmap(ctx) },
	}, map[string]int{"get": 1, "set": 2, "rm": 1})
}

func lock(ctx context.Context, e env, o rados.Object, args []string) error {
	take := func(shared bool) func([]string) error {
		return func(args []string) error {
			return o.Lock(ctx, rados.Lock{Name: args[0], Cookie: args[1], Shared: shared})
		}
	}
	return words(args, map[string]func([]string) error{
		"list": func([]string) error {
			names, err := o.Locks(ctx)
			for _, name := range names {
				fmt.Fprintln(e.stdout, name)
			}
			return err
		},
		"info": func(args []string) error {
			lockers, shared, tag, err := o.Lockers(ctx, args[0])
			if err != nil {
				return err
			}
			return printJSON(e.stdout, struct {
				Shared  bool           `json:"shared"`
				Tag     string         `json:"tag"`
				Lockers []rados.Locker `json:"lockers"`
			}{shared, tag, lockers})
		},
		"take": take(false), "share": take(true),
		// A program's owner is its session: another run has another one, and breaks the lock.
		"break": func(args []string) error {
			lockers, _, _, err := o.Lockers(ctx, args[0])
			for _, l := range lockers {
				err = errors.Join(err, o.BreakLock(ctx, args[0], l))
			}
			return err
		},
	}, map[string]int{"info": 1, "take": 2, "share": 2, "break": 1})
}

func snap(ctx context.Context, e env, c *rados.Cluster, args []string) error {
	p, err := e.options.pool(ctx, c, args[0])
	if err != nil {
		return err
	}
	return words(args[1:], map[string]func([]string) error{
		"list": func([]string) error {
			list, err := p.Snaps(ctx)
			for _, s := range list {
				fmt.Fprintf(e.stdout, "%d\t%s\t%s\n", s.ID, s.Time.Format(time.RFC3339), s.Name)
			}
			return err
		},
		"create": func(args []string) error { return p.CreateSnap(ctx, args[0]) },
		"rm":     func(args []string) error { return p.RemoveSnap(ctx, args[0]) },
		"rollback": func(args []string) error {
			s, err := p.LookupSnap(ctx, args[0])
			if err != nil {
				return err
			}
			return p.Object(args[1]).Rollback(ctx, s.ID)
		},
	}, map[string]int{"create": 1, "rm": 1, "rollback": 2})
}

func lspools(ctx context.Context, e env, c *rados.Cluster, _ []string) error {
	names, err := c.Pools(ctx)
	for _, name := range names {
		fmt.Fprintln(e.stdout, name)
	}
	return err
}

// df has the monitors' statistics, which a manager brings.
func df(ctx context.Context, e env, c *rados.Cluster, _ []string) error {
	out, err := c.Mon().Command(ctx, map[string]string{"prefix": "df", "format": "json-pretty"})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.stdout, "%s\n", bytes.TrimSpace(out.Data))
	return err
}
