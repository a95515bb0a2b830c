package sessions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/keylog"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// attempt is one goroutine that works on a socket for a connection. The attempt that takes
// the connection over cancels this one and waits for done; later events of this one change
// nothing, as the machine knows its number.
type attempt struct {
	number    uint64 // in its session
	ctx       context.Context
	cancelCtx atomic.Pointer[context.CancelCauseFunc] // of ctx; nil: it has ended
	done      chan struct{}
	prev      *attempt                  // that it interrupted; ends before it goes on
	suspended <-chan dataplane.Snapshot // from the handler, once its last socket is closed
	moved     chan error                // the handler is on the core of the socket; capacity 1
	// together: the handler is on the core of the socket from the start, and no goroutine waits
	// until it has the socket.
	together bool

	// Of its goroutine until the connection is ready.
	begun time.Time
	took  time.Duration // the whole handshake
	link  *loop.Link
	// The addresses of link, made when they are first needed.
	localText, peerText string
	probe               *probe.Socket // nil: none
	tap                 probe.Tap     // nil: the socket has no tap
	talk                talk
	peer                *handshake.Peer // as far as it is known

	dial     *dialling  // we dialled; else
	accepted *accepting // we accepted
}

// errSuperseded ends an attempt after its connection has moved on, errReported one whose
// failure the machine knows. They are never shown.
var (
	errSuperseded = errors.New("overtaken")
	errReported   = errors.New("reported")
)

func (m *Manager) newAttempt() *attempt {
	a := &attempt{done: make(chan struct{}), moved: make(chan error, 1)}
	ctx, cancel := context.WithCancelCause(m.ctx)
	a.ctx = ctx
	a.cancelCtx.Store(&cancel)
	return a
}

// cancel ends the attempt because of cause, unless it has ended. Any goroutine.
func (a *attempt) cancel(cause error) {
	if cancel := a.cancelCtx.Load(); cancel != nil {
		(*cancel)(cause)
	}
}

// release drops everything except the channels on which others wait: the connection keeps the
// attempt until the next one begins.
func (a *attempt) release() {
	a.cancelCtx.Store(nil)
	a.ctx, a.prev, a.suspended, a.link, a.probe, a.talk, a.peer, a.dial, a.accepted = nil, nil, nil, nil, nil, nil, nil, nil, nil
	a.tap = nil
}

// wipe overwrites the secrets of a handshake that has failed.
func (a *attempt) wipe() {
	if a.talk != nil {
		a.talk.Wipe()
	}
}

// ends are the addresses of the socket.
func (a *attempt) ends() (local, peer string) {
	if a.localText == "" {
		a.localText, a.peerText = a.link.LocalAddr().String(), a.link.PeerAddr().String()
	}
	return a.localText, a.peerText
}

// interrupt waits until the attempt that this one interrupted has ended.
func (a *attempt) interrupt() {
	if a.prev != nil {
		<-a.prev.done
		a.prev = nil // so that no chain of them is kept
	}
}

// coreGone says that the core of a link has ended, and the socket with it: the
// handler cannot move there.
func coreGone(l *loop.Link) bool {
	s := l.Core().State()
	return s == loop.CoreFailed || s == loop.CoreStopped
}

// The events of an attempt in both roles. dial.go and accept.go have the rest.

// awaitHandler waits until the handler is on the core of the socket, and has the machine go on.
func (a *attempt) awaitHandler(ctx context.Context, c *Conn) error {
	if !a.together {
		if err := <-a.moved; err != nil {
			return err
		}
	}
	if err := context.Cause(c.m.ctx); err != nil {
		return err
	}
	a.took = c.m.cfg.Clock.Now().Sub(a.begun)
	return a.converse(ctx, c, c.s.step(session.HandlerMoved{Attempt: a.number}))
}

// converse sends the frames of the machine, and has it judge the peer's answers, until it sends
// nothing more. o is the outcome of the last step.
func (a *attempt) converse(ctx context.Context, c *Conn, o outcome) error {
	for check(o) == nil && o.send != nil {
		if err := a.talk.send(ctx, o.send); err != nil {
			return err
		}
		var ev session.Event = session.Sent{Attempt: a.number}
		if !a.talk.last(o.send) {
			f, err := a.talk.receive(ctx)
			if err != nil {
				return err
			}
			ev = session.Answer{Attempt: a.number, Frame: f}
		}
		a.took = c.m.cfg.Clock.Now().Sub(a.begun)
		o = c.s.step(ev)
	}
	return check(o)
}

// check says why an attempt does not go on after a step.
func check(o outcome) error {
	switch {
	case o.superseded:
		return errSuperseded
	case o.faulted != nil:
		return errReported
	}
	return nil
}

// fail has the fault rule applied to an attempt that has ended with an error, unless that has
// happened, or the connection has moved on.
func (a *attempt) fail(c *Conn, err error) error {
	if err == nil || errors.Is(err, errSuperseded) || errors.Is(err, errReported) {
		return err
	}
	if o := c.s.step(session.Failed{Attempt: a.number, Err: err, Terminal: stats.Terminal(err)}); o.superseded {
		return errSuperseded
	}
	return err
}

// The user's view of the wire: Config.Diagnostics.Tracer and Config.Diagnostics.KeyLog.

// watch asks the tracer for a tap, once the attempt has a socket.
func (a *attempt) watch(m *Manager, accepted bool) {
	if m.cfg.Tracer == nil {
		return
	}
	a.tap = m.cfg.Tracer.Trace(probe.TracedSocket{
		Accepted: accepted, Local: a.link.LocalAddr(), Peer: a.link.PeerAddr(),
	})
}

// ended says that the socket of an attempt is closed before it belonged to a handler.
func (a *attempt) ended(why error) {
	if a.tap != nil {
		a.tap.Ended(why)
	}
}

// keyLogger is Config.Diagnostics.KeyLog as handshakes take it, nil without one. It warns that
// there is one.
func keyLogger(w io.Writer, log *slog.Logger) func(authDone, secret []byte) {
	if w == nil {
		return nil
	}
	log.Warn("the keys of connections in mode secure are logged: whoever has them can read what was recorded")
	var mu sync.Mutex
	return func(authDone, secret []byte) {
		line := keylog.Append(nil, authDone, secret)
		mu.Lock()
		_, err := w.Write(line)
		mu.Unlock()
		clear(line)
		if err != nil {
			log.Warn("the key of a connection could not be logged", "err", fmt.Errorf("key log: %w", err))
		}
	}
}
