package handover

import (
	"context"
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane"
)

// Predecessor are the abilities that a messenger needs to be handed over. Pass calls the
// methods from one goroutine, in the order of this list: at the end Finish if the
// successor has committed, else Undo.
type Predecessor interface {
	// Offer is the identity of the messenger, without the numbers of descriptors.
	Offer() Offer
	// Listeners are the listening sockets, address by address.
	Listeners() (Descriptors, error)
	// Steering are the steering programs of this number of addresses.
	Steering(addrs int) (Descriptors, error)

	// Pause stops accepting.
	Pause() error
	// HalfOpen is the number of accepted sockets whose handshake is under way.
	HalfOpen() int
	// Freeze has all lossless sessions stand still at once: they have neither socket
	// nor attempt nor timer, and no new one begins.
	Freeze() []Frozen
	// Settle returns the numbers of the last attempts to connect, and how many of
	// the sessions that were passed have been closed meanwhile. The error says that
	// the messenger is over.
	Settle(passed []Frozen) (last Attempts, closed int, err error)

	// Undo has everything go on as before the hand-over, however far it came.
	Undo()
	// Finish closes everything that the successor has.
	Finish()
}

// Frozen is a session that stands still, and comes to rest.
type Frozen interface {
	// Attempt closes when the attempt that was interrupted has ended; nil: there
	// was none.
	Attempt() <-chan struct{}
	// Suspended has a snapshot once the session's socket is closed.
	Suspended() <-chan dataplane.Snapshot
	// Dispatched closes when all messages received before Suspended have been dispatched.
	Dispatched() <-chan struct{}
	// Due is the number of replies that the user has promised and not given.
	Due() int

	// Core is the number of the core that has the session's queues.
	Core() int
	// Export asks that core for the queues and sequences, which come by the channel
	// and belong to the receiver. False: the session is closed.
	Export() (<-chan dataplane.HandlerState, bool)
	// Record is the session with the state of Export, which it owns from here. False: the
	// session has been closed, and the state is released.
	Record(dataplane.HandlerState) (Session, bool)
}

// Attempts are the numbers of attempts to connect, which both protocols count apart
// (global_seq).
type Attempts struct{ Msgr2, Msgr1 uint64 }

// Descriptors are open files of which the other process gets duplicates. Their owner calls
// Close.
type Descriptors struct {
	FDs   []int
	Close func()
}

// halfOpenTime is how long handshakes that are under way get to end before the sessions stand
// still, dueTime how long replies that are due get then; restPoll is how often they are counted.
const (
	halfOpenTime = 500 * time.Millisecond
	dueTime      = 2 * time.Second
	restPoll     = time.Millisecond
)

// Pass hands p over to the process at the other end of conn, which calls Take. Until the
// successor has committed, the end of ctx ends it. After an error everything is as before.
// conn is of no use afterwards, and stays the caller's.
func Pass(ctx context.Context, conn *net.UnixConn, p Predecessor) error {
	l := newLink(ctx, conn)
	defer l.close()
	err := prepare(l, p)
	if err == nil {
		err = passSessions(ctx, l, p)
	}
	if err == nil {
		p.Finish()
		return nil
	}
	p.Undo()
	l.refuse(err)
	return withCause(ctx, err)
}

// withCause adds why ctx has ended, if it has: the error of a link only says that
// there was a deadline.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return errors.Join(err, cause)
	}
	return err
}

// prepare is the first phase: the successor gets everything that can be shared. It
// changes nothing here.
func prepare(l *link, p Predecessor) error {
	if err := l.sameUser(); err != nil {
		return err
	}
	var h Hello
	if err := l.read(recordHello, &h); err != nil {
		return err
	}
	o := p.Offer()
	if !h.succeeds(&o) {
		return Errorf("%v with nonce %d wants to succeed %v with nonce %d", h.Entity, h.Nonce, o.Entity, o.Nonce)
	}
	listeners, err := p.Listeners()
	if err != nil {
		return Errorf("listeners: %w", err)
	}
	defer listeners.Close()
	steering, err := p.Steering(len(o.Addrs))
	if err != nil {
		return Errorf("steering: %w", err)
	}
	defer steering.Close()
	o.Listeners, o.Steering = uint32(len(listeners.FDs)), uint32(len(steering.FDs))
	if err = l.sendFields(recordOffer, &o); err == nil {
		err = l.sendFiles(recordListeners, listeners.FDs)
	}
	if err == nil {
		err = l.sendFiles(recordSteering, steering.FDs)
	}
	if err != nil && !errors.Is(err, unix.EPIPE) {
		return err
	}
	// A successor that has refused and hung up has left its reason.
	if _, why := expect(l.in, recordReady); why != nil {
		return why
	}
	return err
}

// passSessions is the second phase: everything stands still until the successor has
// confirmed.
func passSessions(ctx context.Context, l *link, p Predecessor) error {
	if err := p.Pause(); err != nil {
		return Errorf("%w", err)
	}
	// So that their peers see no failure. Later handshakes fail: the successor has their lossless
	// sessions by then.
	if err := awaitNone(ctx, halfOpenTime, p.HalfOpen); err != nil {
		return err
	}
	sessions := p.Freeze()
	if err := awaitRest(ctx, sessions); err != nil {
		return err
	}
	if err := sendSessions(ctx, l, p, sessions); err != nil {
		return err
	}
	return l.awaitCommitted()
}

// awaitNone waits until count returns 0, but no longer than limit.
func awaitNone(ctx context.Context, limit time.Duration, count func() int) error {
	tick := time.NewTicker(restPoll)
	defer tick.Stop()
	late := time.NewTimer(limit)
	defer late.Stop()
	for count() > 0 {
		select {
		case <-tick.C:
		case <-late.C:
			return nil
		case <-ctx.Done():
			return Errorf("%w", context.Cause(ctx))
		}
	}
	return nil
}

// awaitRest waits until no attempt runs, all received messages have been dispatched, and no reply
// is due, so that their answers are handed over, too.
func awaitRest(ctx context.Context, sessions []Frozen) error {
	for _, s := range sessions {
		if ended := s.Attempt(); ended != nil {
			if err := await(ctx, ended); err != nil {
				return err
			}
		}
	}
	for _, s := range sessions {
		if err := await(ctx, s.Suspended()); err != nil {
			return err
		}
		if err := await(ctx, s.Dispatched()); err != nil {
			return err
		}
	}
	return awaitNone(ctx, dueTime, func() (due int) {
		for _, s := range sessions {
			due += s.Due()
		}
		return due
	})
}

func await[T any](ctx context.Context, done <-chan T) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return Errorf("sessions do not come to rest: %w", context.Cause(ctx))
	}
}

// sendSessions sends all sessions except those that were closed meanwhile.
func sendSessions(ctx context.Context, l *link, p Predecessor, sessions []Frozen) error {
	var d Done
	var passed []Frozen
	for _, f := range sessions {
		s, ok, err := record(ctx, f)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		n, err := s.Write(l.out)
		s.IO.Release()
		if err != nil {
			return Errorf("%w", err)
		}
		passed = append(passed, f)
		d.Sessions++
		d.Messages += n
	}
	var closed int
	var err error
	d.Last, closed, err = p.Settle(passed)
	if err == nil && closed > 0 {
		err = Errorf("%d sessions that were passed on already have been closed", closed)
	}
	if err != nil {
		return err
	}
	return l.sendFields(recordDone, &d)
}

// record takes a session out of its core.
func record(ctx context.Context, f Frozen) (s Session, ok bool, err error) {
	answer, ok := f.Export()
	if !ok {
		return s, false, nil
	}
	select {
	case st := <-answer:
		s, ok = f.Record(st)
		return s, ok, nil
	case <-ctx.Done():
		go func() { late := <-answer; late.Release() }()
		return s, false, Errorf("core %d: %w", f.Core(), context.Cause(ctx))
	}
}

// State is the progress of the hand-over of a messenger. The zero value is before any
// hand-over. Its owner, the messenger, guards it by the lock of its sessions, so that no
// session is made between Freeze and the list of frozen ones.
type State struct{ now phase }

type phase uint8

const (
	phaseNone      phase = iota
	phasePreparing       // the successor opens its cores; nothing has changed
	phaseFrozen          // sessions and listeners stand still
	phaseDone            // committed: they are the successor's
)

// Begin begins a hand-over, if none is under way or done.
func (s *State) Begin() error {
	if s.now != phaseNone {
		return Errorf("another one is under way")
	}
	s.now = phasePreparing
	return nil
}

// Freeze says that the sessions stand still from here on.
func (s *State) Freeze() { s.now = phaseFrozen }

// Undo says that everything is as it was before Begin.
func (s *State) Undo() { s.now = phaseNone }

// Finish says that everything is the successor's.
func (s *State) Finish() { s.now = phaseDone }

// Idle says that no hand-over is under way or done: cores and listeners may change.
func (s *State) Idle() bool { return s.now == phaseNone }

// Frozen says that lossless sessions stand still, or are the successor's: none may
// be made.
func (s *State) Frozen() bool { return s.now >= phaseFrozen }

// Done says that everything is the successor's.
func (s *State) Done() bool { return s.now == phaseDone }

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

// seqMargin is the gap that the successor leaves between its numbers of attempts and those
// of the predecessor, which still uses some for its lossy connections.
const seqMargin = 1 << 16

// Take takes over from the process at the other end of conn, which calls Pass. The
// end of ctx ends it. After an error nothing was taken over. conn is of no use
// afterwards, and stays the caller's.
func Take(ctx context.Context, conn *net.UnixConn, s Successor) error {
	l := newLink(ctx, conn)
	defer l.close()
	err := receive(l, s)
	if err == nil {
		s.Begin()
		return nil
	}
	l.refuse(err)
	if undone := s.Undo(); undone != nil {
		err = errors.Join(err, undone)
	}
	return withCause(ctx, err)
}

// receive gets everything from the predecessor. The write of the last record
// commits: nothing runs here before it.
func receive(l *link, s Successor) error {
	h, err := s.Hello()
	if err != nil {
		return err
	}
	if err := l.sameUser(); err != nil {
		return err
	}
	if err := l.sendFields(recordHello, &h); err != nil {
		return err
	}
	var o Offer
	if err := l.read(recordOffer, &o); err != nil {
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
	if err := l.send(recordReady, nothing); err != nil {
		return err
	}
	sessions, d, err := readSessions(l.in)
	if err != nil {
		return err
	}
	if err := s.Restore(o, sessions, Attempts{Msgr2: d.Last.Msgr2 + seqMargin, Msgr1: d.Last.Msgr1 + seqMargin}); err != nil {
		return err
	}
	return l.send(recordCommitted, nothing)
}

// receiveShared receives the descriptors that both sides have until the commit.
func receiveShared(l *link, s Successor, o *Offer) error {
	fds, err := l.readFiles(recordListeners, int(o.Listeners))
	if err != nil {
		return err
	}
	if err := s.Listeners(fds); err != nil {
		return err
	}
	if fds, err = l.readFiles(recordSteering, int(o.Steering)); err != nil {
		return err
	}
	return s.Steering(fds)
}
