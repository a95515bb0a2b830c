package rados

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

var (
	// ErrNoOSD: no OSD came up to serve an object before the context ended.
	ErrNoOSD = errors.New("rados: no osd")
	// ErrNoAnswer: an OSD did not answer before the context ended.
	ErrNoAnswer = errors.New("rados: the osd does not answer")
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

	tid  atomic.Uint64 // of the last request
	maps maps
}

// New makes a client beside a monitor client. Its Dispatcher must be among those
// of the messenger's Start, behind that of the monitor client.
func New(monitors *mon.Client) *Client {
	c := &Client{mon: monitors}
	c.maps.news, c.maps.underway = make(chan struct{}), make(map[*request]func())
	return c
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
	r.tid = c.tid.Add(1)
	for ; ; r.retry++ {
		var err error
		if r.place, err = c.placed(ctx, pool, r); err != nil {
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

// placed waits until there is an OSD that has the object.
func (c *Client) placed(ctx context.Context, pool string, r *request) (place, error) {
	for {
		c.maps.mu.Lock()
		news := c.maps.news
		c.maps.mu.Unlock()
		p, err := c.place(ctx, pool, r)
		if !errors.Is(err, ErrNoOSD) {
			return p, err
		}
		if late := c.newer(ctx, news); late != nil {
			return p, errors.Join(err, late)
		}
	}
}

// sleep returns why ctx ended, if it did before d was over.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// attempt sends a request and waits for its answer, or for a reason to send it
// again.
func (c *Client) attempt(ctx context.Context, r *request) (opReply, error) {
	conn, err := c.m.Connect(r.place.addr, wire.OSD)
	if err != nil {
		return opReply{}, err
	}
	here, moved := context.WithCancel(ctx) // as long as the object is there
	defer moved()
	defer c.watch(r, moved)()
	if err := c.ready(here, conn); ctx.Err() != nil {
		return opReply{}, fmt.Errorf("%w: osd.%d at %v: %w", ErrNoAnswer, r.place.osd, r.place.addr, err)
	} else if err != nil && here.Err() != nil {
		return opReply{}, errAgain
	} else if err != nil {
		return opReply{}, err
	}
	wait, cancel := context.WithTimeout(here, resendAfter)
	defer cancel()
	reply, err := conn.Call(wait, r.message(), control.WithTID(r.tid), control.WithBuffer(r.into))
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return opReply{}, fmt.Errorf("%w: osd.%d at %v: %w", ErrNoAnswer, r.place.osd, r.place.addr, context.Cause(ctx))
	case wait.Err() != nil, errors.Is(err, control.ErrSessionLost), errors.Is(err, control.ErrNotSent), errors.Is(err, control.ErrClosed):
		return opReply{}, errAgain
	case errors.Is(err, control.ErrTIDInUse): // the attempt before, on the same connection, is about to end
		if late := sleep(ctx, pause); late != nil {
			return opReply{}, errors.Join(late, err)
		}
		return opReply{}, errAgain
	default:
		return opReply{}, err
	}
	defer reply.Release()
	if reply.Type != typeOpReply {
		return opReply{}, fmt.Errorf("%w: message of type %d in place of MOSDOpReply", ErrMessage, reply.Type)
	}
	p, err := decodeOpReply(reply.Front, reply.Data)
	switch {
	case r.into == nil || len(p.data) > len(r.into): // too much is refused (atMost)
		p.data = bytes.Clone(p.data)
	case !reply.Posted():
		p.data = r.into[:copy(r.into, p.data)]
	}
	return p, err
}

// ready waits for a connection. An OSD that does not answer may have been
// restarted elsewhere: then a monitor knows.
func (c *Client) ready(ctx context.Context, conn *control.Conn) error {
	wait, cancel := context.WithTimeout(ctx, resendAfter)
	defer cancel()
	err := conn.WaitReady(wait)
	var refused *control.Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil, errors.Is(err, control.ErrShutdown), errors.As(err, &refused) && refused.Terminal():
		return err
	}
	conn.MarkDown()
	if late := sleep(ctx, pause); late != nil {
		return errors.Join(late, err)
	}
	return errAgain
}

// Dispatcher takes what OSDs send besides answers that are waited for, and the maps that the monitor
// client leaves to it. It leaves the messages of others to the next in the chain.
func (c *Client) Dispatcher() *control.Dispatcher {
	return &control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
		if m.Type == typeOSDMap {
			c.receive(m)
			return true
		}
		return m.Type == typeOpReply || m.Type == typeOSDBackoff
	}}
}
