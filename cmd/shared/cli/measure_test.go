package cli

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
)

func TestAQuantileIsRightToOnePercent(t *testing.T) {
	h := NewHistogram()
	for us := range 100_000 {
		h.Record(time.Duration(us+1) * time.Microsecond)
	}
	s := h.Summary()
	for want, got := range map[float64]float64{1: s.Min, 50_000: s.P50, 50_001: s.Mean, 90_000: s.P90, 99_000: s.P99, 99_900: s.P999, 100_000: s.Max} {
		if math.Abs(got-want) > want/100 {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

func TestDurationsOutOfRangeCountAtTheEnds(t *testing.T) {
	h := NewHistogram()
	h.Record(-5)
	h.Record(24 * time.Hour)
	if s, most := h.Summary(), Microseconds(highest); h.Count() != 2 || s.Min != 0 || s.Max < most || s.Max > most+most/100 {
		t.Fatalf("%d durations, %+v", h.Count(), s)
	}
}

func TestAnEmptyHistogramIsZero(t *testing.T) {
	h := NewHistogram()
	h.Add(NewHistogram())
	h.Doublings(func(int, int64) { t.Error("it has durations") })
	if h.Count() != 0 || h.Quantile(0.99) != 0 || h.Summary() != (Summary{}) {
		t.Fatal("an empty histogram reports something")
	}
}

func TestDoublingsCountEachDurationOnce(t *testing.T) {
	h := NewHistogram()
	for _, us := range []float64{0, 0.5, 1, 1.5, 3, 3.5, 900, 1100} {
		h.Record(time.Duration(us * 1000))
	}
	got := map[int]int64{}
	h.Doublings(func(us int, count int64) { got[us] += count })
	if want := map[int]int64{1: 3, 2: 1, 4: 2, 1024: 1, 2048: 1}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestJSONKeepsTheHistogram(t *testing.T) {
	h := NewHistogram()
	for i := range 100000 {
		h.Record(time.Duration(i * 37))
	}
	p, err := json.Marshal(h)
	clitest.Must(t, err)
	var back Histogram
	clitest.Must(t, json.Unmarshal(p, &back))
	if !h.h.Equals(back.h) {
		t.Error("it changed")
	}
	for _, text := range []string{`{}`, `"nonsense"`, `""`} {
		if err := json.Unmarshal([]byte(text), &back); err == nil {
			t.Errorf("%s is read", text)
		}
	}
}

func TestRecordDoesNotAllocate(t *testing.T) {
	h := NewHistogram()
	if n := testing.AllocsPerRun(100, func() { h.Record(12345) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// Chains are as many calls at a time, each of its kind. A call that fails ends its chain alone.
func TestAClosedLoopCountsTheCallsOfEachKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed, refused, n := errors.New("failed"), errors.New("refused"), atomic.Int64{}
		calls, err := Loop(4, math.MaxUint64, 10*time.Second, func(i int, done func(string, error)) {
			switch n.Add(1); i {
			case 0:
				time.AfterFunc(2*time.Second, func() { done("slow", nil) })
			case 1:
				time.AfterFunc(time.Second, func() { done("fast", nil) })
			case 2:
				time.AfterFunc(time.Second, func() { done("fast", failed) })
			default:
				done("none", refused)
			}
		})
		slow, fast, none := calls.Of("slow"), calls.Of("fast").Count(), calls.Of("none").Count()
		if !errors.Is(err, refused) || n.Load() != 17 || calls.Took != 10*time.Second || slow.Count() != 5 || fast != 11 || none != 1 {
			t.Errorf("%d calls, %d slow, %d fast, %d refused in %v, %v", n.Load(), slow.Count(), fast, none, calls.Took, err)
		}
		if p := slow.Quantile(0.5).Round(100 * time.Millisecond); p != 2*time.Second || calls.Rate("fast") != 1.1 || calls.Of("other").Count() != 0 {
			t.Errorf("the slow ones took %v, %v fast ones in a second", p, calls.Rate("fast"))
		}
	})
}

func TestALoopEndsWithItsLastCall(t *testing.T) {
	for most := range uint64(9) {
		n, began := atomic.Uint64{}, atomic.Uint64{}
		calls, err := Loop(4, most, 0, func(_ int, done func(string, error)) {
			began.Add(1)
			go func() { n.Add(1); done("", nil) }()
		})
		if err != nil || began.Load() != most || n.Load() != most || calls.Of("").Count() != most {
			t.Errorf("%d of %d, %v", n.Load(), most, err)
		}
	}
}

func TestTheCPUTimeIsThatOfTheProcess(t *testing.T) {
	pid := clitest.Sleeper(t)
	read := func(pid int) time.Duration {
		t.Helper()
		d, err := ReadCPU(pid)
		clitest.Must(t, err)
		return d
	}
	own, other := read(0), read(pid)
	for read(0)-own < 50*time.Millisecond { // it grows with the work of this process
	}
	if read(os.Getpid())-own < 50*time.Millisecond {
		t.Error("0 is not this process")
	}
	if more := read(pid) - other; more > 25*time.Millisecond {
		t.Errorf("a process that sleeps used %v", more)
	}
}

func TestTheMemoryIsThatOfTheProcess(t *testing.T) {
	const size = 64 << 20
	before, err := ReadMemory(0)
	clitest.Must(t, err)
	block := mapped(t, size)
	for i := 0; i < len(block); i += 4096 {
		block[i] = 1
	}
	after, err := ReadMemory(os.Getpid())
	clitest.Must(t, err)
	if grown := after.Resident - before.Resident; grown < size*9/10 || after.Peak < after.Resident {
		t.Errorf("%+v, then %+v", before, after)
	}
	small, err := ReadMemory(clitest.Sleeper(t))
	if err != nil || small.Resident == 0 || small.Resident >= after.Resident {
		t.Errorf("%+v, %v", small, err)
	}
}

// Matrix: ST-11
func TestLockedMemoryIsThatOfTheProcess(t *testing.T) {
	const size = 16 << 10 // any process may lock as much
	before, err := ReadMemory(0)
	clitest.Must(t, err)
	block := mapped(t, size)
	clitest.Must(t, unix.Mlock(block))
	if after, err := ReadMemory(0); err != nil || after.Locked-before.Locked != size {
		t.Errorf("%+v, then %+v, %v", before, after, err)
	}
}

func TestAProcessThatIsGoneIsAnError(t *testing.T) {
	const nobody = 1 << 27
	if _, err := ReadCPU(nobody); err == nil {
		t.Error("it has CPU time")
	}
	if _, err := ReadMemory(nobody); err == nil {
		t.Error("it has memory")
	}
}

// mapped is memory that is not from the heap, which may have pages to spare.
func mapped(t *testing.T, size int) []byte {
	t.Helper()
	block, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	clitest.Must(t, err)
	t.Cleanup(func() { _ = unix.Munmap(block) }) // the process ends with it
	return block
}
