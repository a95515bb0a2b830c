package rados

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

var (
	// ErrNoOSD: no OSD is there to serve an object.
	ErrNoOSD = errors.New("rados: no osd")
	// errAgain: the request must be sent again, perhaps to another OSD.
	errAgain = errors.New("rados: placement changed or connection lost")
)

// resendAfter is when a request that nobody answered is looked at again: an OSD
// drops what is for a placement group that it does not have any more.
const resendAfter = 10 * time.Second

// pause is before another attempt to reach an OSD.
const pause = 100 * time.Millisecond

// Client reads and writes objects. All methods may be called by any goroutine
// but a core's.
type Client struct {
	mon *mon.Client
	m   *control.Messenger

	// mu guards what follows. Cores take it too: it is never held for long.
	mu        sync.Mutex
	tid       uint64
	waiting   map[uint64]*waiter // requests under way
	addrEpoch uint32             // of addrs
	addrs     map[int]wire.Addr  // of OSDs; replaced, never changed
}

// waiter is a request that waits for its answer.
type waiter struct {
	conn   *control.Conn
	answer chan result // capacity 1
}

type result struct {
	reply opReply
	err   error
}

// New makes a client beside a monitor client. Its Dispatcher must be among those
// of the messenger's Start.
func New(monitors *mon.Client) *Client {
	return &Client{mon: monitors, waiting: make(map[uint64]*waiter)}
}

// Open sets the messenger. The monitor client is open by then.
func (c *Client) Open(m *control.Messenger) { c.m = m }

// Mon is the monitor client.
func (c *Client) Mon() *mon.Client { return c.mon }

// Stat returns the size of an object and when it was changed.
func (c *Client) Stat(ctx context.Context, pool, object string) (Info, error) {
	data, err := c.do(ctx, pool, &request{name: "stat", op: opStat, obj: object})
	if err != nil {
		return Info{}, err
	}
	return decodeStat(data)
}

// Remove removes an object.
func (c *Client) Remove(ctx context.Context, pool, object string) error {
	_, err := c.do(ctx, pool, &request{name: "remove", op: opDelete, obj: object, mtime: time.Now()})
	return err
}

// do carries a request out, sending it again until it is answered. All
// attempts have the same transaction id, so that the OSD executes it once.
func (c *Client) do(ctx context.Context, pool string, r *request) ([]byte, error) {
	if len(r.data) > 1<<31 {
		return nil, fmt.Errorf("%s object %q: %w", r.name, r.obj, syscall.EFBIG)
	}
	c.mu.Lock()
	c.tid++
	r.tid = c.tid
	c.mu.Unlock()
	for ; ; r.retry++ {
		var err error
		if r.place, err = c.place(ctx, pool, r.obj); err != nil {
			return nil, fmt.Errorf("%s object %q: %w", r.name, r.obj, err)
		}
		reply, err := c.attempt(ctx, r)
		switch {
		case errors.Is(err, errAgain):
			continue
		case err != nil:
			return nil, fmt.Errorf("%s object %q: %w", r.name, r.obj, err)
		case reply.result < 0:
			return nil, &Error{Op: r.name, Object: r.obj, Errno: syscall.Errno(-reply.result)}
		}
		return reply.data, nil
	}
}

// attempt sends a request and waits for its answer, or for a reason to send it
// again.
func (c *Client) attempt(ctx context.Context, r *request) (opReply, error) {
	conn, err := c.m.Connect(r.place.addr, wire.OSD)
	if err != nil {
		return opReply{}, err
	}
	if err := c.ready(ctx, conn); err != nil {
		return opReply{}, err
	}
	w := &waiter{conn: conn, answer: make(chan result, 1)}
	c.mu.Lock()
	c.waiting[r.tid] = w
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, r.tid)
		c.mu.Unlock()
	}()
	if err := conn.Send(r.message()); err != nil {
		if errors.Is(err, control.ErrClosed) {
			return opReply{}, errAgain
		}
		return opReply{}, err
	}
	timer := time.NewTimer(resendAfter)
	defer timer.Stop()
	select {
	case a := <-w.answer:
		return a.reply, a.err
	case <-conn.Closed():
		select {
		case a := <-w.answer: // just before
			return a.reply, a.err
		default:
			return opReply{}, errAgain
		}
	case <-timer.C:
		return opReply{}, errAgain
	case <-ctx.Done():
		return opReply{}, context.Cause(ctx)
	}
}

// ready waits for a connection. An OSD that does not answer may have been
// restarted elsewhere: then a monitor knows.
func (c *Client) ready(ctx context.Context, conn *control.Conn) error {
	wait, cancel := context.WithTimeout(ctx, resendAfter)
	defer cancel()
	err := conn.WaitReady(wait)
	var refused *handshake.Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil, errors.Is(err, control.ErrShutdown), errors.As(err, &refused) && refused.Terminal():
		return err
	}
	conn.MarkDown()
	select {
	case <-time.After(pause):
		return errAgain
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), err)
	}
}

// Dispatcher takes the answers of OSDs; all other messages it leaves to the
// next in the chain.
func (c *Client) Dispatcher() *control.Dispatcher {
	return &control.Dispatcher{Fast: c.receive}
}

// receive takes a message on a core.
func (c *Client) receive(conn *control.Conn, m *control.Message) bool {
	if m.Type != typeOpReply {
		// Maps that OSDs send to those who are behind: the monitor is asked
		// for each placement anyway.
		return m.Type == typeOSDBackoff
	}
	reply, err := decodeOpReply(m.Front, m.Data)
	reply.data = bytes.Clone(reply.data)
	c.finish(m.TID, conn, result{reply, err})
	return true
}

// finish gives a request its answer, if it waits for one from that connection.
func (c *Client) finish(tid uint64, conn *control.Conn, r result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.waiting[tid]; w != nil && w.conn == conn {
		delete(c.waiting, tid)
		w.answer <- r
	}
}
