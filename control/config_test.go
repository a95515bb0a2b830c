package control_test

import (
	"errors"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Real OSDs take a peer for the osd of its number, and its transaction ids for that osd's.
func TestTheNumberOfAnOsdIsTheOneInItsName(t *testing.T) {
	server := newParty(t, control.Config{Name: entity(t, "osd.7")}).bind(t)
	policy := control.LosslessPeer()
	client := newParty(t, control.Config{Name: entity(t, "osd.12"), Default: &policy})
	conn, err := client.dial(t, server, wire.OSD)
	if err != nil {
		t.Fatal(err)
	}
	if n := conn.Info().PeerNumber; n != 7 {
		t.Errorf("osd.7 says that it is %d", n)
	}
	if n := server.accepted(t).Info().PeerNumber; n != 12 {
		t.Errorf("osd.12 says that it is %d", n)
	}
	for _, cfg := range []control.Config{
		{Name: entity(t, "osd.7"), Number: 8},
		{Name: wire.EntityName{Type: wire.OSD, ID: "a"}},
		{Name: wire.EntityName{Type: wire.OSD, ID: "-1"}},
	} {
		if err := cfg.Validate(); !errors.Is(err, control.ErrConfig) {
			t.Errorf("%v with number %d: %v", cfg.Name, cfg.Number, err)
		}
	}
	if cfg := (control.Config{Name: entity(t, "osd.7"), Number: 7}); cfg.Validate() != nil {
		t.Errorf("osd.7 with number 7: %v", cfg.Validate())
	}
}
