package session1

import (
	"encoding/hex"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// TestWeConnectAgainAsARealMonitorDid answers what a recorded connector was answered, and
// must say the same bytes: RETRY_SESSION 5, RETRY_GLOBAL 5000, then SEQ with 1.
func TestWeConnectAgainAsARealMonitorDid(t *testing.T) {
	seq := session.GlobalSeq(1537)
	low, high := wire.Addr{Type: wire.AddrLegacy, Nonce: 1}, wire.Addr{Type: wire.AddrLegacy, Nonce: 2}
	env := session.Env{Addrs: wire.AddrVec{low}, Seq: &seq}
	s := New(wire.Mon, session.Policy{Standby: true, ResetCheck: true, Register: true, Supported: wire.FeaturesPacific},
		session.Peer{Type: wire.Mon, Target: high, Dialled: true}, session.Backoff{})
	var sent []session.Frame
	play := func(ev session.Event) {
		t.Helper()
		for _, a := range session.Advance(&s, ev, env) {
			switch a := a.(type) {
			case session.Send:
				sent = append(sent, a.Frame)
			case session.Illegal:
				t.Fatal(a)
			}
		}
	}
	answer := func(tag wire1.Tag, gseq, cseq uint32, received uint64) {
		t.Helper()
		play(session.Answer{Attempt: s.Attempt, Frame: Answer{
			Reply: wire1.Reply{Tag: tag, Features: wire.FeaturesPacific, GlobalSeq: gseq, ConnectSeq: cseq, Protocol: 13}, Received: received,
		}})
	}
	play(session.Connect{})
	play(session.Authenticated{Attempt: 1})
	answer(wire1.TagSeq, 1, 1, 0)
	play(session.HandlerMoved{Attempt: 1})
	play(session.Sent{Attempt: 1})
	io := session.Snapshot{InSeq: 3, OutSeq: 3, Sent: true, Notifications: 1}
	play(session.Lost{Notification: 1, IO: io})
	sent = nil
	play(session.Authenticated{Attempt: 2, IO: io})
	answer(wire1.TagRetrySession, 0, 5, 0)
	answer(wire1.TagRetryGlobal, 5000, 0, 0)
	answer(wire1.TagSeq, 2, 6, 1)
	play(session.HandlerMoved{Attempt: 2})

	// What follows connect_seq and the protocol is about the authorizer.
	want := []string{
		"fffffdffbdcf013f0100000003060000020000000d000000", "fffffdffbdcf013f0100000003060000050000000d000000",
		"fffffdffbdcf013f0100000089130000050000000d000000", "0300000000000000",
	}
	if len(sent) != len(want) || s.State != session.Connecting {
		t.Fatalf("%d frames in state %v", len(sent), s.State)
	}
	for i, f := range sent {
		var p []byte
		switch f := f.(type) {
		case wire1.Connect:
			p = f.AppendTo(nil)[:24]
		case wire1.Seq:
			p = f.AppendTo(nil)
		}
		if got := hex.EncodeToString(p); got != want[i] {
			t.Errorf("frame %d: %s, want %s", i, got, want[i])
		}
	}
	play(session.Sent{Attempt: 2})
	if s.State != session.Ready || s.ConnectSeq != 6 || s.PeerGlobalSeq != 2 {
		t.Errorf("%v, connect_seq %d, peer's global_seq %d", s.State, s.ConnectSeq, s.PeerGlobalSeq)
	}
}

// What the peer may have on record: all since the number that messages have confirmed, the
// first and the last ones if there are too many.
func TestTheNumbersOfRepliesAreKnownUntilMessagesHaveConfirmedOne(t *testing.T) {
	var k told
	known := func(want ...uint64) {
		t.Helper()
		for n := uint64(0); n < 30; n++ {
			is := false
			for _, w := range want {
				is = is || w == n
			}
			if k.knows(n) != is {
				t.Errorf("%d is known: %v, want %v", n, !is, want)
			}
		}
	}
	known()
	k.confirm()
	k.add(3)
	k.open()
	k.add(5)
	k.open()
	k.add(7) // its socket broke off
	known(3, 5, 7)
	for in, want := range map[uint64][]uint32{1: {3, 5, 7}, 2: {5, 7}} { // a successor knows as much
		s := Session{told: k, inAtOpen: 1}
		s.IO.InSeq = in
		if r := s.Record(); !slices.Equal(r.Told, want) || r.Opened != 5 || r.ToldSeq != 5 {
			t.Errorf("in_seq %d: %+v", in, r)
		}
	}
	k.confirm()
	known(5, 7)
	for n := uint64(11); n < 21; n++ {
		k.add(n)
	}
	known(5, 14, 15, 16, 17, 18, 19, 20)
	k.open()
	k.confirm()
	known(20)
	if k.open(); k.opened != 20 {
		t.Errorf("last %d", k.opened)
	}
	k.add(21)
	k.open()
	for n := uint64(22); n < 28; n++ {
		k.add(n)
	}
	k.confirm() // which leaves room for another one
	k.add(28)
	known(21, 22, 23, 24, 25, 26, 27, 28)
}
