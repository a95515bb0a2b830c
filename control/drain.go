package control

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Drain ends the connection in good order. It waits for calls under way and for messages that
// wait for Dispatcher.Queued, then until all sent messages are written, and acknowledged on a
// lossless session. Then it ends the stream, and waits until the peer has hung up. Send works
// until the queue is empty and no reply is due (Later), and then fails with ErrClosed; calls
// fail from the beginning. After the last call messages of the peer are neither dispatched nor
// acknowledged: a lossless peer keeps them, sees Dispatcher.Fault, and learns from a reset that
// this session is gone.
//
// There is no reset event. The error is ErrUndelivered, the cause of ctx with the number of due
// replies, ErrClosed after an earlier end or at once beside another Drain, or ErrHandedOver if a
// successor has the messages. The connection is over, or about to be. On a core: loop.ErrOnCore.
func (c *Conn) Drain(ctx context.Context) error {
	if c.m.plane.OnCore() {
		return loop.ErrOnCore
	}
	return c.drain(ctx)
}

func (c *Conn) drain(ctx context.Context) error {
	if c.over.Load() {
		return ErrClosed
	}
	if c.draining.Swap(true) {
		return fmt.Errorf("drained twice: %w", ErrClosed)
	}
	defer c.MarkDown()
	if err := c.awaitCalls(ctx); err != nil {
		return err
	}
	result := make(chan error, 1)
	c.s.Handler().Drain(dataplane.DrainOptions{
		Idle:     func() bool { return c.queue.rests(c) },
		Hopeless: func() bool { return c.s.Policy().Server && c.m.unbound.Load() },
		Done: func(err error) {
			if err == nil && c.local && !c.queue.rests(c) { // it was over before
				err = ErrUndelivered
			}
			c.MarkDown() // ahead of the fault of the socket
			result <- c.sendError(err)
		},
	})
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return c.undrained(ctx)
	}
}

// undrained is the error of a Drain whose ctx has ended.
func (c *Conn) undrained(ctx context.Context) error {
	if n := c.due.Load().Load(); n > 0 {
		return fmt.Errorf("control: drain: %w, with %d replies due", context.Cause(ctx), n)
	}
	return fmt.Errorf("control: drain: %w", context.Cause(ctx))
}

// awaitCalls waits until no call is under way.
func (c *Conn) awaitCalls(ctx context.Context) error {
	for {
		room := c.calls.room()
		if c.calls.n.Load() == 0 {
			return nil
		}
		if err := c.await(ctx, room); err != nil {
			return err
		}
	}
}

// await waits for a channel, unless the connection or ctx ends.
func (c *Conn) await(ctx context.Context, ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	case <-c.Closed():
		return c.sendError(ErrUndelivered)
	case <-ctx.Done():
		return c.undrained(ctx)
	}
}

// Drain ends the messenger in good order: it stops accepting, drains all connections at the
// same time (Conn.Drain) or waits for a Drain under way, and then is Shutdown. Sessions of a
// server policy without a socket cannot come back: those with undelivered messages end with
// ErrUndelivered. When ctx ends the rest is shut down at once, and Drain waits for that for
// Config.Timeouts.Handshake at most. The errors of all connections are joined, but for those
// that another Drain returns. On a core it fails with loop.ErrOnCore.
func (m *Messenger) Drain(ctx context.Context) error {
	if m.plane.OnCore() {
		return loop.ErrOnCore
	}
	m.unbound.Store(true)
	var errs []error
	unbound := make(chan error, 1)
	go func() { unbound <- m.Unbind() }()
	select {
	case err := <-unbound:
		errs = append(errs, err)
	case <-ctx.Done(): // a core may stand still
	}
	for conns := m.undrained(); len(conns) > 0; conns = m.undrained() {
		errs = append(errs, drainAll(ctx, conns)...)
		if ctx.Err() != nil {
			errs = append(errs, fmt.Errorf("control: drain: %w", context.Cause(ctx)))
			break
		}
	}
	if ctx.Err() != nil {
		ended, end := context.WithTimeout(context.WithoutCancel(ctx), m.cfg.Timeouts.Handshake)
		defer end()
		ctx = ended
	}
	return errors.Join(append(errs, m.Shutdown(ctx))...)
}

// undrained are the connections that are not over: handshakes that were under way may bring some.
func (m *Messenger) undrained() (list []*Conn) {
	for _, c := range m.Conns() {
		if !c.s.MarkedDown() {
			list = append(list, c)
		}
	}
	return list
}

// drainAll drains connections at the same time, and returns the errors of interest: all but the
// end of ctx. It waits for connections that another Drain drains, which returns their errors.
func drainAll(ctx context.Context, conns []*Conn) (errs []error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(func() {
			if c.draining.Load() {
				_ = c.await(ctx, c.Closed())
				return
			}
			err := c.drain(ctx)
			if err == nil || ctx.Err() != nil && c.due.Load().Load() <= 0 || errors.Is(err, ErrClosed) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			info := c.Info()
			errs = append(errs, fmt.Errorf("connection %d to a peer of type %v at %s: %w", c.s.ID(), info.PeerType, info.Peer, err))
		})
	}
	wg.Wait()
	return errs
}
