package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/ringmsgr/ringmsgr/dataplane/old"
)

// ErrHandedOver: the connection, or the messenger, belongs to another process
// now, or is about to.
var ErrHandedOver = fmt.Errorf("control: handed over to another process: %w", net.ErrClosed)

// handing says how far a hand-over is.
type handing uint8

const (
	handingNone    handing = iota
	handingPrepare         // the successor opens its cores; nothing has changed
	handingFrozen          // sessions and listeners stand still
	handingOver            // committed: they are the successor's
)

// HandOver gives the listeners, the steering of connections and all lossless
// sessions to another process, which calls TakeOver at the other end of conn,
// as the same user or as root.
//
// No connect is refused: the listening sockets are passed, and who connects in
// between waits in their queues. A session passes with its cookies, its
// sequence numbers and its queues: its peer sees one reconnect, and no message
// is lost or doubled. What Dispatcher.Queued has been given before is finished
// first, so that its replies pass, too. While the sessions stand still, and
// after that, Send fails with ErrHandedOver; SendContext waits for the outcome.
// Message.Context and SetUserData do not pass; Message.Free runs here.
//
// The successor decides: until it has confirmed, at the very end, an error of
// either side, its death, or the end of ctx leave this messenger as it was, but
// for one reconnect of the sessions if they stood still already. After a
// return of nil the sessions are over here, without a reset event, and nothing
// is accepted; connections that the peer's policy or ours makes lossy go on
// until they end, or until Shutdown, which their peers see as a reset. Wait for
// Conns to be empty as long as they shall have.
//
// conn is of no use afterwards; the caller closes it. One hand-over runs at a
// time. Not for a dispatcher on a core.
func (m *Messenger) HandOver(ctx context.Context, conn *net.UnixConn) error {
	m.mu.Lock()
	var err error
	switch {
	case m.down:
		err = ErrShutdown
	case m.handing == handingOver:
		err = ErrHandedOver
	case m.handing != handingNone:
		err = badRecord("another one is under way")
	default:
		m.handing = handingPrepare
	}
	m.mu.Unlock()
	if err != nil {
		return err
	}
	unlock, err := m.lockCores(ctx) // a core that is going takes its time
	if err != nil {
		m.setHanding(handingNone)
		return fmt.Errorf("%w: %w", ErrHandOver, err)
	}
	defer unlock()
	l := newHandoverLink(ctx, conn)
	defer l.close()
	if err = m.offerTo(l); err == nil {
		err = m.passSessions(ctx, l)
	} else {
		m.setHanding(handingNone)
	}
	if err != nil {
		l.refuse(err)
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = errors.Join(err, cause)
		}
	}
	return err
}

func (m *Messenger) setHanding(h handing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.handing = h
}

// offerTo is the first phase: it changes nothing.
func (m *Messenger) offerTo(l *handoverLink) error {
	if err := l.samePerson(); err != nil {
		return err
	}
	p, err := expect(l.in, recordHello)
	if err != nil {
		return err
	}
	h, err := decodeHello(p)
	if err != nil {
		return err
	}
	m.mu.Lock()
	listeners := m.listeners
	o := offer{
		entity: m.cfg.Name, nonce: m.nonce, number: m.number, bound: m.bound, addrs: m.addrs,
	}
	m.mu.Unlock()
	if h.entity != o.entity || !h.anyNonce && h.nonce != o.nonce {
		return badRecord("%v with nonce %d wants to succeed %v with nonce %d", h.entity, h.nonce, o.entity, o.nonce)
	}
	var fds []int
	defer func() { closeAll(fds) }()
	for _, li := range listeners {
		fd, err := li.Descriptor()
		if err != nil {
			return badRecord("%w", err)
		}
		fds = append(fds, fd)
	}
	steering, err := m.steeringFiles()
	if err != nil {
		return badRecord("steering: %w", err)
	}
	defer closeFiles(steering)
	o.listeners, o.steering = uint32(len(fds)), uint32(len(steering))
	if o.listeners > filesMax {
		return badRecord("%d listeners", o.listeners)
	}
	if err := l.send(recordOffer, o.appendTo(nil)); err != nil {
		return err
	}
	if err := l.sendFiles(recordListeners, fds); err != nil {
		return err
	}
	var steer []int
	for _, f := range steering {
		steer = append(steer, int(f.Fd()))
	}
	if err := l.sendFiles(recordSteering, steer); err != nil {
		return err
	}
	_, err = expect(l.in, recordReady)
	return err
}

// passSessions is the second phase: everything stands still until the
// successor has confirmed, or goes on.
func (m *Messenger) passSessions(ctx context.Context, l *handoverLink) error {
	f, err := m.quiet(ctx)
	if err == nil {
		f.freeze()
		err = f.settle(ctx)
	}
	if err == nil {
		err = f.write(ctx, l)
	}
	if err == nil {
		err = l.verdict()
	}
	if err != nil {
		f.thaw()
		return err
	}
	f.leave()
	return nil
}

// write sends all sessions.
func (f *frozen) write(ctx context.Context, l *handoverLink) error {
	m := f.m
	d := done{}
	var passed []*Conn
	for _, c := range f.conns {
		s, ok, err := f.export(ctx, c)
		if err != nil {
			return err
		}
		if !ok {
			continue // marked down in the meantime
		}
		n, err := s.write(l.out)
		s.io.Release()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrHandOver, err)
		}
		passed = append(passed, c)
		d.sessions++
		d.messages += n
	}
	m.mu.Lock()
	d.globalSeq = m.globalSeq
	down := m.down
	gone := slices.ContainsFunc(passed, func(c *Conn) bool { return c.state == StateClosing })
	m.mu.Unlock()
	switch {
	case down:
		return ErrShutdown
	case gone:
		return badRecord("a session that was passed on already has been closed")
	}
	return l.send(recordDone, d.appendTo(nil))
}

// export takes the state of a session out of its core.
func (f *frozen) export(ctx context.Context, c *Conn) (s session, ok bool, err error) {
	answer := make(chan dataplane.HandlerState, 1)
	f.m.mu.Lock()
	if c.state == StateClosing {
		f.m.mu.Unlock()
		return s, false, nil
	}
	c.h.Freeze(func(st dataplane.HandlerState) { answer <- st })
	f.m.mu.Unlock()
	var st dataplane.HandlerState
	select {
	case st = <-answer:
	case <-ctx.Done():
		go func() { late := <-answer; late.Release() }()
		return s, false, badRecord("core %d: %w", c.Core(), context.Cause(ctx))
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if c.state == StateClosing {
		st.Release()
		return s, false, nil
	}
	c.mirror = dataplane.Mirror{InSeq: st.InSeq, Queued: len(st.Replay)+len(st.Queued) > 0, Sent: len(st.Sent) > 0}
	return c.session(st), true, nil
}

// session is everything of the connection that its successor needs. The lock is
// held.
func (c *Conn) session(st dataplane.HandlerState) session {
	p := &c.policy
	return session{
		target: c.target, anonymous: c.anonymous, once: c.once, peerType: c.peerType, peerAddrs: c.peerAddrs,
		peerEntity: c.peerEntity, peerNumber: c.peerNumber, known: c.numberKnown,
		policy: p.Name, server: p.Server, standby: p.Standby, resetCheck: p.ResetCheck, register: p.Register,
		supported: p.Supported, require: p.Required,
		clientCookie: c.clientCookie, serverCookie: c.serverCookie, peerGlobalSeq: c.peerGlobalSeq, connectSeq: c.connectSeq,
		features: c.features, io: st,
	}
}
