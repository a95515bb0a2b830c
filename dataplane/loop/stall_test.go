package loop

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// logLines keeps what is logged.
type logLines struct {
	mu    sync.Mutex
	lines []string
	more  chan struct{}
}

func newLogLines() *logLines { return &logLines{more: make(chan struct{}, 16)} }

func (l *logLines) Enabled(context.Context, slog.Level) bool { return true }
func (l *logLines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logLines) WithGroup(string) slog.Handler            { return l }
func (l *logLines) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool { b.WriteString(" " + a.String()); return true })
	l.mu.Lock()
	l.lines = append(l.lines, b.String())
	l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return nil
}

// with returns the logged lines that contain text.
func (l *logLines) with(text string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			out = append(out, line)
		}
	}
	return out
}

// watched is a plane whose stalls the test looks for itself, and what the log says of them.
func watched(t *testing.T, cores int) (*Plane, *stallWatch, *logLines) {
	t.Helper()
	lines := newLogLines()
	p := newPlane(t, Config{Cores: cores, StallAfter: -1, Driver: uring.Config{Backend: uring.Epoll}, Logger: slog.New(lines)})
	w := newStallWatch(p)
	w.after = time.Second
	return p, w, lines
}

// block keeps a core in a task until the test calls release.
func block(t testing.TB, c *Core) (release func()) {
	t.Helper()
	begun, end := make(chan struct{}), make(chan struct{})
	must(t, c.Do(func(*Core) { close(begun); standStill(end) }))
	<-begun
	var once sync.Once
	release = func() { once.Do(func() { close(end) }) }
	t.Cleanup(release)
	return release
}

// asleep waits until a core has nothing to do.
func asleep(t testing.TB, c *Core) {
	t.Helper()
	for !c.sleeping.Load() {
		must(t, c.call(func(*Core) {}))
	}
}

//go:noinline
func standStill(end chan struct{}) { <-end }

// Matrix: INV-08
func TestAStalledCoreIsReportedOnceWithItsStack(t *testing.T) {
	p, w, lines := watched(t, 2)
	now := time.Unix(0, 0)
	look := func(after time.Duration) { now = now.Add(after); w.look(now, false) }

	release, answer := block(t, p.Core(1)), make(chan CoreStats, 1)
	go func() { // waits already when its core is found stalled
		st, err := p.Core(1).Stats()
		if err != nil {
			t.Error(err)
		}
		answer <- st
	}()
	for p.Core(1).box.empty() {
		runtime.Gosched()
	}
	asleep(t, p.Core(0)) // these looks follow each other faster than a core may get the CPU
	look(0)
	look(999 * time.Millisecond)
	look(999 * time.Microsecond) // the last one was late
	if got := lines.with("core stalled"); len(got) != 0 || len(answer) != 0 {
		t.Fatalf("less than a second is not enough to tell: %v", got)
	}
	look(time.Microsecond)
	look(time.Second)
	w.look(now.Add(time.Minute), true)
	if got := lines.with("core turns again"); len(got) != 0 {
		t.Errorf("the process was suspended, and it stands still: logged %q", got)
	}
	got := lines.with("core stalled")
	if len(got) != 1 || !strings.Contains(got[0], "core=1 for=1s") || !strings.Contains(got[0], "loop.standStill") {
		t.Fatalf("logged %q", got)
	}
	if strings.Contains(got[0], "TestAStalledCore") {
		t.Error("the stack of another goroutine was logged, too")
	}
	if st := await(t, answer); !st.Stalled {
		t.Errorf("it answers %+v", st)
	}
	st, err := p.Core(1).Stats()
	if err != nil || !st.Stalled || st.Stalls != 1 || st.Core != 1 || st.CPU <= 0 {
		t.Errorf("stats of the stalled core: %+v, %v", st, err)
	}
	if st, err := p.Core(0).Stats(); err != nil || st.Stalled || st.Stalls != 0 {
		t.Errorf("stats of the other core: %+v, %v", st, err)
	}
	if _, err := Ask(p.Core(1), func(*Core) int { return 0 }); !errors.Is(err, ErrStalled) {
		t.Errorf("asked it: %v", err)
	}
	release()
	must(t, p.Core(1).call(func(*Core) {}))
	must(t, p.Core(1).call(func(*Core) {})) // a whole turn later
	look(0)
	if got := lines.with("core turns again"); len(got) != 1 || !strings.Contains(got[0], "core=1") {
		t.Errorf("logged %q", got)
	}
	if st, err := p.Core(1).Stats(); err != nil || st.Stalled || st.Stalls != 1 || st.Core != 1 {
		t.Errorf("stats afterwards: %+v, %v", st, err)
	}
}

// A machine that is busy for a second stalls a core for as long: whoever asks it as soon
// as it turns has its answer, and the last counts are not lost if it stops then.
func TestACoreThatTurnsAgainAnswersBeforeTheWatchLooks(t *testing.T) {
	p, w, _ := watched(t, 1)
	c := p.Core(0)
	now := time.Unix(0, 0)
	stall := func() (release func()) {
		release = block(t, c)
		for range 4 { // the first one may see turns that are new to it
			now = now.Add(time.Second)
			w.look(now, false)
		}
		return release
	}
	for round := range uint64(2) {
		release := stall()
		if _, err := Ask(c, func(*Core) int { return 0 }); !errors.Is(err, ErrStalled) || c.Healthy() {
			t.Errorf("asked a stalled one: %v", err)
		}
		release()
		must(t, c.call(func(*Core) {}))
		must(t, c.call(func(*Core) {})) // a whole turn later
		if got, err := Ask(c, func(*Core) int { return 7 }); got != 7 || err != nil || !c.Healthy() {
			t.Errorf("it answers %d, %v", got, err)
		}
		if st, err := c.Stats(); err != nil || st.Stalled || st.Stalls != round+1 {
			t.Errorf("%+v, %v", st, err)
		}
	}
	release := stall()
	if st, err := c.Stats(); err != nil || !st.Stalled {
		t.Errorf("%+v, %v", st, err)
	}
	release()
	must(t, p.Close())
	if st, err := c.Stats(); !errors.Is(err, ErrStopped) || st.Stalled || st.Stalls != 3 || st.Turns == 0 || st.Backend == "" {
		t.Errorf("the last counts: %+v, %v", st, err)
	}
}

// A core that waits for work stands still, and so does one whose process was suspended. One
// that has slept between two looks has work in both.
// Matrix: IO-19
func TestAnIdleOrSuspendedCoreIsNotStalled(t *testing.T) {
	for _, kind := range []string{"idle", "slept", "suspended"} {
		p, w, lines := watched(t, 1)
		c, now := p.Core(0), time.Unix(0, 0)
		look := func() { now = now.Add(time.Second); w.look(now, kind == "suspended") }
		release := block(t, c)
		if kind == "idle" {
			release()
			asleep(t, c)
		}
		look()
		if kind == "slept" {
			release()
			for !c.sleeping.Load() {
				runtime.Gosched()
			}
			c.box.push(&Task{Run: func(*Core) {}})
			look() // it is about to wake up
			c.rouse()
			asleep(t, c)
		}
		for range 3 {
			look()
		}
		if got := lines.with("stalled"); len(got) != 0 {
			t.Errorf("%s: logged %q", kind, got)
		}
	}
}

// Matrix: INV-08
func TestTheWatchFindsAStallByItself(t *testing.T) {
	lines := newLogLines()
	p := newPlane(t, Config{Cores: 1, StallAfter: 20 * time.Millisecond, Driver: uring.Config{Backend: uring.Epoll}, Logger: slog.New(lines)})
	block(t, p.Core(0))
	limit := time.After(patience)
	for len(lines.with("loop.standStill")) == 0 {
		select {
		case <-lines.more:
		case <-limit:
			t.Fatal("nothing was reported")
		}
	}
}

func TestFindStack(t *testing.T) {
	dump := []byte("goroutine 1 [running]:\nmain.a()\n\ngoroutine 12 [select]:\nmain.b()\n\ngoroutine 2 [chan receive]:\nmain.c()\n")
	for head, want := range map[string]string{
		"goroutine 1 ":  "goroutine 1 [running]:\nmain.a()",
		"goroutine 12 ": "goroutine 12 [select]:\nmain.b()",
		"goroutine 2 ":  "goroutine 2 [chan receive]:\nmain.c()",
		"goroutine 3 ":  "",
		"":              "",
	} {
		if got := findStack(dump, []byte(head)); !bytes.Equal(got, []byte(want)) {
			t.Errorf("%q: %q, want %q", head, got, want)
		}
	}
	if head := goroutineHead(); !bytes.HasPrefix(head, []byte("goroutine ")) || !bytes.HasSuffix(head, []byte(" ")) {
		t.Errorf("head %q", head)
	}
}

// The same in both flavours: on a ring the kernel works within the system call that also
// waits, so time outside of that call says nothing.
// Matrix: OB-03
func TestTheCPUOfACoreIsThatOfItsThread(t *testing.T) {
	overPlanes(t, 1, func(t *testing.T, p *Plane) {
		c := p.Core(0)
		clock := func(id int32) time.Duration {
			var at unix.Timespec
			must(t, unix.ClockGettime(id, &at))
			return time.Duration(at.Nano())
		}
		const work, idle = 30 * time.Millisecond, 60 * time.Millisecond
		process, before := clock(unix.CLOCK_PROCESS_CPUTIME_ID), stats(t, c).CPU
		must(t, c.call(func(*Core) {
			for until := clock(unix.CLOCK_THREAD_CPUTIME_ID) + work; clock(unix.CLOCK_THREAD_CPUTIME_ID) < until; {
			}
		}))
		after := stats(t, c).CPU
		if took, most := after-before, clock(unix.CLOCK_PROCESS_CPUTIME_ID)-process; took < work || took > most {
			t.Errorf("%v for work of %v, when the process took %v", took, work, most)
		}
		took := idle
		for tries := 0; tries < 10 && took > idle/2; tries++ { // what a hypervisor takes from a CPU counts as used
			before, fired := stats(t, c).CPU, make(chan struct{})
			must(t, c.call(func(c *Core) {
				c.Arm(&Timer{Fire: func(*Core, time.Duration) { close(fired) }}, c.Now()+idle)
			}))
			<-fired
			took = stats(t, c).CPU - before
		}
		if took > idle/2 {
			t.Errorf("%v for a wait of %v", took, idle)
		}
	})
}
