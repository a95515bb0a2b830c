package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ringmsgr/ringmsgr/cmd/internal/address"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

var errRefused = errors.New("the server says")

// client is a connection to a server.
type client struct{ *control.Conn }

// dial makes connections to a server; the messenger is to be shut down.
func (e *env) dial(ctx context.Context, to string, n int) (*control.Messenger, []client, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	at, err := address.Reader{}.Parse(ctx, to)
	if err != nil {
		return nil, nil, cli.Usagef("%w", err)
	}
	m, err := e.messenger(control.Config{Name: wire.EntityName{Type: wire.Client, ID: "ringkv"}})
	if err != nil {
		return nil, nil, err
	}
	list := make([]client, n)
	err = m.Start()
	for i := 0; i < n && err == nil; i++ {
		if list[i].Conn, err = m.Connect(at, wire.OSD, control.Anonymous()); err == nil {
			err = list[i].WaitReady(ctx)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, shutdown(m))
	}
	return m, list, nil
}

// do makes a request and waits for the data of its answer.
func (c client) do(ctx context.Context, typ uint16, key string, data []byte) ([]byte, error) {
	m, err := c.Call(ctx, control.NewMessage(typ, []byte(key), data))
	if err != nil {
		return nil, err
	}
	defer m.Release()
	switch m.Type {
	case msgDone:
		return append([]byte(nil), m.Data...), nil
	case msgNotFound:
		return nil, errNotFound
	}
	return nil, fmt.Errorf("%w: %s", errRefused, m.Front)
}

// ask is the commands that make one request, or some.
func (e *env) ask(ctx context.Context, verb string, args []string) error {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	m, clients, err := e.dial(ctx, args[0], 1)
	if err != nil {
		return err
	}
	c, value, key := clients[0], []byte(nil), append(args, "")[1]
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
	return errors.Join(err, shutdown(m))
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
