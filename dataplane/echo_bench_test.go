package dataplane

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// The benchmarks have the path of a message on one core, with the bounds of a messenger and
// without a kernel. Their time is that of one message out of a batch. The CPU time,
// cpu-ns/message, compares on a machine that others use, too. Instructions compare best: run
// the compiled test under valgrind --tool=cachegrind with two numbers of rounds
// (-test.benchtime 20x and 120x), and divide the difference of its counts by 100 rounds of
// batchOf messages.

// batchOf is how many messages of so many bytes a round of a benchmark has.
func batchOf(size int) int { return min(256, max(128<<10/size, 4)) }

// benchConn is a lossy connection with the bounds of a messenger.
func benchConn(bd *bed, mode wireMode) *conn {
	c := &conn{bed: bd, own: &recorder{discard: true}}
	c.h = NewHandler(bd.c, HandlerConfig{Owner: c.own, QueueBytes: 64 << 20, QueueMessages: 1 << 16, Budget: NewSendBudget(1<<30, 1<<20)})
	c.openMode(OpenOptions{Lossy: true, Throttles: &loop.Throttles{Shared: loop.NewThrottle(100 << 20), Share: 64 << 10}}, mode)
	return c
}

// overRounds runs a round of n messages of so many bytes as often as the benchmark wants.
func overRounds(b *testing.B, n, size int, round func()) {
	b.SetBytes(int64(size))
	b.ReportAllocs()
	spent := processCPU(b)
	for b.Loop() {
		round()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/message")
	b.ReportMetric(float64((processCPU(b)-spent).Nanoseconds())/float64(b.N*n), "cpu-ns/message")
}

// overCells runs a benchmark in every mode, with messages of several sizes.
func overCells(b *testing.B, run func(b *testing.B, mode wireMode, size int)) {
	for _, mode := range allModes {
		for _, size := range []int{64, 1 << 10, 4 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("%s/%d", mode.name, size), func(b *testing.B) { run(b, mode, size) })
		}
	}
}

// BenchmarkEcho is the way of a message that is sent back on the core that received it.
func BenchmarkEcho(b *testing.B) {
	overCells(b, func(b *testing.B, mode wireMode, size int) {
		if mode.secure {
			b.Skip("what the peer has sent cannot be sent again")
		}
		bd := newBed(b, nil)
		c := benchConn(bd, mode)
		answered := 0
		c.own.onMessage = func(h *Handler, m *Message) {
			m.Retain()
			if err := h.Send(m); err != nil {
				panic(err)
			}
			answered++
		}
		n := batchOf(size)
		var stream []byte
		for seq := range n {
			stream = append(stream, c.peer.message(uint64(seq+1), 0, &Message{Data: make([]byte, size)})...)
		}
		overRounds(b, n, size, func() {
			c.h.inSeq, answered = 0, 0
			c.sock.Whole = stream
			c.sock.Edge(0)
			for answered < n || len(c.sock.Whole) > 0 || bd.By.Busy() {
				must(b, bd.By.Turn())
			}
			c.sock.Sent = c.sock.Sent[:0]
		})
	})
}

// BenchmarkSend is the way of a message into a write, BenchmarkTransfer that and the way of
// its bytes into the dispatcher of another connection.
func BenchmarkSend(b *testing.B)     { overTransfers(b, false) }
func BenchmarkTransfer(b *testing.B) { overTransfers(b, true) }

func overTransfers(b *testing.B, receive bool) {
	overCells(b, func(b *testing.B, mode wireMode, size int) {
		l := &wireLoop{b: newBed(b, nil)}
		l.out, l.in = benchConn(l.b, mode), benchConn(l.b, mode)
		if mode.msgr1 == nil {
			l.in.h.rx.dec = l.out.peer.dec
		}
		l.in.own.onMessage = func(*Handler, *Message) { l.received++ }
		messages := make([]Message, batchOf(size))
		for i := range messages {
			messages[i].Data = make([]byte, size)
		}
		overRounds(b, len(messages), size, func() {
			for i := range messages {
				messages[i].Retain()
				must(b, l.out.h.Send(&messages[i]))
			}
			for l.out.h.pendingOut() || l.b.By.Busy() {
				must(b, l.b.By.Turn())
			}
			if receive {
				l.in.sock.Whole = l.out.sock.Sent
				l.in.sock.Edge(0)
				for len(l.in.sock.Whole) > 0 || l.b.By.Busy() {
					must(b, l.b.By.Turn())
				}
			}
			l.out.sock.Sent = l.out.sock.Sent[:0]
		})
		if receive && l.received < b.N*len(messages) {
			b.Fatalf("%d messages received in %d rounds", l.received, b.N)
		}
	})
}

// processCPU is the CPU time that the process has used.
func processCPU(b *testing.B) time.Duration {
	var t unix.Timespec
	must(b, unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t))
	return time.Duration(t.Nano())
}
