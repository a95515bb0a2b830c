package session2

import (
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
)

// What both tables of table.go say about every combination of what they look
// at, from a second, independent wording of the rows of ProtocolV2.cc:
// each row with its condition, the first that holds decides.

// asked is what a peer says, with what is known of it.
type asked struct {
	e                             View
	cookie, globalSeq, connectSeq uint64
	resetCheck                    bool
}

type row struct {
	name string
	when func(a asked) bool
	then func(a asked) Verdict
}

func always(v Verdict) func(asked) Verdict { return func(asked) Verdict { return v } }

var identRows = []row{
	{"1 nothing known", func(a asked) bool { return !a.e.Exists }, always(DoEstablish)},
	{"2 another entity", func(a asked) bool { return a.e.OtherEntity }, always(DoFault)},
	{"3 replacing", func(a asked) bool { return a.e.Replacing }, always(DoWaitOnly)},
	{"4 stale", func(a asked) bool { return !a.e.Settled && a.globalSeq < a.e.PeerGlobalSeq }, always(DoFault)},
	{"5 lossy", func(a asked) bool { return a.e.Lossy }, always(DoReplaceLossy)},
	{"6 peer lost its session", func(a asked) bool { return a.e.ServerCookie > 0 && a.cookie != a.e.ClientCookie },
		func(a asked) Verdict { return map[bool]Verdict{true: DoReuseReset, false: DoReuse}[a.resetCheck] }},
	{"7 ident not seen", func(a asked) bool { return a.e.ServerCookie > 0 && a.cookie == a.e.ClientCookie }, always(DoReuse)},
	{"8 race won by the peer", func(a asked) bool { return a.e.ServerCookie == 0 && a.cookie != a.e.ClientCookie && a.e.PeerWins }, always(DoReuse)},
	{"9 race lost by the peer", func(a asked) bool { return a.e.ServerCookie == 0 && a.cookie != a.e.ClientCookie && !a.e.PeerWins }, always(DoWait)},
	{"10 our own session", func(a asked) bool { return a.e.ServerCookie == 0 && a.cookie == a.e.ClientCookie }, always(DoReuse)},
}

var reconnectRows = []row{
	{"1 nothing known", func(a asked) bool { return !a.e.Exists }, always(DoResetFull)},
	{"3 another entity", func(a asked) bool { return a.e.OtherEntity }, always(DoFault)},
	{"4 replacing", func(a asked) bool { return a.e.Replacing }, always(DoRetryGlobal)},
	{"5 another session", func(a asked) bool { return a.cookie != a.e.ClientCookie },
		func(a asked) Verdict { return map[bool]Verdict{true: DoResetFull, false: DoResetPartial}[a.resetCheck] }},
	{"6 not confirmed", func(a asked) bool { return a.e.ServerCookie == 0 }, always(DoResetPartial)},
	{"absurd numbers on record", func(a asked) bool {
		return absurd(a.e.PeerGlobalSeq, a.globalSeq) || absurd(a.e.ConnectSeq, a.connectSeq)
	},
		func(a asked) Verdict { return map[bool]Verdict{true: DoReuse, false: DoStale}[a.e.Settled] }},
	{"7 global_seq too low", func(a asked) bool { return a.globalSeq < a.e.PeerGlobalSeq }, always(DoRetryGlobal)},
	{"8 connect_seq too low", func(a asked) bool { return a.connectSeq < a.e.ConnectSeq }, always(DoRetry)},
	{"9 race won by the peer", func(a asked) bool { return a.connectSeq == a.e.ConnectSeq && a.e.PeerWins }, always(DoReuse)},
	{"10 race lost by the peer", func(a asked) bool { return a.connectSeq == a.e.ConnectSeq && !a.e.PeerWins }, always(DoWaitOnly)},
	{"11 connect_seq higher", func(a asked) bool { return a.connectSeq > a.e.ConnectSeq }, always(DoReuse)},
}

// everyQuestion calls f with all combinations.
func everyQuestion(f func(a asked)) {
	bits := []bool{false, true}
	for _, exists := range bits {
		for _, other := range bits {
			for _, replacing := range bits {
				for _, lossy := range bits {
					for _, wins := range bits {
						for _, check := range bits {
							for _, server := range []uint64{0, 9} {
								for _, cookie := range []uint64{1, 2} {
									everyNumber(func(knownGlobal, knownConnect, gs, cs uint64, settled bool) {
										f(asked{
											View{session.View{
												Exists: exists, OtherEntity: other, Replacing: replacing, Lossy: lossy, PeerGlobalSeq: knownGlobal,
												ConnectSeq: knownConnect, PeerWins: wins, Settled: settled,
											}, 1, server},
											cookie, gs, cs, check,
										})
									})
								}
							}
						}
					}
				}
			}
		}
	}
}

// everyNumber calls f with the numbers on record and those that the peer says:
// below, equal, above, and further below than the peer could have been.
func everyNumber(f func(knownGlobal, knownConnect, gs, cs uint64, settled bool)) {
	known, said := []uint64{5, 4 + 1<<32, 5 + 1<<32, 1 << 62}, []uint64{4, 5, 6}
	for _, knownGlobal := range known {
		for _, knownConnect := range known {
			for _, gs := range said {
				for _, cs := range said {
					f(knownGlobal, knownConnect, gs, cs, false)
					f(knownGlobal, knownConnect, gs, cs, true)
				}
			}
		}
	}
}

// absurd says whether the peer was never at the number on record.
func absurd(known, said uint64) bool { return known > said+1<<32 }

// Matrix: SE-01, SE-02, SE-03, SE-04, SE-07, SE-08, SE-09, SE-10, SE-11, SE-12, SE-13, SE-14, SE-15, SE-16, RP-06
func TestEveryRowOfTheAcceptorsTables(t *testing.T) {
	for _, table := range []struct {
		name   string
		rows   []row
		decide func(a asked) Verdict
	}{
		{"CLIENT_IDENT", identRows, func(a asked) Verdict { return DecideIdent(a.e, a.cookie, a.globalSeq, a.resetCheck) }},
		{"SESSION_RECONNECT", reconnectRows, func(a asked) Verdict {
			return DecideReconnect(a.e, a.cookie, a.globalSeq, a.connectSeq, a.resetCheck)
		}},
	} {
		hits := make([]int, len(table.rows))
		everyQuestion(func(a asked) {
			for i, r := range table.rows {
				if !r.when(a) {
					continue
				}
				hits[i]++
				if got, want := table.decide(a), r.then(a); got != want {
					t.Errorf("%s row %s: %+v: verdict %v, want %v", table.name, r.name, a, got, want)
				}
				return
			}
			t.Errorf("%s: no row for %+v", table.name, a)
		})
		for i, n := range hits {
			if n == 0 {
				t.Errorf("%s: row %s is never reached", table.name, table.rows[i].name)
			}
		}
	}
}
