package dataplane

import (
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Compressed messages of many connections, a few bytes each on the wire, must not take more
// than the receive budget and one message together, whether they come whole or in pieces.
func TestCompressedMessagesOfManyConnectionsExceedTheBudgetByOneAtMost(t *testing.T) {
	const conns, limit, size = 8, 256 * kib, 200 * kib
	for _, mode := range wireModes {
		for _, piece := range []int{0, 70} {
			tc, th := budgetConns(t, 0, limit, 64*kib)
			for range conns {
				c := tc.conn(OpenOptions{Throttles: &loop.Throttles{Shared: th, Share: 64 * kib}}, mode)
				c.h.rx.dec.Decompress(halves{})
				c.peer.enc.Compress(halves{}, 10)
				tc.add(c)
			}
			for i, c := range tc.conns {
				wire := c.peer.message(1, 0, &Message{TID: uint64(i), Data: make([]byte, size)})
				c.flow(wire[:piece])
				c.flow(wire[piece:])
				if most := int64(limit + size); th.Used() > most {
					t.Fatalf("%s, first piece of %d: %d bytes are held of %d", mode.name, piece, th.Used(), limit)
				}
			}
			if n := len(tc.order); n != 2 {
				t.Fatalf("%s, first piece of %d: %d messages, want 2 at first", mode.name, piece, n)
			}
			for len(tc.kept) > 0 {
				tc.release()
				if most := int64(limit + size); th.Used() > most {
					t.Fatalf("%s, first piece of %d: %d bytes are held of %d", mode.name, piece, th.Used(), limit)
				}
			}
			if len(tc.order) != conns || th.Used() != 0 || th.Waiting() != 0 {
				t.Errorf("%s, first piece of %d: dispatched %v, %d bytes held, %d wait", mode.name, piece, tc.order, th.Used(), th.Waiting())
			}
		}
	}
}

// The share that others cannot take comes out of one reserve: a crowd of connections that
// keep their shares does not take memory without end.
func TestSharesOfAllConnectionsExceedTheBudgetByTheReserveAtMost(t *testing.T) {
	const conns, limit, share = 40, 64 * kib, 4 * kib
	tc, th := budgetConns(t, conns+1, limit, share)
	tc.conns[0].flow(tc.conns[0].part(99, limit, 0))
	for i, c := range tc.conns[1:] {
		c.flow(c.part(uint64(i), share, 0))
		if most := limit + th.Reserve(); th.Used() > most {
			t.Fatalf("%d bytes are held, want at most %d", th.Used(), most)
		}
	}
	if n, want := len(tc.order), 1+int(th.Reserve()/share); n != want {
		t.Fatalf("%d messages, want %d: one that fills the budget, and the reserve in shares", n, want)
	}
	tc.releaseEach(&tc.kept)
	if len(tc.order) != conns+1 || th.Used() != 0 || th.Waiting() != 0 {
		t.Errorf("%d messages of %d, %d bytes held, %d wait", len(tc.order), conns+1, th.Used(), th.Waiting())
	}
}

// A compressed message that waits for room moves to another core with its connection, and is
// dispatched there though nothing more comes from its peer.
func TestACompressedMessageThatWaitsForRoomChangesCores(t *testing.T) {
	for _, mode := range wireModes {
		a, b := twoBeds(t, nil)
		th := loop.NewThrottle(100 * kib)
		taken, full := (&loop.Throttles{Shared: th}).Acquire(&loop.Socket{}, 200*kib)
		if full != nil {
			t.Fatal("an empty budget is full")
		}
		c := a.conn(OpenOptions{Throttles: &loop.Throttles{Shared: th, Share: 64 * kib}}, mode)
		c.h.rx.dec.Decompress(halves{})
		c.peer.enc.Compress(halves{}, 10)
		wire := c.peer.message(1, 0, &Message{TID: 7, Data: make([]byte, 50*kib)})
		c.flow(wire[:70])
		c.flow(wire[70:])
		if n := len(c.own.list()); n != 0 || th.Waiting() != 1 {
			t.Fatalf("%s: %d messages beyond the budget, %d wait", mode.name, n, th.Waiting())
		}
		arrived := false
		c.h.Migrate(b.c, func() { arrived = true })
		moveSock(t, a, b, c, func() bool { return arrived })
		b.settle()
		if n := len(c.own.list()); n != 0 || th.Waiting() != 1 {
			t.Fatalf("%s: %d messages beyond the budget on the other core, %d wait", mode.name, n, th.Waiting())
		}
		taken.Release()
		b.settle()
		if n := len(c.own.list()); n != 1 || c.own.fault() != nil || th.Used() != 0 {
			t.Errorf("%s: %d messages, %d bytes held, %v", mode.name, n, th.Used(), c.own.fault())
		}
	}
}

func TestSharesOfAllConnectionsExceedTheSendingBudgetByTheReserveAtMost(t *testing.T) {
	const limit, share, n = 64 * kib, 4 * kib, 40
	b := NewSendBudget(limit, share)
	full := &queueGauge{total: b}
	if !full.reserve(limit) {
		t.Fatal("an empty budget is full")
	}
	var took []*queueGauge
	for range n {
		if q := (&queueGauge{total: b}); q.reserve(share) {
			took = append(took, q)
		}
	}
	if want := int(b.Reserve() / share); len(took) != want || b.Used() != limit+b.Reserve() {
		t.Errorf("%d connections have their share, want %d; %d bytes are held", len(took), want, b.Used())
	}
	if q := (&queueGauge{total: b}); q.reserve(1) {
		t.Error("a share beyond the reserve")
	}
	took[0].release(share)
	if q := (&queueGauge{total: b}); !q.reserve(share) {
		t.Error("no share after one came back")
	}
}
