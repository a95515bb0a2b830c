package dataplane

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// The bounds of a turn of the loop (loop/read.go).
const (
	turnBytes  = 64 << 10
	turnFrames = 256
	turnTime   = time.Millisecond
	clockEvery = 16
	visitBytes = 256 << 10
	stayBytes  = 1 << 20
	stayAlone  = 4 << 20
	mostAhead  = 8 << 10
	nearAhead  = 16
)

// crowd is connections of one core that note in which order their messages come.
type crowd struct {
	*bed
	conns []*conn
	order []string // connection.message
}

// newCrowd makes n connections that send each message back.
func newCrowd(t *testing.T, n int) *crowd { return crowdOf(t, n, wireModes[1]) }

func crowdOf(t *testing.T, n int, m wireMode) *crowd {
	b := newBed(t, nil)
	k := &crowd{bed: b}
	for i := range n {
		c := b.conn(OpenOptions{Lossy: true}, m)
		c.own.discard = true
		c.own.onMessage = func(h *Handler, m *Message) {
			k.order = append(k.order, fmt.Sprintf("%d.%d", i, m.Seq()))
			m.Retain()
			must(t, h.Send(m))
		}
		k.conns = append(k.conns, c)
	}
	return k
}

// ready has a stream of messages of these sizes wait on connection i.
func (k *crowd) ready(i int, sizes ...int) {
	c := k.conns[i]
	for n, size := range sizes {
		c.sock.Whole = append(c.sock.Whole, c.peer.message(uint64(n+1), 0, &Message{Data: make([]byte, size)})...)
	}
	c.sock.Edge(0)
}

func (k *crowd) turn() {
	k.t.Helper()
	must(k.t, k.By.Turn())
}

// answered is how many connections have something written to them.
func (k *crowd) answered() (n int) {
	for _, c := range k.conns {
		if len(c.sock.Sent) > 0 {
			n++
		}
	}
	return n
}

// A turn receives a bounded amount, and takes a bounded number of messages. The next turn writes their
// answers. Of small messages a visit reads once.
func TestATurnReceivesABoundedAmountAndThenWrites(t *testing.T) {
	for _, one := range []struct {
		name           string
		conns, n, size int
		turn           int // messages of each turn, 0: any number
	}{
		{"large", 16, 1, 100 << 10, 1},
		{"many", 2*turnFrames + 1, 1, 8, turnFrames},
		{"empty", 1, 1000, 0, 0}, {"tiny", 1, 1000, 1, 0}, {"small", 1, 1000, 100, 0}, {"medium", 1, 1000, 900, 0},
		{"of two reads", 1, 1000, 5000, 0},
	} {
		k := newCrowd(t, one.conns)
		for i := range k.conns {
			k.ready(i, slices.Repeat([]int{one.size}, one.n)...)
		}
		for turn := 1; len(k.order) < one.conns*one.n; turn++ {
			before, had := k.c.Snapshot().BytesIn, len(k.order)
			k.turn()
			if n := k.c.Snapshot().BytesIn - before; n == 0 || n > turnBytes+mostAhead+uint64(one.size) {
				t.Fatalf("%s: turn %d received %d bytes", one.name, turn, n)
			}
			if want := min(turn*one.turn, one.conns*one.n); one.turn > 0 && (len(k.order) != want ||
				k.order[want-1] != fmt.Sprintf("%d.1", want-1)) {
				t.Fatalf("%s: %d messages have come in %d turns, want %d: %v", one.name, len(k.order), turn, want,
					k.order)
			}
			if n := k.answered(); one.turn == 1 && n != had {
				t.Fatalf("%s: %d connections are answered in turn %d, want %d", one.name, n, turn, had)
			}
		}
	}
}

func TestAVisitTakesLargeMessagesUpToABoundAndTheyAreAnsweredByOneWrite(t *testing.T) {
	for _, size := range []int{20 << 10, 64 << 10, 100 << 10, 300 << 10} {
		k := newCrowd(t, 2)
		for i := range k.conns {
			k.ready(i, slices.Repeat([]int{size}, 40)...)
		}
		for turn := range 6 {
			before, had, writes := k.c.Snapshot().BytesIn, len(k.order), k.c.Snapshot().Writes
			k.turn()
			n := k.c.Snapshot().BytesIn - before
			if n < visitBytes-mostAhead || n > visitBytes+uint64(size)+mostAhead {
				t.Errorf("%d bytes each: turn %d received %d bytes", size, turn, n)
			}
			if w := k.c.Snapshot().Writes - writes; turn > 0 && w != 1 {
				t.Errorf("%d bytes each: turn %d made %d writes", size, turn, w)
			}
			for _, id := range k.order[had:] {
				if id[0] != byte('0'+turn%2) {
					t.Errorf("%d bytes each: turn %d took %v", size, turn, k.order[had:])
				}
			}
		}
	}
}

func TestAVisitThatEndsALargeMessageBeginsNoOtherLargeOne(t *testing.T) {
	k := newCrowd(t, 1)
	const size = stayAlone + 200<<10 // the second visit receives more than a turn
	k.ready(0, size, size, size)
	for turn := range 6 {
		k.turn()
		if want := (turn + 1) / 2; len(k.order) != want {
			t.Fatalf("turn %d: %d messages, want %d", turn, len(k.order), want)
		}
		if rx := &k.conns[0].h.rx; turn%2 == 1 && (rx.target != nil || rx.headLen > nearAhead) {
			t.Errorf("turn %d took %d bytes of the next message, or a buffer for it", turn, rx.held())
		}
	}
}

func TestAVisitStaysLongerWithALargeMessageWhereOnlySuchOnesWait(t *testing.T) {
	for _, small := range []bool{false, true} {
		k := newCrowd(t, 4)
		for i := range 3 {
			k.ready(i, 100<<10, 3<<20) // the first shows that its messages are large
		}
		for range 3 {
			k.turn()
		}
		if small {
			k.ready(3, 8)
		}
		had, before := len(k.order), k.c.Snapshot().BytesIn
		k.turn()
		n := k.c.Snapshot().BytesIn - before
		if whole := len(k.order) > had; whole == small || small && n > stayBytes+pieceBytes {
			t.Errorf("small message in line: %v: a visit took %d bytes, messages %v", small, n, k.order)
		}
	}
}

// Matrix: TH-09
func TestAStreamThatNeverEndsDelaysASmallMessageByOneVisit(t *testing.T) {
	for _, size := range []int{64, 64 << 10, 8 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			k := newCrowd(t, 2)
			loud, quiet := k.conns[0], k.conns[1]
			loud.own.onMessage = nil
			answer, came := quiet.own.onMessage, uint64(0)
			quiet.own.onMessage = func(h *Handler, m *Message) {
				came = k.c.Snapshot().BytesIn
				answer(h, m)
			}
			seq := uint64(0)
			more := func() {
				for len(loud.sock.Whole) < 16<<20 {
					seq++
					loud.sock.Whole = append(loud.sock.Whole, loud.peer.message(seq, 0, &Message{Data: make([]byte, size)})...)
				}
				loud.sock.Edge(0)
			}
			for round := range 5 {
				more()
				for range 3 + round {
					k.turn()
				}
				more()
				before := k.c.Snapshot().BytesIn
				m := quiet.peer.message(uint64(round+1), 0, &Message{})
				quiet.sock.Arrive(m)
				for len(k.order) == round {
					k.turn()
				}
				if n := came - before; n > stayBytes+pieceBytes+turnBytes+uint64(len(m)) {
					t.Fatalf("%d bytes were received before the small message", n)
				}
				k.turn()
				if len(quiet.take()) != 1 {
					t.Fatal("the small message is not answered in the next turn")
				}
			}
		})
	}
}

func TestSlowWorkOnMessagesEndsTheTurn(t *testing.T) {
	for _, receive := range receiveModes {
		t.Run(string(receive), func(t *testing.T) {
			const each, total = 100 * time.Microsecond, 500
			b := newBed(t, receiving(receive))
			slow, other := b.conn(OpenOptions{Lossy: true}), b.conn(OpenOptions{Lossy: true})
			inTurn, most := 0, 0
			slow.own.onMessage = func(h *Handler, m *Message) {
				b.Time += each
				inTurn++
				most = max(most, inTurn)
				m.Retain()
				must(t, h.Send(m))
			}
			list := make([]*Message, total)
			for i := range list {
				list[i] = &Message{TID: uint64(i), Type: 3, Front: payload(i, 64)}
			}
			stream := slow.peer.stream(list)
			for len(stream) > 0 { // in pieces that the ring's buffers could have
				n := min(len(stream), 30000)
				slow.sock.Arrive(stream[:n])
				stream = stream[n:]
			}
			other.sock.Arrive(other.peer.message(1, 0, &Message{}))
			answers := 0
			for turns := 0; answers < total; turns++ {
				if turns > total {
					t.Fatalf("%d of %d messages are answered", answers, total)
				}
				inTurn = 0
				must(t, b.By.Turn())
				answers += len(slow.take())
				if turns == 2 && len(other.own.list()) != 1 {
					t.Error("the other connection waits for more than the slow one's turn")
				}
			}
			// In a turn each piece may end late; with the ring's buffers both come in one.
			if limit := 2 * (int(turnTime/each) + clockEvery); most > limit {
				t.Errorf("%d messages in one turn, want %d at most", most, limit)
			}
			checkReceived(t, slow.own.list(), list)
			must(t, slow.own.fault())
		})
	}
}

func TestLittleOfALargeSegmentGoesThroughTheReceiveBuffer(t *testing.T) {
	for _, m := range []wireMode{plain2, plain1} {
		k := crowdOf(t, 1, m)
		c := k.conns[0]
		k.ready(0, 100<<10, 100<<10, 100<<10, 100<<10)
		k.settle()
		if len(k.order) != 4 || c.sock.Behind == 0 || c.sock.Behind > 3*mostAhead {
			t.Errorf("%s: %d messages came, %d bytes of them through the receive buffer", m.name, len(k.order), c.sock.Behind)
		}
		if frames := c.take(); len(frames) != 4 || !bytes.Equal(frames[3].seg[3], make([]byte, 100<<10)) || frames[3].tag != frame.TagMessage {
			t.Errorf("%s: %d answers", m.name, len(frames))
		}
	}
}
