package control_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/control/wire1"
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

// farewell says that nothing more comes, and waits for the end of the other direction.
func farewell(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.(*net.TCPConn).CloseWrite() // or the other end has closed it already
	_, err := io.Copy(io.Discard, c)
	if e, is := err.(net.Error); is && e.Timeout() {
		t.Error("the other end waits on")
	}
	_ = c.Close()
}

// HI-01, HI-13 and HI-23 for connect messages: each field with each value that could be
// taken for a sign, a size or an end.
func TestMsgr1AnyWildFieldOfAConnectMessageHarmsNobodyElse(t *testing.T) {
	for _, policy := range []string{"SLS", "SFS", "LP"} {
		t.Run(policy, func(t *testing.T) {
			everyMsgr1(t, func(t *testing.T, ctx context.Context, v variant) {
				server := nodeOf(t, v, "osd.1", policy, 1, withChain(echoer()))
				more := honestTalk(t, ctx, v, server)
				more()
				own := wire.Addr{Type: wire.AddrLegacy, Nonce: 7, AddrPort: loopback(1)}
				ask, authorizer := asking1(t, ctx)
				for _, wild := range sampleOf(t, wildPayloads(ask.AppendTo(nil)), 29) {
					c := rawMsgr1From(t, server, own)
					_, err := c.Write(append(slices.Clone(wild), authorizer...))
					must(t, err)
					farewell(t, c)
				}
				more()
				st, err := server.Stats()
				must(t, err)
				if st.Counters.IllegalTransitions != 0 {
					t.Errorf("%+v", st.Counters)
				}
				eventually(t, ctx, "the end of all handshakes", func() bool { st, err = server.Stats(); return err == nil && st.HalfOpen == 0 })
			})
		})
	}
}

// HI-25: the same of answers to connect messages of ours.
func TestMsgr1AnyWildFieldOfAnAnswerEndsAtItsConnection(t *testing.T) {
	everyMsgr1(t, func(t *testing.T, ctx context.Context, v variant) {
		server := nodeOf(t, v, "osd.1", "SFS", 1, withChain(echoer()))
		node := nodeOf(t, v, "client.9", "LLC", 9)
		good := node.Dial(server)
		l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(loopback(0)))
		must(t, err)
		defer l.Close()
		at := wire.Addr{Type: wire.AddrLegacy, AddrPort: l.Addr().(*net.TCPAddr).AddrPort(), Nonce: 2}
		reply := wire1.Reply{Tag: wire1.TagSeq, Features: wire.FeaturesPacific, GlobalSeq: 1, ConnectSeq: 1, Protocol: wire1.Protocol(wire.Client, wire.OSD)}
		whole := wire1.Seq{}.AppendTo(reply.AppendTo(nil))
		for _, wild := range append(sampleOf(t, wildPayloads(whole), 29), whole) {
			c, err := node.Connect(at, wire.OSD, control.Anonymous(), control.Once())
			must(t, err)
			must(t, l.SetDeadline(time.Now().Add(sessionTime)))
			for answered := false; !answered; {
				conn, err := l.AcceptTCP()
				must(t, err)
				must(t, conn.SetDeadline(time.Now().Add(sessionTime)))
				answered = answer1(t, conn, at, wild) // else it was of a connection that is over
				farewell(t, conn)
			}
			c.MarkDown()
			<-c.Closed()
		}
		send(t, good, 1)
		receives(t, ctx, node, 1001)
	})
}

// answer1 is an acceptor up to its answer to the first connect message, if that comes.
func answer1(t *testing.T, conn net.Conn, own wire.Addr, answer []byte) bool {
	t.Helper()
	seen := wire.Addr{Type: wire.AddrLegacy, AddrPort: conn.RemoteAddr().(*net.TCPAddr).AddrPort()}
	seen.AddrPort = netip.AddrPortFrom(seen.AddrPort.Addr().Unmap(), seen.AddrPort.Port())
	_, _ = conn.Write(wire1.AcceptorHello{Own: own, Seen: seen}.AppendTo(nil)) // reading fails, too
	in := make([]byte, wire1.ConnectorHelloSize+wire1.ConnectSize)
	if _, err := io.ReadFull(conn, in); err != nil {
		return false
	}
	ask, err := wire1.DecodeConnect(in[wire1.ConnectorHelloSize:])
	must(t, err)
	if _, err := io.ReadFull(conn, make([]byte, ask.AuthorizerLen)); err != nil {
		return false
	}
	_, err = conn.Write(answer)
	return err == nil
}

// HI-14: a question that is answered each time is answered so often, and no more.
func TestMsgr1APeerThatAsksTheSameAgainAndAgainIsEnded(t *testing.T) {
	everyMsgr1(t, func(t *testing.T, ctx context.Context, v variant) {
		server := nodeOf(t, v, "osd.1", "SFS", 1)
		ask, authorizer := asking1(t, ctx)
		other, resumes, bad := ask, ask, ask
		other.Protocol++
		resumes.ConnectSeq = 5
		bad.AuthMethod = 77
		for name, one := range map[string]wire1.Connect{"another version": other, "a session that is gone": resumes, "an authorizer": bad} {
			before := server.Probe.Seen(msgrtest.Point{Step: probe.ConnectRead})
			c := rawMsgr1(t, server)
			go func() { _, _ = io.Copy(io.Discard, c) }() // until the end
			message, sent := append(one.AppendTo(nil), authorizer...), 0
			for err := error(nil); err == nil && sent < 100_000; sent++ {
				_, err = c.Write(message)
			}
			if n := server.Probe.Seen(msgrtest.Point{Step: probe.ConnectRead}) - before; n > 64 || sent == 100_000 {
				t.Errorf("%s: sent %d times, read %d times", name, sent, n)
			}
		}
		eventually(t, ctx, "the end of it", func() bool {
			st, err := server.Stats()
			return err == nil && st.HalfOpen == 0 && st.Counters.AcceptFailures == 3
		})
	})
}
