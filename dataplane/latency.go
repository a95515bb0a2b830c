package dataplane

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// One message in Config.TimeEvery is timed on its way: when Send takes it, when it goes into a
// write, and when its ack comes. The times belong to the core that takes them
// (Counts.Latency). So does the time in the dispatcher, for as many messages.

// timing is the progress of a message that is timed.
type timing uint8

const (
	untimed timing = iota
	queuedAt
	writtenAt
)

// beginTiming decides whether m, which the handler holds already, is timed: if the number of
// its messages is the drawn one, modulo TimeEvery (a power of two). Any goroutine.
func (h *Handler) beginTiming(m *Message) {
	m.timing = untimed
	cfg := h.core.Load().Config()
	if cfg.TimeEvery > 0 && uint32(h.held.messages.used.Load())&uint32(cfg.TimeEvery-1) == h.timed.Load() {
		m.timing, m.since = queuedAt, cfg.Now()
	}
}

// drawTimed draws the number of the next timed message, once for all messages that are sent
// together: a random number for each would be a measurable part of the cost of a small one. On
// the core.
func (h *Handler) drawTimed() {
	if every := h.core.Load().Config().TimeEvery; every > 0 {
		h.timed.Store(rand.Uint32N(uint32(every)))
	}
}

// timeWrite notes that m goes into a write. A message that goes out again keeps the time
// of its first write. On the core.
func (m *Message) timeWrite(c *loop.Core) {
	if m.timing == queuedAt {
		now := c.Config().Now()
		countsOf(c).Latency.Queue.Add(now - m.since)
		m.timing, m.since = writtenAt, now
	}
}

// timeAck notes that the ack of m has come. On the core.
func (m *Message) timeAck(c *loop.Core) {
	if m.timing == writtenAt {
		countsOf(c).Latency.Ack.Add(c.Config().Now() - m.since)
	}
}

// dispatchTimed gives a received message to the owner, times that, and draws which message is
// timed next.
func (h *Handler) dispatchTimed(c *loop.Core, m *Message) {
	l, cfg := h.local, c.Config()
	if cfg.TimeEvery <= 0 {
		l.timeNext = math.MaxUint64
		h.owner.Dispatch(h, m)
		return
	}
	l.timeNext = l.counts.MessagesIn + 1 + uint64(rand.Uint32N(2*uint32(cfg.TimeEvery)-1))
	began := cfg.Now()
	h.owner.Dispatch(h, m)
	l.counts.Latency.Dispatch.Add(cfg.Now() - began)
}

const (
	// histogramFirst is the upper bound of the first bucket: 128 ns.
	histogramFirst = 7
	// histogramParts is the number of buckets of each doubling, as a power of two.
	histogramParts = 2
	// histogramBuckets is the number of buckets of a Histogram. The last one takes
	// durations of 68 s and more.
	histogramBuckets = (36-histogramFirst)<<histogramParts + 2
)

// Histogram counts durations in buckets of fixed bounds, four for each doubling from 128 ns to
// 68 s: a duration is reported at most a quarter too high. It is a value: one goroutine at a
// time. In JSON it has only the buckets that are not empty, each as its upper bound in
// nanoseconds, 0 for the last one, and its count.
type Histogram struct {
	Sum    time.Duration
	Counts [histogramBuckets]uint64
}

// Add counts one duration. A negative one counts as 0.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.Sum += d
	h.Counts[bucketOf(d)]++
}

func bucketOf(d time.Duration) int {
	n := bits.Len64(uint64(d)) - 1 // of the doubling
	if n < histogramFirst {
		return 0
	}
	part := int(d>>(n-histogramParts)) & (1<<histogramParts - 1)
	return min(1+(n-histogramFirst)<<histogramParts+part, histogramBuckets-1)
}

// Bound is the upper bound of bucket i, which the bucket does not have itself; 0 for
// the last bucket, which has none.
func (*Histogram) Bound(i int) time.Duration {
	if i == histogramBuckets-1 {
		return 0
	}
	doubling, part := i>>histogramParts, i&(1<<histogramParts-1)
	return time.Duration(1<<histogramParts+part) << (histogramFirst - histogramParts + doubling)
}

// Count is the number of durations.
func (h *Histogram) Count() (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Quantile is a duration that a part q of all, 0 to 1, does not reach: the upper bound of
// the bucket with the last of them. 0 if there is none; beyond the last bound it is the
// lower bound of the last bucket.
func (h *Histogram) Quantile(q float64) time.Duration {
	all := h.Count()
	if all == 0 {
		return 0
	}
	want := max(uint64(q*float64(all)+0.5), 1)
	i := 0
	for n := h.Counts[0]; n < want && i < histogramBuckets-2; n += h.Counts[i] {
		i++
	}
	return h.Bound(i)
}

// Merge adds all of o.
func (h *Histogram) merge(o *Histogram) {
	h.Sum += o.Sum
	for i, c := range o.Counts {
		h.Counts[i] += c
	}
}

// histogramJSON is a Histogram in JSON.
type histogramJSON struct {
	Sum     time.Duration `json:"sum_ns"`
	Buckets [][2]uint64   `json:"buckets"`
}

// MarshalJSON implements json.Marshaler.
func (h Histogram) MarshalJSON() ([]byte, error) {
	out := histogramJSON{Sum: h.Sum, Buckets: [][2]uint64{}}
	for i, c := range h.Counts {
		if c > 0 {
			out.Buckets = append(out.Buckets, [2]uint64{uint64(h.Bound(i)), c})
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON implements json.Unmarshaler.
func (h *Histogram) UnmarshalJSON(p []byte) error {
	var in histogramJSON
	if err := json.Unmarshal(p, &in); err != nil {
		return fmt.Errorf("dataplane: histogram: %w", err)
	}
	*h = Histogram{Sum: in.Sum}
	for _, b := range in.Buckets {
		i := histogramBuckets - 1
		if b[0] > 0 {
			i = bucketOf(time.Duration(b[0] - 1))
		}
		h.Counts[i] += b[1]
	}
	return nil
}

// Latencies are the times of messages and their dispatchers on one core, or on several. They
// are samples: one message in Config.TimeEvery is timed.
type Latencies struct {
	Queue    Histogram `json:"queue"`    // from Send until the message goes into a write
	Dispatch Histogram `json:"dispatch"` // in the dispatchers of a received message
	Ack      Histogram `json:"ack"`      // lossless sessions: from the first write to the ack
}

// Merge adds all of o.
func (l *Latencies) Merge(o *Latencies) {
	l.Queue.merge(&o.Queue)
	l.Dispatch.merge(&o.Dispatch)
	l.Ack.merge(&o.Ack)
}
