package session

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// What all protocols do with an accepted socket, until it is decided whose it is,
// and with the connection that it takes over.

// Live begins with an accepted socket.
func (Accept) Live(l *Lifecycle, _ Protocol, r *Run) { l.Move(r, OnAccept) }

// Live ends a socket that belongs to no connection.
func (ev SocketEnded) Live(l *Lifecycle, _ Protocol, r *Run) {
	if l.State == Accepting || l.State == ServerWait {
		l.Hangup(r, ev.Err)
		return
	}
	r.Do(Superseded{})
}

// Hangup closes the socket without a frame.
func (l *Lifecycle) Hangup(r *Run, err error) {
	if l.Move(r, OnClose) {
		r.Do(Hangup{Err: err})
	}
}

// Round counts a session frame on this socket, and says whether it is below most.
func (l *Lifecycle) Round(most int) bool {
	l.rounds++
	return int(l.rounds) < most
}

// Establish makes a connection of the accepted socket, on which a new session
// begins. The peer is found under front from now on if the policy says so; near: the
// socket comes from the IP of front.
func (l *Lifecycle) Establish(r *Run, front wire.Addr, near, replaceLossy bool) bool {
	r.Do(NewConn{ReplaceLossy: replaceLossy})
	if !l.Move(r, OnEstablish) {
		return false
	}
	l.Attempt, l.Announced = 1, true
	if l.Policy.findable() {
		l.Peer.Target, l.Peer.Near = front, near // whom to dial if the session is ours to resume
	}
	return true
}

// Rename adopts the peer's addresses.
func (l *Lifecycle) Rename(r *Run, addrs wire.AddrVec, also bool) {
	r.Do(Renamed{From: l.Peer.Addrs.Front(), To: addrs.Front(), Also: also})
	l.Peer.Addrs = addrs
}

// TellWait has an accepted socket, whose peer is told to wait by a frame, stay until
// that hangs up. Probe: our own connection is kept alive.
func (l *Lifecycle) TellWait(r *Run, probe bool, f Frame) {
	if !l.Move(r, OnWaitSent) {
		return
	}
	r.Do(Count{WaitsSent})
	if probe {
		r.Do(Probe{})
	}
	r.Do(Send{Frame: f})
}

// Give lets the existing connection e have the accepted socket.
func (l *Lifecycle) Give(r *Run, e *Lifecycle, reset bool) error {
	if e.Frozen {
		return ErrFrozen
	}
	if _, err := Next(e.State, OnReplace); err != nil {
		return fmt.Errorf("%w: state %v cannot be replaced", ErrProtocol, e.State)
	}
	if l.Move(r, OnReplace) {
		r.Do(TakeOver{Reset: reset})
	}
	return nil
}

// Interrupt has an accepted socket take over: the attempt that owned the
// connection's socket ends first.
func (l *Lifecycle) Interrupt(r *Run) bool {
	if !l.Move(r, OnReplace) {
		return false
	}
	l.Attempt++
	l.rounds = 0
	l.Backoff.Reset()
	r.Do(Cancel{}, StopTimer{}, Count{Replaced}, Suspend{ReplyTo: l.Attempt})
	return true
}

// Live moves the handler, which is not open, to the core of the accepted
// socket.
func (ev Suspended) Live(l *Lifecycle, _ Protocol, r *Run) {
	if !l.Owns(r, ev.Attempt, Replacing) {
		return
	}
	l.Observe(ev.IO)
	l.Announced = true
	r.Do(MoveHandler{Attempt: l.Attempt, Accepted: true})
}

// Forget forgets the session (msgr2.md 9.4): all of it, with what is queued, or what
// depends on the peer's memory.
func (l *Lifecycle) Forget(r *Run, full bool) {
	l.ConnectSeq = 0
	l.IO.InSeq = 0
	if full {
		l.PeerGlobalSeq = 0
		l.IO = Snapshot{}
		r.Do(Count{RemoteResets})
	}
	r.Do(ResetIO{Full: full})
	if full {
		r.Do(TellRemoteReset{})
	}
}
