package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/old"
)

// connect starts an attempt to reach the peer, because of e. The lock is held.
func (c *Conn) connect(e event) {
	if !c.move(e) {
		return
	}
	m := c.m
	c.globalSeq = m.nextGlobalSeq(0)
	if !c.policy.Lossy && c.serverCookie != 0 {
		c.connectSeq++
	}
	// What was received on the last socket is known once that is closed.
	mirrored := make(chan dataplane.Mirror, 1)
	c.h.Delay(false, func(mirror dataplane.Mirror) { mirrored <- mirror })
	prev := c.att
	a := m.newAttempt()
	c.att = a
	c.counters.Attempts++
	if !m.work.enter() {
		close(a.done)
		return // shutting down: the connection is being closed
	}
	go func() {
		defer m.work.leave()
		defer close(a.done)
		if prev != nil {
			<-prev.done
		}
		d := dialling{c: c, a: a, begun: m.cfg.Clock.Now(), mirrored: mirrored}
		err := d.run()
		a.cancel(nil)
		if err == nil {
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if c.att == a {
			c.fault(StateConnecting, err)
		}
	}()
}

// errOvertaken ends an attempt whose connection has moved on. It is never
// shown.
var errOvertaken = errors.New("overtaken")

// dialling is one attempt of the connector, from the dial to READY.
type dialling struct {
	c      *Conn
	a      *attempt
	begun  time.Time
	ctx    context.Context
	socket uint64
	link   *dataplane.Link
	stream *handshake.Stream
	peer   *handshake.Peer
	hinted uint16 // source port that was bound for the owner hint, 0: none

	mirrored <-chan dataplane.Mirror // from the handler, without a socket
}

func (d *dialling) run() error {
	m := d.c.m
	ctx, cancel := m.withTimeout(d.a.ctx, m.cfg.HandshakeTimeout)
	defer cancel()
	d.ctx = ctx
	d.socket = m.sockets.Add(1)
	if err := d.dial(); err != nil {
		return d.wrap(StageConnect, err)
	}
	if err := d.handshake(); err != nil {
		d.doubtHint()
		d.link.Close()
		return err
	}
	if err := d.session(); err != nil {
		d.link.Close()
		return d.wrap(StageIdent, err)
	}
	if err := d.ready(); err != nil {
		d.link.Close()
		return d.wrap(StageSession, err)
	}
	return nil
}

// wrap names the stage and the peer.
func (d *dialling) wrap(stage Stage, err error) error {
	return &Error{Stage: stage, Peer: d.c.target.String(), State: StateConnecting, Err: err}
}

func (d *dialling) dial() error {
	if h := d.hook(); h != nil {
		if err := h.Before(d.ctx, handshake.Point{Step: handshake.SocketConnecting}); err != nil {
			return err
		}
	}
	link, err := d.dialSocket()
	d.link = link
	if h := d.hook(); h != nil && err == nil {
		h.open(link, false)
	}
	return err
}

// hook is nil without an interceptor.
func (d *dialling) hook() *hook {
	if i := d.c.m.cfg.Interceptor; i != nil {
		return &hook{i: i, conn: d.c, socket: d.socket}
	}
	return nil
}

// handshakeOptions are what both roles have in common.
func (m *Messenger) handshakeOptions(h *hook) handshake.Options {
	o := handshake.Options{
		EntityType: m.cfg.Name.Type, Rev0Only: m.cfg.Rev0, Modes: m.cfg.Modes, Compression: m.compression.negotiate,
		NoDataCRC: m.cfg.NoDataCRC,
	}
	if h != nil {
		o.Hook = h
	}
	return o
}

// handshake runs from the banner to the end of authentication.
func (d *dialling) handshake() error {
	c, m := d.c, d.c.m
	stream, peer, err := handshake.Connect(d.ctx, d.link, handshake.ConnectConfig{
		Options:  m.handshakeOptions(d.hook()),
		Target:   c.target,
		PeerType: c.peerType,
		Auth:     m.auth.Load().client,
	})
	if err != nil {
		return d.wrapHandshake(err)
	}
	d.stream, d.peer = stream, peer
	m.mu.Lock()
	defer m.mu.Unlock()
	d.checkHint()
	m.learn(peer.SeenAs)
	if len(m.addrs) == 0 {
		return d.wrap(StageHello, fmt.Errorf("%w: the peer does not see our address", ErrProtocol))
	}
	if m.cfg.Name.Type == wire.Client && m.number < 0 && peer.Auth.GlobalID != 0 {
		m.number = int64(peer.Auth.GlobalID)
	}
	return nil
}

func (d *dialling) wrapHandshake(err error) error {
	stage := StageBanner
	var he *handshake.Error
	if errors.As(err, &he) {
		stage = Stage(he.Stage)
	}
	return d.wrap(stage, err)
}

// session opens or resumes the session on the authenticated stream (msgr2.md
// 9.4).
func (d *dialling) session() error {
	c, m := d.c, d.c.m
	var mirror dataplane.Mirror
	select {
	case mirror = <-d.mirrored:
	case <-d.ctx.Done():
		return context.Cause(d.ctx)
	}
	m.mu.Lock()
	if c.att != d.a || c.state != StateConnecting {
		m.mu.Unlock()
		return errOvertaken
	}
	c.reflect(mirror)
	resume := c.serverCookie != 0
	m.mu.Unlock()
	for {
		var err error
		if resume {
			resume, err = d.reconnect()
			if err != nil || resume {
				return err
			}
			// Reset: a new session on the same TCP connection.
			continue
		}
		return d.ident()
	}
}

// ident opens a session: CLIENT_IDENT and its answer.
func (d *dialling) ident() error {
	c, m := d.c, d.c.m
	m.mu.Lock()
	ci := wire.ClientIdent{
		Addrs: m.addrs, TargetAddr: c.target, GID: m.number, GlobalSeq: c.globalSeq,
		Supported: c.policy.supported(), Required: c.policy.required(), Cookie: c.clientCookie,
	}
	if c.policy.Lossy {
		// The classic habit, which the sharded one tolerates. If the acceptor
		// makes the session a lossless one, 0 is its cookie.
		c.clientCookie = 0
		ci.Flags, ci.Cookie = wire.IdentLossy, 0
	}
	c.counters.Idents++
	m.mu.Unlock()
	if err := d.stream.WriteFrame(d.ctx, frame.TagClientIdent, ci.AppendTo(nil)); err != nil {
		return err
	}
	tag, p, err := d.stream.ReadFrame(d.ctx)
	if err != nil {
		return err
	}
	switch tag {
	case frame.TagServerIdent:
		si, err := wire.DecodeServerIdent(p)
		if err != nil {
			return err
		}
		return d.serverIdent(si)
	case frame.TagIdentMissingFeatures:
		mf, err := wire.DecodeIdentMissingFeatures(p)
		if err != nil {
			return err
		}
		return fmt.Errorf("%w: the peer requires %v", ErrMissingFeatures, mf.Features)
	case frame.TagWait:
		return ErrWait
	}
	return fmt.Errorf("%w: %v in answer to CLIENT_IDENT", ErrProtocol, tag)
}

// serverIdent adopts what the acceptor says.
func (d *dialling) serverIdent(si wire.ServerIdent) error {
	c, m := d.c, d.c.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.att != d.a || c.state != StateConnecting {
		return errOvertaken
	}
	if !si.Addrs.Contains(c.target) {
		// Not terminal: the address may be on its way to another process.
		return fmt.Errorf("%w: dialled %v, it is %v", ErrProtocol, c.target, si.Addrs)
	}
	if c.numberKnown && c.peerNumber != si.GID {
		return fmt.Errorf("%w: number %d, expected %d", ErrWrongPeer, si.GID, c.peerNumber)
	}
	if missing := si.Supported.Missing(c.policy.required()); missing != 0 {
		return fmt.Errorf("%w: the peer lacks %v", ErrMissingFeatures, missing)
	}
	c.h.RequeueSent()
	c.mirror.Queued = c.mirror.Queued || c.mirror.Sent
	c.mirror.Sent = false
	c.peerNumber, c.numberKnown = si.GID, true
	c.knownAs(si.Addrs)
	c.features = si.Supported & c.policy.supported()
	c.peerGlobalSeq = si.GlobalSeq
	c.serverCookie = si.Cookie
	d.adoptHint(si.Cookie)
	// The acceptor's word on loss is the last one.
	c.policy.Lossy = si.Flags&wire.IdentLossy != 0
	if c.policy.Lossy {
		c.connectSeq, c.serverCookie, c.hint.to = 0, 0, ownerHint{}
	}
	return nil
}

// knownAs adopts the peer's addresses. The connection is found under the first of
// them, too: that is what it comes back with, whichever was dialled. The lock is
// held.
func (c *Conn) knownAs(addrs wire.AddrVec) {
	c.rename(addrs)
	if front := addrs.Front(); !c.anonymous && !front.IsBlank() && c.m.conns[front] == nil {
		c.m.conns[front] = c
	}
}

// rename adopts the peer's addresses; what was the first of them before no longer
// leads to the connection, unless it was dialled. The lock is held.
func (c *Conn) rename(addrs wire.AddrVec) {
	if old := c.peerAddrs.Front(); old != c.target && old != addrs.Front() && c.m.conns[old] == c {
		delete(c.m.conns, old)
	}
	c.peerAddrs = addrs
}

// reconnect resumes the session: SESSION_RECONNECT and its answers. It returns
// false without an error if the session was reset, and CLIENT_IDENT is next.
func (d *dialling) reconnect() (resumed bool, err error) {
	c, m := d.c, d.c.m
	// Each RETRY raises one of our numbers; more than a few of them is a peer
	// that goes round in circles.
	for range 16 {
		m.mu.Lock()
		sr := wire.SessionReconnect{
			Addrs: m.addrs, ClientCookie: c.clientCookie, ServerCookie: c.serverCookie,
			GlobalSeq: c.globalSeq, ConnectSeq: c.connectSeq, MsgSeq: c.mirror.InSeq,
		}
		c.counters.Reconnects++
		m.mu.Unlock()
		if err := d.stream.WriteFrame(d.ctx, frame.TagSessionReconnect, sr.AppendTo(nil)); err != nil {
			return false, err
		}
		tag, p, err := d.stream.ReadFrame(d.ctx)
		if err != nil {
			return false, err
		}
		m.mu.Lock()
		if c.att != d.a || c.state != StateConnecting {
			m.mu.Unlock()
			return false, errOvertaken
		}
		done, resumed, err := d.answer(tag, p)
		m.mu.Unlock()
		if done || err != nil {
			return resumed, err
		}
	}
	return false, fmt.Errorf("%w: session retried without end", ErrProtocol)
}

// answer handles one answer to SESSION_RECONNECT. The lock is held.
func (d *dialling) answer(tag frame.Tag, p []byte) (done, resumed bool, err error) {
	c, m := d.c, d.c.m
	switch tag {
	case frame.TagSessionReconnectOK:
		ok, err := wire.DecodeSessionReconnectOK(p)
		if err != nil {
			return true, false, err
		}
		c.h.RequeueSentUpTo(ok.MsgSeq)
		return true, true, nil
	case frame.TagSessionRetry:
		r, err := wire.DecodeSessionRetry(p)
		if err != nil {
			return true, false, err
		}
		c.connectSeq = r.ConnectSeq + 1
		c.counters.Retries++
		return false, false, nil
	case frame.TagSessionRetryGlobal:
		r, err := wire.DecodeSessionRetryGlobal(p)
		if err != nil {
			return true, false, err
		}
		// It is one of ours, and the next one is for all our peers.
		if r.GlobalSeq > m.globalSeq+maxSeqLead {
			return true, false, fmt.Errorf("%w: SESSION_RETRY_GLOBAL with %d, we are at %d", ErrProtocol, r.GlobalSeq, m.globalSeq)
		}
		c.globalSeq = m.nextGlobalSeq(r.GlobalSeq)
		c.counters.Retries++
		return false, false, nil
	case frame.TagSessionReset:
		r, err := wire.DecodeSessionReset(p)
		if err != nil {
			return true, false, err
		}
		c.resetSession(r.Full)
		return true, false, nil
	case frame.TagWait:
		return true, false, ErrWait
	}
	return true, false, fmt.Errorf("%w: %v in answer to SESSION_RECONNECT", ErrProtocol, tag)
}

// maxSeqLead is how far a peer's idea of our global_seq may be ahead of our
// own: that of a process before us that had our nonce.
const maxSeqLead = 1 << 32

// resetSession forgets the session (msgr2.md 9.4): all of it, or what depends
// on the peer's memory. The lock is held.
func (c *Conn) resetSession(full bool) {
	c.serverCookie, c.connectSeq = 0, 0
	c.mirror.InSeq = 0
	if full {
		c.clientCookie = c.m.random64()
		c.peerGlobalSeq = 0
		c.mirror = dataplane.Mirror{}
		c.counters.RemoteResets++
	}
	c.h.ResetSession(full)
	if full && !mutantSilentReset {
		c.h.Notify(remoteResetEvent{})
	}
}

// ready brings the handler to the socket's core and opens it.
func (d *dialling) ready() error {
	c, m := d.c, d.c.m
	moved := make(chan struct{})
	m.mu.Lock()
	if c.att != d.a || c.state != StateConnecting {
		m.mu.Unlock()
		return errOvertaken
	}
	if stranded(d.link) {
		m.mu.Unlock()
		return dataplane.ErrStopped
	}
	c.h.Move(d.link.Core(), dataplane.Arrival{}, func() { close(moved) })
	m.mu.Unlock()
	if err := m.await(moved); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.att != d.a || c.state != StateConnecting {
		return errOvertaken
	}
	c.place = c.place.dialled(d.link.Core())
	c.open(d.link, d.stream, d.peer, false, m.cfg.Clock.Now().Sub(d.begun))
	return nil
}

// stranded says that the core of a link has ended, and the socket with it: no
// handler can follow it there.
func stranded(l *dataplane.Link) bool {
	s := l.Core().State()
	return s == dataplane.CoreFailed || s == dataplane.CoreStopped
}

// await waits for something that a core does.
func (m *Messenger) await(done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-m.ctx.Done():
		// The cores stop only after all attempts have ended.
		<-done
		return context.Cause(m.ctx)
	}
}

// open goes to READY: the handler gets the socket. The lock is held.
func (c *Conn) open(link *dataplane.Link, stream *handshake.Stream, peer *handshake.Peer, accepted bool, took time.Duration) {
	m := c.m
	enc, dec := stream.Release()
	dec.SetLimits(m.cfg.Limits)
	m.compression.install(enc, dec, peer.Compression)
	opt := dataplane.OpenOptions{
		Lossy: c.policy.Lossy, Encoder: enc, Decoder: dec, Throttles: &c.limits,
		IdleAfter: m.cfg.IdleTimeout, KeepaliveEvery: m.cfg.KeepaliveEvery, KeepaliveTimeout: m.cfg.KeepaliveTimeout,
	}
	if i := m.cfg.Interceptor; i != nil {
		opt.Hook = frameHook{i: i, conn: c}
	}
	c.stopTimer()
	c.backoff, c.err = 0, nil
	c.counters.Ready++
	c.note(link, peer, accepted, took)
	c.move(evReady)
	c.h.Open(link, opt)
	c.leaveCore(link.Core())
}
