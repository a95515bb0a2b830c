package session

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Lifecycle is the state of every connection, in either protocol.
type Lifecycle struct {
	State  State
	Once   bool // no second attempt
	Frozen bool // stands still for a hand-over
	Local  bool // the connection to ourselves: it has no socket
	Policy Policy
	Peer   Peer

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
	replace          *Replace // state Replacing: the facts of the accepted socket
	lastNotification uint64   // notifications up to this number are older than IO
	useless          int32    // times in a row that it was ready and of no use
	rounds           int32    // session frames on this socket
	strange          int32    // times in a row that the peer claims messages that we have not sent
}

// Life implements Protocol.
func (l *Lifecycle) Life() *Lifecycle { return l }

// NewLifecycle is a connection in state None.
func NewLifecycle(p Policy, peer Peer, b Backoff) Lifecycle {
	return Lifecycle{Policy: p, Peer: peer, Backoff: b, Useless: b}
}

// Protocol is a session of one protocol: its Lifecycle, whose rules both protocols share, and
// the parts that these rules leave to the protocol.
type Protocol interface {
	// Life is the common part of the session.
	Life() *Lifecycle
	// Version is 2 in msgr2, and 1 in msgr1.
	Version() int
	// Address is the one of a process that the protocol uses; blank if there is none.
	Address(v wire.AddrVec) wire.Addr
	// Begin sets the protocol's own numbers for an attempt of ours, which the trigger t
	// begins.
	Begin(r *Run, t Trigger)
	// Leave remembers a session that ends.
	Leave(r *Run)

	// Start sends the first frame of our attempt. An error here, in Answered and in Resume is a
	// fault of the attempt.
	Start(r *Run) error
	// Answered judges the peer's next frame on the socket of an attempt.
	Answered(r *Run, f Frame) error
	// Arrived goes on with our attempt when the handler is on the core of its socket.
	Arrived(r *Run)
	// Asked answers a frame of an accepted socket. An error closes that.
	Asked(r *Run, ev Request) error
	// Accept makes a new session known to the peer of an accepted socket.
	Accept(r *Run)
	// Resume applies the facts of an accepted socket that takes the session over, and
	// answers.
	Resume(r *Run, by Replace) error
	// Finish ends a handshake whose last frame was ours.
	Finish(r *Run)

	// Names says whether a frame with this client cookie is about the session.
	Names(cookie uint64) bool
	// Question is the frame that checks the peer's claim to its address; nil if there is no
	// claim to check now. Ours are our addresses. The answer comes as Checked.
	Question(ours wire.AddrVec) Frame
	// Judge takes the answer.
	Judge(r *Run, ev Checked)

	// Record is the state with which another process goes on with the session, beside its
	// Lifecycle.
	Record() Record
	// Recall is the other side of Record.
	Recall(rec Record)
}

// Record are the numbers of a session that only its protocol has.
type Record struct {
	ClientCookie, ServerCookie uint64 // msgr2
	ToldSeq                    uint64 // our global_seq that has opened the session, 0 if the peer sent that
	// Told are our global_seqs of which the peer of msgr1 has one on record, in their order. Those of
	// a session that we have dialled do not count. Opened has opened the session last.
	Told   []uint32
	Opened uint32
}

// Env is the part of the messenger that a step may use. The caller owns the objects behind it,
// and guards them during the step.
type Env struct {
	Addrs  wire.AddrVec // ours
	Number int64        // our gid
	Seq    *GlobalSeq
	// Cookie makes a random number other than 0, OwnerCookie one that may name the core
	// that owns the session.
	Cookie      func() uint64
	OwnerCookie func() uint64
	// Unsent: the handler holds messages that wait to be sent or acknowledged. A
	// snapshot does not know of those that were sent since.
	Unsent bool
	// Contested says whether another session has a better right to the address of
	// the peer (Contested); nil: none has.
	Contested func() bool
}

// Advance is the machine: it changes the session p by an event, and returns the actions to be
// carried out, in their order. Env.Seq counts the attempts of the protocol alone.
func Advance(p Protocol, ev Event, env Env) []Action {
	r := &Run{Env: env}
	r.actions = r.few[:0]
	ev.Live(p.Life(), p, r)
	return r.actions
}

// Run is one step under way.
type Run struct {
	Env     Env
	actions []Action
	few     [8]Action // room for the actions of most steps
}

// Do adds actions.
func (r *Run) Do(actions ...Action) { r.actions = append(r.actions, actions...) }

// move changes the state by the table. An illegal pair is a bug of ours: the
// state stays.
func (l *Lifecycle) move(r *Run, t Trigger) bool {
	to, err := Next(l.State, t)
	if err != nil {
		r.Do(Illegal{Err: err})
		return false
	}
	r.Do(StateChanged{From: l.State, By: t, To: to})
	l.State = to
	return true
}

// owns says whether an event of an attempt still concerns the connection, and
// ends the attempt if not.
func (l *Lifecycle) owns(r *Run, attempt uint64, states ...State) bool {
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

// observe adopts the handler's snapshot.
func (l *Lifecycle) observe(io Snapshot) { l.IO, l.lastNotification = io, io.Notifications }

// work reports whether a message waits to be sent or acknowledged.
func (l *Lifecycle) work(r *Run) bool { return l.IO.Queued || l.IO.Sent || r.Env.Unsent }

// The bounds of the numbers in a peer's frames. The peer, or an impostor, chooses them; no
// number may wrap, and none may keep the owner of a session out for ever:
//
//   - global_seq and connect_seq count attempts, so that Numbers.Max is out of reach,
//     and a frame with more is a protocol violation. A global_seq may begin
//     anywhere below it: daemons with a fixed address begin with the time.
//   - Our own number in a retry may be Numbers.Lead ahead of the true one.
//   - A number on record that is more than Numbers.Lead ahead of the peer's own is not sent
//     to the peer, and counts only while an older handshake can be under way
//     (Request.Settled).
//   - The last message that the peer has received from us is one that we have sent. A higher
//     number is not adopted: the attempt fails and changes nothing. A peer that sends one
//     maxStrange times in a row has another session than we: ours begins anew with the next
//     attempt, as after a partial reset.

// Numbers are the bounds of the counters of one protocol.
type Numbers struct {
	// Max is above any number that a process can reach, and far below the wrap.
	Max uint64
	// Lead is how far the peer's view of one of our numbers may be ahead of ours: it may
	// come from an earlier process with our nonce.
	Lead uint64
}

// Believable says whether a peer may have seen this number of ours.
func (n Numbers) Believable(seen, own uint64) bool { return seen < n.Max && seen <= own+n.Lead }

// Implausible says whether a number on record is too far ahead of the peer's own
// to be one that the peer had.
func (n Numbers) Implausible(recorded, own uint64) bool {
	return recorded > own && recorded-own > n.Lead
}

const maxStrange = 4

// CheckReceived checks the number of the last message that the peer claims to have received:
// we must have sent it. Anew: the peer has sent impossible numbers so often that it must have
// another session than we, and ours has to begin anew.
func (l *Lifecycle) CheckReceived(seq uint64) (anew bool, err error) {
	if seq <= l.IO.OutSeq {
		return false, nil
	}
	if l.strange++; l.strange == maxStrange {
		l.strange = 0
		anew = true
	}
	return anew, fmt.Errorf("%w: the peer has received message %d, we have sent %d", ErrProtocol, seq, l.IO.OutSeq)
}
