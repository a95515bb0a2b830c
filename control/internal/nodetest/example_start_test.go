package nodetest_test

import (
	"context"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Two messengers, and a fault in the middle of their session. What belongs into
// every test at its end, such as an orderly shutdown and that all breaks were
// reached, Start takes care of.
func ExampleStart() {
	var t *testing.T // of your test
	sessionSurvivesAFault(t)
}

func sessionSurvivesAFault(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	serverPolicy, clientPolicy := control.StatefulServer(), control.LosslessClient()
	server := nodetest.Start(t, nodetest.NodeConfig{Config: control.Config{Default: &serverPolicy}})
	client := nodetest.Start(t, nodetest.NodeConfig{
		Config:  control.Config{Name: wire.EntityName{Type: wire.Client, ID: "admin"}, Default: &clientPolicy},
		Unbound: true,
	})

	// The TCP connection ends before the server has read the second message.
	server.Probe.Arm(nodetest.Read(frame.TagMessage), 2, nodetest.Fault())
	conn := client.Dial(server)
	for tid := range uint64(3) {
		m := control.NewMessage(1000, []byte("hello"), nil)
		m.TID = tid
		if err := conn.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := server.Inbox.Await(ctx, 0, 1, 2); err != nil {
		t.Fatal(err) // each message arrives once and in order
	}
	client.Await(ctx, "established C(2,1,1,2)") // 2 dials, 1 CLIENT_IDENT, 1 SESSION_RECONNECT, ready twice
}
