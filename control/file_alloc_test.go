//go:build !invariants && !race

package control_test

import (
	"encoding/binary"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// The server of the example, and a client that asks in turn for a write and a read, both
// on their cores.
// Matrix: RL-11
func TestRequestsOnFilesDoNotAllocate(t *testing.T) {
	requestsDoNotAllocate(t, loop.FileOptions{})
}

// Each request makes the file full, so that its connection is held and goes on.
// Matrix: RL-11
func TestRequestsOnAFileThatIsFullDoNotAllocate(t *testing.T) {
	requestsDoNotAllocate(t, loop.FileOptions{Ops: 1})
}

func requestsDoNotAllocate(t *testing.T, opt loop.FileOptions) {
	overRealDisks(t, diskOptions{plain: true, file: opt}, func(t *testing.T, b *blockBed) {
		client := newMessenger(t, "client.1", 1, uring.Auto)
		number := binary.LittleEndian.AppendUint32(nil, 3)
		done := make(chan struct{})
		left := 0
		next := func(c *loop.Core, conn *control.Conn) {
			typ, n := readBlock, 0
			if left%2 == 0 {
				typ, n = writeBlock, blockSize
			}
			m, err := control.LendMessage(c, typ, n)
			if err != nil {
				t.Error(err)
				return
			}
			m.Front = number
			if err := conn.Send(m); err != nil {
				t.Error(err)
			}
		}
		must(t, client.Start(&control.Dispatcher{Fast: func(conn *control.Conn, m *control.Message) bool {
			if m.Type != blockDone {
				t.Errorf("%s", m.Front)
			}
			if left--; left == 0 {
				done <- struct{}{}
			} else {
				next(conn.Core(), conn)
			}
			return true
		}}))
		addrs := b.server.Addrs()
		conn, err := client.Connect(addrs[0], wire.OSD)
		must(t, err)
		must(t, conn.WaitReady(b.ctx))
		const requests = 100
		start := loop.Task{Run: func(c *loop.Core) { next(c, conn) }}
		run := func() {
			left = requests
			conn.Post(&start)
			<-done
		}
		run()
		// What requests allocate they allocate each time. Now and then somebody else does: a
		// thread that the runtime starts takes seven allocations.
		least := testing.AllocsPerRun(1, run)
		for range 10 {
			if least == 0 {
				return
			}
			least = min(least, testing.AllocsPerRun(1, run))
		}
		t.Errorf("%v allocations in %d requests, and never fewer", least, requests)
	})
}
