package handshake2

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// helloSum is the crc of the HELLO that follows the banner in a stream.
func helloSum(t *testing.T, stream []byte) []byte {
	t.Helper()
	const banner, sum = 26, 4
	p := stream[banner:]
	h, err := frame.ParsePreamble(p)
	if err != nil || h.Tag != frame.TagHello {
		t.Fatalf("%v, %v", h.Tag, err)
	}
	return p[frame.PreambleSize+h.Len[0]:][:sum]
}

func TestDataCRCsAreLeftOutFromTheFirstFrameOn(t *testing.T) {
	cc, ac := noneConfigs()
	c2s, s2c := capture(t, cc, ac)
	none := make([]byte, 4)
	if bytes.Equal(helloSum(t, c2s), none) || bytes.Equal(helloSum(t, s2c), none) {
		t.Fatal("no crcs, though nobody has asked for that")
	}
	cc.NoDataCRC, ac.NoDataCRC = true, true
	c2s, s2c = capture(t, cc, ac)
	if !bytes.Equal(helloSum(t, c2s), none) || !bytes.Equal(helloSum(t, s2c), none) {
		t.Fatal("there are crcs")
	}
}

// Where only one side leaves the crcs out, the other one refuses its HELLO.
func TestDataCRCsOfOneSideOnlyAreAFault(t *testing.T) {
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
