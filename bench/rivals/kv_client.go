package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/ringmsgr/ringmsgr/bench/internal/kv"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
)

// kvLoad is the client of a key-value rival. It asks for what load.KV asks for, and checks
// as much.
type kvLoad struct{ *grpcLoad }

// openKV connects, and puts all keys that the ledger of the server says were never put.
func openKV(ctx context.Context, o load.KVOptions, ledger *kv.Ledger) (*kvLoad, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if !ledger.Whole() {
		l, err := connectKV(ctx, o.Filling(), ledger)
		if err != nil {
			return nil, err
		}
		l.kv.FillRest()
		err = l.exhaust()
		l.Close()
		if err != nil {
			return nil, err
		}
	}
	return connectKV(ctx, o, ledger)
}

func connectKV(ctx context.Context, o load.KVOptions, ledger *kv.Ledger) (*kvLoad, error) {
	l, err := connectGRPC(ctx, o.Options, false)
	if err != nil {
		return nil, err
	}
	l.kv = kv.NewWork(o.Work, o.Size, o.Conns*o.Depth, ledger)
	return &kvLoad{l}, nil
}

// Run loads the server for one slice, waits until every request is answered, and reads
// back some of what was put.
func (l *kvLoad) Run(s load.Slice) (load.Result, error) {
	l.kv.Measure()
	res, err := l.grpcLoad.Run(s)
	if err == nil && l.kv.ReadBack() {
		err = l.exhaust()
	}
	return res, err
}

// Verify reads all keys.
func (l *kvLoad) Verify() error {
	l.kv.ReadAll()
	return l.exhaust()
}

// exhaust makes requests until there are none.
func (l *kvLoad) exhaust() error {
	if err := l.choose(l.conns); err != nil {
		return err
	}
	errs := make([]error, len(l.workers))
	var wait sync.WaitGroup
	for i, w := range l.workers {
		wait.Go(func() { errs[i] = w.run(nil) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// kvCaller has one call open at a time.
type kvCaller struct {
	l    *grpcLoad
	conn *grpc.ClientConn
	slot int
}

func (c *kvCaller) run(stop <-chan struct{}) error {
	ctx := context.Background()
	for n := 1; ; n++ {
		turn, ok := c.l.kv.Next(c.slot)
		if !ok {
			return nil
		}
		issued := c.l.now()
		method, request, reply := getMethod, c.request(turn), message{}
		if turn.Put {
			method = putMethod
		}
		if err := c.conn.Invoke(ctx, method, &request, &reply); err != nil {
			return fmt.Errorf("key %d: %w", turn.Key, err)
		}
		now := c.l.now()
		if err := c.check(turn, &reply); err != nil {
			return err
		}
		c.l.answered(now, issued, n)
		if ended(stop) {
			return nil
		}
	}
}

// request makes one.
func (c *kvCaller) request(turn kv.Turn) message {
	head := c.l.kv.AppendKey(make([]byte, 2, 32), turn.Key)
	binary.LittleEndian.PutUint16(head, uint16(len(head)-2))
	data := mem.BufferSlice{mem.SliceBuffer(head)}
	if turn.Put {
		value := mem.DefaultBufferPool().Get(c.l.kv.Size())
		c.l.kv.Fill(*value, turn.Key, turn.Generation)
		data = append(data, mem.NewBuffer(value, mem.DefaultBufferPool()))
	}
	return message{data}
}

// check verifies a reply and gives its buffers back.
func (c *kvCaller) check(turn kv.Turn, m *message) error {
	buffer := m.data.MaterializeToBuffer(mem.DefaultBufferPool())
	m.data.Free()
	defer buffer.Free()
	if err := c.l.kv.Done(turn, buffer.ReadOnlyData()); err != nil {
		return fmt.Errorf("%w: %w", load.ErrReply, err)
	}
	return nil
}
