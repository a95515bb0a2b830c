package session_test

import (
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/session2"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// goes is a session that goes by an address of the scripts.
func goes(kind, name, target string) *session2.Session {
	n, err := wire.ParseEntityName(name)
	if err != nil {
		panic(err)
	}
	s := session2.New(policies["lossless-peer"], session.Peer{Target: names2.addr(target), Type: n.Type, Entity: n}, session.Backoff{})
	s.State, s.ClientCookie = session.Ready, 70
	switch kind {
	case "dialled":
		s.Peer.Dialled, s.Peer.Entity = true, wire.EntityName{}
	case "proven":
		s.Peer.Proven = true
	case "proven, near":
		s.Peer.Proven, s.Peer.Near = true, true
	case "near":
		s.Peer.Near = true
	case "idle":
		s.State = session.Standby
	case "waits":
		s.State = session.Wait
	case "proven, idle":
		s.Peer.Proven, s.State = true, session.Standby
	}
	return &s
}

// peersOf are the peers of sessions.
func peersOf(known ...*session2.Session) (list []*session.Peer) {
	for _, s := range known {
		list = append(list, &s.Peer)
	}
	return list
}

func TestWhatWasDialledComesBeforeWhatIsProvenAndThatBeforeWhatIsSaid(t *testing.T) {
	elsewhere, dialled, proven := goes("dialled", "osd.7", "other"), goes("dialled", "osd.7", "high"), goes("proven", "osd.7", "high")
	liar, said, later, client := goes("proven", "osd.8", "high"), goes("said", "osd.8", "high"), goes("said", "osd.9", "high"), goes("said", "client.1", "high")
	nearLiar, nearSaid := goes("proven, near", "osd.8", "high"), goes("near", "osd.8", "high")
	for _, one := range []struct {
		name  string
		known []*session2.Session
		want  *session2.Session
	}{
		{"nobody", nil, nil},
		{"two names are proven, and one came from the IP", []*session2.Session{nearLiar, proven}, nearLiar},
		{"two names are proven, and both came from the IP", []*session2.Session{nearLiar, goes("proven, near", "osd.7", "high"), proven}, nil},
		{"proven elsewhere, said by one from the IP", []*session2.Session{proven, nearSaid}, proven},
		{"said, and one came from the IP", []*session2.Session{nearSaid, later}, nearSaid},
		{"only said to be the first address of who was dialled", []*session2.Session{elsewhere}, nil},
		{"dialled", []*session2.Session{liar, dialled, proven}, dialled},
		{"proven", []*session2.Session{elsewhere, proven, said}, proven},
		{"two names are proven", []*session2.Session{proven, liar, said}, nil},
		{"said, the latest", []*session2.Session{client, said, later}, later},
		{"a client came later", []*session2.Session{said, client}, said},
		{"a client", []*session2.Session{client, elsewhere}, client},
	} {
		i := session.Found(names2.addr("high"), peersOf(one.known...), false)
		if one.want == nil && i != -1 || one.want != nil && (i < 0 || one.known[i] != one.want) {
			t.Errorf("%s: found %d", one.name, i)
		}
	}
	if i := session.FoundAs(names2.addr("high"), wire.EntityName{Type: wire.OSD, ID: "7"}, peersOf(liar, proven, said), false); i != 1 {
		t.Errorf("osd.7 among two who claim the address: %d", i)
	}
	if i := session.FoundAs(names2.addr("high"), wire.EntityName{Type: wire.OSD, ID: "7"}, peersOf(liar), false); i != -1 {
		t.Errorf("osd.8 found for osd.7: %d", i)
	}
}

func TestWhereAClaimWasWrongOnlyWhatWasDialledIsFound(t *testing.T) {
	dialled, proven, said := goes("dialled", "osd.7", "high"), goes("proven, near", "osd.7", "high"), goes("near", "osd.7", "high")
	client := goes("said", "client.1", "high")
	if i := session.Found(names2.addr("high"), peersOf(proven, said, client), true); i != -1 {
		t.Errorf("claim %d is believed", i)
	}
	if i := session.Found(names2.addr("high"), peersOf(proven, dialled, said), true); i != 1 {
		t.Errorf("dialled: %d", i)
	}
	name := wire.EntityName{Type: wire.OSD, ID: "7"}
	if i := session.FoundAs(names2.addr("high"), name, peersOf(said, proven), true); i != 1 {
		t.Errorf("by a name that is proven: %d", i)
	}
	if i := session.FoundAs(names2.addr("high"), name, peersOf(goes("proven", "osd.7", "high")), true); i != 0 {
		t.Errorf("by a name that is proven from elsewhere: %d", i)
	}
	for disproved, want := range map[bool]int{true: -1, false: 0} {
		if i := session.FoundAs(names2.addr("high"), name, peersOf(said), disproved); i != want {
			t.Errorf("by a name that is only said, a claim was wrong %v: %d", disproved, i)
		}
	}
	if i := session.FoundAs(names2.addr("high"), client.Peer.Entity, peersOf(client), false); i != 0 {
		t.Errorf("a client by its name: %d", i)
	}
}

// A peer has one session with us at its address: the one that we dialled, if there
// is one.
func TestOnlyAnotherSessionOfTheSamePeerIsADouble(t *testing.T) {
	by := goes("dialled", "osd.7", "high")
	by.Peer.Number, by.Peer.NumberKnown = 7, true
	for _, one := range []struct {
		name   string
		change func(*session2.Session)
		want   bool
	}{
		{"the same peer, which came", func(*session2.Session) {}, true},
		{"dialled, too", func(s *session2.Session) { s.Peer.Dialled = true }, false},
		{"at another address", func(s *session2.Session) { s.Peer.Target = names2.addr("other") }, false},
		{"another number", func(s *session2.Session) { s.Peer.Number = 8 }, false},
		{"a number that is not known", func(s *session2.Session) { s.Peer.NumberKnown = false }, false},
		{"another type", func(s *session2.Session) { s.Peer.Type = wire.MDS }, false},
		{"lossy", func(s *session2.Session) { s.Policy.Lossy = true }, false},
	} {
		s := goes("proven", "osd.7", "high")
		s.Peer.Number, s.Peer.NumberKnown = 7, true
		one.change(s)
		if got := s.Doubles(&by.Lifecycle); got != one.want {
			t.Errorf("%s: %v", one.name, got)
		}
	}
	nobody := goes("said", "mon.a", "high")
	by = goes("dialled", "mon.a", "high")
	nobody.Peer.NumberKnown, by.Peer.NumberKnown = true, true
	for number, want := range map[int64]bool{-1: false, 0: true} { // -1 is nobody's
		nobody.Peer.Number, by.Peer.Number = number, number
		if nobody.Doubles(&by.Lifecycle) != want {
			t.Errorf("the number %d", number)
		}
	}
}

// Matrix: SE-24, HI-12
func TestWhoComesFindsItsOwnSessionAndIsRefusedWhereSomebodyIs(t *testing.T) {
	alias := goes("dialled", "osd.7", "other")
	known := goes("dialled", "osd.7", "high")
	known.Peer.Number, known.Peer.NumberKnown = 7, true
	ranked := goes("dialled", "mon.8", "high")
	ranked.Peer.Number, ranked.Peer.NumberKnown = 0, true
	for _, one := range []struct {
		name    string
		who     string
		proven  bool
		says    string
		known   *session2.Session
		meant   bool // else it gets a session of its own
		isOther bool // and is refused
	}{
		{name: "by a second address, with the one that was dialled", who: "osd.7", says: "high+other", known: alias, meant: true},
		{name: "by a second address alone", who: "osd.7", says: "high", known: alias},
		{name: "dialled, and nobody knows who it is", who: "osd.7", says: "high", known: goes("dialled", "osd.7", "high"), meant: true},
		{name: "dialled, and it is another OSD", who: "osd.8", proven: true, says: "high", known: known, meant: true, isOther: true},
		{name: "dialled, and one says that it is another OSD", who: "osd.8", says: "high", known: known, meant: true},
		{name: "dialled, and it is that OSD", who: "osd.7", proven: true, says: "high", known: known, meant: true},
		{name: "dialled, and a monitor's name is not its number", who: "mon.8", proven: true, says: "high", known: ranked, meant: true},
		{name: "said by another who has a socket", who: "osd.8", says: "high", known: goes("said", "osd.7", "high"), meant: true, isOther: true},
		{name: "said by another whose socket is gone", who: "osd.8", says: "high", known: goes("idle", "osd.7", "high")},
		{name: "said by another that waits to dial", who: "osd.8", says: "high", known: goes("waits", "osd.7", "high")},
		{name: "said by another, but now proven", who: "osd.8", proven: true, says: "high", known: goes("said", "osd.7", "high")},
		{name: "proven by another", who: "osd.8", says: "high", known: goes("proven, idle", "osd.7", "high"), meant: true, isOther: true},
		{name: "proven, and one has no name", who: "osd.", says: "high", known: goes("proven, idle", "osd.7", "high"), meant: true, isOther: true},
		{name: "proven by both", who: "osd.8", proven: true, says: "high", known: goes("proven", "osd.7", "high")},
		{name: "a client is in nobody's way", who: "osd.7", says: "high", known: goes("said", "client.1", "high")},
		{name: "the peer itself", who: "osd.7", says: "high", known: goes("said", "osd.7", "high"), meant: true},
	} {
		n, _ := wire.ParseEntityName(one.who)
		p := session.Peer{Type: n.Type, Entity: n, Proven: one.proven}
		if p.Type == 0 { // no name
			p.Type = wire.OSD
		}
		i := meant(p, names2.vec(one.says), 1, one.known)
		if (i == 0) != one.meant || i == 0 && one.known.Is(&p) == one.isOther {
			t.Errorf("%s: meant %v, another %v", one.name, i == 0, !one.known.Is(&p))
		}
	}
	// Two of the same peer: the cookie says which.
	a, b := goes("dialled", "osd.7", "high"), goes("said", "osd.7", "high")
	b.ClientCookie = 71
	for cookie, want := range map[uint64]int{70: 0, 71: 1, 5: 0} {
		if i := meant(b.Peer, names2.vec("high"), cookie, a, b); i != want {
			t.Errorf("cookie %d: session %d, want %d", cookie, i, want)
		}
	}
	// Its own session comes before another one that is in its way.
	for _, own := range []*session2.Session{goes("said", "osd.7", "high"), alias} {
		if i := meant(goes("said", "osd.7", "high").Peer, names2.vec("high+other"), 5, goes("proven", "osd.8", "high"), own); i != 1 {
			t.Errorf("own session at %v: %d", own.Peer.Target, i)
		}
	}
}

// A session with a peer that has only claimed its address goes on there if it is
// known, and begins anew only if nothing speaks against the claim.
func TestASessionBeginsAnewOnlyWhereItsPeerIsToBeFound(t *testing.T) {
	for _, one := range []struct {
		name   string
		s      *session2.Session
		others []*session2.Session
		begins bool
	}{
		{name: "dialled", s: goes("dialled", "osd.7", "high"), others: []*session2.Session{goes("proven", "osd.8", "high")}, begins: true},
		{name: "claimed from there", s: goes("proven, near", "osd.7", "high"), begins: true},
		{name: "claimed from there by a name that is only said", s: goes("near", "osd.7", "high"), begins: true},
		{name: "claimed from elsewhere", s: goes("proven", "osd.7", "high")},
		{name: "somebody else has proven a name", s: goes("proven, near", "osd.7", "high"), others: []*session2.Session{goes("proven", "osd.8", "high")}},
		{name: "somebody else has proven a name from there", s: goes("proven, near", "osd.7", "high"), others: []*session2.Session{goes("proven, near", "osd.8", "high")}},
		{name: "somebody else was dialled", s: goes("proven, near", "osd.7", "high"), others: []*session2.Session{goes("dialled", "osd.8", "high")}},
		{name: "somebody else says so", s: goes("proven, near", "osd.7", "high"), others: []*session2.Session{goes("said", "osd.8", "high")}, begins: true},
		{name: "another session with the same peer", s: goes("proven, near", "osd.7", "high"), others: []*session2.Session{goes("proven", "osd.7", "high")}, begins: true},
	} {
		for _, lost := range []bool{false, true} { // the peer says so, or we know
			s := *one.s
			known := append([]*session2.Session{&s}, one.others...)
			seq := session.GlobalSeq(1)
			env := session.Env{Addrs: names2.vec("low"), Seq: &seq, Cookie: func() uint64 { return 1 }, Contested: func() bool { return session.Contested(&s.Lifecycle, lives(known...)) }}
			s.State, s.Attempt, s.ServerCookie = session.Connecting, 1, 55
			if lost {
				s.ServerCookie = 0
			}
			actions := session.Advance(&s, session.Authenticated{Attempt: 1}, env)
			if !lost {
				if s.State != session.Connecting {
					t.Errorf("%s: not asked for: %v", one.name, s.State)
				}
				actions = session.Advance(&s, session.Answer{Attempt: 1, Frame: wire2.SessionReset{Full: true}}, env)
			}
			begins := s.State == session.Connecting && slices.ContainsFunc(actions, func(a session.Action) bool {
				f, ok := a.(session.Send)
				return ok && session2.KindOf(f.Frame) == session2.KindClientIdent
			})
			if begins != one.begins || !begins && s.State != session.Closing {
				t.Errorf("%s, known to be lost %v: begins %v, %v", one.name, lost, begins, s.State)
			}
		}
	}
}

// lives are what both protocols have of sessions.
func lives(list ...*session2.Session) (all []*session.Lifecycle) {
	for _, s := range list {
		all = append(all, &s.Lifecycle)
	}
	return all
}

// meant is Meant by the client cookie of a frame.
func meant(p session.Peer, addrs wire.AddrVec, cookie uint64, known ...*session2.Session) int {
	return session.Meant(p, addrs, lives(known...), func(i int) bool { return known[i].ClientCookie == cookie })
}
