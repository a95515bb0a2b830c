package sessions

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
)

func TestEachCountOfTheMachineIsTheFigureOfItsName(t *testing.T) {
	ones := regexp.MustCompile(`\w+":1\b`)
	for what := range session.PartialResetsSent + 1 {
		var m Manager
		var n stats.ConnCounters
		m.countLocked(&n, what)
		text, err := json.Marshal([]any{n, m.counters})
		want := strings.ReplaceAll(what.String(), " ", "_") + `":1`
		if got := ones.FindAllString(string(text), -1); err != nil || !slices.Equal(got, []string{want}) {
			t.Errorf("%v counts as %q, %v", what, got, err)
		}
	}
}
