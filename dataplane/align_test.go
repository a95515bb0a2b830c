package dataplane

import (
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// alignedSizes has data of pageSize and more, and of less, behind fronts of any length.
func alignedSizes() (sizes [][3]int) {
	for _, n := range []int{pageSize - 1, pageSize, pageSize + 1, 3 * pageSize, testLargeFrom - 1, testLargeFrom, loop.ReceiveBytes} {
		sizes = append(sizes, [3]int{0, 0, n}, [3]int{n % 700, 0, n}, [3]int{100, 5, n}, [3]int{13, 0, 0})
	}
	return sizes
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

func TestDataBeginsOnAPageOnTheCoreThatAConnectionMovesTo(t *testing.T) {
	overPlanes(t, 2, func(t *testing.T, p *loop.Plane) {
		oa, ob := &recorder{}, &recorder{}
		checkAligned(t, ob, pageSize)
		ha, hb := couple(t, p.Core(0), p.Core(0), oa, ob, OpenOptions{Lossy: true, AlignFrom: pageSize})
		list := messagesOf(alignedSizes())
		for i, m := range list {
			must(t, ha.Send(m))
			if i%5 == 0 {
				migrate(t, hb, p.Core((i/5+1)%2))
			}
		}
		until(t, ob, "all messages", func() bool { return len(ob.list()) == len(list) })
		checkReceived(t, ob.list(), list)
		ha.Close(nil)
		hb.Close(nil)
	})
}
