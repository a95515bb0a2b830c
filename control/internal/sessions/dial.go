package sessions

import (
	"context"
	"errors"

	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// dialling is one attempt of the connector, from the dial to READY. Its goroutine
// has the socket, the machine of package session decides.
type dialling struct {
	c           *Conn
	a           *attempt
	target      wire.Addr
	peerType    wire.EntityType
	ctx         context.Context
	hinted      uint16 // source port that was bound for the owner hint, 0: none
	hintOutcome hintOutcome
}

// run is the goroutine of the attempt.
func (d *dialling) run() {
	m, a := d.c.m, d.a
	defer m.work.Leave()
	defer close(a.done)
	defer a.release()
	a.interrupt()
	err := m.dials.enter(a.ctx, d.target.AddrPort)
	a.begun = m.cfg.Clock.Now()
	if err == nil {
		err = d.attempt()
		m.dials.leave(d.target.AddrPort)
	} else {
		err = d.wrap(stats.StageConnect, err)
	}
	a.cancel(nil)
	if err != nil {
		_ = a.fail(d.c, err) // the machine decides about the next attempt
	}
}

func (d *dialling) attempt() error {
	m := d.c.m
	ctx, cancel := m.withTimeout(d.a.ctx, m.cfg.Timeout)
	defer cancel()
	d.ctx = ctx
	d.a.probe = probe.NewSocket(m.cfg.Probe, m.sockets.Add(1), false, d.c.user.Probed())
	if err := d.dial(); err != nil {
		return d.wrap(stats.StageConnect, err)
	}
	err := protocolAt(d.target).connect(d)
	if err != nil {
		d.hintFailed()
	} else {
		err = d.session()
		d.judgeHint()
		if err == nil {
			err = d.ready()
		}
	}
	if err != nil {
		d.a.ended(err)
		d.a.wipe()
		d.a.link.Close()
	}
	return err
}

// wrap names the stage and the peer.
func (d *dialling) wrap(stage stats.Stage, err error) error {
	if err == nil || errors.Is(err, errSuperseded) || errors.Is(err, errReported) {
		return err
	}
	return &stats.Error{Stage: stage, Peer: d.target.String(), State: session.Connecting, Err: err}
}

func (d *dialling) dial() error {
	if err := d.a.probe.Step(d.ctx, probe.Point{Step: probe.SocketConnecting}, probe.Before); err != nil {
		return err
	}
	m := d.c.m
	link, err := d.dialSocket()
	d.a.link = link
	if err == nil {
		d.a.probe.Connected(link)
		d.a.watch(m, false)
	}
	return err
}

// wrapAt is wrap with the stage of a handshake that has failed, if err is about that.
func (d *dialling) wrapAt(stage stats.Stage, err error) error {
	var he *handshake.Error
	if errors.As(err, &he) {
		stage = stats.Stage(he.Stage)
	}
	return d.wrap(stage, err)
}

// session opens or resumes the session on the authenticated stream (Ceph's ProtocolV2.cc): the
// machine chooses the frame, and takes the answer.
func (d *dialling) session() error {
	select {
	case snap := <-d.a.suspended:
		err := d.a.converse(d.ctx, d.c, d.c.s.step(session.Authenticated{Attempt: d.a.number, IO: snapshot(snap)}))
		return d.wrapAt(stats.StageIdent, err)
	case <-d.ctx.Done():
		return d.wrap(stats.StageIdent, context.Cause(d.ctx))
	}
}

// ready opens the handler on the socket, once the handler is on its core. In msgr1 a frame to
// the peer may come before.
func (d *dialling) ready() error { return d.wrapAt(stats.StageSession, d.a.awaitHandler(d.ctx, d.c)) }
