package control_test

import (
	"errors"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Where only one side leaves the crcs out, no connection comes about.
// Matrix: FR-16
func TestOneSideWithoutDataCRCDoesNotConnect(t *testing.T) {
	for _, client := range []bool{true, false} {
		a := newParty(t, control.Config{Name: entity(t, "client.admin"), NoDataCRC: client})
		b := newParty(t, control.Config{Name: entity(t, "osd.0"), NoDataCRC: !client}).bind(t)
		conn, err := a.dial(t, b, wire.OSD)
		if err == nil {
			t.Fatalf("connected: %+v", conn.Info())
		}
		if !client && !errors.Is(err, frame.ErrSegmentCRC) {
			t.Errorf("the client that checks says %v", err)
		}
	}
}
