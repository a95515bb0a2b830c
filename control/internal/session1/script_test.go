package session1

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/ringmsgr/ringmsgr/control/internal/scripttest"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The scripts in testdata say what comes of every event, as those of package session:
// each entry is an event with its facts, and below it the actions in their order and
// the state. -rewrite writes down what the machine does now, to be read before it is
// committed. A script plays one messenger, one connection of it, and one accepted
// socket:
//
//	messenger addrs=low seq=7       our addresses and the number of the last attempt
//	connection policy=lossless-peer target=high
//	                                a new connection, in state none; claimed: by a peer
//	                                that has said that it is there
//	socket policy=lossless-peer     an accepted socket, in state accepting
//	show                            what the connection knows
//
// All other commands are events; those in events play on the connection, with the
// numbers of its attempt, timer and notification unless they say another. asks is a
// connect message on the socket, asks-again one on that of the connection. What the
// socket asks is answered with the connection as the existing one if it has the peer's
// address. A socket that opens a session becomes the connection.
type script struct {
	env     session.Env
	seq     session.GlobalSeq
	conn    *Session // nil for none
	socket  *Session
	notes   uint64 // notifications of the handler
	entered map[session.StateChanged]bool
	acted   map[string]bool
}

func (x *script) reset() {
	x.seq, x.conn, x.socket, x.notes = 0, nil, nil, 0
	x.env = session.Env{Addrs: vec("low"), Number: 3, Seq: &x.seq}
}

// addrs by the names of the scripts: low is lower than high.
var addrs = scripttest.Names{
	"low": "v1:10.0.0.1:6800/1", "high": "v1:10.0.0.2:6800/2", "other": "v1:10.0.0.3:6800/3",
	"client": "v1:10.0.0.9:0/9", "blank": scripttest.Blank,
}

var addr, vec, short = addrs.Addr, addrs.Vec, addrs.Short

const features = wire.FeaturesPacific

var policies = map[string]session.Policy{
	"lossy-client":      {Lossy: true, Register: true},
	"lossless-client":   {ResetCheck: true, Register: true},
	"lossless-peer":     {Standby: true, Register: true},
	"peer-reuse":        {Standby: true, ResetCheck: true, Register: true},
	"stateful-server":   {Server: true, Standby: true, ResetCheck: true, Register: true},
	"stateless-server":  {Lossy: true, Server: true},
	"registered-server": {Lossy: true, Server: true, Register: true},
}

func (x *script) run(t *testing.T, d *datadriven.TestData) string {
	a := args{scripttest.Args{T: t, D: d}}
	switch d.Cmd {
	case "messenger":
		x.env.Addrs = vec(a.Str("addrs", "low"))
		x.seq = session.GlobalSeq(a.Num("seq", uint64(x.seq)))
		x.env.Unsent = a.Has("unsent")
		contested := a.Has("contested")
		x.env.Contested = func() bool { return contested }
		return fmt.Sprintf("%s, global_seq %d", short(x.env.Addrs.String()), x.seq)
	case "connection":
		s := x.fresh(a)
		s.Once = a.Has("once")
		s.Peer.Target, s.Peer.Dialled = addr(a.Str("target", "high")), !a.Has("claimed")
		s.Peer.Addrs = wire.AddrVec{s.Peer.Target}
		x.conn = &s
		return s.State.String()
	case "socket":
		s := x.fresh(a)
		s.Peer.Entity, s.Peer.Proven = a.Entity(), a.Has("proven")
		x.socket = &s
		return x.step(x.socket, session.Accept{})
	case "show":
		return x.show()
	case "asks":
		return a.Times(func() string { return x.ask(a) })
	}
	s := x.conn
	if d.Cmd == "gone" {
		s = x.socket
	}
	return a.Times(func() string {
		ev := x.event(a)
		if ev == nil {
			t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
		}
		return x.step(s, ev)
	})
}

// fresh is a session in state none. Its own type is that of the peer.
func (x *script) fresh(a args) Session {
	p, ok := policies[a.Str("policy", "lossless-peer")]
	if !ok {
		a.T.Fatalf("%s: no such policy", a.D.Pos)
	}
	p.Supported, p.Required = features, wire.FeatureMsgAddr2
	return New(a.Type("own", wire.OSD), p, session.Peer{Type: a.Type("type", wire.OSD)}, session.Backoff{Initial: 200 * time.Millisecond, Max: 15 * time.Second})
}

// step plays an event and writes down what comes of it.
func (x *script) step(s *Session, ev session.Event) string {
	var b strings.Builder
	next, actions := session.Step(*s, ev, x.env)
	*s = next
	for _, act := range actions {
		x.note(&b, act)
	}
	if len(actions) == 0 {
		fmt.Fprintln(&b, "nothing")
	}
	fmt.Fprintf(&b, "= %v", s.State)
	return b.String()
}

func (x *script) note(b *strings.Builder, act session.Action) {
	fmt.Fprintln(b, short(act.String()))
	x.acted[fmt.Sprintf("%T", act)] = true
	if m, ok := act.(session.StateChanged); ok {
		x.entered[m] = true
	}
}

// ask plays a connect message of the accepted socket, and what comes of it for the
// existing connection.
func (x *script) ask(a args) string {
	ev := session.Request{Frame: a.asked(), From: addr(a.Str("from", "high")), Frozen: a.Has("handing-over"), Settled: a.Has("settled"), Ours: !a.Has("gone")}
	if a.Has("shut-down") {
		ev.Refuse = errors.New("shut down")
	}
	e := x.conn
	if e != nil && (e.State == session.Closing || e.Peer.Target != ev.From && e.Peer.Addrs.Front() != ev.From) {
		e = nil
	}
	switch {
	case e != nil && a.Has("foreign"):
		ev.Existing = &foreign{Session: *e}
	case e != nil:
		ev.Existing = e
	}
	next, actions := session.Step(*x.socket, ev, x.env)
	*x.socket = next
	var b strings.Builder
	for _, act := range actions {
		x.note(&b, act)
		switch act := act.(type) {
		case session.NewConn:
			if act.ReplaceLossy {
				fmt.Fprintln(&b, scripttest.Indent(x.step(e, session.Close{Reset: true, Replace: true, Err: errors.New("replaced")})))
			}
			x.conn = x.socket
		case session.TakeOver:
			fmt.Fprintln(&b, scripttest.Indent(x.step(e, session.Replace{Frame: ev.Frame, Reset: act.Reset, Entity: x.socket.Peer.Entity, Proven: x.socket.Peer.Proven})))
		}
	}
	fmt.Fprintf(&b, "= %v", x.socket.State)
	return b.String()
}

func (x *script) show() string {
	s := x.conn
	return short(fmt.Sprintf("%v global_seq=%d connect_seq=%d peer_global_seq=%d lossy=%v features=%v\n"+
		"peer=%v target=%v in_seq=%d queued=%v sent=%v frozen=%v",
		s.State, s.GlobalSeq, s.ConnectSeq, s.PeerGlobalSeq, s.Policy.Lossy, s.Features,
		s.Peer.Addrs, s.Peer.Target, s.IO.InSeq, s.IO.Queued, s.IO.Sent, s.Frozen))
}

// foreign is a session of another protocol.
type foreign struct{ Session }

// Matrix: V1-02, V1-03, V1-09
func TestScripts(t *testing.T) {
	x := &script{entered: make(map[session.StateChanged]bool), acted: make(map[string]bool)}
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
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
				t.Errorf("no script has %v", m)
			}
		}
	}
	for _, a := range allActions {
		if name := fmt.Sprintf("%T", a); !x.acted[name] {
			t.Errorf("no script has the action %s", name)
		}
	}
}

// allActions is one of each that this protocol has: its sessions have no owner hint, and
// nothing to remember.
var allActions = []session.Action{
	session.StateChanged{}, session.Illegal{}, session.Faulted{}, session.Count{}, session.Renamed{}, session.End{}, session.NewConn{},
	session.TakeOver{}, session.Suspend{}, session.Requeue{}, session.RequeueUpTo{}, session.ResetPeer{}, session.ResetIO{},
	session.TellReset{}, session.TellRemoteReset{}, session.MoveHandler{}, session.Open{}, session.Silence{}, session.CloseIO{},
	session.Probe{}, session.StartTimer{}, session.StopTimer{}, session.Log{}, session.Dial{}, session.Cancel{},
	session.Send{}, session.Hangup{}, session.Superseded{},
}
