package control_test

import (
	"net/netip"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// Each wait is two switches between the goroutine and its core. Beside them, one
// begins the handshake and one opens the handler; its arrival is not counted.
func TestTheHandshakeOfAnAcceptedConnectionWaitsThreeTimes(t *testing.T) {
	const most = 3
	ready := make(chan struct{})
	start := func(name wire.EntityName, d *control.Dispatcher) *control.Messenger {
		m, err := control.New(control.Config{Name: name, Plane: dataplane.Config{Cores: 1}})
		must(t, err)
		must(t, m.Start(d))
		t.Cleanup(func() { must(t, m.Shutdown(deadline(t))) })
		return m
	}
	server := start(wire.EntityName{Type: wire.OSD, ID: "0"}, &control.Dispatcher{
		Queued: func(*control.Conn, *control.Message) { close(ready) },
	})
	bound, err := server.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	must(t, err)
	client := start(wire.EntityName{Type: wire.Client, ID: "admin"}, &control.Dispatcher{})
	conn, err := client.Connect(bound[0], wire.OSD)
	must(t, err)
	must(t, conn.Send(control.NewMessage(1, nil, nil)))
	select {
	case <-ready:
	case <-deadline(t).Done():
		t.Fatal("not ready")
	}
	calls := func(m *control.Messenger) uint64 {
		st, err := m.Stats()
		must(t, err)
		return st.Cores[0].LinkCalls
	}
	if n := calls(server); n != most {
		t.Errorf("the acceptor waits %d times for its core, want %d", n, most)
	}
	if n := calls(client); n > most+1 {
		t.Errorf("the connector waits %d times for its core, want at most %d", n, most+1)
	}
}
