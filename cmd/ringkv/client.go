package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
	"github.com/ringmsgr/ringmsgr/cmd/ringkv/kvformat"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

var (
	errRefused = errors.New("the server says")
	errOther   = errors.New("a value is not what load has put")
)

// patience bounds the time of a connection's handshake, and of each request.
const patience = time.Minute

// dial calls f with n connections to a server.
func (e *env) dial(ctx context.Context, to string, n int, f func(conns []*control.Conn) error) error {
	at, err := scope.AddressReader{Proto: "v2"}.Parse(ctx, to)
	if err != nil {
		return err
	}
	policy := control.LossyClient()
	policy.GiveUpAfter = 5 * time.Second // time enough to dial, if a server listens there
	cfg := control.Config{Name: wire.EntityName{Type: wire.Client, ID: "ringkv"}, Default: &policy}
	if e.engine.Level == slog.LevelWarn {
		e.engine.Level = slog.LevelError // the error of a client says it, once
	}
	return e.with(cfg, func(m *control.Messenger) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		conns, err := make([]*control.Conn, n), m.Start()
		for i := 0; i < n && err == nil; i++ {
			if conns[i], err = m.Connect(at, wire.OSD, control.Anonymous()); err == nil {
				err = conns[i].WaitReady(ctx)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", to, cli.Cause(err))
		}
		return f(conns)
	})
}

// do makes a request and waits for the data of its answer.
func do(ctx context.Context, c *control.Conn, typ uint16, key string, data []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, err := c.Call(ctx, control.NewMessage(typ, []byte(key), data))
	if err != nil {
		return nil, err
	}
	defer m.Release()
	switch m.Type {
	case kvformat.Done:
		return slices.Clone(m.Data), nil
	case kvformat.NotFound:
		return nil, fmt.Errorf("%q: %w", key, errNotFound)
	}
	return nil, fmt.Errorf("%w: %s", errRefused, m.Front)
}

// scan calls f for all keys that begin with prefix, in order.
func scan(ctx context.Context, c *control.Conn, prefix string, f func(key string)) error {
	for least := []byte(nil); ; {
		data, err := do(ctx, c, kvformat.Scan, prefix, least)
		list, _, _ := kvformat.ReadAll(data, 0, 0, int64(len(data)))
		for _, rec := range list {
			f(string(rec.Key))
		}
		if err != nil || len(list) < maxScan {
			return err
		}
		least = append(list[maxScan-1].Key, 0) // the next key that there can be
	}
}

// ask is a command that makes one request, or some.
func (e *env) ask(verb *cobra.Command, args []string) error {
	ctx := verb.Context()
	return e.dial(ctx, args[0], 1, func(conns []*control.Conn) (err error) {
		c, key, value := conns[0], append(args, "")[1], []byte(nil)
		switch verb.Name() {
		case "put":
			value, err = io.ReadAll(io.LimitReader(cli.Input(ctx, "-", e.stdin), kvformat.MaxValue+1)) // one more is refused
			if err == nil {
				_, err = do(ctx, c, kvformat.Put, key, value)
			}
		case "get":
			value, err = do(ctx, c, kvformat.Get, key, nil)
			fmt.Fprintf(e.stdout, "%s", value)
		case "delete":
			for i := 1; i < len(args) && err == nil; i++ {
				_, err = do(ctx, c, kvformat.Delete, args[i], nil)
			}
		case "scan":
			err = scan(ctx, c, key, func(key string) { fmt.Fprintln(e.stdout, key) })
		}
		return err
	})
}

// load puts and gets random keys, --depth at a time on each connection, and checks the values:
// all begin alike. A missing key is no error: --puts 100 puts it.
func (e *env) load(c *cobra.Command, args []string) error {
	ctx := c.Context()
	if !(e.puts >= 0 && e.puts <= 100) { // NaN is neither
		return cli.Usagef("--puts %v: want 0 to 100", e.puts)
	}
	longest := make([]byte, kvformat.MaxValue)
	_, _ = rand.NewChaCha8([32]byte{}).Read(longest) // never fails
	return e.dial(ctx, args[0], e.conns, func(conns []*control.Conn) error {
		calls, failed := cli.Loop(e.conns*e.depth, math.MaxUint64, e.duration, func(i int, done func(string, error)) {
			kind, typ, value := "gets", kvformat.Get, []byte(nil)
			if rand.Float64()*100 < e.puts {
				kind, typ, value = "puts", kvformat.Put, longest[:e.size]
			}
			go func() {
				data, err := do(ctx, conns[i%e.conns], typ, strconv.Itoa(rand.IntN(e.keys)), value)
				switch {
				case errors.Is(err, errNotFound):
					err = nil
				case err == nil && !bytes.HasPrefix(longest, data):
					err = fmt.Errorf("%w: %d bytes", errOther, len(data))
				}
				done(kind, err)
			}()
		})
		for _, kind := range []string{"gets", "puts"} {
			fmt.Fprintln(e.stdout, kind, calls.Line(kind))
		}
		return failed
	})
}
