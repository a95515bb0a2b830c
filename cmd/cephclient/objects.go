package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
)

// pieces is the size of one read or write, in bytes.
const pieces = 4 << 20

// onPool makes a command of a function that has the pool of the first argument, as the flags want it, and the other arguments.
func onPool(run func(ctx context.Context, e env, p rados.Pool, args []string) error) verb {
	return func(ctx context.Context, e env, c *rados.Cluster, args []string) error {
		o := e.options
		var p rados.Pool
		err := e.within(ctx, func(ctx context.Context) (err error) {
			if p, err = c.Pool(ctx, args[0]); err != nil || o.snap == "" {
				return err
			}
			s, err := p.LookupSnap(ctx, o.snap)
			p = p.WithSnap(s.ID)
			return err
		})
		if err != nil {
			return err
		}
		return run(ctx, e, p.WithNamespace(o.namespace).WithLocator(o.locator).WithFlags(policies[o.reads]), args[1:])
	}
}

// onObject makes a command of a function that has the object of the first two arguments, and the others.
func onObject(run func(ctx context.Context, e env, o rados.Object, args []string) error) verb {
	return onPool(func(ctx context.Context, e env, p rados.Pool, args []string) error {
		return run(ctx, e, p.Object(args[0]), args[1:])
	})
}

// within bounds a step of a command that moves much data by --timeout.
func (e env) within(ctx context.Context, step func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.options.Timeout)
	defer cancel()
	return step(ctx)
}

// copyFrom calls write for each piece of a file, in order, and at least once. The bound of
// --timeout does not include the time of reading, for example from a pipe.
func (e env) copyFrom(ctx context.Context, name string, write func(ctx context.Context, at int64, piece []byte) error) error {
	done := e.meter(func() (size int64) {
		if i, err := os.Stat(name); err == nil && name != "-" {
			size = i.Size()
		}
		return size
	})
	defer done.close()
	ctx, stop := context.WithCancel(ctx) // closes the file
	defer stop()
	input := cli.Input(ctx, name, e.stdin)
	for at := int64(0); ; {
		piece := make([]byte, pieces) // not used again: a write that fails may be on its way still
		n, err := io.ReadFull(input, piece)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return err
		}
		if n > 0 || at == 0 {
			if err := e.within(ctx, func(ctx context.Context) error { return write(ctx, at, piece[:n]) }); err != nil {
				return err
			}
		}
		done.add(n)
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
	done := e.meter(func() (size int64) {
		_ = e.within(ctx, func(ctx context.Context) error { // else the size is not known
			i, err := o.Stat(ctx)
			size = int64(i.Size - min(at, i.Size))
			return err
		})
		return size
	})
	defer done.close()
	if err := e.within(ctx, read); err != nil {
		return err
	}
	out := e.stdout
	if args[0] != "-" {
		f, failed := cli.Until(ctx, func() (*os.File, error) { return os.Create(args[0]) })
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		out = f
	}
	for {
		done.add(n)
		if _, err := cli.Until(ctx, func() (int, error) { return out.Write(piece[:n]) }); err != nil || n < len(piece) {
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
func remove(ctx context.Context, e env, p rados.Pool, names []string) error {
	if len(names) == 1 && names[0] == "-" {
		text, err := io.ReadAll(cli.Input(ctx, "-", e.stdin))
		if err != nil {
			return err
		}
		names = strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' || r == '\r' })
	}
	return e.each(ctx, len(names), func(ctx context.Context, i int) error { return p.Object(names[i]).Remove(ctx) })
}

// each does n things, --threads at a time, all of them whether others fail or not.
func (e env) each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	failed := make([]error, n)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(n, e.options.threads) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				failed[i] = e.within(ctx, func(ctx context.Context) error { return do(ctx, i) })
			}
		})
	}
	workers.Wait()
	return errors.Join(failed...)
}

// through goes through a list, and gives up when --timeout has passed without another element.
func through[T any](ctx context.Context, e env, list func(ctx context.Context) iter.Seq2[T, error], show func(out io.Writer, v T)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(e.options.Timeout, func() { cancel(context.DeadlineExceeded) })
	defer late.Stop()
	out := bufio.NewWriter(e.stdout)
	for v, err := range list(ctx) {
		if err != nil {
			return errors.Join(err, out.Flush())
		}
		late.Stop() // the reader of the output may take any time
		show(out, v)
		late.Reset(e.options.Timeout)
	}
	return out.Flush()
}

func list(ctx context.Context, e env, p rados.Pool, _ []string) error {
	if e.options.all {
		p = p.WithNamespace(rados.AllNamespaces)
	}
	return through(ctx, e, p.Objects, func(out io.Writer, o rados.Entry) {
		if e.options.all {
			fmt.Fprintf(out, "%s\t", o.Namespace)
		}
		fmt.Fprintln(out, o.Name)
	})
}

func lspools(ctx context.Context, e env, c *rados.Cluster, _ []string) error {
	names, err := c.Pools(ctx)
	return lines(e, names, err)
}

// meter shows the progress of a transfer on a terminal. The zero value shows none.
type meter struct {
	to          io.Writer
	size, done  int64 // size 0: it is not known
	begun, said time.Time
}

// meter begins one, if standard error is a terminal.
func (e env) meter(size func() int64) *meter {
	if _, _, terminal := cli.Terminal(e.stderr); terminal && !e.options.quiet {
		return &meter{to: e.stderr, size: size(), begun: time.Now()}
	}
	return &meter{}
}

func (m *meter) add(n int) {
	if m.done += int64(n); m.to != nil && time.Since(m.said) > time.Second/10 {
		m.say()
	}
}

func (m *meter) say() {
	m.said = time.Now()
	bar := ""
	if m.size > 0 {
		n := int(20 * min(m.done, m.size) / m.size)
		bar = fmt.Sprintf("[%-20s] of %s, ", "===================="[:n], cli.Bytes(m.size))
	}
	rate := float64(m.done) / time.Since(m.begun).Seconds()
	fmt.Fprintf(m.to, "\r\x1b[K%s %s%s", cli.Bytes(m.done), bar, cli.Rate(rate, "B/s"))
}

// close leaves the last state on a line of its own.
func (m *meter) close() {
	if m.to != nil && m.done > 0 {
		m.say()
		fmt.Fprintln(m.to)
	}
}
