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

// A peer that comes back with a session that the server has never heard of is
// told so, and opens a new one on the same TCP connection.
func ExamplePeer() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	policy := control.LosslessPeer()
	server, err := control.New(control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "1"}, Default: &policy, Plane: loop.Config{Cores: 1}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Shutdown(ctx)
	if err := server.Start(); err != nil {
		fmt.Println(err)
		return
	}
	addrs, err := server.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		fmt.Println(err)
		return
	}

	me, _ := wire.ParseAddr("v2:127.0.0.1:6800/2")
	peer := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{Name: wire.EntityName{Type: wire.OSD, ID: "2"}, Number: 2, Addr: me}, addrs.V2())
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
