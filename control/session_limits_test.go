package control_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Throttles as a messenger applies them, over connections and cores.

// keepsake keeps every message until it is told to let one go.
type keepsake struct {
	mu   sync.Mutex
	kept []*control.Message
}

func (k *keepsake) dispatcher() *control.Dispatcher {
	return &control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
		m.Retain()
		k.mu.Lock()
		defer k.mu.Unlock()
		k.kept = append(k.kept, m)
		return true
	}}
}

// letGo releases the oldest message, and says whether there was one.
func (k *keepsake) letGo() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.kept) == 0 {
		return false
	}
	k.kept[0].Release()
	k.kept = k.kept[1:]
	return true
}

// One limit for all connections on all cores.
// Matrix: TH-03, TH-05, RL-03
func TestDispatchLimitHoldsOverAllConnections(t *testing.T) {
	const limit, size, clients, each = 64 << 10, 10 << 10, 6, 20
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		var k keepsake
		server := nodeOf(t, v, "osd.1", "SFS", 1, withChain(k.dispatcher()), func(c *nodetest.NodeConfig) {
			c.Plane.Cores, c.Receiving.Bytes = 3, limit
		})
		for i := range clients {
			conn := nodeOf(t, v, fmt.Sprintf("client.%d", 2+i), "LLC", uint32(2+i)).Dial(server)
			for range each {
				must(t, conn.Send(control.NewMessage(1, bytes.Repeat([]byte{byte(i)}, size), nil)))
			}
		}
		throttle := server.DispatchThrottle()
		eventually(t, ctx, "a full throttle", func() bool { return throttle.Used() > limit-size && throttle.Waiting() > 0 })
		for done := 0; done < clients*each; {
			// The one unfinished message that goes on when only such hold the limit may
			// be above it.
			if used := throttle.Used(); used > limit+size {
				t.Fatalf("%d bytes are held, over the limit of %d and a message of %d", used, limit, size)
			}
			if k.letGo() {
				done++
				continue
			}
			eventually(t, ctx, "the next message", func() bool { return len(server.Inbox.TIDs()) > done })
		}
		eventually(t, ctx, "everything to be given back", func() bool { return throttle.Used() == 0 && throttle.Waiting() == 0 })
	})
}

// throttled is a server that takes one message of each client at a time, and
// any number of an OSD's.
func throttled(k *keepsake) func(*nodetest.NodeConfig) {
	return func(c *nodetest.NodeConfig) {
		clients, osds := control.StatefulServer(), control.StatefulServer()
		clients.Messages = loop.NewThrottle(1)
		c.Policies = map[wire.EntityType]control.Policy{wire.Client: clients, wire.OSD: osds}
		keep := k.dispatcher()
		c.Chain = append(c.Chain, &control.Dispatcher{Fast: func(conn *control.Conn, m *control.Message) bool {
			return conn.Info().PeerType == wire.Client && keep.Fast(conn, m)
		}}, echoer())
	}
}

// What a peer does not read fills the queue to its bound and no further,
// is seen there, and leaves once it reads.
// Matrix: TH-10, RL-07
func TestAPeerThatDoesNotReadFillsTheQueueToItsBound(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		const bound = 1 << 20
		var k keepsake
		server := nodeOf(t, v, "osd.1", "SFS", 1, throttled(&k))
		client := nodeOf(t, v, "client.2", "LLC", 2, func(c *nodetest.NodeConfig) { c.Sending.QueueBytes = bound })
		conn := client.Dial(server)
		var tid uint64
		for full := false; !full; {
			room := conn.Room()
			m := numbered(tid+1, control.NewMessage(1, nil, make([]byte, 100<<10)))
			switch err := conn.Send(m); {
			case err == nil:
				tid++
			case !errors.Is(err, control.ErrQueueFull):
				t.Fatal(err)
			default:
				// The bound holds what is not acknowledged: nothing leaves any
				// more once the peer has stopped.
				st, err := conn.Stats()
				if err != nil || st.IO.QueueFull == 0 || st.HeldBytes > bound {
					t.Fatalf("%d bytes held, found full %d times, %v", st.HeldBytes, st.IO.QueueFull, err)
				}
				held, err := first(t, ctx, server).Stats()
				must(t, err)
				if full = held.IO.Throttled; full {
					k.letGo()
					<-room
				}
			}
		}
		for done := uint64(1); done < tid; {
			if k.letGo() {
				done++
				continue
			}
			eventually(t, ctx, "the next message", func() bool { return uint64(len(server.Inbox.TIDs())) > done })
		}
		eventually(t, ctx, "an empty queue", func() bool { return connStats(t, conn).HeldBytes == 0 })
		k.letGo()
	})
}

// What stands at a bound goes on: these are the scenarios of package dataplane's
// budget.go between real sockets.

// answerAll sends every message back. One that finds no room is kept and waits for
// it, with those behind it on a goroutine each.
func answerAll(c *control.Conn, m *control.Message) bool {
	m.Retain()
	if err := c.Send(m); errors.Is(err, control.ErrQueueFull) {
		go func() {
			if err := c.SendContext(context.Background(), m); err != nil {
				m.Release()
			}
		}()
	} else if err != nil {
		m.Release()
	}
	return true
}

// another is a peer of the node with an address of its own.
func (s *stage) another(id byte) *msgrtest.Peer {
	s.t.Helper()
	p := msgrtest.DialPeer(s.ctx, msgrtest.PeerConfig{
		Name: wire.EntityName{Type: wire.Client, ID: fmt.Sprint(id)}, Number: int64(id), Addr: peerAddr(uint32(id)), Rev0: s.v.rev0,
	}, s.node.Addr)
	s.t.Cleanup(p.Close)
	p.Establish(clientCookie+uint64(id), 5)
	p.Ignore(frame.TagAck)
	s.must(p)
	return p
}

// honest is a client whose messages of size bytes all come back.
func (s *stage) honest(size int) {
	s.t.Helper()
	n := nodeOf(s.t, s.v, "client.100", "LLC", 100)
	conn := n.Dial(s.node)
	const each = 5
	for tid := range uint64(each) {
		m := numbered(tid+1, control.NewMessage(1, nil, make([]byte, size)))
		must(s.t, conn.Send(m))
		eventually(s.t, s.ctx, "the echo of an honest client", func() bool { return len(n.Inbox.TIDs()) == int(tid)+1 })
	}
}

// Peers that send, read and never acknowledge hold their own sending queues, and
// nothing that others need: while they are there, and when they are gone.
// Matrix: HI-18
func TestPeersThatNeverAcknowledgeStopNobodyElse(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "SFS", true, withChain(&control.Dispatcher{Fast: answerAll}), func(c *nodetest.NodeConfig) {
			c.Receiving.Bytes, c.Sending.QueueBytes = 1<<20, 2<<20
		})
		var peers []*msgrtest.Peer
		for id := range byte(2) {
			p := s.another(10 + id)
			for seq := range uint64(8) {
				p.SendMessage(frame.MessageHeader{Seq: seq + 1, TID: seq + 1}, nil, nil, make([]byte, 200<<10))
			}
			for range 8 {
				p.ExpectMessage()
			}
			s.must(p)
			peers = append(peers, p)
		}
		s.honest(200 << 10)
		for _, p := range peers {
			p.Close()
		}
		st, err := s.node.Stats()
		if err != nil || st.InFlight != 0 {
			t.Errorf("%d bytes count as received, %v", st.InFlight, err)
		}
	})
}

// The budget of the messenger has room for the messages of one peer, but not all of
// it: the other peer is answered.
func TestAPeerWhoseMessagesAreRetainedDoesNotStopAnother(t *testing.T) {
	for _, bounded := range []bool{true, false} {
		ctx := deadline(t)
		v := variants[0]
		var mu sync.Mutex
		var kept []*control.Message
		over := false                         // what comes now is not kept
		throttle := loop.NewThrottle(1 << 40) // of a policy: the connection has none of its own
		server := nodeOf(t, v, "osd.0", "SLS", 1, withChain(&control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
			if m.Type == 1 {
				mu.Lock()
				defer mu.Unlock()
				if over {
					return true
				}
				m.Retain()
				kept = append(kept, m)
				return true
			}
			_ = c.Reply(m, control.NewMessage(m.Type, nil, nil)) // fails only if the client is gone
			return true
		}}), func(c *nodetest.NodeConfig) {
			c.Receiving.Bytes = 1 << 20
			if !bounded {
				p := control.StatelessServer()
				p.Bytes = throttle
				c.Default = &p
			}
		})
		greedy := nodeOf(t, v, "client.1", "LC", 2).Dial(server)
		for range 64 {
			must(t, greedy.Send(control.NewMessage(1, nil, make([]byte, 32<<10))))
		}
		full := func() bool {
			for _, c := range server.Conns() {
				if st, err := c.Stats(); err == nil && st.IO.Throttled {
					return true
				}
			}
			return false
		}
		eventually(t, ctx, "the greedy one to be stopped", full)
		free := int64(1<<20) - server.DispatchThrottle().Used()
		if roomy := free >= 1<<19-64<<10; roomy != bounded {
			t.Errorf("bounded %v: %d bytes are left for others", bounded, free)
		}
		if bounded {
			other := nodeOf(t, v, "client.2", "LC", 3).Dial(server)
			for range 8 {
				reply, err := other.Call(ctx, control.NewMessage(2, nil, make([]byte, 256<<10)))
				must(t, err)
				reply.Release()
			}
			found := false
			for _, c := range server.Conns() {
				st := connStats(t, c)
				for _, th := range st.Throttles {
					found = found || th.Of == "connection" && th.Limit == 1<<19 && th.Waiting == 1
				}
			}
			if !found {
				t.Error("Stats does not show the bound of the connection")
			}
		}
		greedy.MarkDown()
		mu.Lock()
		for _, m := range kept {
			m.Release()
		}
		kept, over = nil, true
		mu.Unlock()
		end(t, server.Messenger)
	}
}

func TestPauseStopsReadingUntilResumeOverReconnects(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		server := nodeOf(t, v, "osd.0", "SFS", 1)
		client := nodeOf(t, v, "client.1", "LLC", 2)
		conn := client.Dial(server)
		send(t, conn, 1)
		receives(t, ctx, server, 1)
		back := first(t, ctx, server)
		back.Pause()
		paused := func() bool {
			st, err := back.Stats()
			return err == nil && st.IO.Paused
		}
		eventually(t, ctx, "the pause", paused)
		b := client.Probe.ArmNext(nodetest.MustPoint("MESSAGE_WRITE"), nodetest.Fault())
		send(t, conn, 2)
		client.Hit(ctx, b)
		eventually(t, ctx, "the next socket", func() bool {
			st, err := conn.Stats()
			return err == nil && st.State == "ready" && st.IO.Sent == 1
		})
		for range 3 { // turns of the paused core, in which it could read
			if st, err := back.Stats(); err != nil || st.IO.InSeq != 1 || !st.IO.Paused {
				t.Errorf("paused: %+v, %v", st.IO, err)
			}
		}
		back.Resume()
		receives(t, ctx, server, 1, 2)
		if paused() {
			t.Error("still paused")
		}
	})
}
