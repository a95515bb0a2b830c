package control

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
	"github.com/ringmsgr/ringmsgr/dataplane/tap"
)

// attempt is one goroutine that works on a socket for a connection. Whoever takes
// the connection over cancels it and waits for done; what it does after that
// changes nothing, as the machine knows its number.
type attempt struct {
	number    uint64 // in its session
	ctx       context.Context
	cancelCtx atomic.Pointer[context.CancelCauseFunc] // of ctx; nil: it has ended
	done      chan struct{}
	prev      *attempt                  // that it interrupted; ends before it goes on
	suspended <-chan dataplane.Snapshot // from the handler, once its last socket is closed
	moved     chan error                // the handler is on the core of the socket; capacity 1
	// together: the handler is on the core of the socket from the start, and nobody
	// waits until it knows.
	together bool

	// Of its goroutine until the connection is ready.
	begun time.Time
	took  time.Duration // the whole handshake
	link  *dataplane.Link
	// The addresses of link, once somebody has asked for them.
	localText, peerText string
	probe               *probe.Socket // nil: none
	tap                 tap.Tap       // nil: nobody watches the socket
	talk                talk
	peer                *handshake.Peer // as far as it is known

	dial     *dialling  // we dialled; else
	accepted *accepting // we accepted
}

// errSuperseded ends an attempt whose connection has moved on, and errReported one
// whose failure the machine knows. They are never shown.
var (
	errSuperseded = errors.New("overtaken")
	errReported   = errors.New("reported")
)

func (m *Messenger) newAttempt() *attempt {
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

// release drops everything but what others wait for: the connection keeps the
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
func coreGone(l *dataplane.Link) bool {
	s := l.Core().State()
	return s == dataplane.CoreFailed || s == dataplane.CoreStopped
}
