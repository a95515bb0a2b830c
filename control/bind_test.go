package control

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/binding"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/uring"
)

// A Shutdown that comes when the ports are chosen already is the reason, not
// the cores that have stopped.
func TestListeningDuringAShutdownSaysSo(t *testing.T) {
	m, err := New(Config{
		Name:  wire.EntityName{Type: wire.OSD, ID: "1"},
		Plane: dataplane.Config{Cores: 2, Driver: uring.Config{Backend: uring.Epoll}},
	})
	if err != nil {
		t.Fatal(err)
	}
	at := []wire.Addr{{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}}
	_, err = m.listenAll(t.Context(), at, func(wire.Addr) binding.Ports {
		if err := m.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		return binding.Ports{}
	})
	if !errors.Is(err, ErrShutdown) {
		t.Errorf("got %v", err)
	}
}

func TestBindWantsAnAddress(t *testing.T) {
	m, err := New(Config{Name: wire.EntityName{Type: wire.OSD, ID: "1"}, Plane: dataplane.Config{Cores: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Bind(); !errors.Is(err, ErrConfig) {
		t.Errorf("bound to nothing: %v", err)
	}
	if err := m.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
