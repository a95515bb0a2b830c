package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

const (
	// digits is the precision: a value is known to 1 %, which is less than two
	// rounds of a benchmark differ by. A third digit would take eight times the
	// memory, and a load has one histogram for each connection.
	digits = 2
	// highest is the bound of recorded durations. With it every histogram takes 35 KiB.
	highest = 20 * time.Minute
)

// Histogram is a set of recorded durations, each known to 1 %, from 1 ns to
// 20 minutes. It is made by NewHistogram and belongs to one goroutine at a time.
type Histogram struct{ h *hdrhistogram.Histogram }

// NewHistogram returns an empty histogram. Its methods allocate no more memory.
func NewHistogram() *Histogram { return &Histogram{hdrhistogram.New(1, int64(highest), digits)} }

// Record counts one duration. Negative durations count as zero, durations above 20 minutes as
// 20 minutes.
func (h *Histogram) Record(d time.Duration) {
	_ = h.h.RecordValue(int64(min(max(d, 0), highest))) // fails only out of range
}

// Add counts everything that o has counted.
func (h *Histogram) Add(o *Histogram) { h.h.Merge(o.h) } // both have the same range: no value is dropped

// Count returns the number of recorded durations.
func (h *Histogram) Count() uint64 { return uint64(h.h.TotalCount()) }

// Quantile returns the duration that the share q (0..1) of all recorded ones
// does not exceed; 0 if there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	return time.Duration(h.h.ValueAtPercentile(q * 100))
}

// Summary has the durations of a histogram in few figures, in microseconds to a tenth; zeros if
// there are none.
type Summary struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// Summary makes one.
func (h *Histogram) Summary() Summary {
	least, mean, most := time.Duration(h.h.Min()), time.Duration(h.h.Mean()), time.Duration(h.h.Max())
	return Summary{
		Microseconds(least), Microseconds(mean), Microseconds(h.Quantile(0.5)), Microseconds(h.Quantile(0.9)), Microseconds(h.Quantile(0.99)),
		Microseconds(h.Quantile(0.999)), Microseconds(most),
	}
}

// Microseconds is d in microseconds, to a tenth.
func Microseconds(d time.Duration) float64 { return math.Round(float64(d)/100) / 10 }

// Doublings calls f for each power of two, in microseconds, with the number of durations up
// to it and above the power before, if there are any.
func (h *Histogram) Doublings(f func(us int, count int64)) {
	us, count := 1, int64(0)
	for _, bar := range h.h.Distribution() {
		for bar.Count > 0 && bar.From > int64(us)*1000 {
			if count > 0 {
				f(us, count)
			}
			us, count = 2*us, 0
		}
		count += bar.Count
	}
	if count > 0 {
		f(us, count)
	}
}

// MarshalJSON writes the text that HdrHistogram's tools read: its format V2,
// compressed, in base64. Values are nanoseconds.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	text, err := h.h.EncodeV2()
	if err != nil {
		return nil, fmt.Errorf("histogram: %w", err)
	}
	return json.Marshal(string(text))
}

// UnmarshalJSON reads the text of MarshalJSON.
func (h *Histogram) UnmarshalJSON(p []byte) error {
	var text string
	if err := json.Unmarshal(p, &text); err != nil {
		return fmt.Errorf("histogram: %w", err)
	}
	read, err := hdrhistogram.Decode([]byte(text))
	if err != nil {
		return fmt.Errorf("histogram: %w", err)
	}
	h.h = read
	return nil
}

// Calls are the measurements of Loop.
type Calls struct {
	Took  time.Duration // all of them together, by the clock
	kinds map[string]*Histogram
}

// Of are the durations of the calls of a kind. It is empty if there were none.
func (c *Calls) Of(kind string) *Histogram {
	if h := c.kinds[kind]; h != nil {
		return h
	}
	return NewHistogram()
}

// Rate is the number of calls of a kind in a second.
func (c *Calls) Rate(kind string) float64 { return float64(c.Of(kind).Count()) / c.Took.Seconds() }

// Line is the rate and the durations of the calls of a kind, for people.
func (c *Calls) Line(kind string) string {
	times := c.Of(kind)
	p50, p99 := Duration(times.Quantile(0.5)), Duration(times.Quantile(0.99))
	return fmt.Sprintf("%s/s, p50 %s, p99 %s", Count(c.Rate(kind)), p50, p99)
}

// Loop is a closed loop of load, of n chains of operations. begin begins one of chain i. Its done
// counts it and begins the next one of the chain, until there were most of all chains, or d has
// passed (0: without end), or an operation of the chain has failed; kind says of which kind it was.
// done may be called on any goroutine, once for each begin, and by begin itself only with an error:
// a chain would run on its stack. The error is the first that there was; operations that fail are
// counted, too.
func Loop(n int, most uint64, d time.Duration, begin func(i int, done func(kind string, err error))) (c Calls, failed error) {
	var all sync.WaitGroup
	var mu sync.Mutex // guards c.kinds, failed and left
	c.kinds = map[string]*Histogram{}
	n = int(min(uint64(n), most))
	left := most - uint64(n)
	began := time.Now()
	for i := range n {
		all.Add(1)
		sent := time.Now()
		var done func(kind string, err error)
		done = func(kind string, err error) {
			now := time.Now()
			mu.Lock()
			if c.kinds[kind] == nil {
				c.kinds[kind] = NewHistogram()
			}
			c.kinds[kind].Record(now.Sub(sent))
			failed = cmp.Or(failed, err)
			more := err == nil && left > 0 && (d == 0 || now.Sub(began) < d)
			if more {
				left--
			}
			mu.Unlock()
			if !more {
				all.Done()
				return
			}
			sent = now
			begin(i, done)
		}
		begin(i, done)
	}
	all.Wait()
	c.Took = time.Since(began)
	return c, failed
}

// Memory is the resident memory of a process, without memory of the kernel for it, for example
// socket buffers.
type Memory struct {
	Resident int64 // bytes now
	Peak     int64 // bytes at most since the process began
	Locked   int64 // bytes now that are locked, or pinned for requests to the kernel
}

// sizes are the lines of the status of a process that Memory has.
var sizes = regexp.MustCompile(`(?m)^(VmRSS|VmHWM|VmLck|VmPin):\s+(\d+) kB$`)

// ReadMemory returns the memory of process pid, 0 is this one.
func ReadMemory(pid int) (Memory, error) {
	process := "self" // which is right where /proc is that of another namespace of processes
	if pid != 0 {
		process = strconv.Itoa(pid)
	}
	text, err := os.ReadFile("/proc/" + process + "/status")
	of := map[string]int64{}
	for _, m := range sizes.FindAllStringSubmatch(string(text), -1) {
		n, _ := strconv.ParseInt(m[2], 10, 64) // of digits
		of[m[1]] = 1024 * n
	}
	return Memory{Resident: of["VmRSS"], Peak: of["VmHWM"], Locked: of["VmLck"] + of["VmPin"]}, err
}

// ReadCPU returns the CPU time that process pid has used: user and system time
// of all its threads, ended ones too. It is precise to a nanosecond.
func ReadCPU(pid int) (time.Duration, error) {
	// The kernel numbers the clocks of processes by the complement of their id.
	const scheduler = 2 // CPUCLOCK_SCHED: precise, user and system time together
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|scheduler, &ts); err != nil {
		return 0, fmt.Errorf("read the CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}
