package session2

import (
	"errors"

	"github.com/ringmsgr/ringmsgr/control/internal/scripttest"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// args are the facts of one event of a script.
type args struct{ scripttest.Args }

func (a args) io() session.Snapshot {
	return session.Snapshot{InSeq: a.Num("in_seq", 0), OutSeq: a.Num("out_seq", 0), Queued: a.Has("queued"), Sent: a.Has("sent"), Notifications: a.Num("notes", 0)}
}

// err is a failure by its name.
func (a args) err() error {
	switch name := a.Str("err", "broken"); name {
	case "wrong-peer":
		return session.ErrWrongPeer
	case "wait":
		return session.ErrWait
	default:
		return errors.New(name)
	}
}

// events are the commands that are an event of one session.
func events(a args) session.Event {
	attempt := a.Num("attempt", 0)
	switch a.D.Cmd {
	case "connect":
		return session.Connect{}
	case "queued":
		return session.Queued{}
	case "timer":
		return session.TimerFired{Run: a.Num("run", 0)}
	case "lost":
		return session.Lost{Notification: a.Num("note", 0), IO: a.io(), Err: a.err(), Useful: a.Has("useful")}
	case "failed":
		return session.Failed{Attempt: attempt, Err: a.err(), Terminal: a.Has("terminal")}
	case "close":
		return session.Close{Reset: a.Has("reset"), Replace: a.Has("replace"), Err: errors.New(a.Str("why", "marked down"))}
	case "freeze":
		return session.Freeze{}
	case "told":
		return session.FrozenSnapshot{IO: a.io()}
	case "readdressed":
		return session.Readdressed{Addrs: vec(a.Str("addrs", ""))}
	case "thaw":
		return session.Thaw{}
	case "restore":
		return session.Restore{
			Record:        session.Record{ClientCookie: a.Num("client_cookie", 0), ServerCookie: a.Num("server_cookie", 0), ToldSeq: a.Num("told_seq", 0)},
			PeerGlobalSeq: a.Num("peer_global_seq", 0), ConnectSeq: a.Num("connect_seq", 0), IO: a.io(),
		}
	case "checked":
		ev := session.Checked{Other: a.Has("other"), Asked: wire2.SessionReconnect{ClientCookie: a.Num("client_cookie", 0), ServerCookie: a.Num("server_cookie", 0)}}
		switch a.Str("answer", "none") {
		case "retry-global":
			ev.Answer = wire2.SessionRetryGlobal{GlobalSeq: a.Num("global_seq", 0)}
		case "reset":
			ev.Answer = wire2.SessionReset{Full: a.Has("full")}
		case "retry":
			ev.Answer = wire2.SessionRetry{ConnectSeq: 1}
		}
		return ev
	case "loopback":
		return session.Loopback{}
	case "authenticated":
		return session.Authenticated{Attempt: attempt, IO: a.io()}
	case "suspended":
		return session.Suspended{Attempt: attempt, IO: a.io()}
	case "arrived":
		return session.HandlerMoved{Attempt: attempt}
	case "sent":
		return session.Sent{Attempt: attempt}
	case "gone":
		return session.SocketEnded{Err: a.err()}
	case "accept":
		return session.Accept{}
	case "replace":
		return session.Replace{Frame: wire2.SessionReconnect{}}
	}
	if f := a.frame(); f != nil {
		return session.Answer{Attempt: attempt, Frame: f}
	}
	return nil
}

// frame is a frame of the peer, by the name of the command.
func (a args) frame() session.Frame {
	supported := features
	if a.Has("no-features") {
		supported = 0
	}
	var flags uint64
	if a.Has("lossy") {
		flags = wire.IdentLossy
	}
	switch a.D.Cmd {
	case "client-ident":
		return wire2.ClientIdent{
			Addrs: vec(a.Str("from", "high")), TargetAddr: addr(a.Str("to", "low")), GID: int64(a.Num("gid", 7)),
			GlobalSeq: a.Num("global_seq", 0), Supported: supported, Flags: flags, Cookie: a.Num("cookie", 0),
		}
	case "session-reconnect":
		return wire2.SessionReconnect{
			Addrs: vec(a.Str("from", "high")), ClientCookie: a.Num("client_cookie", 0), ServerCookie: a.Num("server_cookie", 0),
			GlobalSeq: a.Num("global_seq", 0), ConnectSeq: a.Num("connect_seq", 0), MsgSeq: a.Num("msg_seq", 0),
		}
	case "server-ident":
		return wire2.ServerIdent{
			Addrs: vec(a.Str("from", "high")), GID: int64(a.Num("gid", 7)), GlobalSeq: a.Num("global_seq", 0),
			Supported: supported, Flags: flags, Cookie: a.Num("cookie", 0),
		}
	case "ident-missing-features":
		return wire2.IdentMissingFeatures{Features: wire.FeatureMsgAddr2}
	case "session-reconnect-ok":
		return wire2.SessionReconnectOK{MsgSeq: a.Num("msg_seq", 0)}
	case "session-retry":
		return wire2.SessionRetry{ConnectSeq: a.Num("connect_seq", 0)}
	case "session-retry-global":
		return wire2.SessionRetryGlobal{GlobalSeq: a.Num("global_seq", 0)}
	case "session-reset":
		return wire2.SessionReset{Full: a.Has("full")}
	case "wait":
		return WaitFrame{}
	case "frame":
		return session.OtherFrame{Name: a.Str("name", "MESSAGE")}
	}
	return nil
}
