package dataplane

import (
	"sync"
	"sync/atomic"
)

// This table has every wait for memory, and the event that ends it.
//
//	waits                              for                              freed by
//	a connection that reads            the receive budget (Throttles)   the user, by Release or Send
//	an unfinished message              the receive budget               as above; else one message goes on (Throttle.finisher),
//	                                                                    and its peer, by its bytes, or the least rate (progress.go)
//	the user                           the sending queue (Room)         lossy: the write; lossless: the peer's ack
//	a read of a file for a reply       the memory for reads             a buffer that comes back: of a reply that was written (lossy), that
//	                                   (Config.FileBytes)               the peer has acknowledged (lossless), or whose connection has ended:
//	                                                                    at the latest by the least rate (lossy, checkWrite)
//	a request behind that, if lossy    the read (ReadReply holds)       as above
//	a request behind that, if lossless the receive budget               the read, which lets go of the request before
//	a write                            the peer                         the peer's reading
//	a peer's ack                       our reading of what is before    the receive budget
//
// A reply from a file waits only for its write: its memory counts as memory for reads until
// the end, and the sending queue takes it whatever its bounds (Message.BoundElsewhere). So
// the memory for reads waits for neither the sending queue nor the receive budget of a lossy
// connection. While a read waits, a lossy connection is not read from. A lossless connection
// is, as acks free that memory: its requests are retained meanwhile, and the receive budget
// bounds them. A peer that takes no replies holds at most a quarter of the memory
// (loop.Account), which is freed with its connection. Peers that together hold all of it
// leave the others their shares, and larger reads of the others wait. Meanwhile a lossy
// connection ends whose peer takes its replies more slowly than the least rate
// (Handler.Wanted), which frees its memory. A lossless session keeps its replies after the
// end of its socket, so its sockets are left alone: an ack frees the replies, or the end of
// the session (MarkDown; StandbyAge and MaxStandby of package control).
//
// The last line closes a cycle: an ack can come after bytes that a full receive budget does
// not let us read, while the user waits for that ack and keeps received messages. Three rules
// break the cycle.
//
//   - A received message that is queued for sending counts against the sending queue,
//     not against the receive budget: a user who sends it back or on frees the budget.
//   - Each connection has a share of the receive budget and of the sending budget that
//     others cannot take (Throttles.Share, SendBudget): small messages pass, whatever the
//     others hold. The shares come out of a reserve, a quarter of the budget on top of it.
//     If more connections keep their shares than the reserve has room for, the next rule
//     is left.
//   - On a lossless session the reconnect tells both sides the last message that the other
//     has received. A connection that is stopped for long while its own messages wait for
//     an ack gives its socket up (progress.go): the reconnect frees the messages that the
//     peer has.
//
// On a lossy session nothing waits for an ack, so there is no such cycle.
//
// The memory of a compressed message is known only after its decompression. It waits, whole,
// while other messages hold more than the receive budget, which the user frees. So the
// memory of received messages is bounded by the budget, its reserve, one unfinished message,
// and one message for each core.
//
// One cycle belongs to the users, and no messenger can break it: two users send each other
// requests, and each keeps a request until there is room to send the answer, after all of its
// own requests. Users have to leave room for answers, by a bound on the number of requests
// under way.

// SendBudget bounds the payload that all connections of a messenger hold for sending, replay
// included. Each connection has a share of it that others cannot take, so that a connection
// whose peer never acknowledges stops only itself. The shares together exceed the limit by at
// most a quarter of it (Reserve). All methods may be called by any goroutine.
type SendBudget struct {
	limit, share int64
	used         atomic.Int64
	waiting      atomic.Bool // somebody has asked for room
	mu           sync.Mutex
	queues       []*queueGauge // that found no room; guarded by mu
}

// NewSendBudget makes a budget of limit bytes, 0: unlimited, of which each
// connection may hold share bytes even if the others hold all of it, within Reserve.
func NewSendBudget(limit, share int64) *SendBudget {
	return &SendBudget{limit: max(limit, 0), share: share}
}

// Limit is the bound in bytes, 0 for none.
func (b *SendBudget) Limit() int64 { return b.limit }

// Reserve is the number of bytes that the shares of all connections may hold together beyond
// the limit; 0 without a limit.
func (b *SendBudget) Reserve() int64 { return b.limit / 4 }

// Used is the number of bytes that are held now.
func (b *SendBudget) Used() int64 { return b.used.Load() }

// acquire charges n bytes of a connection that then holds all of mine.
func (b *SendBudget) acquire(n, mine int64) bool {
	for {
		used := b.used.Load()
		if beyond := used + n - b.limit; b.limit > 0 && used > 0 && beyond > 0 && (mine > b.share || beyond > b.Reserve()) {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// release gives n bytes back; a nil b has charged none.
func (b *SendBudget) release(n int64) {
	if b == nil {
		return
	}
	b.used.Add(-n)
	if b.waiting.Load() {
		b.wake()
	}
}

// enlist has q hear of the next release.
func (b *SendBudget) enlist(q *queueGauge) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !q.listed {
		q.listed = true
		b.queues = append(b.queues, q)
	}
	b.waiting.Store(true)
}

// wake wakes all connections that found no room: a single one might no longer need it, and the
// next would not learn of it.
func (b *SendBudget) wake() {
	b.mu.Lock()
	queues := b.queues
	b.queues = nil
	b.waiting.Store(false)
	for _, q := range queues {
		q.listed = false
	}
	b.mu.Unlock()
	for _, q := range queues {
		q.wake()
	}
}

// queueGauge bounds the sending queue of a handler. Any goroutine.
type queueGauge struct {
	messages, bytes gauge
	total           *SendBudget // of all connections; nil: none
	listed          bool        // it is among total.queues; guarded by total.mu

	waiting atomic.Bool // somebody has asked for room
	mu      sync.Mutex
	free    chan struct{} // closed when room came back; guarded by mu
}

type gauge struct {
	limit int64
	used  atomic.Int64
}

// fits says whether n can be taken when used are held.
func (g *gauge) fits(used, n int64) bool { return g.limit <= 0 || used <= 0 || used+n <= g.limit }

// take never raises the count beyond the bound, not even for a moment: that would refuse messages
// that fit, and no release would wake their senders.
func (g *gauge) take(n int64) bool {
	for {
		used := g.used.Load()
		if !g.fits(used, n) {
			return false
		}
		if g.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// take charges m, or returns false without room. A message larger than the whole bound passes
// alone.
func (q *queueGauge) take(m *Message) bool {
	if m.elsewhere {
		q.messages.used.Add(1)
		m.queuedBytes = 0
		return true
	}
	n := int64(m.Size())
	if !q.reserve(n) {
		return false
	}
	m.queuedBytes = n
	return true
}

func (q *queueGauge) put(m *Message) { q.release(m.queuedBytes) }

// reserve charges a message of n bytes. The budget of all comes first: what it refuses is not charged
// here, not even for a moment, where it would refuse a smaller message that no release then wakes.
// What this queue refuses does not ask it: to give that back would wake senders for nothing, without end.
// If another sender was faster, the budget is asked again, as the share may be used up.
func (q *queueGauge) reserve(n int64) bool {
	for {
		held := q.bytes.used.Load()
		if !q.messages.fits(q.messages.used.Load(), 1) || !q.bytes.fits(held, n) {
			return false
		}
		if q.total != nil && !q.total.acquire(n, held+n) {
			q.total.enlist(q)
			if !q.total.acquire(n, held+n) { // nothing came back meanwhile
				return false
			}
		}
		if q.messages.take(1) {
			if q.bytes.used.CompareAndSwap(held, held+n) {
				return true
			}
			q.release(0) // who found the number taken is woken
		}
		q.total.release(n)
	}
}

// add charges a message of n bytes beyond all bounds.
func (q *queueGauge) add(n int64) {
	q.messages.used.Add(1)
	q.bytes.used.Add(n)
	if q.total != nil {
		q.total.used.Add(n)
	}
}

func (q *queueGauge) release(n int64) { q.releaseAll(1, n) }

// releaseAll gives back this number of messages, of n bytes together.
func (q *queueGauge) releaseAll(messages, n int64) {
	q.undo(messages, n)
	if q.waiting.Load() {
		q.wake()
	}
}

// undo gives back and does not wake the waiters of this connection: there is no room for them.
func (q *queueGauge) undo(messages, n int64) {
	// The number comes last: a sender that has taken a number and finds no bytes then shows
	// the number only while this one does, so that it refuses no sender that fits.
	q.bytes.used.Add(-n)
	q.messages.used.Add(-messages)
	q.total.release(n)
}

// room returns a channel that closes with the next release, or later.
func (q *queueGauge) room() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.free == nil {
		q.free = make(chan struct{})
	}
	q.waiting.Store(true)
	return q.free
}

func (q *queueGauge) wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.free != nil {
		close(q.free)
		q.free = nil
	}
	q.waiting.Store(false)
}
