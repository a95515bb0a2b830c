package control_test

import (
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// FT-25 for the answers that a session rarely gives: a connection is disturbed
// at SESSION_RESET, SESSION_RETRY, SESSION_RETRY_GLOBAL, WAIT and
// IDENT_MISSING_FEATURES, and the session comes about all the same.

// answer is one of them, as the acceptor's script gives it.
type answer struct {
	name    string
	tag     frame.Tag
	opens   bool // it answers CLIENT_IDENT, else SESSION_RECONNECT
	payload interface{ AppendTo([]byte) []byte }
	goesOn  bool // on the same socket
}

var answers = []answer{
	{"RESET", frame.TagSessionReset, false, wire.SessionReset{Full: true}, true},
	{"PARTIAL_RESET", frame.TagSessionReset, false, wire.SessionReset{}, true},
	{"RETRY", frame.TagSessionRetry, false, wire.SessionRetry{ConnectSeq: 7}, true},
	{"RETRY_GLOBAL", frame.TagSessionRetryGlobal, false, wire.SessionRetryGlobal{GlobalSeq: 1 << 20}, true},
	{"WAIT", frame.TagWait, false, nil, false},
	{"WAIT", frame.TagWait, true, nil, false},
	{"IDENT_MISSING_FEATURES", frame.TagIdentMissingFeatures, true, wire.IdentMissingFeatures{Features: 1}, false},
}

// rarely is a trial at such an answer.
type rarely struct {
	answer
	how disturbance
	v   variant
}

func (r rarely) title() string { return title(r.name, r.opens, r.how, r.v) }

func everyRareAnswer(t *testing.T, list []answer, run func(t *testing.T, r rarely)) {
	msgrtest.CheckLeaks(t)
	var all []rarely
	for _, a := range list {
		for _, how := range disturbances {
			for _, v := range variants {
				all = append(all, rarely{a, how, v})
			}
		}
	}
	spread(t, 16, len(all), func(i int) string { return all[i].title() }, func(t *testing.T, i int) { run(t, all[i]) })
}

// meet waits for the break, and has the limit of a stalled handshake pass.
func (r rarely) meet(s *msgrtest.Node, b *msgrtest.Break, t *testing.T, clock *pressedClock) {
	s.Hit(t.Context(), b)
	if r.how == byStall {
		clock.press(isHandshake)
	}
}

func TestRareAnswerThatIsReadUnderAFault(t *testing.T) {
	everyRareAnswer(t, answers, func(t *testing.T, r rarely) {
		var clock pressedClock
		s := stageFor(t, deadline(t), r.v, "LLC", clock.of, func(c *msgrtest.NodeConfig) { c.HandshakeTimeout = handshakeLimit })
		var p *msgrtest.Peer
		if r.opens {
			p = s.accept()
			p.ExpectClientIdent()
			send(t, s.conn, 1)
		} else {
			p, _, _ = s.lose(1)
		}
		b := s.node.Probe.Arm(msgrtest.Read(r.tag), 1, r.how.action())
		if r.payload == nil {
			p.Send(r.tag, nil)
		} else {
			p.SendPayload(r.tag, r.payload)
		}
		s.must(p)
		r.meet(s.node, b, t, &clock)
		if r.how != byDelay || !r.goesOn {
			p.ExpectEnd()
			s.must(p)
			p = s.accept()
		}
		seq := uint64(2) // of the peer's next message; lose has sent the first
		switch f := p.Next(); f.Tag {
		case frame.TagClientIdent:
			seq = 1
			p.SendPayload(frame.TagServerIdent, p.ServerIdent(serverCookie+1, 2))
		case frame.TagSessionReconnect:
			p.SendPayload(frame.TagSessionReconnectOK, wire.SessionReconnectOK{})
		default:
			t.Fatalf("got %v: %v", f.Tag, p.Err())
		}
		send(t, s.conn, 9)
		p.Ignore(frame.TagAck)
		got := []uint64{}
		for p.Err() == nil && !slices.Contains(got, 9) {
			hd, _ := p.ExpectMessage()
			got = append(got, hd.TID)
		}
		s.must(p)
		p.SendMessage(frame.MessageHeader{Seq: seq, TID: 500}, nil, nil, nil)
		awaitTID(t, s.ctx, s.node, 500)
		// Only a full reset that was read loses what was queued, and says so.
		forgotten := r.name == "RESET" && (r.how == byDelay || r.how == byHalfClose)
		want, resets := []uint64{1, 9}, 0
		if forgotten {
			want, resets = []uint64{9}, 1
		}
		if o := s.node.Probe.Objects()[0]; !slices.Equal(got, want) || o.RemoteResets != resets || o.Resets != 0 {
			t.Errorf("got messages %v, want %v; %v", got, want, o)
		}
	})
}

func TestRareAnswerThatIsWrittenUnderAFault(t *testing.T) {
	// For who writes it, one frame of a kind is as good as another.
	list := slices.DeleteFunc(slices.Clone(answers), func(a answer) bool {
		return a.name == "PARTIAL_RESET" || a.tag == frame.TagWait && !a.opens
	})
	everyRareAnswer(t, list, func(t *testing.T, r rarely) {
		var clock pressedClock
		peerWins := r.tag != frame.TagWait
		s := playTo(t, deadline(t), r.v, "LP", peerWins, clock.of, func(c *msgrtest.NodeConfig) { c.HandshakeTimeout = handshakeLimit })
		b := s.node.Probe.Arm(msgrtest.Write(r.tag), 1, r.how.action())
		var p *msgrtest.Peer
		var si wire.ServerIdent
		switch r.tag {
		case frame.TagSessionReset:
			p = s.reconnect(clientCookie, 77, 5, 1, 0)
		case frame.TagSessionRetry:
			_, si = s.establish(clientCookie, 5)
			s.comeBack(si, 1, 0)
			p = s.reconnect(clientCookie, si.Cookie, 6, 0, 0)
		case frame.TagSessionRetryGlobal:
			_, si = s.establish(clientCookie, 5)
			p = s.reconnect(clientCookie, si.Cookie, 4, 1, 0)
		case frame.TagWait:
			s.node.Probe.Arm(msgrtest.SocketConnecting(), 1, msgrtest.Block())
			if _, err := s.node.Connect(s.addr, wire.OSD); err != nil {
				t.Fatal(err)
			}
			eventually(t, s.ctx, "our own attempt", func() bool { return s.node.Probe.Seen(msgrtest.SocketConnecting()) == 1 })
			p = s.dial()
			p.Handshake()
			p.SendPayload(frame.TagClientIdent, p.ClientIdent(clientCookie, 1))
		case frame.TagIdentMissingFeatures:
			p = s.dial()
			p.Handshake()
			ci := p.ClientIdent(clientCookie, 1)
			ci.Supported = 0
			p.SendPayload(frame.TagClientIdent, ci)
		}
		s.must(p)
		r.meet(s.node, b, t, &clock)
		if r.how == byDelay {
			p.Expect(r.tag)
			s.must(p)
			p.Close()
		} else {
			p.ExpectEnd()
			s.must(p)
		}
		switch r.tag {
		case frame.TagSessionRetry, frame.TagSessionRetryGlobal:
			p = s.comeBack(si, 2, 0)
		case frame.TagWait:
			if c := s.node.Lookup(s.addr); c == nil || c.State() == control.StateReady {
				t.Errorf("the node's own attempt is gone")
			}
			return
		default:
			p, _ = s.establish(clientCookie, 9)
		}
		s.talks(p, 1)
	})
}
