package sessions

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/binding"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// A Shutdown that comes when the ports are chosen already is the reason, not
// the cores that have stopped.
func TestListeningDuringAShutdownSaysSo(t *testing.T) {
	m := newManager(t, func(c *Config) { c.Plane.Cores = 2 })
	at := []wire.Addr{{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}}
	_, err := m.listenAll(t.Context(), at, func(wire.Addr) binding.Ports {
		m.Close()()
		return binding.Ports{}
	})
	if !errors.Is(err, ErrShutdown) {
		t.Errorf("got %v", err)
	}
}

func TestBindWantsAnAddress(t *testing.T) {
	m := newManager(t, nil)
	if _, err := m.Bind(); !errors.Is(err, ErrConfig) {
		t.Errorf("bound to nothing: %v", err)
	}
}
