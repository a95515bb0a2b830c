package session_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The scripts in testdata of session2 and session1 say what comes of every event: each entry is
// an event with its facts, and below it the actions in their order and the state. -rewrite
// writes down what the machine does now, to be read before it is committed. A script plays one
// messenger, one connection of it, and one accepted socket:
//
//	messenger addrs=low seq=7       our addresses and the number of the last attempt
//	connection policy=lossless-peer target=high
//	                                a new connection, in state none; claimed: by a peer
//	                                that has said that it is there, from there
//	socket policy=lossless-peer     an accepted socket, in state accepting
//	show                            what the connection knows
//	peer                            what it knows of its peer
//	question                        how a claim of its peer is checked
//	age                             forget sessions that have ended
//
// All other commands are events, on the connection. times=N plays one N times and shows the
// last. In scripts of msgr1 they have the numbers of its attempt, timer and notification unless
// they say another; asks is a connect message on the socket, asks-again one on that of the
// connection. A frame of msgr2 is the peer's on the socket, or, with an attempt, its answer. What
// an accepted socket asks is answered with the connection as the existing one if it has the peer's
// address. A socket that opens a session becomes the connection.
type script struct {
	dialect
	env          session.Env
	seq          session.GlobalSeq
	cookies      uint64
	conn, socket session.Protocol // nil for none
	ended        session.Ended
	notes        uint64 // notifications of the handler
	entered      map[session.StateChanged]bool
	acted        map[string]bool
}

// dialect is the part of scripts that depends on the protocol.
type dialect struct {
	names
	features wire.Features
	numbered bool // an event has the numbers of the connection by default
	// fresh makes a session in state none.
	fresh func(own wire.EntityType, p session.Policy, peer session.Peer, b session.Backoff) session.Protocol
	// event is a command that is an event of this protocol alone, nil if it is none.
	event func(x *script, a args) session.Event
	// request is a command that is a question of the accepted socket.
	request func(x *script, a args) (ev session.Request, ok bool)
	// existing is the connection as the one that the question is about, nil if it is not.
	existing func(x *script, a args, ev *session.Request) session.Protocol
	// show is a session with its numbers; life is the part that both protocols have.
	show func(p session.Protocol, life string) string
	// frame is a frame with its fields.
	frame func(f session.Frame) string
}

// reset begins a file.
func (x *script) reset() {
	x.seq, x.cookies, x.conn, x.socket, x.ended, x.notes = 0, 0, nil, nil, session.Ended{}, 0
	x.env = session.Env{
		Addrs: x.vec("low"), Number: 3, Seq: &x.seq,
		Cookie:      func() uint64 { x.cookies++; return 100 + x.cookies },
		OwnerCookie: func() uint64 { x.cookies++; return 900 + x.cookies },
	}
}

func (x *script) run(t *testing.T, d *datadriven.TestData) string {
	a := args{t, d}
	switch d.Cmd {
	case "messenger":
		x.env.Addrs = x.vec(a.str("addrs", "low"))
		x.seq = session.GlobalSeq(a.num("seq", uint64(x.seq)))
		x.env.Unsent = a.has("unsent")
		contested := a.has("contested")
		x.env.Contested = func() bool { return contested }
		return fmt.Sprintf("%s, global_seq %d", x.short(x.env.Addrs.String()), x.seq)
	case "connection":
		x.conn = x.make(a)
		l := x.conn.Life()
		l.Once, l.Peer.Anonymous = a.has("once"), a.has("anonymous")
		l.Peer.Target, l.Peer.Dialled, l.Peer.Near = x.addr(a.str("target", "high")), !a.has("claimed"), a.has("claimed")
		l.Peer.Addrs = wire.AddrVec{l.Peer.Target}
		return l.State.String()
	case "socket":
		x.socket = x.make(a)
		l := x.socket.Life()
		l.Peer.Entity, l.Peer.Proven = a.entity(), a.has("proven")
		return x.step(x.socket, session.Accept{})
	case "show":
		l := x.conn.Life()
		return x.short(x.show(x.conn, fmt.Sprintf("peer=%v target=%v in_seq=%d queued=%v sent=%v frozen=%v",
			l.Peer.Addrs, l.Peer.Target, l.IO.InSeq, l.IO.Queued, l.IO.Sent, l.Frozen)))
	case "peer":
		p := x.conn.Life().Peer
		return x.short(fmt.Sprintf("%v proven=%v gid=%d target=%v dialled=%v near=%v", p.Entity, p.Proven, p.Number, p.Target, p.Dialled, p.Near))
	case "question":
		f := x.conn.Question(x.env.Addrs)
		if f == nil {
			return "none"
		}
		return x.short(x.frame(f))
	case "age":
		return fmt.Sprint("anything left: ", x.ended.Age())
	}
	return a.times(func() string {
		if ev, ok := x.request(x, a); ok {
			return x.ask(a, ev)
		}
		ev := x.common(a)
		if ev == nil {
			ev = x.event(x, a)
		}
		if ev == nil {
			t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
		}
		return x.step(x.conn, ev)
	})
}

// make makes the session that a script asks for.
func (x *script) make(a args) session.Protocol {
	p, ok := policies[a.str("policy", "lossless-peer")]
	if !ok {
		a.t.Fatalf("%s: no such policy", a.d.Pos)
	}
	p.Supported, p.Required = x.features, wire.FeatureMsgAddr2
	return x.fresh(a.kind("own"), p, session.Peer{Type: a.kind("type")}, session.Backoff{Initial: 200 * time.Millisecond, Max: 15 * time.Second})
}

// now is a number of the connection, or 0 where a script has to say it.
func (x *script) now(of func(l *session.Lifecycle) uint64) uint64 {
	if !x.numbered || x.conn == nil {
		return 0
	}
	return of(x.conn.Life())
}

func (x *script) attempt(a args) uint64 {
	return a.num("attempt", x.now(func(l *session.Lifecycle) uint64 { return l.Attempt }))
}

func (x *script) io(a args) session.Snapshot {
	return session.Snapshot{
		InSeq: a.num("in_seq", 0), OutSeq: a.num("out_seq", 0), Queued: a.has("queued"), Sent: a.has("sent"), Notifications: a.num("notes", x.notes),
	}
}

// common are the commands that are an event of one session, in both protocols.
func (x *script) common(a args) session.Event {
	switch a.d.Cmd {
	case "connect":
		return session.Connect{}
	case "queued":
		return session.Queued{}
	case "timer":
		return session.TimerFired{Run: a.num("run", x.now(func(l *session.Lifecycle) uint64 { return l.Timer }))}
	case "lost":
		if x.numbered {
			x.notes++
		}
		return session.Lost{Notification: a.num("note", x.notes), IO: x.io(a), Err: a.err(), Useful: a.has("useful")}
	case "failed":
		return session.Failed{Attempt: x.attempt(a), Err: a.err(), Terminal: a.has("terminal")}
	case "close":
		return session.Close{Reset: a.has("reset"), Replace: a.has("replace"), Err: errors.New(a.str("why", "marked down"))}
	case "freeze":
		return session.Freeze{}
	case "told":
		return session.FrozenSnapshot{IO: x.io(a)}
	case "readdressed":
		return session.Readdressed{Addrs: x.vec(a.str("addrs", ""))}
	case "thaw":
		return session.Thaw{}
	case "loopback":
		return session.Loopback{}
	case "authenticated", "connected":
		return session.Authenticated{Attempt: x.attempt(a), IO: x.io(a)}
	case "suspended":
		return session.Suspended{Attempt: x.attempt(a), IO: x.io(a)}
	case "arrived":
		return session.HandlerMoved{Attempt: x.attempt(a)}
	case "sent":
		return session.Sent{Attempt: x.attempt(a)}
	case "accept":
		return session.Accept{}
	}
	return nil
}

// step plays an event and writes down what comes of it.
func (x *script) step(s session.Protocol, ev session.Event) string {
	var b strings.Builder
	actions := session.Advance(s, ev, x.env)
	for _, act := range actions {
		x.note(&b, act)
	}
	if len(actions) == 0 {
		fmt.Fprintln(&b, "nothing")
	}
	fmt.Fprintf(&b, "= %v", s.Life().State)
	return b.String()
}

func (x *script) note(b *strings.Builder, act session.Action) {
	fmt.Fprintln(b, x.short(x.textOf(act)))
	x.acted[fmt.Sprintf("%T", act)] = true
	switch act := act.(type) {
	case session.StateChanged:
		x.entered[act] = true
	case session.Remember:
		x.ended.Remember(act.Name, act.PeerGlobalSeq)
	}
}

// ask plays a question of the accepted socket, and what comes of it for the existing connection.
func (x *script) ask(a args, ev session.Request) string {
	ev.Frozen, ev.Settled = a.has("handing-over"), a.has("settled")
	if a.has("shut-down") {
		ev.Refuse = errors.New("shut down")
	}
	e := x.conn
	if e != nil {
		l := e.Life()
		if l.State == session.Closing || l.Peer.Target != ev.From && l.Peer.Addrs.Front() != ev.From {
			e = nil
		}
	}
	if e != nil {
		ev.Existing = x.existing(x, a, &ev)
	}
	socket := x.socket.Life()
	var b strings.Builder
	for _, act := range session.Advance(x.socket, ev, x.env) {
		x.note(&b, act)
		switch act := act.(type) {
		case session.NewConn:
			if act.ReplaceLossy {
				fmt.Fprintln(&b, indent(x.step(e, session.Close{Reset: true, Replace: true, Err: errors.New("replaced")})))
			}
			x.conn = x.socket
		case session.TakeOver:
			fmt.Fprintln(&b, indent(x.step(e, session.Replace{Frame: ev.Frame, Reset: act.Reset, Entity: socket.Peer.Entity, Proven: socket.Peer.Proven})))
		}
	}
	fmt.Fprintf(&b, "= %v", socket.State)
	return b.String()
}

// indent marks the lines of a text as those of an event within another one.
func indent(text string) string { return "  | " + strings.ReplaceAll(text, "\n", "\n  | ") }

// Matrix: HI-13, HI-14, HS-17, HS-18, HS-19, HS-20, HS-21, SE-01, SE-02, SE-03, SE-04, SE-07, SE-08, SE-09, SE-10, SE-11, SE-12, SE-13, SE-14, SE-15, SE-16
// Matrix: SE-21, SE-23, SE-37, SE-38, SE-41, RA-02, RA-03, RA-04, RA-05, RA-06, RA-07, RA-10, RA-17, RA-18, RA-19, RA-20
// Matrix: RA-21, RA-22, RP-06, RP-10, PO-01, PO-02, PO-03, PO-04, PO-05, PO-06, PO-07, PO-08, PO-10, PO-11, SH-03
// Matrix: V1-02, V1-03, V1-04, V1-09, FR-30
func TestScripts(t *testing.T) {
	for _, protocol := range []struct {
		dir string
		dialect
		actions []session.Action // of both protocols, and of this one alone
	}{
		{"../session1/testdata", msgr1, bothActions},
		{"../session2/testdata", msgr2, append([]session.Action{
			session.Only{}, session.Disproved{}, session.HintReceived{}, session.HintDropped{}, session.Remember{},
		}, bothActions...)},
	} {
		x := &script{dialect: protocol.dialect, entered: make(map[session.StateChanged]bool), acted: make(map[string]bool)}
		datadriven.Walk(t, protocol.dir, func(t *testing.T, path string) {
			x.reset()
			datadriven.RunTest(t, path, x.run)
		})
		if t.Failed() {
			return
		}
		// The scripts take every way of the table.
		for from := session.None; from <= session.Closing; from++ {
			for by := session.OnConnect; by <= session.OnLoopback; by++ {
				to, err := session.Next(from, by)
				if m := (session.StateChanged{From: from, By: by, To: to}); err == nil && !x.entered[m] {
					t.Errorf("%s: no script has %v", protocol.dir, m)
				}
			}
		}
		for _, a := range protocol.actions {
			if name := fmt.Sprintf("%T", a); !x.acted[name] {
				t.Errorf("%s: no script has the action %s", protocol.dir, name)
			}
		}
	}
}

// bothActions is one of each action that both protocols have.
var bothActions = []session.Action{
	session.StateChanged{}, session.Illegal{}, session.Faulted{}, session.Count{}, session.Renamed{}, session.End{}, session.NewConn{},
	session.TakeOver{}, session.Suspend{}, session.Requeue{}, session.RequeueUpTo{}, session.ResetPeer{}, session.ResetIO{},
	session.TellReset{}, session.TellRemoteReset{}, session.MoveHandler{}, session.Open{}, session.Silence{}, session.CloseIO{},
	session.Probe{}, session.StartTimer{}, session.StopTimer{}, session.Log{}, session.Dial{}, session.Cancel{},
	session.Send{}, session.Hangup{}, session.Superseded{},
}
