package control_test

import (
	"context"
	"io"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// Peers of msgr1 that say anything. What one of them announces ends with it; nobody else
// notices.

// asking1 is a connect message of a client to an OSD, and the authorizer behind it.
func asking1(t *testing.T, ctx context.Context) (ask wire1.Connect, authorizer []byte) {
	t.Helper()
	x, err := none.NewClient(wire.EntityName{Type: wire.Client, ID: "9"}).Start(ctx, wire.OSD)
	must(t, err)
	_, _, authorizer, err = x.Request(ctx)
	must(t, err)
	return wire1.Connect{
		Features: wire.FeaturesPacific, HostType: uint32(wire.Client), GlobalSeq: 1, Protocol: wire1.Protocol(wire.Client, wire.OSD),
		AuthMethod: 1, AuthorizerLen: uint32(len(authorizer)),
	}, authorizer
}

// A question that is answered each time is answered so often, and no more.
// Matrix: HI-14
func TestMsgr1APeerThatAsksTheSameAgainAndAgainIsEnded(t *testing.T) {
	everyMsgr1(t, func(t *testing.T, ctx context.Context, v variant) {
		server := nodeOf(t, v, "osd.1", "SFS", 1)
		ask, authorizer := asking1(t, ctx)
		other, resumes, bad := ask, ask, ask
		other.Protocol++
		resumes.ConnectSeq = 5
		bad.AuthMethod = 77
		for name, one := range map[string]wire1.Connect{"another version": other, "a session that is gone": resumes, "an authorizer": bad} {
			before := server.Probe.Seen(nodetest.Point{Step: probe.ConnectRead})
			c := rawMsgr1(t, server)
			go func() { _, _ = io.Copy(io.Discard, c) }() // until the end
			message, sent := append(one.AppendTo(nil), authorizer...), 0
			for err := error(nil); err == nil && sent < 100_000; sent++ {
				_, err = c.Write(message)
			}
			if n := server.Probe.Seen(nodetest.Point{Step: probe.ConnectRead}) - before; n > 64 || sent == 100_000 {
				t.Errorf("%s: sent %d times, read %d times", name, sent, n)
			}
		}
		eventually(t, ctx, "the end of it", func() bool {
			st, err := server.Stats()
			return err == nil && st.HalfOpen == 0 && st.Counters.AcceptFailures == 3
		})
	})
}
