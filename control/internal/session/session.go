package session

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Lifecycle is what every connection has, whatever protocol it speaks.
type Lifecycle struct {
	State     State
	Once      bool // no second attempt
	Frozen    bool // stands still for a hand-over
	Announced bool // the user knows of the connection, and is told when it is over
	Local     bool // the connection to ourselves: it has no socket
	Policy    Policy
	Peer      Peer

	GlobalSeq     uint64        // of our own attempt under way
	PeerGlobalSeq uint64        // of the peer's last attempt
	ConnectSeq    uint64        // number of reconnects of the session
	Features      wire.Features // that both ends support
	Backoff       Backoff       // of attempts that fail
	Useless       Backoff       // of a session that ends again and again without being of use
	// Attempt is the number of the attempt that owns the connection's socket, or
	// owned it last. Events of any other attempt change nothing.
	Attempt          uint64
	Timer            uint64   // number of the back-off timer's last run
	IO               Snapshot // of the handler, while it is not open
	lastNotification uint64   // notifications up to this number are older than IO
	useless          int32    // times in a row that it was ready and of no use
	rounds           int32    // session frames on this socket
	strange          int32    // times in a row that the peer has received what we have not sent
}

// Session is the protocol of one msgr2 connection (msgr2.md 9.1), or of an
// accepted socket that is not a connection yet. It is a value: Step makes the
// next one of it. Its owner guards it.
type Session struct {
	Lifecycle

	ClientCookie uint64
	ServerCookie uint64
	ToldSeq      uint64 // our global_seq in the SERVER_IDENT that opened the session, 0 if the peer sent that

	asked   Kind     // connector: the frame that waits for its answer
	due     Kind     // accepted socket: the frame that must come next, 0: any
	claimed *claimed // acceptor: what the peer said, until it is answered
	replace *Replace // state Replacing: what the accepted socket said
}

// claimed is what the peer of an accepted socket said. It never changes.
type claimed struct {
	front  wire.Addr // of the peer, until a connection is made
	target wire.Addr // from then on: ours by which the peer of CLIENT_IDENT has reached us
}

// NewLifecycle is a connection in state None.
func NewLifecycle(p Policy, peer Peer, b Backoff) Lifecycle {
	return Lifecycle{Policy: p, Peer: peer, Backoff: b, Useless: b}
}

// New makes a session in state None.
func New(p Policy, peer Peer, b Backoff) Session {
	return Session{Lifecycle: NewLifecycle(p, peer, b)}
}

// Resumable says whether there is a session to resume on another socket.
func (s *Session) Resumable() bool { return !s.Policy.Lossy && s.ServerCookie != 0 }

// Protocol is what the rules that all protocols share leave to each of them.
type Protocol interface {
	// Begin sets the protocol's own numbers for an attempt of ours, which the trigger t
	// begins.
	Begin(r *Run, t Trigger)
	// Leave says what is to be remembered of a session that ends.
	Leave(r *Run)
	// Address is the one of a process that the protocol uses; blank if there is none.
	Address(v wire.AddrVec) wire.Addr
}

// Begin implements Protocol.
func (s *Session) Begin(r *Run, t Trigger) {
	if t == OnConnect {
		// The sharded rule: made with the object, whatever the policy.
		s.ClientCookie = r.Env.Cookie()
	}
	if s.Resumable() {
		s.ConnectSeq++
	}
}

// Leave implements Protocol.
func (s *Session) Leave(r *Run) {
	if s.Resumable() {
		r.Do(Remember{Name: Name{s.Peer.Addrs.Front(), s.ClientCookie}, PeerGlobalSeq: s.PeerGlobalSeq})
	}
}

// Address implements Protocol.
func (*Session) Address(v wire.AddrVec) wire.Addr { return v.V2() }

// Env is what a step may ask of the messenger. The caller owns what it leads
// to, and guards it during the step.
type Env struct {
	Addrs  wire.AddrVec // ours
	Number int64        // our gid
	Seq    *GlobalSeq
	// Cookie makes a random number other than 0, OwnerCookie one that may tell
	// peers where the session has its owner.
	Cookie      func() uint64
	OwnerCookie func() uint64
	// Unsent: the handler holds messages that wait to be sent or acknowledged. A
	// snapshot does not know of those that were sent since.
	Unsent bool
	// Contested says whether another session has a better right to the address of
	// the peer (Contested); nil: none has.
	Contested func() bool
}

// Step is the machine: what comes of an event in a state. The actions are to be
// carried out in their order. Neither s nor what it leads to is changed, but for
// the numbers that env gives out.
func Step(s Session, ev Event, env Env) (Session, []Action) {
	actions := s.Advance(ev, env)
	return s, actions
}

// Advance is Step in place, for the owner of the session: without a copy.
func (s *Session) Advance(ev Event, env Env) []Action {
	r := NewRun(env)
	switch ev := ev.(type) {
	case LifeEvent:
		ev.Live(&s.Lifecycle, s, r)
	case ownEvent:
		ev.apply(s, r)
	default:
		r.Foreign(ev)
	}
	return r.actions
}

// Run is one step under way, of this machine or of one that shares its rules.
type Run struct {
	Env     Env
	actions []Action
	few     [8]Action // room for those of most steps
}

// NewRun begins a step.
func NewRun(env Env) *Run {
	r := &Run{Env: env}
	r.actions = r.few[:0]
	return r
}

// Do adds to what has to be done.
func (r *Run) Do(actions ...Action) { r.actions = append(r.actions, actions...) }

// Foreign says that ev is no event of the protocol, which is a bug of ours.
func (r *Run) Foreign(ev Event) { r.Do(Illegal{Err: fmt.Errorf("%w: event %T", ErrTransition, ev)}) }

// Actions are what has to be done, in that order.
func (r *Run) Actions() []Action { return r.actions }

// Move changes the state by the table. An illegal pair is a bug of ours: the
// state stays.
func (l *Lifecycle) Move(r *Run, t Trigger) bool {
	to, err := Next(l.State, t)
	if err != nil {
		r.Do(Illegal{Err: err})
		return false
	}
	r.Do(StateChanged{From: l.State, By: t, To: to})
	l.State = to
	return true
}

// Owns says whether an event of an attempt still concerns the connection, and
// ends the attempt if not.
func (l *Lifecycle) Owns(r *Run, attempt uint64, states ...State) bool {
	if attempt == l.Attempt {
		for _, s := range states {
			if l.State == s {
				return true
			}
		}
	}
	r.Do(Superseded{})
	return false
}

// Observe adopts the handler's snapshot.
func (l *Lifecycle) Observe(io Snapshot) { l.IO, l.lastNotification = io, io.Notifications }

// Work says whether anything waits to be sent or acknowledged.
func (l *Lifecycle) Work(r *Run) bool { return l.IO.Queued || l.IO.Sent || r.Env.Unsent }
