package handshake2

import (
	"errors"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// The crcs are left out from the first frame on: where only one side does so, the other one
// refuses its HELLO.
func TestDataCRCsOfOneSideOnlyAreAFault(t *testing.T) {
	cc, ac := noneConfigs()
	cc.NoDataCRC, ac.NoDataCRC = true, true
	capture(t, cc, ac)
	for _, connector := range []bool{true, false} {
		cc, ac := noneConfigs()
		cc.NoDataCRC, ac.NoDataCRC = connector, !connector
		x, y := meet(t, cc, ac)
		checks, leaves := y.err, x.err
		if !connector {
			checks, leaves = leaves, checks
		}
		if !errors.Is(checks, frame.ErrSegmentCRC) || leaves == nil {
			t.Errorf("the side that checks: %v; the other one: %v", checks, leaves)
		}
		if e := wantError(t, checks); e.Stage != handshake.StageHello || e.Terminal() {
			t.Errorf("%v", e)
		}
	}
}
