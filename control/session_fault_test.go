package control_test

import (
	"context"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

const (
	connectPoints = "SOCKET_CONNECTING BANNER_WRITE BANNER_READ BANNER_PAYLOAD_READ HELLO_WRITE HELLO_READ " +
		"AUTH_REQUEST_WRITE AUTH_DONE_READ AUTH_SIGNATURE_WRITE AUTH_SIGNATURE_READ"
)

func connectorName(policy string) string {
	if policy == "LC" || policy == "LLC" {
		return "client.2"
	}
	return "osd.2"
}

// A fault while a message is being handled, by its handler.
// Matrix: FT-24
func TestFaultInsideAHandlerCostsOneReconnect(t *testing.T) {
	everyMode(t, func(t *testing.T, ctx context.Context, v variant) {
		acceptor := nodeOf(t, v, "osd.1", "SFS", 1, withChain(echoer()))
		var connector *msgrtest.Node
		ready := make(chan struct{})
		connector = nodeOf(t, v, "client.2", "LLC", 2, withChain(&control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
			<-ready
			if m.TID == 1001 {
				connector.Probe.ArmNext(msgrtest.Write(frame.TagMessage), msgrtest.Fault())
				again := control.NewMessage(1, nil, nil)
				again.TID = 2
				if c.Send(again) != nil {
					t.Error("send inside the handler failed")
				}
			}
			return true
		}}))
		close(ready)
		send(t, connector.Dial(acceptor), 1)
		receives(t, ctx, acceptor, 1, 2)
		receives(t, ctx, connector, 1001, 1002)
		connector.Await(ctx, "established C(2,1,1,2)")
		if n := connector.Probe.Seen(msgrtest.Read(frame.TagSessionReconnectOK)); n != 1 {
			t.Errorf("%d SESSION_RECONNECT_OK, want 1", n)
		}
	})
}
