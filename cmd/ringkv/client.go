package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/internal/address"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

var errRefused = errors.New("the server says")

// patience is how long a connection and each request may take.
const patience = 30 * time.Second

// client is a connection to a server.
type client struct{ *control.Conn }

// dial calls f with n connections to a server.
func (e *env) dial(ctx context.Context, to string, n int, f func(clients []client) error) error {
	at, err := address.Reader{}.Parse(ctx, to)
	if err != nil {
		return cli.Usagef("%w", err)
	}
	cfg := control.Config{Name: wire.EntityName{Type: wire.Client, ID: "ringkv"}}
	return e.with(cfg, func(m *control.Messenger) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		clients, err := make([]client, n), m.Start()
		for i := 0; i < n && err == nil; i++ {
			if clients[i].Conn, err = m.Connect(at, wire.OSD, control.Anonymous()); err == nil {
				err = clients[i].WaitReady(ctx)
			}
		}
		if err != nil {
			return err
		}
		return f(clients)
	})
}

// do makes a request and waits for the data of its answer.
func (c client) do(ctx context.Context, typ uint16, key string, data []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, err := c.Call(ctx, control.NewMessage(typ, []byte(key), data))
	if err != nil {
		return nil, err
	}
	defer m.Release()
	switch m.Type {
	case msgDone:
		return slices.Clone(m.Data), nil
	case msgNotFound:
		return nil, errNotFound
	}
	return nil, fmt.Errorf("%w: %s", errRefused, m.Front)
}

// scan calls f for all keys that begin with prefix, in order.
func (c client) scan(ctx context.Context, prefix string, f func(key string)) error {
	for least := []byte(nil); ; {
		data, err := c.do(ctx, msgScan, prefix, least)
		list := readRecords(data, 0)
		for _, rec := range list {
			f(string(rec.key))
		}
		if err != nil || len(list) < maxScan {
			return err
		}
		least = append(list[maxScan-1].key, 0) // the next key that there can be
	}
}

// ask is a command that makes one request, or some.
func (e *env) ask(verb string) func(ctx context.Context, args []string) error {
	return func(ctx context.Context, args []string) error {
		return e.dial(ctx, args[0], 1, func(clients []client) (err error) {
			c, key, value := clients[0], append(args, "")[1], []byte(nil)
			switch verb {
			case "put":
				value, err = io.ReadAll(io.LimitReader(e.stdin, maxValue+1)) // one more is refused
				if err == nil {
					_, err = c.do(ctx, msgPut, key, value)
				}
			case "get":
				if value, err = c.do(ctx, msgGet, key, nil); err == nil {
					_, err = e.stdout.Write(value)
				}
			case "delete":
				for i := 1; i < len(args) && err == nil; i++ {
					_, err = c.do(ctx, msgDelete, args[i], nil)
				}
			case "scan":
				err = c.scan(ctx, key, func(key string) { fmt.Fprintln(e.stdout, key) })
			}
			return err
		})
	}
}
