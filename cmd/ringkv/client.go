package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ringmsgr/ringmsgr/cmd/internal/address"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

var (
	errNotFound = errors.New("there is no such key")
	errRefused  = errors.New("the server says")
)

// dial makes connections to a server; the messenger is to be shut down.
func (e *env) dial(ctx context.Context, to string, conns int) (m *control.Messenger, list []*control.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	at, err := address.Reader{}.Parse(ctx, to)
	if err != nil {
		return nil, nil, cli.Usagef("%w", err)
	}
	if m, err = e.messenger(wire.EntityName{Type: wire.Client, ID: "ringkv"}, nil); err != nil {
		return nil, nil, err
	}
	err = m.Start()
	for len(list) < conns && err == nil {
		var c *control.Conn
		if c, err = m.Connect(at, wire.OSD, control.Anonymous()); err == nil {
			err = c.WaitReady(ctx)
		}
		list = append(list, c)
	}
	if err != nil {
		return nil, nil, errors.Join(err, shutdown(m))
	}
	return m, list, nil
}

// call makes a request and waits for the data of its answer.
func call(ctx context.Context, conn *control.Conn, typ uint16, front, data []byte) ([]byte, error) {
	m, err := conn.Call(ctx, control.NewMessage(typ, front, data))
	if err != nil {
		return nil, err
	}
	defer m.Release()
	return append([]byte(nil), m.Data...), verdict(m)
}

// verdict is what an answer says of its request.
func verdict(m *control.Message) error {
	switch m.Type {
	case msgDone:
		return nil
	case msgNotFound:
		return errNotFound
	}
	return fmt.Errorf("%w: %s", errRefused, m.Front)
}

// keysOf are the keys in the answer to a scan.
func keysOf(data []byte) (keys []string) {
	for len(data) > 0 {
		n, used := binary.Uvarint(data)
		if used <= 0 || n > uint64(len(data)-used) {
			break
		}
		data = data[used:]
		keys, data = append(keys, string(data[:n])), data[n:]
	}
	return keys
}

// client is a command that makes requests.
func client(do func(ctx context.Context, e *env, conn *control.Conn, args []string) error) func(context.Context, *env, []string) error {
	return func(ctx context.Context, e *env, args []string) error {
		ctx, cancel := context.WithTimeout(ctx, e.timeout)
		defer cancel()
		m, conns, err := e.dial(ctx, args[0], 1)
		if err != nil {
			return err
		}
		return errors.Join(do(ctx, e, conns[0], args[1:]), shutdown(m))
	}
}

func put(ctx context.Context, e *env, conn *control.Conn, args []string) error {
	value, err := io.ReadAll(io.LimitReader(e.stdin, maxValue+1)) // one more is refused
	if err == nil {
		_, err = call(ctx, conn, msgPut, []byte(args[0]), value)
	}
	return err
}

func get(ctx context.Context, e *env, conn *control.Conn, args []string) error {
	value, err := call(ctx, conn, msgGet, []byte(args[0]), nil)
	if err == nil {
		_, err = e.stdout.Write(value)
	}
	return err
}

func remove(ctx context.Context, _ *env, conn *control.Conn, args []string) error {
	for _, key := range args {
		if _, err := call(ctx, conn, msgDelete, []byte(key), nil); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

func scanKeys(ctx context.Context, e *env, conn *control.Conn, args []string) error {
	var least []byte
	for {
		data, err := call(ctx, conn, msgScan, []byte(append(args, "")[0]), least)
		keys := keysOf(data)
		for _, key := range keys {
			fmt.Fprintln(e.stdout, key)
		}
		if err != nil || len(keys) < maxScan {
			return err
		}
		least = append([]byte(keys[len(keys)-1]), 0) // the next key that there can be
	}
}
