package dataplane

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// wireLoop is two connections of one core, in memory, with the bounds of a messenger: what one
// transmits is fed to the other.
type wireLoop struct {
	*bed
	out, in  *conn
	messages []Message // of a round
	spare    [2][]byte // memory for the bytes that the two send
	received int
	post     *target // memory for the data of the message; nil: none
}

// newLoop makes a loop for rounds of n messages of size bytes.
func newLoop(t testing.TB, mode wireMode, lossy bool, n, size int) *wireLoop {
	l := &wireLoop{bed: newBed(t, nil), messages: make([]Message, n)}
	for _, c := range []**conn{&l.out, &l.in} {
		*c = l.handler(HandlerConfig{QueueBytes: 64 << 20, QueueMessages: 1 << 16, Budget: NewSendBudget(1<<30, 1<<20)})
		(*c).own.discard = true
		(*c).open(OpenOptions{Lossy: lossy, Throttles: &loop.Throttles{Shared: loop.NewThrottle(100 << 20),
			Share: 64 << 10}}, mode)
	}
	if mode.msgr1 == nil { // each decodes what the other one encodes
		l.in.h.rx.dec, l.out.h.rx.dec = l.out.peer.dec, l.in.peer.dec
	}
	l.in.own.onMessage = func(*Handler, *Message) { l.received++ }
	for i := range l.messages {
		l.messages[i] = Message{TID: 7, Front: make([]byte, 30), Data: make([]byte, size)}
	}
	return l
}

// round sends all messages, and waits until they are received and acknowledged.
func (l *wireLoop) round() {
	want := l.received + len(l.messages)
	if l.post != nil {
		must(l.t, l.in.h.AddPosting(&l.post.Posting))
	}
	for i := range l.messages {
		l.messages[i].Retain()
		must(l.t, l.out.h.Send(&l.messages[i]))
	}
	for l.received < want || l.out.h.sent.n > 0 {
		must(l.t, l.By.Turn())
		l.carry(l.out, l.in, &l.spare[0])
		l.carry(l.in, l.out, &l.spare[1])
	}
}

// carry brings what one connection has sent to the other one.
func (l *wireLoop) carry(from, to *conn, spare *[]byte) {
	if len(from.sock.Sent) == 0 {
		return
	}
	to.sock.Whole = from.sock.Sent
	from.sock.Sent, *spare = (*spare)[:0], from.sock.Sent
	to.sock.Edge(0)
	for len(to.sock.Whole) > 0 || l.By.Busy() {
		must(l.t, l.By.Turn())
	}
}

// Not one allocation for a message on either side, its ack and a posting included.
// Matrix: RL-11, OB-05, V1-07, FR-08
func TestMessagesDoNotAllocate(t *testing.T) {
	if invariants.Enabled {
		t.Log("allocations are counted, but not judged, in builds that check invariants")
	}
	for _, m := range allModes {
		for _, size := range []int{0, 64, 4 << 10, 64 << 10, 300 << 10, 4 << 20} {
			for _, kind := range []string{"lossy", "lossless", "posted"} {
				if kind != "lossy" && size != 64 && size != 300<<10 {
					continue
				}
				t.Run(fmt.Sprintf("%s %d %s", m.name, size, kind), func(t *testing.T) {
					l := newLoop(t, m, kind != "lossless", 1, size)
					if kind == "posted" {
						l.post = newTarget(7, size)
					}
					for range 3 {
						l.round()
					}
					runs := 50
					if size > 1<<20 {
						runs = 5
					}
					if invariants.Enabled {
						runs = 2
					}
					if n := testing.AllocsPerRun(runs, l.round); n != 0 && !invariants.Enabled {
						t.Errorf("%v allocations per message", n)
					}
					if l.post != nil && l.post.used != runs+4 || l.in.own.fault() != nil {
						t.Errorf("%d messages were posted in %d rounds, fault %v", l.post.used, runs+4,
							l.in.own.fault())
					}
				})
			}
		}
	}
}

// The benchmarks have the path of a message on one core without a kernel, to the dispatcher of
// another connection and, in Echo, back. CPU time compares on a machine that others use, too.
// Instructions compare best: run the compiled test under valgrind --tool=cachegrind with two
// numbers of rounds (-test.benchtime 20x and 120x), and divide the difference of its counts by
// 100 rounds of their messages.
func BenchmarkTransfer(b *testing.B) { overCells(b, func(*wireLoop) {}) }

func BenchmarkEcho(b *testing.B) {
	overCells(b, func(l *wireLoop) {
		l.out.own.onMessage = l.in.own.onMessage
		l.in.own.onMessage = func(h *Handler, m *Message) {
			m.Retain()
			must(b, h.Send(m))
		}
	})
}

// overCells runs a benchmark in every mode, with messages of several sizes.
func overCells(b *testing.B, change func(l *wireLoop)) {
	for _, mode := range allModes {
		for _, size := range []int{64, 1 << 10, 4 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("%s/%d", mode.name, size), func(b *testing.B) {
				l := newLoop(b, mode, true, min(256, max(128<<10/size, 4)), size)
				change(l)
				b.ReportAllocs()
				spent := processCPU(b)
				for b.Loop() {
					l.round()
				}
				b.ReportMetric(float64((processCPU(b)-spent).Nanoseconds())/float64(l.received), "cpu-ns/message")
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
