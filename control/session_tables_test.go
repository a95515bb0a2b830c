package control

import (
	"errors"
	"strings"
	"testing"
)

// What both tables of decide.go say about every combination of what they look
// at, from a second, independent wording of the rows of msgr2.md 9.5 and 9.6:
// each row with its condition, the first that holds decides.

// asked is what a peer says, with what is known of it.
type asked struct {
	e                             known
	cookie, globalSeq, connectSeq uint64
	resetCheck                    bool
}

type row struct {
	name string
	when func(a asked) bool
	then func(a asked) verdict
}

func always(v verdict) func(asked) verdict { return func(asked) verdict { return v } }

var identRows = []row{
	{"1 nothing known", func(a asked) bool { return !a.e.exists }, always(doEstablish)},
	{"2 another entity", func(a asked) bool { return a.e.otherEntity }, always(doFault)},
	{"3 replacing", func(a asked) bool { return a.e.replacing }, always(doWaitOnly)},
	{"4 stale", func(a asked) bool { return a.globalSeq < a.e.peerGlobalSeq }, always(doFault)},
	{"5 lossy", func(a asked) bool { return a.e.lossy }, always(doReplaceLossy)},
	{"6 peer lost its session", func(a asked) bool { return a.e.serverCookie > 0 && a.cookie != a.e.clientCookie },
		func(a asked) verdict { return map[bool]verdict{true: doReuseReset, false: doReuse}[a.resetCheck] }},
	{"7 ident not seen", func(a asked) bool { return a.e.serverCookie > 0 && a.cookie == a.e.clientCookie }, always(doReuse)},
	{"8 race won by the peer", func(a asked) bool { return a.e.serverCookie == 0 && a.cookie != a.e.clientCookie && a.e.peerWins }, always(doReuse)},
	{"9 race lost by the peer", func(a asked) bool { return a.e.serverCookie == 0 && a.cookie != a.e.clientCookie && !a.e.peerWins }, always(doWait)},
	{"10 our own session", func(a asked) bool { return a.e.serverCookie == 0 && a.cookie == a.e.clientCookie }, always(doReuse)},
}

var reconnectRows = []row{
	{"1 nothing known", func(a asked) bool { return !a.e.exists }, always(doResetFull)},
	{"3 another entity", func(a asked) bool { return a.e.otherEntity }, always(doFault)},
	{"4 replacing", func(a asked) bool { return a.e.replacing }, always(doRetryGlobal)},
	{"5 another session", func(a asked) bool { return a.cookie != a.e.clientCookie },
		func(a asked) verdict { return map[bool]verdict{true: doResetFull, false: doResetPartial}[a.resetCheck] }},
	{"6 not confirmed", func(a asked) bool { return a.e.serverCookie == 0 }, always(doResetPartial)},
	{"7 global_seq too low", func(a asked) bool { return a.globalSeq < a.e.peerGlobalSeq }, always(doRetryGlobal)},
	{"8 connect_seq too low", func(a asked) bool { return a.connectSeq < a.e.connectSeq }, always(doRetry)},
	{"9 race won by the peer", func(a asked) bool { return a.connectSeq == a.e.connectSeq && a.e.peerWins }, always(doReuse)},
	{"10 race lost by the peer", func(a asked) bool { return a.connectSeq == a.e.connectSeq && !a.e.peerWins }, always(doWaitOnly)},
	{"11 connect_seq higher", func(a asked) bool { return a.connectSeq > a.e.connectSeq }, always(doReuse)},
}

// everyQuestion calls f with all combinations.
func everyQuestion(f func(a asked)) {
	bits := []bool{false, true}
	numbers := []uint64{4, 5, 6}
	for _, exists := range bits {
		for _, other := range bits {
			for _, replacing := range bits {
				for _, lossy := range bits {
					for _, wins := range bits {
						for _, check := range bits {
							for _, server := range []uint64{0, 9} {
								for _, cookie := range []uint64{1, 2} {
									for _, gs := range numbers {
										for _, cs := range numbers {
											f(asked{known{exists, other, replacing, lossy, 5, 5, 1, server, wins}, cookie, gs, cs, check})
										}
									}
								}
							}
						}
					}
				}
			}
		}
	}
}

func TestEveryRowOfTheAcceptorsTables(t *testing.T) {
	for _, table := range []struct {
		name   string
		rows   []row
		decide func(a asked) verdict
	}{
		{"CLIENT_IDENT", identRows, func(a asked) verdict { return decideIdent(a.e, a.cookie, a.globalSeq, a.resetCheck) }},
		{"SESSION_RECONNECT", reconnectRows, func(a asked) verdict {
			return decideReconnect(a.e, a.cookie, a.globalSeq, a.connectSeq, a.resetCheck)
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
					t.Errorf("%s row %s: %+v: verdict %d, want %d", table.name, r.name, a, got, want)
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

// stateTable is the state machine once more, a row for each state and a column
// for each event in the order of their numbers; "." is illegal.
var stateTable = map[State]string{
	//                 connect     accept    establish    wait sent   ready replace     standby  redial     backoff timer      queued     close
	StateNone:         "connecting accepting .            .           .     .           .        .          .       .          .          closing",
	StateAccepting:    ".          .         establishing server_wait .     closing     .        .          .       .          .          closing",
	StateServerWait:   ".          .         .            .           .     .           .        .          .       .          .          closing",
	StateEstablishing: ".          .         .            .           ready replacing   standby  connecting .       .          .          closing",
	StateConnecting:   ".          .         .            .           ready replacing   standby  .          wait    .          .          closing",
	StateReady:        ".          .         .            .           .     replacing   standby  connecting .       .          .          closing",
	StateStandby:      ".          .         .            .           .     replacing   .        .          .       .          connecting closing",
	StateWait:         ".          .         .            .           .     replacing   .        .          .       connecting .          closing",
	StateReplacing:    ".          .         .            .           ready replacing   standby  .          wait    .          .          closing",
	StateClosing:      ".          .         .            .           .     .           .        .          .       .          .          .",
}

func TestEveryStateWithEveryEvent(t *testing.T) {
	if len(stateTable) != len(stateNames) {
		t.Fatalf("%d states in the table, %d exist", len(stateTable), len(stateNames))
	}
	for s := range State(len(stateNames)) {
		columns := strings.Fields(stateTable[s])
		if len(columns) != len(eventNames) {
			t.Fatalf("state %v: %d events in the table, %d exist", s, len(columns), len(eventNames))
		}
		for e := range event(len(eventNames)) {
			to, err := next(s, e)
			switch want := columns[e]; {
			case want == ".":
				if !errors.Is(err, ErrTransition) || to != s {
					t.Errorf("%v + %v: to %v with %v, want it illegal", s, e, to, err)
				}
			case err != nil || to.String() != want:
				t.Errorf("%v + %v: to %v with %v, want %s", s, e, to, err, want)
			}
		}
	}
}

func TestErrorOfAnIllegalTransitionNamesBoth(t *testing.T) {
	_, err := next(StateStandby, evTimer)
	if err == nil || err.Error() != "control: illegal transition: timer in state standby" {
		t.Errorf("got %v", err)
	}
}
