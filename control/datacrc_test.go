package control_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Two messengers without crcs of data understand each other, for payload that is
// copied, gathered, received in place and received apart.
func TestMessagesWithoutDataCRC(t *testing.T) {
	for _, rev0 := range []bool{false, true} {
		t.Run(fmt.Sprintf("rev0=%v", rev0), func(t *testing.T) {
			client := newParty(t, control.Config{Name: entity(t, "client.admin"), NoDataCRC: true, Rev0: rev0})
			server := newParty(t, control.Config{Name: entity(t, "osd.0"), NoDataCRC: true}).bind(t)
			conn, err := client.dial(t, server, wire.OSD)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range []int{0, 1, 5000, 64 << 10, 2 << 20} {
				exchange(t, client, server, conn, bytes.Repeat([]byte("0123456789abcdef"), n/16+1)[:n])
			}
		})
	}
}

// Where only one side leaves the crcs out, no connection comes about.
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
