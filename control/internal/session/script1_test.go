package session_test

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/session1"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// msgr1 is the dialect of the scripts of session1.
var msgr1 = dialect{
	names: names{
		"low": "v1:10.0.0.1:6800/1", "high": "v1:10.0.0.2:6800/2", "other": "v1:10.0.0.3:6800/3",
		"client": "v1:10.0.0.9:0/9", "blank": blank,
	},
	features: wire.FeaturesPacific,
	numbered: true,
	fresh: func(own wire.EntityType, p session.Policy, peer session.Peer, b session.Backoff) session.Protocol {
		s := session1.New(own, p, peer, b)
		return &s
	},
	event: event1,
	request: func(x *script, a args) (session.Request, bool) {
		if a.d.Cmd != "asks" {
			return session.Request{}, false
		}
		return session.Request{Frame: a.connect(), From: x.addr(a.str("from", "high")), Near: true, Ours: !a.has("gone")}, true
	},
	existing: func(x *script, a args, _ *session.Request) session.Protocol {
		if a.has("foreign") {
			return &foreign{*x.conn.(*session1.Session)}
		}
		return x.conn
	},
	show: func(p session.Protocol, life string) string {
		s := p.(*session1.Session)
		return fmt.Sprintf("%v global_seq=%d connect_seq=%d peer_global_seq=%d lossy=%v features=%v\n%s",
			s.State, s.GlobalSeq, s.ConnectSeq, s.PeerGlobalSeq, s.Policy.Lossy, s.Features, life)
	},
	frame: func(f session.Frame) string { return fmt.Sprint(f) },
}

// foreign is a session of another protocol.
type foreign struct{ session1.Session }

// told are the numbers of replies that another process sent, the last one opened the session.
func (a args) told() (numbers []uint32, opened uint32) {
	for text := range strings.FieldsFuncSeq(a.str("told", ""), func(r rune) bool { return r == '+' }) {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			a.fatal(err)
		}
		opened = uint32(n)
		numbers = append(numbers, opened)
	}
	return numbers, opened
}

// features1 are those of the peer.
func (a args) features1() wire.Features {
	switch {
	case a.has("no-features"):
		return 0
	case a.has("more-features"):
		return wire.FeaturesPacific | 1<<50
	case a.has("no-reconnect-seq"):
		return wire.FeaturesPacific &^ wire1.FeatureReconnectSeq
	}
	return wire.FeaturesPacific
}

func (a args) flags1() uint8 {
	if a.has("lossy") {
		return wire1.FlagLossy
	}
	return 0
}

// connect is a connect message.
func (a args) connect() session1.Asked {
	typ := a.kind("type")
	q := session1.Asked{Connect: wire1.Connect{
		Features: a.features1(), HostType: typ, GlobalSeq: uint32(a.num("global_seq", 0)), ConnectSeq: uint32(a.num("connect_seq", 0)),
		Protocol: uint32(a.num("protocol", uint64(wire1.Protocol(typ, a.kind("own"))))), Flags: a.flags1(),
	}}
	switch {
	case a.has("bad-authorizer"):
		q.Authorizer = session1.AuthorizerBad
	case a.has("challenge"):
		q.Authorizer = session1.AuthorizerChallenge
	}
	if a.has("must-sign") {
		q.Required = 1 << 62
	}
	return q
}

var replies1 = map[string]wire1.Tag{
	"ready": wire1.TagReady, "seq": wire1.TagSeq, "resetsession": wire1.TagResetSession, "wait": wire1.TagWait,
	"retry-session": wire1.TagRetrySession, "retry-global": wire1.TagRetryGlobal, "badprotover": wire1.TagBadProtoVer,
	"badauthorizer": wire1.TagBadAuthorizer, "features": wire1.TagFeatures, "challenge": wire1.TagChallengeAuthorizer,
}

func event1(x *script, a args) session.Event {
	attempt := x.attempt(a)
	switch a.d.Cmd {
	case "restore":
		numbers, opened := a.told()
		return session.Restore{
			Record:        session.Record{Told: numbers, Opened: opened},
			PeerGlobalSeq: a.num("peer_global_seq", 0), ConnectSeq: a.num("connect_seq", 0), IO: x.io(a),
		}
	case "replace":
		return session.Replace{Frame: session.OtherFrame{Name: "something else"}}
	case "asks-again":
		return session.Answer{Attempt: attempt, Frame: a.connect()}
	case "told-seq":
		return session.Answer{Attempt: attempt, Frame: wire1.Seq{Received: a.num("received", 0)}}
	case "frame":
		return session.Answer{Attempt: attempt, Frame: session.OtherFrame{Name: a.str("name", "MSG")}}
	}
	if tag, ok := replies1[a.d.Cmd]; ok {
		return session.Answer{Attempt: attempt, Frame: session1.Answer{
			Reply: wire1.Reply{
				Tag: tag, Features: a.features1(), GlobalSeq: uint32(a.num("global_seq", 0)), ConnectSeq: uint32(a.num("connect_seq", 0)),
				Protocol: uint32(a.num("protocol", 10)), Flags: a.flags1(),
			}, Received: a.num("received", 0),
		}}
	}
	return nil
}
