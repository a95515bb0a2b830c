package stats

import (
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/steering"
)

// Matrix: XC-05
func TestEveryPlacementIsCountedOnce(t *testing.T) {
	for reason, want := range map[string]PlacementCounters{
		"":                 {Intended: 1},
		steering.Unsteered: {Unsteered: 1},
		steering.NoHint:    {NoHint: 1},
		steering.OtherHint: {OtherHint: 1},
		steering.Missed:    {Missed: 1},
	} {
		var n PlacementCounters
		if CountPlacement(&n, Placement{Reason: reason}); n != want {
			t.Errorf("%q: counted %+v", reason, n)
		}
	}
}
