package dataplane

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// BenchmarkEcho is the whole way of a message that is sent back on the core that
// received it, with the bounds of a messenger and without a kernel: the time is
// that of one message out of a batch that one read brings. The CPU time, cpu-ns/message,
// compares on a machine that others use, too.
func BenchmarkEcho(b *testing.B) {
	const batch = 256
	for _, mode := range allModes {
		if mode.secure { // what its peer has sent cannot be sent again
			continue
		}
		for _, size := range []int{64, 1 << 10, 4 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("%s/%d", mode.name, size), func(b *testing.B) {
				bd := newBed(b, nil)
				c := &conn{bed: bd, own: &recorder{discard: true}}
				c.h = NewHandler(bd.c, HandlerConfig{Owner: c.own, QueueBytes: 64 << 20, QueueMessages: 1 << 16, Budget: NewSendBudget(1<<30, 1<<20)})
				c.openMode(OpenOptions{Lossy: true, Throttles: &loop.Throttles{Shared: loop.NewThrottle(100 << 20), Share: 64 << 10}}, mode)
				answered := 0
				c.own.onMessage = func(h *Handler, m *Message) {
					m.Retain()
					if err := h.Send(m); err != nil {
						panic(err)
					}
					answered++
				}
				n := max(batch*64/size, 4)
				var stream []byte
				for seq := range n {
					stream = append(stream, c.peer.message(uint64(seq+1), 0, &Message{Data: make([]byte, size)})...)
				}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				spent := processCPU(b)
				for b.Loop() {
					c.h.inSeq, answered = 0, 0
					c.sock.Whole = stream
					c.sock.Edge(0)
					for answered < n || len(c.sock.Whole) > 0 || bd.By.Busy() {
						must(b, bd.By.Turn())
					}
					c.sock.Sent = c.sock.Sent[:0]
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/message")
				b.ReportMetric(float64((processCPU(b)-spent).Nanoseconds())/float64(b.N*n), "cpu-ns/message")
			})
		}
	}
}

// processCPU is the CPU time that the process has used.
func processCPU(b *testing.B) time.Duration {
	var t unix.Timespec
	must(b, unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t))
	return time.Duration(t.Nano())
}
