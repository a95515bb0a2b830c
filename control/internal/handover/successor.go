package handover

import (
	"context"
	"errors"
	"net"
)

// Successor takes a messenger over. Take calls the methods from one goroutine, in the order
// of this list: at the end Begin if everything is there, else Undo.
type Successor interface {
	// Hello is the identity of the successor.
	Hello() (Hello, error)
	// Start makes the messenger that is offered. It does not accept.
	Start(Offer) error
	// Listeners gets the listening sockets, which it owns from here, after an error,
	// too. They do not accept yet.
	Listeners(fds []int) error
	// Steering gets the steering programs, which it owns from here, after an error,
	// too. They stay in force as they are.
	Steering(fds []int) error
	// Restore makes the sessions, which stand still, under the predecessor's
	// addresses. Attempts to connect are numbered from above these.
	Restore(o Offer, sessions []Session, last Attempts) error

	// Begin has everything run: it is ours.
	Begin()
	// Undo closes the parts of the messenger that exist. No part of it has run.
	Undo() error
}

// toPredecessor is the successor's side of a Link.
type toPredecessor interface {
	SameUser() error
	SendHello(Hello) error
	ReadOffer() (Offer, error)
	ReadListeners(n int) ([]int, error)
	ReadSteering(n int) ([]int, error)
	SendReady() error
	ReadSessions() ([]Session, Done, error)
	Commit() error
	Refuse(error)
}

// seqMargin is the gap that the successor leaves between its numbers of attempts and those
// of the predecessor, which still uses some for its lossy connections.
const seqMargin = 1 << 16

// Take takes over from the process at the other end of conn, which calls Pass. The
// end of ctx ends it. After an error nothing was taken over. conn is of no use
// afterwards, and stays the caller's.
func Take(ctx context.Context, conn *net.UnixConn, s Successor) error {
	l := NewLink(ctx, conn)
	defer l.Close()
	return take(ctx, l, s)
}

func take(ctx context.Context, l toPredecessor, s Successor) error {
	err := receive(l, s)
	if err == nil {
		s.Begin()
		return nil
	}
	l.Refuse(err)
	if undone := s.Undo(); undone != nil {
		err = errors.Join(err, undone)
	}
	return withCause(ctx, err)
}

// receive gets everything from the predecessor. The write of the last record
// commits: nothing runs here before it.
func receive(l toPredecessor, s Successor) error {
	h, err := s.Hello()
	if err != nil {
		return err
	}
	if err := l.SameUser(); err != nil {
		return err
	}
	if err := l.SendHello(h); err != nil {
		return err
	}
	o, err := l.ReadOffer()
	if err != nil {
		return err
	}
	if !h.succeeds(&o) {
		return Errorf("%v with nonce %d cannot succeed %v with nonce %d", h.Entity, h.Nonce, o.Entity, o.Nonce)
	}
	if err := s.Start(o); err != nil {
		return err
	}
	if err := receiveShared(l, s, &o); err != nil {
		return err
	}
	if err := l.SendReady(); err != nil {
		return err
	}
	sessions, d, err := l.ReadSessions()
	if err != nil {
		return err
	}
	if err := s.Restore(o, sessions, Attempts{Msgr2: d.Last.Msgr2 + seqMargin, Msgr1: d.Last.Msgr1 + seqMargin}); err != nil {
		return err
	}
	return l.Commit()
}

// receiveShared receives the descriptors that both sides have until the commit.
func receiveShared(l toPredecessor, s Successor, o *Offer) error {
	fds, err := l.ReadListeners(int(o.Listeners))
	if err != nil {
		return err
	}
	if err := s.Listeners(fds); err != nil {
		return err
	}
	if fds, err = l.ReadSteering(int(o.Steering)); err != nil {
		return err
	}
	return s.Steering(fds)
}
