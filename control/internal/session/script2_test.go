package session_test

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/session2"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

var names2 = names{
	"low": "v2:10.0.0.1:6800/1", "high": "v2:10.0.0.2:6800/2", "other": "v2:10.0.0.3:6800/3",
	"client": "any:10.0.0.9:0/9", "blank": blank, "no-family": "v2:-/7",
}

// msgr2 is the dialect of the scripts of session2.
var msgr2 = dialect{
	names:    names2,
	features: features2,
	fresh: func(_ wire.EntityType, p session.Policy, peer session.Peer, b session.Backoff) session.Protocol {
		s := session2.New(p, peer, b)
		return &s
	},
	event:   event2,
	request: request2,
	existing: func(x *script, _ args, ev *session.Request) session.Protocol {
		if p := session2.SenderOf(ev.Frame); meant(x.socket.Life().Peer, p.Addrs, p.Cookie, x.conn.(*session2.Session)) < 0 {
			return nil
		}
		return x.conn
	},
	show: func(p session.Protocol, life string) string {
		s := p.(*session2.Session)
		return fmt.Sprintf("%v client_cookie=%d server_cookie=%d global_seq=%d connect_seq=%d peer_global_seq=%d lossy=%v features=%v\n%s",
			s.State, s.ClientCookie, s.ServerCookie, s.GlobalSeq, s.ConnectSeq, s.PeerGlobalSeq, s.Policy.Lossy, s.Features, life)
	},
	frame: frame2,
}

const features2 = wire.FeaturesPacific | wire.FeatureMsgAddr2

// request2 is a frame on the accepted socket: an ident or a reconnect without an attempt.
func request2(x *script, a args) (ev session.Request, ok bool) {
	switch a.d.Cmd {
	case "client-ident", "session-reconnect", "frame":
	default:
		return ev, false
	}
	if a.has("attempt") {
		return ev, false // the connector's
	}
	if s := x.socket.Life().State; s != session.Accepting && !a.has("late") {
		a.t.Fatalf("%s: the socket is in state %v", a.d.Pos, s)
	}
	ev = session.Request{Frame: a.frame2(), Near: a.has("near")}
	switch f := ev.Frame.(type) {
	case wire2.ClientIdent:
		ev.From = f.Addrs.Front()
		ev.Ours = a.has("ours") || x.env.Addrs.Contains(f.TargetAddr)
		ev.Ended = x.ended.IsStale(session.Name{Peer: ev.From, Cookie: f.Cookie}, f.GlobalSeq)
	case wire2.SessionReconnect:
		ev.From = f.Addrs.Front()
	}
	return ev, true
}

func event2(x *script, a args) session.Event {
	switch a.d.Cmd {
	case "restore":
		return session.Restore{
			Record:        session.Record{ClientCookie: a.num("client_cookie", 0), ServerCookie: a.num("server_cookie", 0), ToldSeq: a.num("told_seq", 0)},
			PeerGlobalSeq: a.num("peer_global_seq", 0), ConnectSeq: a.num("connect_seq", 0), IO: x.io(a),
		}
	case "checked":
		ev := session.Checked{Other: a.has("other"), Asked: wire2.SessionReconnect{ClientCookie: a.num("client_cookie", 0), ServerCookie: a.num("server_cookie", 0)}}
		switch a.str("answer", "none") {
		case "retry-global":
			ev.Answer = wire2.SessionRetryGlobal{GlobalSeq: a.num("global_seq", 0)}
		case "reset":
			ev.Answer = wire2.SessionReset{Full: a.has("full")}
		case "retry":
			ev.Answer = wire2.SessionRetry{ConnectSeq: 1}
		}
		return ev
	case "replace":
		return session.Replace{Frame: wire2.SessionReconnect{}}
	}
	if f := a.frame2(); f != nil {
		return session.Answer{Attempt: x.attempt(a), Frame: f}
	}
	return nil
}

// frame2 is a frame of the peer, by the name of the command.
func (a args) frame2() session.Frame {
	supported := features2
	if a.has("no-features") {
		supported = 0
	} else if a.has("more-features") {
		supported |= 1 << 50
	}
	var flags uint64
	if a.has("lossy") {
		flags = wire.IdentLossy
	}
	from := names2.vec(a.str("from", "high"))
	switch a.d.Cmd {
	case "client-ident":
		return wire2.ClientIdent{
			Addrs: from, TargetAddr: names2.addr(a.str("to", "low")), GID: int64(a.num("gid", 7)),
			GlobalSeq: a.num("global_seq", 0), Supported: supported, Flags: flags, Cookie: a.num("cookie", 0),
		}
	case "session-reconnect":
		return wire2.SessionReconnect{
			Addrs: from, ClientCookie: a.num("client_cookie", 0), ServerCookie: a.num("server_cookie", 0),
			GlobalSeq: a.num("global_seq", 0), ConnectSeq: a.num("connect_seq", 0), MsgSeq: a.num("msg_seq", 0),
		}
	case "server-ident":
		return wire2.ServerIdent{
			Addrs: from, GID: int64(a.num("gid", 7)), GlobalSeq: a.num("global_seq", 0),
			Supported: supported, Flags: flags, Cookie: a.num("cookie", 0),
		}
	case "ident-missing-features":
		return wire2.IdentMissingFeatures{Features: wire.FeatureMsgAddr2}
	case "session-reconnect-ok":
		return wire2.SessionReconnectOK{MsgSeq: a.num("msg_seq", 0)}
	case "session-retry":
		return wire2.SessionRetry{ConnectSeq: a.num("connect_seq", 0)}
	case "session-retry-global":
		return wire2.SessionRetryGlobal{GlobalSeq: a.num("global_seq", 0)}
	case "session-reset":
		return wire2.SessionReset{Full: a.has("full")}
	case "wait":
		return session2.WaitFrame{}
	case "frame":
		return session.OtherFrame{Name: a.str("name", "MESSAGE")}
	}
	return nil
}

func frame2(f session.Frame) string {
	name := session2.KindOf(f).String()
	lossy := func(flags uint64) string {
		if flags&wire.IdentLossy != 0 {
			return " lossy"
		}
		return ""
	}
	switch f := f.(type) {
	case wire2.ClientIdent:
		return fmt.Sprintf("%s addrs=%v target=%v gid=%d global_seq=%d cookie=%d%s", name, f.Addrs, f.TargetAddr, f.GID, f.GlobalSeq, f.Cookie, lossy(f.Flags))
	case wire2.ServerIdent:
		return fmt.Sprintf("%s addrs=%v gid=%d global_seq=%d cookie=%d%s", name, f.Addrs, f.GID, f.GlobalSeq, f.Cookie, lossy(f.Flags))
	case wire2.IdentMissingFeatures:
		return fmt.Sprintf("%s features=%#x", name, uint64(f.Features))
	case wire2.SessionReconnect:
		return fmt.Sprintf("%s addrs=%v client_cookie=%d server_cookie=%d global_seq=%d connect_seq=%d msg_seq=%d",
			name, f.Addrs, f.ClientCookie, f.ServerCookie, f.GlobalSeq, f.ConnectSeq, f.MsgSeq)
	case wire2.SessionReconnectOK:
		return fmt.Sprintf("%s msg_seq=%d", name, f.MsgSeq)
	case wire2.SessionRetry:
		return fmt.Sprintf("%s connect_seq=%d", name, f.ConnectSeq)
	case wire2.SessionRetryGlobal:
		return fmt.Sprintf("%s global_seq=%d", name, f.GlobalSeq)
	case wire2.SessionReset:
		return fmt.Sprintf("%s full=%v", name, f.Full)
	}
	return name
}
