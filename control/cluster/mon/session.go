package mon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// session is one connection to a monitor.
type session struct {
	to      wire.Addr
	conn    *control.Conn
	ready   bool           // guarded by the client's lock
	proven  bool           // likewise: the monitor is one, and not only MAuthReply counts
	owed    bool           // likewise: subscriptions are to be sent again
	monmap  chan error     // capacity 1: what is wrong with the first monmap, as of another cluster, or an old one; nil: nothing
	replies chan authReply // capacity 1: one request is under way at a time
	wiped   chan struct{}  // capacity 1: the monitors have thrown secrets away

	// keep alone has the fields that follow. Times are those of the configured clock.
	asked    bool      // a request for a renewal is under way
	deadline time.Time // of the request
	pause    time.Time // no request before
}

// run has one session after the other, until the client is closed.
func (c *Client) run(ctx context.Context) {
	defer close(c.done)
	refusals := 0 // in a row
	for i := 0; ; i++ {
		c.mu.Lock()
		to, limit := c.mons[i%len(c.mons)], c.cfg.Timeout
		if len(c.mons) > 1 && c.vain < len(c.mons) { // one that hangs has the others wait
			limit /= 8
		}
		c.mu.Unlock()
		c.vain++
		next := time.After(c.cfg.Retry)
		err := c.one(ctx, to, limit)
		if ctx.Err() != nil {
			return
		}
		if refusals++; !errors.Is(err, control.ErrAuth) || !errors.Is(err, control.ErrGaveUp) {
			refusals = 0 // it may have us when we ask again
		}
		c.mu.Lock()
		c.lastErr = err
		if refusals >= len(c.mons) {
			c.refuse(err)
		}
		c.mu.Unlock()
		c.cfg.Logger.Info("monitor session ended", "mon", to, "err", err)
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}

// one has a session with the monitor at an address, until it is lost. It is to begin within limit.
func (c *Client) one(ctx context.Context, to wire.Addr, limit time.Duration) (err error) {
	s, err := c.dial(to)
	if err != nil {
		return err
	}
	defer func() {
		s.conn.MarkDown()
		if !s.proven {
			<-s.conn.Closed() // else another dispatcher could get what it has sent
		}
		c.mu.Lock()
		c.session = nil
		if ctx.Err() == nil {
			c.lastErr = err // there is always one or the other
		}
		c.mu.Unlock()
	}()
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// The deadlines of the messenger and of ours have the same error.
	if err := s.conn.WaitReady(wait); errors.Is(err, context.DeadlineExceeded) || errors.Is(err, control.ErrHandshakeTimeout) {
		return fmt.Errorf("%w: nothing came from %v: %w", ErrNoAnswer, to, err)
	} else if err != nil {
		return err
	}
	if to.Type == wire.AddrLegacy {
		if err := c.login(wait, s); err != nil {
			return err
		}
		c.mu.Lock()
		s.proven = true
		c.mu.Unlock()
	}
	// A monitor sends the monmap once by itself, but only if it is asked for.
	if err := s.conn.Send(message(typeMonGetMap, 0, 1, nil)); err != nil {
		return err
	}
	select {
	case err := <-s.monmap:
		if err != nil {
			return fmt.Errorf("the monitor at %v: %w", to, err)
		}
	case <-s.conn.Closed():
		return lost(s)
	case <-wait.Done():
		return fmt.Errorf("%w: no monmap", ErrNoAnswer)
	}
	if err := c.resume(s); err != nil {
		return err
	}
	return c.keep(ctx, s)
}

// dial begins a connection. It is made under the lock, so that its first
// message finds the session.
func (c *Client) dial(to wire.Addr) (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn, err := c.m.Connect(to, wire.Mon, control.Once(), control.Anonymous(), control.WithPolicy(control.LossyClient()))
	if err != nil {
		return nil, err
	}
	c.session = &session{
		to: to, conn: conn, proven: to.Type != wire.AddrLegacy, monmap: make(chan error, 1), replies: make(chan authReply, 1), wiped: make(chan struct{}, 1),
	}
	return c.session, nil
}

func lost(s *session) error { return cmp.Or(s.conn.Err(), control.ErrClosed) }

// keepMost bounds the sleep of keep, as clocks can be set, and a daemon can refuse a ticket: that is
// renewed before the daemon counts as one that does not want us. A full queue has room again.
const keepMost = 2 * time.Second

// keep holds the session and renews tickets and secrets.
func (c *Client) keep(ctx context.Context, s *session) error {
	for {
		next, err := c.tend(s)
		if err != nil {
			return err
		}
		wake := make(chan struct{})
		stop := c.cfg.Clock.AfterFunc(next, func() { close(wake) })
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-s.conn.Closed():
			err = lost(s)
		case r := <-s.replies:
			err = c.renewed(s, r)
		case <-wake:
		case <-s.wiped:
		}
		stop()
		if err != nil {
			return err
		}
	}
}

// tend asks for the renewals that are due, and returns the time of the next look.
func (c *Client) tend(s *session) (time.Duration, error) {
	cfg := &c.cfg
	if err := c.sendOwed(s); err != nil || cfg.Auth == nil {
		return keepMost, err
	}
	now := cfg.Clock.Now()
	switch {
	case s.asked:
		if !now.Before(s.deadline) {
			return 0, fmt.Errorf("%w: tickets were not renewed", ErrNoAnswer)
		}
		return min(s.deadline.Sub(now), keepMost), nil
	case now.Before(s.pause):
		return min(s.pause.Sub(now), keepMost), nil
	}
	payload, err := cfg.Auth.RenewRequest()
	if err != nil {
		return 0, err // a new session logs in again
	}
	if payload == nil {
		return max(min(cfg.Auth.RenewAt().Sub(now), keepMost), time.Millisecond), nil
	}
	if err := s.conn.Send(authMessage(auth.Cephx, payload)); err != nil {
		return 0, err
	}
	s.asked, s.deadline = true, now.Add(cfg.Timeout)
	return min(cfg.Timeout, keepMost), nil
}

// renewed takes the answer to the request under way.
func (c *Client) renewed(s *session, r authReply) error {
	cfg := &c.cfg
	if !s.asked {
		return nil
	}
	s.asked = false
	if r.result != 0 || r.method != auth.Cephx {
		_, _ = cfg.Auth.HandleReply(nil) // the next session logs in without the old tickets
		return fmt.Errorf("renewal: %w", &auth.Refused{Errno: r.result})
	}
	whole, err := cfg.Auth.HandleReply(r.payload)
	if err == nil && !whole {
		s.pause = cfg.Clock.Now().Add(cfg.Retry)
		cfg.Logger.Warn("the monitor did not renew all tickets and secrets")
	}
	return err
}

// machineClock is the Clock of the machine.
type machineClock struct{}

func (machineClock) Now() time.Time { return time.Now() }

func (machineClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}

// A monitor takes no authorizer in msgr1: the connector authenticates by messages (MAuth) once
// the connection is open (Ceph's ProtocolV1.cc).

// login authenticates on a connection of msgr1.
func (c *Client) login(ctx context.Context, s *session) error {
	if c.cfg.Auth == nil {
		return c.loginNone(ctx, s)
	}
	// Tickets that do not come along with the login are needed for the first OSD.
	id, err := c.cfg.Auth.Login(func(protocol auth.Method, payload []byte) (uint64, []byte, error) {
		a, err := s.ask(ctx, protocol, payload)
		if err == nil && a.method != auth.Cephx {
			err = fmt.Errorf("login: %w: the monitor wants %v", auth.ErrNoMethod, a.method)
		}
		return a.globalID, a.payload, err
	})
	if id != 0 {
		c.m.SetNumber(id)
	}
	return err
}

// loginNone sends our name.
func (c *Client) loginNone(ctx context.Context, s *session) error {
	b := wire.AppendU32s([]byte{1}, []uint32{uint32(auth.None)})
	b = c.m.Name().AppendTo(b)
	id := uint64(0)
	if c.cfg.None != nil {
		id = c.cfg.None.GlobalID()
	}
	a, err := s.ask(ctx, 0, le.AppendUint64(b, id))
	if err != nil {
		return err
	}
	if a.method != auth.None {
		return fmt.Errorf("login: %w: the monitor wants %v", auth.ErrNoMethod, a.method)
	}
	if c.cfg.None != nil {
		c.cfg.None.SetGlobalID(a.globalID)
	}
	c.m.SetNumber(a.globalID)
	return nil
}

// ask sends an MAuth, and returns the answer. method is 0 for the first one.
func (s *session) ask(ctx context.Context, method auth.Method, payload []byte) (authReply, error) {
	if err := s.conn.Send(authMessage(method, payload)); err != nil {
		return authReply{}, err
	}
	select {
	case a := <-s.replies:
		if a.result != 0 {
			return a, fmt.Errorf("login: %w: %w: %w", control.ErrGaveUp, control.ErrAuth, &auth.Refused{Errno: a.result})
		}
		return a, nil
	case <-s.conn.Closed():
		return authReply{}, lost(s)
	case <-ctx.Done():
		return authReply{}, fmt.Errorf("%w: no answer to MAuth", ErrNoAnswer)
	}
}
