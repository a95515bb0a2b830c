package dataplane

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/fakedriver"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

func timingEvery(n int) func(*loop.Config, *fakedriver.Driver) {
	return func(cfg *loop.Config, _ *fakedriver.Driver) { cfg.TimeEvery = n }
}

// A message is timed from Send to its first write, and from there to its ack.
func TestAMessageIsTimedOnItsWay(t *testing.T) {
	for _, one := range []struct {
		name       string
		lossy      bool
		do         func(c *conn) // 3 ms behind Send
		queue, ack []time.Duration
	}{
		{"written", false, func(*conn) {}, []time.Duration{3 * time.Millisecond}, nil},
		{"acknowledged", false, func(c *conn) {
			c.Time += 5 * time.Millisecond
			c.arrive(c.peer.ack(1))
		}, []time.Duration{3 * time.Millisecond}, []time.Duration{5 * time.Millisecond}},
		{"lossy", true, func(c *conn) { c.arrive(c.peer.ack(1)) }, []time.Duration{3 * time.Millisecond}, nil},
		{"sent again", false, func(c *conn) {
			c.Time += time.Second
			c.h.Delay(false, nil)
			c.h.RequeueSent()
			c.open(OpenOptions{})
			c.Time += time.Second
			c.arrive(c.peer.ack(1))
		}, []time.Duration{3 * time.Millisecond}, []time.Duration{2 * time.Second}},
	} {
		c := newBed(t, timingEvery(1)).conn(OpenOptions{Lossy: one.lossy})
		must(t, c.h.Send(NewMessage(1, nil, nil)))
		c.Time += 3 * time.Millisecond
		c.settle()
		one.do(c)
		var queue, ack Histogram
		for _, d := range one.queue {
			queue.Add(d)
		}
		for _, d := range one.ack {
			ack.Add(d)
		}
		if lat := countsOf(c.c).Latency; lat.Queue != queue || lat.Ack != ack {
			t.Errorf("%s: %d samples with %v in queues, %d with %v until acks", one.name, lat.Queue.Count(),
				lat.Queue.Sum, lat.Ack.Count(), lat.Ack.Sum)
		}
	}
}

// However many messages are sent together, and each of them may be the one: they wait for different times.
func TestOneOfSoManyMessagesIsTimedWhereverItStands(t *testing.T) {
	for every, want := range map[int][2]uint64{
		0: {60, 360}, 3: {1000, 2000}, 4: {1000, 2000}, 8: {550, 950}, -1: {0, 0},
	} {
		for _, together := range []int{1, 3, 12, 40} {
			c := newBed(t, timingEvery(every)).conn(OpenOptions{Lossy: true})
			timed := make([]int, together)
			for range 6000 / together {
				for i := range timed {
					m := NewMessage(1, nil, nil)
					must(t, c.h.Send(m))
					if m.timing != untimed {
						timed[i]++
					}
				}
				c.settle()
			}
			if n := countsOf(c.c).Latency.Queue.Count(); n < want[0] || n > want[1] {
				t.Errorf("one of %d, %d together: %d of 6000", every, together, n)
			}
			if least := slices.Min(timed); every == 8 && together <= 12 && least < 25 {
				t.Errorf("of %d together one was timed %d times in %d rounds", together, least, 6000/together)
			}
		}
	}
}

func TestDispatchersAreTimed(t *testing.T) {
	b := newBed(t, nil)
	c := b.conn(OpenOptions{Lossy: true})
	c.own.onMessage = func(*Handler, *Message) { b.Time += time.Millisecond }
	for i := range uint64(100) {
		c.arrive(c.peer.message(i+1, 0, NewMessage(1, nil, nil)))
	}
	d := countsOf(b.c).Latency.Dispatch
	if d.Count() == 0 || d.Sum != time.Duration(d.Count())*time.Millisecond {
		t.Errorf("%d samples, %v in all", d.Count(), d.Sum)
	}
}

func TestEveryDurationIsBelowItsBoundByAQuarterAtMost(t *testing.T) {
	var h Histogram
	for d := time.Duration(1); d < 1<<36; d += d/37 + 1 {
		i := bucketOf(d)
		if above := h.Bound(i); d >= above || d >= 128 && above > d+d/4 {
			t.Fatalf("%d ns is in the bucket below %d", d, above)
		}
		if i > 0 && d < h.Bound(i-1) {
			t.Fatalf("%d ns belongs below %d", d, h.Bound(i-1))
		}
	}
	for _, d := range []time.Duration{1 << 36, 1 << 62} {
		if i := bucketOf(d); i != histogramBuckets-1 || h.Bound(i) != 0 {
			t.Errorf("%v is in bucket %d", d, i)
		}
	}
	h.Add(-time.Second)
	if h.Counts[0] != 1 || h.Sum != 0 {
		t.Errorf("a negative duration: %+v", h)
	}
}

func TestQuantilesAreThoseOfTheSortedDurations(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h, other Histogram
	var all []time.Duration
	if h.Quantile(0.5) != 0 {
		t.Error("of nothing")
	}
	for i := range 10000 {
		d := time.Duration(rng.ExpFloat64() * float64(time.Millisecond))
		all = append(all, d)
		if i%2 == 0 {
			h.Add(d)
		} else {
			other.Add(d)
		}
	}
	h.merge(&other)
	slices.Sort(all)
	for _, q := range []float64{0, 0.1, 0.5, 0.99, 0.999, 1} {
		want := all[max(int(q*float64(len(all)))-1, 0)]
		if got := h.Quantile(q); got < want || got > want+want/4+128 {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if h.Count() != 10000 {
		t.Errorf("%d samples", h.Count())
	}
}

func TestAHistogramIsTheSameBehindJSON(t *testing.T) {
	var h, back Histogram
	for _, d := range []time.Duration{0, 127, 128, time.Microsecond, time.Microsecond, time.Hour} {
		h.Add(d)
	}
	text, err := json.Marshal(h)
	must(t, err)
	must(t, json.Unmarshal(text, &back))
	if back != h {
		t.Errorf("%s is %+v", text, back)
	}
	if err := json.Unmarshal([]byte(`{"buckets":3}`), &back); err == nil {
		t.Error("nonsense is read")
	}
}

func ExampleHistogram() {
	var h Histogram
	for i := range 100 {
		h.Add(time.Duration(i) * time.Microsecond)
	}
	fmt.Println(h.Count(), h.Quantile(0.5), h.Quantile(0.99))
	// Output: 100 49.152µs 98.304µs
}
