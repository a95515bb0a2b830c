package session2

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/ringmsgr/ringmsgr/control/internal/scripttest"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The scripts in testdata say what comes of every event: each entry is an event
// with its facts, and below it the actions in their order and the state. -rewrite
// writes down what the machine does now, to be read before it is committed. A
// script plays one messenger, one connection of it, and one accepted socket:
//
//	messenger addrs=low seq=7       our addresses and the number of the last attempt
//	connection policy=lossless-peer target=high
//	                                a new connection, in state none
//	socket policy=lossless-peer     an accepted socket, in state accepting
//	show                            what the connection knows
//	peer                            what it knows of its peer
//	question                        how a claim of its peer is checked
//
// All other commands are events; those in events play on the connection. times=N
// plays one N times and shows the last. What an
// accepted socket asks is answered with the connection as the existing one if it
// has the peer's address. A socket that opens a session becomes the connection.
type script struct {
	env     session.Env
	seq     session.GlobalSeq
	cookies uint64
	conn    *Session // nil for none
	socket  *Session
	ended   session.Ended
	entered map[session.StateChanged]bool
	acted   map[string]bool
}

func newScript() *script {
	x := &script{entered: make(map[session.StateChanged]bool), acted: make(map[string]bool)}
	x.reset()
	return x
}

// reset begins a file.
func (x *script) reset() {
	x.seq, x.cookies, x.conn, x.socket, x.ended = 0, 0, nil, nil, session.Ended{}
	x.env = session.Env{
		Addrs: vec("low"), Number: 3, Seq: &x.seq,
		Cookie:      func() uint64 { x.cookies++; return 100 + x.cookies },
		OwnerCookie: func() uint64 { x.cookies++; return 900 + x.cookies },
	}
}

// addrs by the names of the scripts: low is lower than high.
var addrs = scripttest.Names{
	"low": "v2:10.0.0.1:6800/1", "high": "v2:10.0.0.2:6800/2", "other": "v2:10.0.0.3:6800/3",
	"client": "any:10.0.0.9:0/9", "blank": scripttest.Blank, "no-family": "v2:-/7",
}

var addr, vec, short = addrs.Addr, addrs.Vec, addrs.Short

const features = wire.FeaturesPacific | wire.FeatureMsgAddr2

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
		return fmt.Sprintf("%s, global_seq %d", short(x.env.Addrs.String()), x.seq)
	case "connection":
		s := x.fresh(a)
		s.Once, s.Peer.Anonymous = a.Has("once"), a.Has("anonymous")
		s.Peer.Target, s.Peer.Dialled = addr(a.Str("target", "high")), true
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
	case "peer":
		p := x.conn.Peer
		return short(fmt.Sprintf("%v proven=%v target=%v dialled=%v near=%v", p.Entity, p.Proven, p.Target, p.Dialled, p.Near))
	case "question":
		f := x.conn.Question(x.env.Addrs)
		if f == nil {
			return "none"
		}
		return short(frameText(f))
	case "age":
		return fmt.Sprint("anything left: ", x.ended.Age())
	case "client-ident", "session-reconnect", "frame":
		if a.Has("attempt") {
			break // the connector's
		}
		if x.socket.State != session.Accepting && !a.Has("late") {
			t.Fatalf("%s: the socket is in state %v", d.Pos, x.socket.State)
		}
		return a.Times(func() string { return x.ask(a) })
	}
	ev := events(a)
	if ev == nil {
		t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	}
	s := x.conn
	if d.Cmd == "gone" {
		s = x.socket
	}
	return a.Times(func() string { return x.step(s, ev) })
}

// fresh is a session in state none.
func (x *script) fresh(a args) Session {
	p, ok := policies[a.Str("policy", "lossless-peer")]
	if !ok {
		a.T.Fatalf("%s: no such policy", a.D.Pos)
	}
	p.Supported, p.Required = features, wire.FeatureMsgAddr2
	return New(p, session.Peer{Type: a.Type("type", wire.OSD)}, session.Backoff{Initial: 200 * time.Millisecond, Max: 15 * time.Second})
}

// step plays an event and writes down what comes of it.
func (x *script) step(s *Session, ev session.Event) string {
	var b strings.Builder
	next, actions := session.Step(*s, ev, x.env)
	*s = next
	for _, act := range actions {
		fmt.Fprintln(&b, short(actionText(act)))
		x.acted[fmt.Sprintf("%T", act)] = true
		switch act := act.(type) {
		case session.StateChanged:
			x.entered[act] = true
		case session.Remember:
			x.ended.Remember(act.Name, act.PeerGlobalSeq)
		}
	}
	if len(actions) == 0 {
		fmt.Fprintln(&b, "nothing")
	}
	fmt.Fprintf(&b, "= %v", s.State)
	return b.String()
}

// ask plays a frame of the accepted socket, and what comes of it for the
// existing connection.
func (x *script) ask(a args) string {
	f := a.frame()
	var front wire.Addr
	ev := session.Request{Frame: f, Frozen: a.Has("handing-over"), Settled: a.Has("settled"), Near: a.Has("near")}
	switch f := f.(type) {
	case wire2.ClientIdent:
		front = f.Addrs.Front()
		ev.Ours = a.Has("ours") || x.env.Addrs.Contains(f.TargetAddr)
		ev.Ended = x.ended.IsStale(session.Name{Peer: front, Cookie: f.Cookie}, f.GlobalSeq)
	case wire2.SessionReconnect:
		front = f.Addrs.Front()
	}
	if a.Has("shut-down") {
		ev.Refuse = errors.New("shut down")
	}
	e := x.conn
	if e != nil && (e.State == session.Closing || e.Peer.Target != front && e.Peer.Addrs.Front() != front) {
		e = nil
	}
	if p := SenderOf(f); e != nil && meant(x.socket.Peer, p.Addrs, p.Cookie, e) < 0 {
		e = nil
	}
	if ev.From = front; e != nil {
		ev.Existing = e
	}
	next, actions := session.Step(*x.socket, ev, x.env)
	*x.socket = next
	var b strings.Builder
	for _, act := range actions {
		fmt.Fprintln(&b, short(actionText(act)))
		x.acted[fmt.Sprintf("%T", act)] = true
		switch act := act.(type) {
		case session.StateChanged:
			x.entered[act] = true
		case session.NewConn:
			if act.ReplaceLossy {
				fmt.Fprintln(&b, scripttest.Indent(x.step(e, session.Close{Reset: true, Replace: true, Err: errors.New("replaced")})))
			}
			x.conn = x.socket
		case session.TakeOver:
			fmt.Fprintln(&b, scripttest.Indent(x.step(e, session.Replace{Frame: f, Reset: act.Reset, Entity: x.socket.Peer.Entity, Proven: x.socket.Peer.Proven})))
		}
	}
	fmt.Fprintf(&b, "= %v", x.socket.State)
	return b.String()
}

func (x *script) show() string {
	s := x.conn
	return short(fmt.Sprintf("%v client_cookie=%d server_cookie=%d global_seq=%d connect_seq=%d peer_global_seq=%d lossy=%v\n"+
		"peer=%v target=%v in_seq=%d queued=%v sent=%v frozen=%v",
		s.State, s.ClientCookie, s.ServerCookie, s.GlobalSeq, s.ConnectSeq, s.PeerGlobalSeq, s.Policy.Lossy,
		s.Peer.Addrs, s.Peer.Target, s.IO.InSeq, s.IO.Queued, s.IO.Sent, s.Frozen))
}

// Matrix: HS-18, HS-20, HS-21, SE-01, SE-02, SE-03, SE-04, SE-07, SE-08, SE-09, SE-10, SE-11, SE-12, SE-13, SE-14, SE-15, SE-16
// Matrix: SE-21, SE-23, SE-37, SE-38, SE-41, RA-02, RA-03, RA-04, RA-05, RA-06, RA-07, RA-10, RA-17, RA-18, RA-19, RA-20
// Matrix: RA-21, RA-22, RP-10, PO-01, PO-02, PO-03, PO-04, PO-05, PO-06, PO-07, PO-08, PO-10, PO-11, SH-03
func TestScripts(t *testing.T) {
	x := newScript()
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

// allActions is one of each.
var allActions = []session.Action{
	session.StateChanged{}, session.Illegal{}, session.Faulted{}, session.Count{}, session.Renamed{}, session.Only{}, session.Disproved{}, session.HintReceived{}, session.HintDropped{}, session.Remember{}, session.End{}, session.NewConn{}, session.TakeOver{}, session.Suspend{}, session.Requeue{}, session.RequeueUpTo{},
	session.ResetPeer{}, session.ResetIO{}, session.TellReset{}, session.TellRemoteReset{}, session.MoveHandler{}, session.Open{}, session.Silence{}, session.CloseIO{}, session.Probe{}, session.StartTimer{}, session.StopTimer{}, session.Log{},
	session.Dial{}, session.Cancel{}, session.Send{Frame: WaitFrame{}}, session.Hangup{}, session.Superseded{},
}

// actionText is an action, with the fields of a frame.
func actionText(a session.Action) string {
	if s, ok := a.(session.Send); ok {
		return "send " + frameText(s.Frame)
	}
	return a.String()
}

// only is text if on, else nothing.
func only(on bool, text string) string {
	if on {
		return text
	}
	return ""
}

// frameText is a frame with its fields.
func frameText(f session.Frame) string {
	var b strings.Builder
	b.WriteString(frameName(f))
	add := func(format string, args ...any) { fmt.Fprintf(&b, " "+format, args...) }
	switch f := f.(type) {
	case wire2.ClientIdent:
		add("addrs=%v target=%v gid=%d global_seq=%d cookie=%d%s", f.Addrs, f.TargetAddr, f.GID, f.GlobalSeq, f.Cookie,
			only(f.Flags&wire.IdentLossy != 0, " lossy"))
	case wire2.ServerIdent:
		add("addrs=%v gid=%d global_seq=%d cookie=%d%s", f.Addrs, f.GID, f.GlobalSeq, f.Cookie, only(f.Flags&wire.IdentLossy != 0, " lossy"))
	case wire2.IdentMissingFeatures:
		add("features=%#x", uint64(f.Features))
	case wire2.SessionReconnect:
		add("addrs=%v client_cookie=%d server_cookie=%d global_seq=%d connect_seq=%d msg_seq=%d",
			f.Addrs, f.ClientCookie, f.ServerCookie, f.GlobalSeq, f.ConnectSeq, f.MsgSeq)
	case wire2.SessionReconnectOK:
		add("msg_seq=%d", f.MsgSeq)
	case wire2.SessionRetry:
		add("connect_seq=%d", f.ConnectSeq)
	case wire2.SessionRetryGlobal:
		add("global_seq=%d", f.GlobalSeq)
	case wire2.SessionReset:
		add("full=%v", f.Full)
	}
	return b.String()
}
