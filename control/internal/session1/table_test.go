package session1

import (
	"encoding/hex"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// What table.go says about every combination of what it looks at, from a second,
// independent wording of the rows of ProtocolV1.cc: each row with its condition,
// the first that holds decides.

// asking is what a peer says, with what is known of it.
type asking struct {
	e          View
	gseq, cseq uint64
	resetCheck bool
}

// absurd says whether the peer was never at the number on record.
func absurd(known, said uint64) bool { return known > said+1<<24 }

func (a asking) absurdNumbers() bool {
	return absurd(a.e.PeerGlobalSeq, a.gseq) || a.cseq != 0 && absurd(a.e.ConnectSeq, a.cseq)
}

func either(yes bool, a, b Verdict) Verdict {
	if yes {
		return a
	}
	return b
}

var rows = []struct {
	name string
	when func(a asking) bool
	then func(a asking) Verdict
}{
	{"another entity", func(a asking) bool { return a.e.Exists && a.e.OtherEntity }, func(asking) Verdict { return DoFault }},
	{"6 the other protocol, and a session", func(a asking) bool { return a.e.Exists && a.e.Foreign && a.cseq != 0 },
		func(asking) Verdict { return DoResetSession }},
	{"6 the other protocol", func(a asking) bool { return a.e.Exists && a.e.Foreign }, func(asking) Verdict { return DoOpenInstead }},
	{"7 nothing known, and a session", func(a asking) bool { return !a.e.Exists && a.cseq != 0 }, func(asking) Verdict { return DoResetSession }},
	{"8 nothing known", func(a asking) bool { return !a.e.Exists }, func(asking) Verdict { return DoOpen }},
	{"absurd numbers on record, perhaps true", func(a asking) bool { return a.absurdNumbers() && !a.e.Settled },
		func(asking) Verdict { return DoStale }},
	{"10 replacing", func(a asking) bool { return a.e.Replacing && !a.absurdNumbers() }, func(asking) Verdict { return DoRetryGlobal }},
	{"11 global_seq too low", func(a asking) bool { return a.e.PeerGlobalSeq > a.gseq && !a.absurdNumbers() },
		func(asking) Verdict { return DoRetryGlobal }},
	{"12 lossy", func(a asking) bool { return a.e.Lossy }, func(asking) Verdict { return DoOpenInstead }},
	{"13 the peer has forgotten", func(a asking) bool { return a.cseq == 0 && a.e.ConnectSeq != 0 },
		func(a asking) Verdict { return either(a.resetCheck, DoReplaceReset, DoReplace) }},
	{"absurd connect_seq on record", func(a asking) bool { return absurd(a.e.ConnectSeq, a.cseq) }, func(asking) Verdict { return DoReplace }},
	{"14 connect_seq too low", func(a asking) bool { return a.e.ConnectSeq > a.cseq }, func(asking) Verdict { return DoRetrySession }},
	{"15a equal, and none", func(a asking) bool { return a.e.ConnectSeq == a.cseq && a.cseq == 0 && a.resetCheck && !a.e.Connecting },
		func(asking) Verdict { return DoReplace }},
	{"15 equal", func(a asking) bool { return a.e.ConnectSeq == a.cseq && !a.e.Connecting }, func(asking) Verdict { return DoRetrySession }},
	{"16 race won by the peer", func(a asking) bool { return a.e.ConnectSeq == a.cseq && a.e.PeerWins }, func(asking) Verdict { return DoReplace }},
	{"17 race lost by the peer", func(a asking) bool { return a.e.ConnectSeq == a.cseq }, func(asking) Verdict { return DoWait }},
	{"18 we know of none", func(a asking) bool { return a.e.ConnectSeq == 0 && a.resetCheck }, func(asking) Verdict { return DoResetSession }},
	{"19 connect_seq higher", func(asking) bool { return true }, func(asking) Verdict { return DoReplace }},
}

// everyAsking calls f with all combinations.
func everyAsking(f func(a asking)) {
	for bits := range 1 << 9 {
		on := func(i int) bool { return bits>>i&1 != 0 }
		for _, knownG := range []uint64{0, 5, 6 + 1<<24, 1 << 31} {
			for _, knownC := range []uint64{0, 5, 6 + 1<<24, 1 << 31} {
				for _, g := range []uint64{4, 5, 6} {
					for _, c := range []uint64{0, 4, 5, 6} {
						f(asking{e: View{Foreign: on(2), Connecting: on(5), View: session.View{
							Exists: on(0), OtherEntity: on(1), Replacing: on(3), Lossy: on(4),
							PeerGlobalSeq: knownG, ConnectSeq: knownC, PeerWins: on(6), Settled: on(7),
						}}, gseq: g, cseq: c, resetCheck: on(8)})
					}
				}
			}
		}
	}
}

// Matrix: V1-03, V1-04
func TestEveryRowOfTheAcceptorsTable(t *testing.T) {
	hits := make([]int, len(rows))
	everyAsking(func(a asking) {
		for i, r := range rows {
			if r.when(a) {
				hits[i]++
				if got, want := Decide(a.e, a.gseq, a.cseq, a.resetCheck), r.then(a); got != want {
					t.Errorf("row %s: %+v: %v, want %v", r.name, a, got, want)
				}
				return
			}
		}
	})
	for i, n := range hits {
		if n == 0 {
			t.Errorf("row %s is never reached", rows[i].name)
		}
	}
}

// TestWeConnectAgainAsARealMonitorDid answers what a recorded connector was answered, and
// must say the same bytes: RETRY_SESSION 5, RETRY_GLOBAL 5000, then SEQ with 1.
func TestWeConnectAgainAsARealMonitorDid(t *testing.T) {
	seq := session.GlobalSeq(1537)
	low, high := wire.Addr{Type: wire.AddrLegacy, Nonce: 1}, wire.Addr{Type: wire.AddrLegacy, Nonce: 2}
	env := session.Env{Addrs: wire.AddrVec{low}, Seq: &seq}
	s := New(wire.Mon, session.Policy{Standby: true, ResetCheck: true, Register: true, Supported: wire.FeaturesPacific},
		session.Peer{Type: wire.Mon, Target: high}, session.Backoff{})
	var sent []session.Frame
	play := func(ev session.Event) {
		t.Helper()
		next, actions := session.Step(s, ev, env)
		s = next
		for _, a := range actions {
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
	k.confirm()
	known(5, 7)
	for n := uint64(11); n < 21; n++ {
		k.add(n)
	}
	known(5, 14, 15, 16, 17, 18, 19, 20)
	k.open()
	k.confirm()
	known(20)
	if k.last() != 20 {
		t.Errorf("last %d", k.last())
	}
}
