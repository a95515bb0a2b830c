package session1

import (
	"errors"
	"strconv"
	"strings"

	"github.com/ringmsgr/ringmsgr/control/internal/scripttest"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// args are the facts of one event of a script.
type args struct{ scripttest.Args }

func (a args) io(notes uint64) session.Snapshot {
	return session.Snapshot{
		InSeq: a.Num("in_seq", 0), OutSeq: a.Num("out_seq", 0), Queued: a.Has("queued"), Sent: a.Has("sent"), Notifications: notes,
	}
}

// told are the numbers of replies that another process sent, the last one opened the
// session.
func (a args) told() (numbers []uint32, opened uint32) {
	for text := range strings.FieldsFuncSeq(a.Str("told", ""), func(r rune) bool { return r == '+' }) {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			a.Fatal(err)
		}
		opened = uint32(n)
		numbers = append(numbers, opened)
	}
	return numbers, opened
}

// err is a failure by its name.
func (a args) err() error {
	switch name := a.Str("err", "broken"); name {
	case "wrong-peer":
		return session.ErrWrongPeer
	case "closed":
		return session.ErrClosed
	default:
		return errors.New(name)
	}
}

// features are those of the peer.
func (a args) features() wire.Features {
	switch {
	case a.Has("no-features"):
		return 0
	case a.Has("more-features"):
		return features | 1<<50
	case a.Has("no-reconnect-seq"):
		return features &^ wire.FeatureReconnectSeq
	}
	return features
}

func (a args) flags() uint8 {
	if a.Has("lossy") {
		return wire1.FlagLossy
	}
	return 0
}

// asked is a connect message.
func (a args) asked() Asked {
	typ := a.Type("type", wire.OSD)
	q := Asked{Connect: wire1.Connect{
		Features: a.features(), HostType: uint32(typ), GlobalSeq: uint32(a.Num("global_seq", 0)), ConnectSeq: uint32(a.Num("connect_seq", 0)),
		Protocol: uint32(a.Num("protocol", uint64(wire1.Protocol(typ, a.Type("own", wire.OSD))))), Flags: a.flags(),
	}}
	switch {
	case a.Has("bad-authorizer"):
		q.Authorizer = AuthorizerBad
	case a.Has("challenge"):
		q.Authorizer = AuthorizerChallenge
	}
	if a.Has("must-sign") {
		q.Required = 1 << 62
	}
	return q
}

var replies = map[string]wire1.Tag{
	"ready": wire1.TagReady, "seq": wire1.TagSeq, "resetsession": wire1.TagResetSession, "wait": wire1.TagWait,
	"retry-session": wire1.TagRetrySession, "retry-global": wire1.TagRetryGlobal, "badprotover": wire1.TagBadProtoVer,
	"badauthorizer": wire1.TagBadAuthorizer, "features": wire1.TagFeatures, "challenge": wire1.TagChallengeAuthorizer,
}

// event is the command as an event of one session; nil if it is none.
func (x *script) event(a args) session.Event {
	s := x.conn
	if s == nil {
		s = &Session{}
	}
	attempt := a.Num("attempt", s.Attempt)
	switch a.D.Cmd {
	case "connect":
		return session.Connect{}
	case "queued":
		return session.Queued{}
	case "timer":
		return session.TimerFired{Run: a.Num("run", s.Timer)}
	case "lost":
		x.notes++
		return session.Lost{Notification: a.Num("note", x.notes), IO: a.io(x.notes), Err: a.err(), Useful: a.Has("useful")}
	case "failed":
		return session.Failed{Attempt: attempt, Err: a.err(), Terminal: a.Has("terminal")}
	case "close":
		return session.Close{Reset: a.Has("reset"), Replace: a.Has("replace"), Err: errors.New(a.Str("why", "marked down"))}
	case "freeze":
		return session.Freeze{}
	case "told":
		return session.FrozenSnapshot{IO: a.io(x.notes)}
	case "thaw":
		return session.Thaw{}
	case "restore":
		numbers, opened := a.told()
		return session.Restore{
			Record:        session.Record{Told: numbers, Opened: opened},
			PeerGlobalSeq: a.Num("peer_global_seq", 0), ConnectSeq: a.Num("connect_seq", 0), IO: a.io(x.notes),
		}
	case "loopback":
		return session.Loopback{}
	case "readdressed":
		return session.Readdressed{Addrs: vec(a.Str("addrs", ""))}
	case "connected":
		return session.Authenticated{Attempt: attempt, IO: a.io(x.notes)}
	case "suspended":
		return session.Suspended{Attempt: attempt, IO: a.io(x.notes)}
	case "arrived":
		return session.HandlerMoved{Attempt: attempt}
	case "sent":
		return session.Sent{Attempt: attempt}
	case "gone":
		return session.SocketEnded{Err: a.err()}
	case "accept":
		return session.Accept{}
	case "replace":
		return session.Replace{Frame: session.OtherFrame{Name: "something else"}}
	case "asks-again":
		return session.Answer{Attempt: attempt, Frame: a.asked()}
	case "told-seq":
		return session.Answer{Attempt: attempt, Frame: wire1.Seq{Received: a.Num("received", 0)}}
	case "frame":
		return session.Answer{Attempt: attempt, Frame: session.OtherFrame{Name: a.Str("name", "MSG")}}
	}
	if tag, ok := replies[a.D.Cmd]; ok {
		return session.Answer{Attempt: attempt, Frame: Answer{
			Reply: wire1.Reply{
				Tag: tag, Features: a.features(), GlobalSeq: uint32(a.Num("global_seq", 0)), ConnectSeq: uint32(a.Num("connect_seq", 0)),
				Protocol: uint32(a.Num("protocol", 10)), Flags: a.flags(),
			}, Received: a.Num("received", 0),
		}}
	}
	return nil
}
