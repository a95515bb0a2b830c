package control_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Matrix: SH-01
func TestMarkDownIsImmediateAndDropsTheQueue(t *testing.T) {
	for _, p := range pairings {
		t.Run(p.connector+"-"+p.acceptor, func(t *testing.T) {
			everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
				acceptor := nodeOf(t, v, "osd.1", p.acceptor, 1)
				connector := nodeOf(t, v, connectorName(p.connector), p.connector, 2)
				conn := connector.Dial(acceptor)
				send(t, conn, 1)
				receives(t, ctx, acceptor, 1)
				settled(t, ctx, conn)
				hold := connector.Probe.ArmNext(nodetest.Write(frame.TagMessage), nodetest.Block())
				var freed atomic.Int64
				for tid := range uint64(10) {
					m := control.NewMessage(1, nil, nil)
					m.TID, m.Free = 100+tid, func(*control.Message) { freed.Add(1) }
					if err := conn.Send(m); err != nil {
						t.Fatal(err)
					}
				}
				connector.Hit(ctx, hold)
				conn.MarkDown()
				if err := conn.Send(control.NewMessage(1, nil, nil)); !errors.Is(err, net.ErrClosed) {
					t.Errorf("send afterwards: %v", err)
				}
				<-conn.Closed()
				if n := freed.Load(); n != 10 {
					t.Errorf("%d of 10 queued messages released", n)
				}
				connector.Await(ctx, "closed C(1,1,0,1)")
				if p.lossy() {
					acceptor.Await(ctx, "closed A(1,1,0,1) R(1,0)")
				} else {
					acceptor.Await(ctx, "standby A(1,1,0,1)")
				}
				receives(t, ctx, acceptor, 1)
			})
		})
	}
}

// SH-02, connector: from every point, and from the states without a socket.
// Matrix: SH-02
func TestMarkDownDuringAnAttemptIsFinal(t *testing.T) {
	everyPoint(t, connectPoints+" CLIENT_IDENT_WRITE SERVER_IDENT_READ", func(t *testing.T, ctx context.Context, v variant, at nodetest.Point) {
		acceptor := nodeOf(t, v, "osd.1", "SFS", 1)
		connector := nodeOf(t, v, "client.2", "LLC", 2)
		b := connector.Probe.Arm(at, 1, nodetest.Block())
		conn := connector.Dial(acceptor)
		send(t, conn, 1)
		connector.Hit(ctx, b)
		conn.MarkDown()
		<-conn.Closed()
		b.Release()
		if err := conn.WaitReady(ctx); !errors.Is(err, control.ErrMarkedDown) {
			t.Errorf("WaitReady says %v", err)
		}
		idents := "0"
		if at.Tag == frame.TagClientIdent || at.Tag == frame.TagServerIdent {
			idents = "1"
		}
		connector.Await(ctx, "closed C(1,"+idents+",0,0)")
		// Nothing of it stands in the way of a new session.
		send(t, connector.Dial(acceptor), 2)
		receives(t, ctx, acceptor, 2)
		connector.Await(ctx, "closed C(1,"+idents+",0,0)", "established C(1,1,0,1)")
	})
}

// SH-02, the other side: in ESTABLISHING and in REPLACING.
// Matrix: SH-02
func TestMarkDownDuringAnAcceptanceIsFinal(t *testing.T) {
	for _, at := range points("SERVER_IDENT_WRITE SESSION_RECONNECT_OK_WRITE") {
		t.Run(nodetest.PointName(at), func(t *testing.T) {
			everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
				acceptor := nodeOf(t, v, "osd.1", "SFS", 1)
				connector := nodeOf(t, v, "client.2", "LLC", 2)
				if at.Tag == frame.TagSessionReconnectOK {
					connector.Probe.Arm(nodetest.Write(frame.TagMessage), 1, nodetest.Fault())
				}
				b := acceptor.Probe.Arm(at, 1, nodetest.Block())
				send(t, connector.Dial(acceptor), 1)
				acceptor.Hit(ctx, b)
				theirs := first(t, ctx, acceptor)
				theirs.MarkDown()
				<-theirs.Closed()
				b.Release()
				// The connector comes back to a server that has forgotten it, and a
				// session that it had is reset.
				eventually(t, ctx, "a new session", func() bool {
					conns := acceptor.Conns()
					return len(conns) == 1 && conns[0] != theirs && conns[0].State() == control.StateReady
				})
				for i, o := range acceptor.Probe.Objects() {
					if o.Resets+o.RemoteResets != 0 || o.Conn == theirs && o.End != nodetest.Closed {
						t.Errorf("object %d: %v", i, o)
					}
				}
			})
		})
	}
}

// Senders without pause, and each order of shutdowns.
// Matrix: SH-06, SH-08
func TestShutdownUnderLoadEnds(t *testing.T) {
	for _, order := range []string{"client first", "server first", "both at once"} {
		t.Run(order, func(t *testing.T) {
			everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
				for _, p := range []pairing{{"LC", "SLS"}, {"LP", "LP"}} {
					acceptor := nodeOf(t, v, "osd.1", p.acceptor, 1, withChain(echoer()))
					connector := nodeOf(t, v, connectorName(p.connector), p.connector, 2, func(c *nodetest.NodeConfig) { c.Sending.QueueMessages = 64 })
					conn := connector.Dial(acceptor)
					var senders sync.WaitGroup
					for range 4 {
						senders.Go(func() {
							for tid := uint64(1); ; tid++ {
								m := control.NewMessage(1, nil, make([]byte, 512))
								m.TID = tid % 900
								if err := conn.SendContext(ctx, m); err != nil {
									m.Release()
									if !errors.Is(err, net.ErrClosed) {
										t.Errorf("%s: send ended with %v", p.connector, err)
									}
									return
								}
							}
						})
					}
					awaitTID(t, ctx, acceptor, 20)
					down := func(n *nodetest.Node) {
						end, cancel := context.WithTimeout(context.Background(), time.Minute)
						defer cancel()
						if err := n.Shutdown(end); err != nil {
							t.Errorf("%s: %v", n.Name(), err)
						}
					}
					switch order {
					case "client first":
						down(connector)
						down(acceptor)
					case "server first":
						down(acceptor)
						down(connector)
					default:
						var both sync.WaitGroup
						both.Go(func() { down(connector) })
						both.Go(func() { down(acceptor) })
						both.Wait()
					}
					senders.Wait()
					// SH-09: nobody is called any more.
					n := len(acceptor.Inbox.TIDs())
					if _, err := connector.Connect(acceptor.Addr, wire.OSD); !errors.Is(err, control.ErrShutdown) {
						t.Errorf("Connect after Shutdown: %v", err)
					}
					if got := len(acceptor.Inbox.TIDs()); got != n {
						t.Errorf("%d messages dispatched after Shutdown", got-n)
					}
				}
			})
		})
	}
}

// Matrix: SH-12
func TestUnboundMessengerIsAClient(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		acceptor := nodeOf(t, v, "osd.1", "SLS", 1, withChain(echoer()))
		client := nodeOf(t, v, "client.2", "LC", 2)
		send(t, client.Dial(acceptor), 1)
		receives(t, ctx, client, 1001)
		own := client.Addrs()
		if len(own) != 1 || own[0].Type != wire.AddrAny || own[0].AddrPort.Port() != 0 || own[0].Nonce != 2 || own[0].AddrPort.Addr() != loopback(0).Addr() {
			t.Errorf("learned %v, want any:127.0.0.1:0/2", own)
		}
	})
}
