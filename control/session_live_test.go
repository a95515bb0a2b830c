package control_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

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
func (s *scripts) another(id byte) *msgrtest.Peer {
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
func (s *scripts) honest(size int) {
	s.t.Helper()
	n := nodeOf(s.t, s.v, "client.100", "LLC", 100)
	conn := n.Dial(s.node)
	const each = 5
	for tid := range uint64(each) {
		m := control.NewMessage(1, nil, make([]byte, size))
		m.TID = tid + 1
		if err := conn.Send(m); err != nil {
			s.t.Fatal(err)
		}
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

// Two sockets that announce large messages and bring none of them hold nothing.
// Matrix: HI-08, HI-29
func TestAnnouncedMessagesStopNobodyElse(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "SFS", true, withChain(&control.Dispatcher{Fast: answerAll}))
		for id, size := range []int{64 << 20, 36 << 20} {
			p := s.another(10 + byte(id))
			var hd [frame.MessageHeaderSize]byte
			(&frame.MessageHeader{Seq: 1, TID: 1}).Put(&hd)
			b := frame.NewEncoder(p.Revision()).AppendOpen(nil, frame.TagMessage, hd[:], [4]int{len(hd), 0, 0, size})
			p.WriteRaw(b[:77])
			s.must(p)
		}
		s.honest(4 << 20)
		if used := s.node.DispatchThrottle().Used(); used > 1000 {
			t.Errorf("154 bytes hold %d", used)
		}
	})
}
