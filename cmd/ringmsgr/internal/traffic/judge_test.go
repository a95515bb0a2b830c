package traffic

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control/trace"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

func address(t *testing.T, text string) wire.Addr {
	t.Helper()
	a, err := wire.ParseAddr(text)
	clitest.Must(t, err)
	return a
}

// life is a connection as a trace has it: a record every second.
type life []trace.Record

func (l life) and(from trace.Side, tag string, fields *trace.Fields) life {
	e := trace.Frame
	if tag == "" {
		e = trace.Banner
	}
	return append(slices.Clone(l), trace.Record{Event: e, From: from, Protocol: "msgr2.1", Tag: tag, Fields: fields})
}

func (l life) event(e trace.Event, from trace.Side, why string) life {
	return append(slices.Clone(l), trace.Record{Event: e, From: from, Error: why})
}

// notes are the conclusions of a judge.
func (l life) notes() (states, wrong []string) {
	j := NewJudge()
	for i, r := range l {
		r.Socket, r.Time = 1, time.Unix(int64(i), 0)
		if r.Event == trace.Lost && r.From == "" {
			r.Socket = 0 // records of any connection
		}
		for _, n := range j.Look(&r) {
			text := strings.TrimSpace(string(n.From) + " " + n.Text)
			if n.Event == trace.Wrong {
				wrong = append(wrong, text)
			} else {
				states = append(states, text)
			}
		}
	}
	return states, wrong
}

const (
	con = trace.Connector
	acc = trace.Acceptor
)

// authenticated is a connection after its signatures.
func authenticated() life {
	return life{{Event: trace.Open}}.
		and(con, "", &trace.Fields{Supported: 1}).and(acc, "", &trace.Fields{Supported: 1}).
		and(acc, "HELLO", &trace.Fields{EntityType: "osd"}).and(con, "HELLO", &trace.Fields{EntityType: "client"}).
		and(con, "AUTH_REQUEST", &trace.Fields{Method: "cephx"}).and(acc, "AUTH_DONE", &trace.Fields{Mode: "crc", GlobalID: 9}).
		and(acc, "AUTH_SIGNATURE", &trace.Fields{Signed: true}).and(con, "AUTH_SIGNATURE", &trace.Fields{Signed: true})
}

// opened is one with a new session.
func opened(t *testing.T) life {
	a := address(t, "v2:10.0.0.1:6800/5")
	return authenticated().and(con, "CLIENT_IDENT", &trace.Fields{GID: 4, Target: a}).and(acc, "SERVER_IDENT", &trace.Fields{GID: 1, Addrs: wire.AddrVec{a}})
}

func message(seq, ack uint64) *trace.Fields { return &trace.Fields{Seq: seq, AckSeq: ack} }

func TestTheStatesOfASessionAreSaid(t *testing.T) {
	states, wrong := opened(t).and(con, "MESSAGE", message(1, 0)).and(acc, "MESSAGE", message(1, 1)).and(con, "ACK", &trace.Fields{Seq: 1}).
		event(trace.End, "", "closed").notes()
	want := []string{"msgr2.1", "authenticated by cephx, mode crc, global id 9",
		"open: lossless session of client.4 at [] with osd.1 at [v2:10.0.0.1:6800/5]"}
	if len(wrong) > 0 || !slices.Equal(states, want) {
		t.Errorf("%q, wrong %q", states, wrong)
	}
	older := life{{Event: trace.Open}}.and(con, "", &trace.Fields{Supported: 1}).and(acc, "", &trace.Fields{})
	if states, wrong := older.notes(); len(wrong) > 0 || !slices.Equal(states, []string{"msgr2.0"}) {
		t.Errorf("%q, wrong %q", states, wrong)
	}
	resumed := authenticated().and(con, "SESSION_RECONNECT", &trace.Fields{ConnectSeq: 3, MsgSeq: 7}).
		and(acc, "SESSION_RETRY", &trace.Fields{ConnectSeq: 4}).and(con, "SESSION_RECONNECT", &trace.Fields{ConnectSeq: 5, MsgSeq: 7}).
		and(acc, "SESSION_RECONNECT_OK", &trace.Fields{MsgSeq: 2}).and(acc, "MESSAGE", message(8, 2)).and(con, "MESSAGE", message(3, 8))
	states, wrong = resumed.notes()
	if len(wrong) > 0 || len(states) != 4 || !strings.HasPrefix(states[3], "open: the session of [] is resumed, reconnect 5") {
		t.Errorf("%q, wrong %q", states, wrong)
	}
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	elsewhere := &trace.Fields{Addrs: wire.AddrVec{address(t, "v2:10.0.0.1:6800/6")}}
	for want, l := range map[string]life{
		"connector messages 2 to 3 are missing":                                       opened(t).and(con, "MESSAGE", message(1, 0)).and(con, "MESSAGE", message(4, 0)),
		"connector messages 1 to 1 are missing":                                       opened(t).and(con, "MESSAGE", message(2, 0)),
		"acceptor message 1 comes again, or out of order, after 1":                    opened(t).and(acc, "MESSAGE", message(1, 0)).and(acc, "MESSAGE", message(1, 0)),
		"acceptor it acknowledges message 2, and the last that was sent is 1":         opened(t).and(con, "MESSAGE", message(1, 0)).and(acc, "ACK", &trace.Fields{Seq: 2}),
		"connector it acknowledges message 2, and the last that was sent is 0":        opened(t).and(con, "MESSAGE", message(1, 2)),
		"acceptor it answers a keepalive that was not sent":                           opened(t).and(acc, "KEEPALIVE2_ACK", &trace.Fields{}),
		"acceptor it did not answer 1 keepalives, the first 2.0 s before the end":     opened(t).and(con, "KEEPALIVE2", &trace.Fields{}).and(con, "MESSAGE", message(1, 0)).event(trace.End, "", "reset"),
		"connector MESSAGE before a session is open":                                  authenticated().and(con, "MESSAGE", message(1, 0)),
		"connector HELLO after AUTH_SIGNATURE":                                        authenticated().and(con, "HELLO", &trace.Fields{}),
		"connector AUTH_SIGNATURE after AUTH_SIGNATURE":                               authenticated().and(con, "AUTH_SIGNATURE", &trace.Fields{Signed: true}),
		"connector the protocol has no tag 77":                                        authenticated().and(con, "tag 77", nil),
		"it ended before a session was open, in state session: reset by the acceptor": authenticated().event(trace.End, "", "reset by the acceptor"),
		"acceptor it refuses method cephx: permission denied; it allows nothing in mode nothing": life{{Event: trace.Open}}.
			and(acc, "", &trace.Fields{}).and(acc, "HELLO", &trace.Fields{}).and(acc, "AUTH_BAD_METHOD", &trace.Fields{Method: "cephx", Result: -13}),
		"acceptor it requires unknown features: 0x4": life{{Event: trace.Open}}.
			and(con, "", &trace.Fields{}).and(acc, "", &trace.Fields{Required: 7}),
		"connector MESSAGE is malformed: it is short": append(opened(t), trace.Record{Event: trace.Frame, From: con, Tag: "MESSAGE", Error: "it is short"}),
		"connector MESSAGE was given up by its sender, and counts as not sent": append(opened(t), trace.Record{Event: trace.Frame, From: con, Tag: "MESSAGE", Aborted: true}).
			and(con, "MESSAGE", message(1, 0)),
		"connector CLIENT_IDENT after the banner, with steps of the handshake left out": life{{Event: trace.Open}}.
			and(con, "", &trace.Fields{}).and(con, "CLIENT_IDENT", &trace.Fields{}),
		"acceptor it does not know the session of []: queued messages are lost": authenticated().
			and(con, "SESSION_RECONNECT", &trace.Fields{}).and(acc, "SESSION_RESET", &trace.Fields{Full: true}),
		"acceptor it is [v2:10.0.0.1:6800/6], and the connector has dialled v2:10.0.0.1:6800/5: it will hang up": authenticated().
			and(con, "CLIENT_IDENT", &trace.Fields{Target: address(t, "v2:10.0.0.1:6800/5")}).and(acc, "SERVER_IDENT", elsewhere),
	} {
		if _, wrong := l.notes(); !slices.Equal(wrong, []string{want}) {
			t.Errorf("got %q, want %q", wrong, want)
		}
	}
}

// A frame that only one side may send is wrong from the other, in every step.
func TestAFrameOfTheOtherSideIsWrong(t *testing.T) {
	for from, tags := range map[trace.Side][]string{
		acc: {"AUTH_REQUEST", "AUTH_REQUEST_MORE", "COMPRESSION_REQUEST", "CLIENT_IDENT", "SESSION_RECONNECT"},
		con: {"AUTH_BAD_METHOD", "AUTH_REPLY_MORE", "AUTH_DONE", "COMPRESSION_DONE", "SERVER_IDENT", "IDENT_MISSING_FEATURES", "SESSION_RESET",
			"SESSION_RETRY", "SESSION_RETRY_GLOBAL", "SESSION_RECONNECT_OK", "WAIT"},
	} {
		for _, tag := range tags {
			want := fmt.Sprintf("%s %s is a frame of the %s", from, tag, from.Other())
			if _, wrong := authenticated().and(from, tag, &trace.Fields{}).notes(); !slices.Equal(wrong, []string{want}) {
				t.Errorf("got %q, want %q", wrong, want)
			}
		}
	}
}

// A judge that keeps ended connections would have to forget open ones, at its bound.
func TestAConnectionThatHasEndedIsForgotten(t *testing.T) {
	j := NewJudge()
	for socket := range uint64(10) {
		for _, r := range opened(t).event(trace.End, "", "closed") {
			r.Socket = socket
			j.Look(&r)
		}
	}
	if len(j.conns) > 0 {
		t.Errorf("%d connections are kept", len(j.conns))
	}
}

// A gap that may explain an error hides it.
func TestNothingIsClaimedBehindAGap(t *testing.T) {
	for name, l := range map[string]life{
		"messages": opened(t).event(trace.Lost, con, "").and(con, "MESSAGE", message(9, 0)).and(acc, "MESSAGE", message(1, 9)),
		"damage":   opened(t).event(trace.Bad, con, "").and(con, "MESSAGE", message(9, 0)),
		"late":     life{{Event: trace.Open, Error: "late"}}.and(con, "MESSAGE", message(9, 4)).and(acc, "KEEPALIVE2_ACK", &trace.Fields{}).event(trace.End, "", ""),
		"answers":  opened(t).and(con, "KEEPALIVE2", &trace.Fields{}).event(trace.Lost, acc, "").and(con, "MESSAGE", message(1, 0)).event(trace.End, "", ""),
		"no side":  append(opened(t), trace.Record{Event: trace.Frame, Tag: "HELLO"}),
		"records":  append(opened(t), trace.Record{Event: trace.Lost, Count: 5}).and(acc, "MESSAGE", message(9, 3)),
	} {
		if _, wrong := l.notes(); len(wrong) > 0 {
			t.Errorf("%s: %q", name, wrong)
		}
	}
}

func TestTheOlderProtocolIsJudgedToo(t *testing.T) {
	begin := life{{Event: trace.Open, Protocol: trace.Msgr1}}
	one := func(l life, from trace.Side, tag string, fields *trace.Fields) life {
		return append(slices.Clone(l), trace.Record{Event: trace.Frame, Protocol: trace.Msgr1, From: from, Tag: tag, Fields: fields})
	}
	asked := one(begin, con, "connect", &trace.Fields{HostType: "client"})
	ready := one(one(one(asked, acc, "reply SEQ", &trace.Fields{Lossy: true}), acc, "seq", &trace.Fields{Received: 4}), con, "seq", &trace.Fields{})
	if states, wrong := one(ready, con, "MSG", message(5, 0)).notes(); len(wrong) > 0 || len(states) != 1 || !strings.HasPrefix(states[0], "open: lossy session of client") {
		t.Errorf("%q, wrong %q", states, wrong)
	}
	for tag, want := range map[string]string{
		"WAIT": "both sides dial: the acceptor's own attempt goes on", "RETRY_SESSION": "the acceptor counts 4 connections of this session: the connector tries again",
		"RETRY_GLOBAL":         "the acceptor has seen attempt 9, or replaces the session: the connector tries again",
		"CHALLENGE_AUTHORIZER": "the acceptor wants proof of the authorizer",
	} {
		states, wrong := one(asked, acc, "reply "+tag, &trace.Fields{ConnectSeq: 4, GlobalSeq: 9}).notes()
		if len(wrong) > 0 || !slices.Equal(states, []string{want}) {
			t.Errorf("%s: %q, wrong %q", tag, states, wrong)
		}
	}
	for want, l := range map[string]life{
		"connector messages 5 to 6 are missing":                                          one(ready, con, "MSG", message(7, 0)),
		"connector MSG before a session is open":                                         one(asked, con, "MSG", message(1, 0)),
		"acceptor the acceptor does not accept the authorizer, or misses one":            one(asked, acc, "reply BADAUTHORIZER", &trace.Fields{}),
		"acceptor the versions of the protocol differ: the acceptor has 15":              one(asked, acc, "reply BADPROTOVER", &trace.Fields{Protocol: 15}),
		"it ended before a session was open, in state connect: open where the file ends": asked.event(trace.End, "", "open where the file ends"),
	} {
		if _, wrong := l.notes(); !slices.Equal(wrong, []string{want}) {
			t.Errorf("got %q, want %q", wrong, want)
		}
	}
}

// A gap that any connection may have is not told to each of them.
func TestManyGapsBesideManyConnectionsTakeNoTime(t *testing.T) {
	j, done := NewJudge(), make(chan struct{})
	for i := range uint64(60_000) {
		j.Look(&trace.Record{Event: trace.Open, Socket: i + 1})
	}
	go func() {
		defer close(done)
		for range 100_000 {
			j.Look(&trace.Record{Event: trace.Lost})
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("it takes minutes")
	}
}
