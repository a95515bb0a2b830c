package control_test

import (
	"net/netip"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Peers are told the address under which the first of them came, the listeners
// have the one without an IP: the program passes with these.
func TestAHandOverKeepsThePinsOfAnAddressWithoutAnIP(t *testing.T) {
	needSteering(t)
	msgrtest.CheckLeaks(t) // of programs and maps, too
	ctx := deadline(t)
	cfg := serverConfig(uring.Auto, 2)
	cfg.Steer = control.SteerTable
	m, err := control.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, m) })
	if err := m.Start(echoAll()); err != nil {
		t.Fatal(err)
	}
	addrs, err := m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("0.0.0.0:0")})
	if err != nil {
		t.Fatal(err)
	}
	at := addrs[0]
	at.AddrPort = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), at.AddrPort.Port())
	s := newStream(t, uring.Auto, wire.MDS, control.LosslessClient(), at)
	if got := m.Addrs(); got[0] != at {
		t.Fatalf("peers are told %v, want %v", got, at)
	}
	if err := m.PinPeer(source(1), 1); err != nil {
		t.Fatal(err)
	}
	next := succeed(t, ctx, m, cfg, echoAll())
	t.Cleanup(func() { end(t, next) })
	for range 10 {
		knock(t, netip.AddrPortFrom(source(1), 0), at.AddrPort)
	}
	st := statsOf(t, next).Steering
	if !st.Active || len(st.Groups) != 1 || st.Groups[0].Counters.Cores[1].Addr.Selected != 10 {
		t.Errorf("%+v", st)
	}
	s.end()
}
