package session

import (
	"errors"
	"strings"
	"testing"
)

// stateTable is the state machine once more, a row for each state and a column
// for each trigger in the order of their numbers; "." is illegal.
var stateTable = map[State]string{
	//             connect    accept    establish    waitsent    ready replace   standby redial     backoff timer      queued     close   freeze  restore loopback
	None:         "connecting accepting .            .           .     .         .       .          .       .          .          .       .       standby ready",
	Accepting:    ".          .         establishing server_wait .     closing   .       .          .       .          .          closing .       .       .",
	ServerWait:   ".          .         .            .           .     .         .       .          .       .          .          .       .       .       .",
	Establishing: ".          .         .            .           ready replacing standby connecting .       .          .          closing standby .       .",
	Connecting:   ".          .         .            .           ready replacing standby .          wait    .          .          closing standby .       .",
	Ready:        ".          .         .            .           .     replacing standby connecting wait    .          .          closing standby .       .",
	Standby:      ".          .         .            .           .     replacing .       .          .       .          connecting closing standby .       .",
	Wait:         ".          .         .            .           .     replacing .       .          .       connecting .          closing wait    .       .",
	Replacing:    ".          .         .            .           ready replacing standby .          wait    .          .          closing standby .       .",
	Closing:      ".          .         .            .           .     .         .       .          .       .          .          .       .       .       .",
}

// Matrix: FR-30
func TestEveryStateWithEveryTrigger(t *testing.T) {
	if len(stateTable) != len(stateNames) {
		t.Fatalf("%d states in the table, %d exist", len(stateTable), len(stateNames))
	}
	for s := range State(len(stateNames)) {
		columns := strings.Fields(stateTable[s])
		if len(columns) != len(triggerNames) {
			t.Fatalf("state %v: %d triggers in the table, %d exist", s, len(columns), len(triggerNames))
		}
		for e := range Trigger(len(triggerNames)) {
			to, err := Next(s, e)
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
	_, err := Next(Standby, OnTimer)
	if err == nil || err.Error() != "control: illegal transition: timer in state standby" {
		t.Errorf("got %v", err)
	}
}

// A peer that tells again and again of messages that we have not sent has another session.
func TestEachFourthNumberThatCannotBeBeginsTheSessionAnew(t *testing.T) {
	var l Lifecycle
	for i := range 3 * maxStrange {
		anew, err := l.CheckReceived(1)
		if want := i%maxStrange == maxStrange-1; anew != want || !errors.Is(err, ErrProtocol) {
			t.Errorf("number %d: anew %v, %v", i+1, anew, err)
		}
	}
}
