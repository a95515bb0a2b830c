package msgrtest_test

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

func start(name wire.EntityName, policy control.Policy, probe *msgrtest.Probe) (*control.Messenger, error) {
	cfg := control.Config{Name: name, Default: &policy, Timeouts: control.Timeouts{InitialBackoff: 10 * time.Millisecond}, Plane: loop.Config{Cores: 1}}
	var chain []*control.Dispatcher
	if probe != nil {
		cfg.Diagnostics.Probe = probe
		chain = append(chain, probe.Dispatcher())
	}
	m, err := control.New(cfg)
	if err != nil {
		return nil, err
	}
	return m, m.Start(chain...)
}

func bind(m *control.Messenger) (wire.Addr, error) {
	addrs, err := m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	return addrs.V2(), err
}

// A client loses its connection right before it would read SERVER_IDENT. The
// server has a session by then, which the second attempt takes over.
func ExampleProbe() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	server, err := start(wire.EntityName{Type: wire.MDS, ID: "a"}, control.StatefulServer(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Shutdown(ctx)
	addr, err := bind(server)
	if err != nil {
		fmt.Println(err)
		return
	}

	probe := msgrtest.NewProbe()
	probe.Arm(msgrtest.Read(frame.TagServerIdent), 1, msgrtest.Fault())
	client, err := start(wire.EntityName{Type: wire.Client, ID: "admin"}, control.LosslessClient(), probe)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Shutdown(ctx)
	if _, err := client.Connect(addr, wire.MDS); err != nil {
		fmt.Println(err)
		return
	}
	if err := probe.Await(ctx, "established C(2,2,0,1)"); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(probe.Objects()[0])
	fmt.Println("all breaks reached:", probe.Check() == nil)
	// Output:
	// established C(2,2,0,1) A(0,0,0,0) R(0,0)
	// all breaks reached: true
}

// A peer that comes back with a session that the server has never heard of is
// told so, and opens a new one on the same TCP connection.
func ExamplePeer() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	server, err := start(wire.EntityName{Type: wire.OSD, ID: "1"}, control.LosslessPeer(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Shutdown(ctx)
	addr, err := bind(server)
	if err != nil {
		fmt.Println(err)
		return
	}

	me, _ := wire.ParseAddr("v2:127.0.0.1:6800/2")
	peer := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{Name: wire.EntityName{Type: wire.OSD, ID: "2"}, Number: 2, Addr: me}, addr)
	defer peer.Close()
	peer.Handshake()
	peer.SendPayload(frame.TagSessionReconnect, peer.SessionReconnect(11, 22, 1, 1, 0))
	full := peer.ExpectReset()
	peer.SendPayload(frame.TagClientIdent, peer.ClientIdent(11, 2))
	ident := peer.ExpectServerIdent()
	if err := peer.Err(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("reset in full:", full)
	fmt.Println("a session:", ident.Cookie != 0)
	// Output:
	// reset in full: true
	// a session: true
}
