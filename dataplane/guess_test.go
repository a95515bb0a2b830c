package dataplane

import (
	"math/rand/v2"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Behind a large message one with the same head comes with its first read, into its place.
func TestALargeMessageIsReadInPlaceWithItsHeadBehindOneLikeIt(t *testing.T) {
	for _, size := range []int{64 << 10, 1 << 20, 3 << 20} {
		c := newBed(t, nil).conn(OpenOptions{Lossy: true})
		checkAligned(t, c.own, size)
		list := messagesOf([][3]int{{10, 0, size}, {10, 0, size}, {10, 0, size}})
		for i, m := range list {
			reads, behind := c.sock.Reads, c.sock.Behind
			c.arrive(c.peer.message(uint64(i+1), 0, m))
			want := max(1, (size+pieceBytes)/pieceBytes)
			if n := c.sock.Reads - reads; i > 0 && (n > want || c.sock.Behind > behind) {
				t.Errorf("message %d of %d bytes took %d reads, want %d; %d bytes were copied", i, size, n, want, c.sock.Behind-behind)
			}
		}
		must(t, c.own.fault())
		checkReceived(t, c.own.list(), list)
	}
}

// Whatever comes in place of the guess, in whatever pieces, also while the receive budget stops
// the connection: every message arrives, once, in order, and nothing stays lent or charged.
func TestAWrongGuessLosesNothing(t *testing.T) {
	sizes := [][3]int{{0, 0, 70000}, {0, 0, 70000}, {5, 0, 70000}, {0, 0, 10}, {0, 0, 70000}, {}, {0, 0, 70000}, {0, 0, 1 << 20}, {0, 0, 1 << 20}, {100, 0, 0}, {70000, 0, 0}}
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 23))
		th := loop.NewThrottle(int64(seed%2) * 100 << 10)
		c := newBed(t, nil).conn(OpenOptions{Lossy: true, Throttles: &loop.Throttles{Bytes: th}})
		var kept []*Message
		c.own.onMessage = func(_ *Handler, m *Message) { kept = append(kept, forgetful(m)) }
		var list []*Message
		arrive := func(stream []byte) {
			c.arriveInPieces(rng, stream)
			for ; len(kept) > 0 && rng.IntN(4) > 0; kept = kept[1:] {
				kept[0].Release()
				c.settle()
			}
		}
		var stream []byte
		for i := range 30 {
			list = append(list, messagesOf(sizes[rng.IntN(len(sizes)):][:1])...)
			stream = append(stream, c.peer.message(uint64(i+1), 0, list[i])...)
			if rng.IntN(3) > 0 { // else a piece goes across the border
				arrive(stream)
				stream = nil
			}
		}
		arrive(stream)
		for ; len(kept) > 0; kept = kept[1:] {
			kept[0].Release()
			c.settle()
		}
		must(t, c.own.fault())
		checkReceived(t, c.own.list(), list)
		if n := c.c.Snapshot().PoolInUse; n != 0 || th.Used() != 0 {
			t.Errorf("seed %d: %d bytes are lent, %d charged", seed, n, th.Used())
		}
	}
}

// checkAligned has o check every message of at least from bytes of data, and that it
// stays where it is when it is retained.
func checkAligned(t *testing.T, o *recorder, from int) {
	o.onMessage = func(_ *Handler, m *Message) {
		if len(m.Data) < from {
			return
		}
		if !onPage(m.Data) {
			t.Errorf("data of %d bytes behind %d is not page-aligned", len(m.Data), len(m.Front)+len(m.Middle))
		}
		before := &m.Data[0]
		m.Retain()
		if &m.Data[0] != before {
			t.Errorf("data of %d bytes was copied by Retain", len(m.Data))
		}
		m.Release()
	}
}

// Small data that is aligned does not change how the connection is read.
func TestAlignedDataLeavesTheReceiveModeAsItIs(t *testing.T) {
	c := newBed(t, receiving(loop.ReceiveBuffers)).conn(OpenOptions{Lossy: true, AlignFrom: pageSize})
	c.arrive(c.peer.stream(messagesOf([][3]int{{10, 0, pageSize}})))
	if !c.sock.Receiving || len(c.own.list()) != 1 {
		t.Errorf("%d messages, receives into buffers: %v", len(c.own.list()), c.sock.Receiving)
	}
}
