package sessions

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/internal/steplock"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Conn is the session side of one connection. The User holds it. Any goroutine may call
// its methods, a core's too, unless they say otherwise.
type Conn struct {
	m         *Manager
	user      User
	h         *dataplane.Handler
	id        uint64
	policy    *Policy        // that it was made with, which never changes; the present one is in s
	throttles loop.Throttles // of received messages

	local      bool        // to ourselves: no handler is open, no socket
	markedDown atomic.Bool // by its user, so that no reset event follows
	handed     atomic.Bool // to another process
	closed     signal      // sent when the handler is empty

	shown   view            // the part of its session that it shows
	out     steplock.Outbox // actions to be carried out for it
	leaving leaving         // its moves from cores that end

	nextMarked *Conn // in Manager.marked

	// The Manager's lock guards the rest.
	s       runner      // its session
	standby standby     // the wait for the peer
	silent  silentEntry // while it dials without an answer; owner: the goroutine that runs the outbox
	claim   *claimCheck // of the address that its peer claims; nil: Connect has not returned it
	hint    hinting     // the peer's owner core, by its cookie
	alias   wire.Addr   // of names: the v1 address of a peer of msgr2, under which it is known, too
	told1   wire.Addr   // our own address in the last handshake with a peer of msgr1 (msgr1.go)
}

// newConnLocked makes a connection with a session of its own.
func (m *Manager) newConnLocked(core *loop.Core, policy *Policy, s machine, local bool) *Conn {
	m.counters.Conns++
	user := m.owner.NewUser(local)
	c := user.Conn()
	c.m, c.user, c.id, c.policy, c.local = m, user, m.counters.Conns, policy, local
	c.s.c, c.s.machine = c, s
	c.throttles = loop.Throttles{Frames: policy.Messages, Bytes: policy.Bytes, Shared: m.cfg.InFlight, Share: m.cfg.Share}
	if policy.Bytes == nil && m.cfg.ConnBytes > 0 {
		c.throttles.Bytes = loop.NewThrottle(m.cfg.ConnBytes)
	}
	c.out.Of(&m.mu)
	handler := m.cfg.Handler
	handler.Owner = user
	c.h = dataplane.NewHandler(core, handler)
	m.all[c] = struct{}{}
	c.shown.publishLocked(&c.s.machine)
	return c
}

// User is the upper side of the connection.
func (c *Conn) User() User { return c.user }

// Handler is the I/O side of the connection, which stays the same.
func (c *Conn) Handler() *dataplane.Handler { return c.h }

// ID numbers the connection within its Manager, from 1.
func (c *Conn) ID() uint64 { return c.id }

// Policy is the one that the connection was made with. It does not change.
func (c *Conn) Policy() *Policy { return c.policy }

// HandedOver says that another process has the session.
func (c *Conn) HandedOver() bool { return c.handed.Load() }

// Closed is closed when the connection is over and nothing of it runs any more.
func (c *Conn) Closed() <-chan struct{} { return c.closed.sent() }

// MarkDown closes the connection for good, without a Reset. It does not wait: the next holder
// of the lock ends the session.
func (c *Conn) MarkDown() {
	first := !c.markedDown.Swap(true)
	c.h.Refuse()
	c.user.Cease()
	if first {
		c.m.marked.push(c)
		c.m.notifications.wake() // its goroutine takes the lock for us
	}
}

// MarkedDown says that the user has closed the connection, or Rebind has.
func (c *Conn) MarkedDown() bool { return c.markedDown.Load() }

// Peer is a copy of the facts about the peer.
func (c *Conn) Peer() session.Peer {
	c.m.lock()
	defer c.m.unlock()
	return c.s.Peer
}

// State is the present state.
func (c *Conn) State() session.State {
	if c.markedDown.Load() {
		return session.Closing
	}
	return c.shown.now.Load().state
}

// Err is why the last attempt failed, the session faulted, or the connection
// ended; nil while it is ready.
func (c *Conn) Err() error {
	now := c.shown.now.Load()
	if now.state != session.Closing && c.markedDown.Load() {
		return ErrMarkedDown
	}
	return now.err
}

// WaitReady waits until the connection is ready, has ended, or is stuck (ErrStuck). Not on
// a core.
func (c *Conn) WaitReady(ctx context.Context) error {
	for {
		c.m.lock()
		state, err, changed, stuck := c.s.State, c.shown.err, c.shown.changeLocked(), c.s.streak.stuckErrorLocked(c.shown.err)
		c.m.unlock()
		switch state {
		case session.Ready:
			return nil
		case session.Closing:
			return err
		}
		if stuck != nil {
			return stuck
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// Stats takes a snapshot. It waits for the owning core's next turn: not on a core.
func (c *Conn) Stats() (stats.ConnStats, error) {
	io, err := c.h.Stats()
	_, held := c.h.QueuedOut()
	now := c.m.cfg.Clock.Now()
	c.m.lock()
	defer c.m.unlock()
	info := c.shown.negotiatedLocked()
	st := stats.ConnStats{
		ID: c.id, Peer: c.s.peerText(), PeerType: c.s.Peer.Type.String(), State: c.s.State.String(), Policy: c.policy.Name, Lossy: c.s.Policy.Lossy,
		ConnectSeq: c.s.ConnectSeq, GlobalSeq: c.s.GlobalSeq,
		Placement: c.shown.placementLocked(c.h.Core()), Counters: c.s.counters, IO: io, Protocol: info.Protocol, Compression: info.Compression,
		LastSeen: c.s.lastSeenLocked(now, io.Quiet), Unanswered: c.silent.Since(), Remote: info.Peer, HeldBytes: held, Throttles: c.throttleStats(),
	}
	_, st.ThrottledFor = c.Unreleased()
	own := c.s.rules.Record()
	st.ClientCookie, st.ServerCookie = own.ClientCookie != 0, own.ServerCookie != 0
	if info.PeerEntity != (wire.EntityName{}) {
		st.Entity = info.PeerEntity.String()
	}
	if info.Mode != 0 {
		st.Auth, st.Mode = info.Auth.String(), info.Mode.String()
	}
	if c.shown.err != nil {
		st.Error = c.shown.err.Error()
	}
	return st, err
}

// Unreleased are the received bytes that are not released while these stop the connection from
// reading, and for how long they do; 0 while it reads. Any goroutine.
func (c *Conn) Unreleased() (bytes int64, long time.Duration) {
	since, yes := c.throttles.Stopped()
	if !yes {
		return 0, 0
	}
	return c.throttles.Held(), max(c.h.Core().Config().Now()-since, 0)
}

// throttleStats are the throttles of the connection that have a limit.
func (c *Conn) throttleStats() (list []stats.ThrottleStats) {
	bytes := "bytes"
	if c.policy.Bytes == nil {
		bytes = "connection"
	}
	t := &c.throttles
	for _, one := range []struct {
		of string
		t  *loop.Throttle
	}{{"messages", t.Frames}, {bytes, t.Bytes}, {"dispatch", t.Shared}} {
		if one.t != nil && one.t.Limit() > 0 {
			list = append(list, stats.ThrottleStats{Of: one.of, Used: one.t.Used(), Limit: one.t.Limit(), Waiting: one.t.Waiting()})
		}
	}
	return list
}

// signal is sent once. Its channel is made when somebody first asks for it: most
// connections end without. Any goroutine.
type signal struct{ ch atomic.Pointer[chan struct{}] }

// sent returns a channel that closes when the signal is sent.
func (s *signal) sent() <-chan struct{} { return *s.channel() }

// send sends the signal. It may be called once.
func (s *signal) send() { close(*s.channel()) }

func (s *signal) channel() *chan struct{} {
	if ch := s.ch.Load(); ch != nil {
		return ch
	}
	made := make(chan struct{})
	s.ch.CompareAndSwap(nil, &made) // or another one was faster
	return s.ch.Load()
}
