package control_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// A peer that takes every session and hangs up without a message or an ack is
// dialled at once the first time, then after pauses that double, although every
// attempt succeeds. What is received on one of them, or acknowledged, begins
// anew.
// Matrix: SE-39, HI-14
func TestASessionThatIsOfNoUseIsDialledWithPauses(t *testing.T) {
	for _, use := range []string{"a message", "an ack", "the numbers of a reconnect"} {
		t.Run(use, func(t *testing.T) {
			everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
				var clock pressedClock
				s := stageFor(t, ctx, v, "LLC", patient, clock.of)
				p, _ := s.establish()
				send(t, s.conn, 1) // so that it is a session with work to do
				p.Close()
				hangsUp := func() {
					p := s.accept()
					p.ExpectReconnect()
					p.SendPayload(frame.TagSessionReset, wire2.SessionReset{})
					p.ExpectClientIdent()
					p.SendPayload(frame.TagServerIdent, p.ServerIdent(serverCookie, 1))
					p.ExpectMessage()
					s.must(p)
					p.Close()
				}
				pauses := func(n int) {
					t.Helper()
					before := len(clock.pressed())
					var want []time.Duration
					hangsUp() // dialled at once
					for d := firstBackoff; len(want) < n; d = min(2*d, longestBackoff) {
						eventually(t, ctx, "the pause", func() bool { return clock.press(isBackoff) == 1 })
						want = append(want, d)
						if len(want) < n {
							hangsUp()
						}
					}
					if got := clock.pressed()[before:]; !slices.Equal(got, want) {
						t.Errorf("pauses %v, want %v", got, want)
					}
				}
				pauses(9)
				p = s.accept()
				p.ExpectReconnect()
				switch use {
				case "the numbers of a reconnect":
					p.SendPayload(frame.TagSessionReconnectOK, wire2.SessionReconnectOK{MsgSeq: 1})
				case "an ack":
					p.SendPayload(frame.TagSessionReconnectOK, wire2.SessionReconnectOK{})
					p.ExpectMessage()
					p.SendPayload(frame.TagAck, msgrtest.Ack{Seq: 1})
				case "a message":
					p.SendPayload(frame.TagSessionReconnectOK, wire2.SessionReconnectOK{})
					p.SendMessage(frame.MessageHeader{Seq: 1, TID: 100}, nil, nil, nil)
					awaitTID(t, ctx, s.node, 100)
				}
				s.must(p)
				eventually(t, ctx, "the session", func() bool { return s.conn.State() == control.StateReady })
				if use != "a message" {
					eventually(t, ctx, "the ack", func() bool {
						st, err := s.conn.Stats()
						return err == nil && st.IO.Sent == 0 && st.IO.Queued == 0
					})
					send(t, s.conn, 2)
				}
				p.Close()
				hangsUp()
				pauses(2)
			})
		})
	}
}
