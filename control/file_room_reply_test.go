package control_test

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/pair"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// replySide is what a server has seen of requests, and its client of replies.
type replySide struct {
	policy     control.Policy
	dispatched int           // the core's
	conn       *control.Conn // of the last one; the core's
	replies    atomic.Int64  // that no call has waited for
}

// overReplyPolicies runs f with a server that has memory for so many blocks.
func overReplyPolicies(t *testing.T, blocks int64, f func(t *testing.T, b *blockBed, p *pair.Pair, s *replySide)) {
	for _, policies := range [][2]control.Policy{
		{control.StatelessServer(), control.LossyClient()},
		{control.StatefulServer(), control.LosslessClient()},
	} {
		t.Run(policies[0].Name, func(t *testing.T) {
			side := &replySide{policy: policies[0]}
			opt := diskOptions{bytes: blocks * blockSize, queue: 1, server: &policies[0], client: &policies[1], serve: func(c *control.Conn, m *control.Message) bool {
				side.dispatched++
				side.conn = c
				return serveBlocks(c, m)
			}, receive: &control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
				if m.Type == blockDone {
					side.replies.Add(1)
				}
				return true
			}}}
			onPair(t, opt, func(t *testing.T, b *blockBed, p *pair.Pair) { f(t, b, p, side) })
		})
	}
}

// deaf has a connection ask for blocks and read nothing: one beside that of b, if the server
// lets its client have several.
func deaf(t *testing.T, b *blockBed, p *pair.Pair, server control.Policy, asks int) *control.Conn {
	t.Helper()
	conn := b.conn
	if server.Lossy {
		var err error
		conn, err = p.Client.Connect(p.Addr, wire.OSD, control.Anonymous())
		must(t, err)
		must(t, conn.WaitReady(b.ctx))
	}
	conn.Pause()
	p.Pass(time.Second)
	for range asks {
		must(t, conn.Send(control.NewMessage(readBlock, binary.LittleEndian.AppendUint32(nil, 1), nil)))
	}
	p.Pass(time.Second)
	return conn
}

// Its replies take no more than their part, and others get theirs. On a lossy connection what
// it asks for next waits in its socket, and its end gives everything back; on a lossless one
// it is read, as acks come that way.
// Matrix: ST-15
func TestAPeerThatTakesNoRepliesHoldsItsPartOfTheMemoryForReads(t *testing.T) {
	const blocks, asks = 48, 5000
	overReplyPolicies(t, blocks, func(t *testing.T, b *blockBed, p *pair.Pair, side *replySide) {
		b.one(writeBlock, 1)
		conn := deaf(t, b, p, side.policy, asks)
		st := b.files().Files
		if st.Held < blocks*blockSize/8 || st.Held > blocks*blockSize/4 || st.Waiting == 0 {
			t.Errorf("%d bytes are held, %d requests wait", st.Held, st.Waiting)
		}
		b.on(func(_ *loop.Core, s *blockStore) {
			for _, r := range s.free {
				if r.For != nil || r.Keeps != nil {
					t.Error("the next request is for the same connection")
				}
			}
			if all := side.dispatched == asks+1; all == side.policy.Lossy {
				t.Errorf("%d of %d requests are dispatched", side.dispatched-1, asks)
			}
		})
		if !side.policy.Lossy {
			return
		}
		for range 5 {
			if a := b.one(readBlock, 1); a.err != nil || a.failed != "" {
				t.Fatalf("%v %q", a.err, a.failed)
			}
		}
		before := b.files().Files
		conn.MarkDown()
		p.Pass(time.Second)
		st = b.files().Files
		if st.Held != 0 || st.Ops != 0 {
			t.Errorf("%d bytes are held behind its end, %d requests wait", st.Held, st.Ops)
		}
		if n := st.Reads - before.Reads; n > blocks {
			t.Errorf("of %d requests that waited at its end %d were done", before.Waiting, n)
		}
	})
}

// Who reads late gets every reply, whatever the bound of the sending queue, which other
// messages do not pass.
// Matrix: ST-15
func TestEveryReplyComesHoweverLateItsPeerReads(t *testing.T) {
	const asks = 3000
	overReplyPolicies(t, 48, func(t *testing.T, b *blockBed, p *pair.Pair, side *replySide) {
		b.one(writeBlock, 1)
		conn := deaf(t, b, p, side.policy, asks)
		b.on(func(c *loop.Core, _ *blockStore) {
			var refused error
			for range 2 { // one of them may be the only one that counts
				m, err := control.LendMessage(c, blockFailed, 0)
				must(t, err)
				m.Front = []byte("no reply")
				if refused = side.conn.Send(m); refused != nil {
					m.Release()
				}
			}
			if !errors.Is(refused, control.ErrQueueFull) {
				t.Errorf("beyond the bound of the queue: %v", refused)
			}
		})
		conn.Resume()
		p.Pass(time.Minute)
		if st := b.files().Files; st.Ops != 0 || st.Held != 0 || side.replies.Load() != asks {
			t.Errorf("%d of %d replies have come: %+v", side.replies.Load(), asks, st)
		}
		if st, err := b.server.Stats(); err != nil || st.InFlight != 0 {
			t.Errorf("%d bytes of requests are kept, %v", st.InFlight, err)
		}
	})
}

// Peers that read nothing hold all of the memory. Who reads waits for no more than the time in
// which the first of them has to take its reply, and then for nothing.
// Matrix: ST-15
func TestPeersThatFillTheMemoryForReadsAndReadNothingAreEnded(t *testing.T) {
	const blocks, hostile = 48, 60
	policy, client := control.StatelessServer(), control.LossyClient()
	opt := diskOptions{bytes: blocks * blockSize, server: &policy, client: &client}
	onPair(t, opt, func(t *testing.T, b *blockBed, p *pair.Pair) {
		b.one(writeBlock, 1)
		var conns []*control.Conn
		for range hostile {
			conns = append(conns, deaf(t, b, p, policy, 400))
		}
		if st := b.files().Files; st.Held < (blocks-4)*blockSize {
			t.Fatalf("%d bytes are held, %d requests wait", st.Held, st.Waiting)
		}
		for i := range 20 {
			since := time.Now()
			if a := b.one(readBlock, 1); a.err != nil || a.failed != "" {
				t.Fatalf("%v %q", a.err, a.failed)
			}
			if took := time.Since(since); took > 3*time.Second {
				t.Errorf("read %d takes %v", i, took)
			}
		}
		st := b.files()
		if st.TooSlow == 0 || st.TooSlow > hostile {
			t.Errorf("%d connections have ended", st.TooSlow)
		}
		for _, c := range conns {
			c.MarkDown()
		}
		p.Pass(time.Second)
		if st := b.files().Files; st.Held != 0 || st.Ops != 0 {
			t.Errorf("%d bytes are held behind their end, %d requests wait", st.Held, st.Ops)
		}
	})
}
