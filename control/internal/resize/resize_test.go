package resize

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	errNo      = errors.New("no")
	errStopped = errors.New("stopped waiting")
)

// fake is a messenger that notes what it has to do. Cores are numbers.
type fake struct {
	mu     sync.Mutex
	steps  []string
	fail   map[string]error         // by step
	stuck  map[string]chan struct{} // steps that wait until it closes
	broken bool                     // the core has failed
}

func (f *fake) do(step string, args ...any) error {
	f.mu.Lock()
	f.steps = append(f.steps, strings.TrimSpace(fmt.Sprintln(append([]any{step}, args...)...)))
	f.mu.Unlock()
	if wait := f.stuck[step]; wait != nil {
		<-wait
	}
	return f.fail[step]
}

func (f *fake) Allowed() error                { return f.do("allowed") }
func (f *fake) Open() (int, error)            { return 7, f.do("open") }
func (f *fake) Listen(core int) error         { return f.do("listen", core) }
func (f *fake) Find(number int) (int, error)  { return number, f.do("find", number) }
func (f *fake) Retire(core int) error         { return f.do("retire", core) }
func (f *fake) Unsteer(core int, forget bool) { _ = f.do("unsteer", core, forget) }
func (f *fake) Evacuate(core int)             { _ = f.do("evacuate", core) }
func (f *fake) CloseListeners(core int)       { _ = f.do("close", core) }
func (f *fake) Broken(int) bool               { f.mu.Lock(); defer f.mu.Unlock(); return f.broken }
func (f *fake) setBroken()                    { f.mu.Lock(); defer f.mu.Unlock(); f.broken = true }
func (f *fake) taken() []string               { f.mu.Lock(); defer f.mu.Unlock(); return slices.Clone(f.steps) }

func (f *fake) AwaitGone(ctx context.Context, core int) error {
	if wait := f.stuck["gone"]; wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			_ = f.do("fault", core)
			return context.Cause(ctx)
		}
	}
	return f.do("gone", core)
}

func (f *fake) want(t *testing.T, steps ...string) {
	t.Helper()
	if got := f.taken(); !slices.Equal(got, steps) {
		t.Errorf("steps %q, want %q", got, steps)
	}
}

// free fails the test if somebody still has the Lock.
func free(t *testing.T, r *Resizer[int]) {
	t.Helper()
	synctest.Wait()
	select {
	case r.held <- struct{}{}:
		<-r.held
	default:
		t.Error("the lock is held")
	}
}

// A core that fails while it is removed is gone as well.
// Matrix: IO-15
func TestAStepThatFailsUndoesThoseBeforeIt(t *testing.T) {
	for _, one := range []struct {
		fail   string
		add    []string
		remove []string
	}{
		{"nothing", []string{"allowed", "open", "listen 7"},
			[]string{"allowed", "find 3", "retire 3", "unsteer 3 true", "evacuate 3", "close 3", "gone 3"}},
		{"allowed", []string{"allowed"}, []string{"allowed"}},
		{"open", []string{"allowed", "open"}, nil},
		{"listen", []string{"allowed", "open", "listen 7", "retire 7", "unsteer 7 true", "evacuate 7", "close 7"}, nil},
		{"find", nil, []string{"allowed", "find 3"}},
		{"retire", nil, []string{"allowed", "find 3", "retire 3"}},
		{"the core", nil, []string{"allowed", "find 3", "retire 3", "unsteer 3 true", "evacuate 3", "close 3", "unsteer 3 false", "evacuate 3", "gone 3"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			check := func(f *fake, r *Resizer[int], err error, want []string) {
				t.Helper()
				if (err == nil) != (one.fail == "nothing" || one.fail == "the core") || err != nil && !errors.Is(err, errNo) {
					t.Errorf("%s fails: %v", one.fail, err)
				}
				free(t, r)
				f.want(t, want...)
			}
			if one.add != nil {
				f := &fake{fail: map[string]error{one.fail: errNo}}
				r := New(t.Context(), f)
				core, err := r.Add(t.Context())
				if err == nil && core != 7 {
					t.Errorf("core %d", core)
				}
				check(f, r, err, one.add)
			}
			if one.remove != nil {
				// The listeners close while the core is awaited, in any order.
				f := &fake{fail: map[string]error{one.fail: errNo}, stuck: map[string]chan struct{}{"gone": make(chan struct{})}}
				r := New(t.Context(), f)
				time.AfterFunc(time.Second, func() {
					if one.fail == "the core" {
						f.setBroken()
						r.Failed(3)
					}
					close(f.stuck["gone"])
				})
				check(f, r, r.Remove(t.Context(), 3), one.remove)
			}
		})
	}
}

func TestACoreIsRemovedAgainWhenNobodyWaitsForItAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{stuck: map[string]chan struct{}{"listen": make(chan struct{})}}
		r := New(t.Context(), f)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errStopped) })
		if _, err := r.Add(ctx); !errors.Is(err, errStopped) {
			t.Errorf("added: %v", err)
		}
		f.want(t, "allowed", "open", "listen 7")
		select {
		case r.held <- struct{}{}:
			t.Error("others may change the cores while one is on its way")
		default:
		}
		close(f.stuck["listen"])
		free(t, r)
		f.want(t, "allowed", "open", "listen 7", "retire 7", "unsteer 7 true", "evacuate 7", "close 7")
	})
}

// Matrix: IO-15
func TestACoreThatFailsBeforeItIsReadyIsNotAdded(t *testing.T) {
	for _, last := range []bool{false, true} { // no other core runs
		synctest.Test(t, func(t *testing.T) {
			f := &fake{stuck: map[string]chan struct{}{"listen": make(chan struct{})}, fail: map[string]error{}}
			if last {
				f.fail["listen"] = errNo // which is not the reason
			}
			want := []string{"allowed", "open", "listen 7", "unsteer 7 false", "evacuate 7", "retire 7"}
			if last {
				f.fail["retire"] = errNo
				want = append(want, "unsteer 7 false", "evacuate 7")
			} else {
				want = append(want, "unsteer 7 true", "evacuate 7", "close 7")
			}
			r := New(t.Context(), f)
			time.AfterFunc(time.Second, func() {
				f.setBroken()
				r.Failed(7)
				close(f.stuck["listen"])
			})
			if _, err := r.Add(t.Context()); !errors.Is(err, ErrFailed) {
				t.Errorf("added: %v", err)
			}
			free(t, r)
			f.want(t, want...)
		})
	}
}

func TestARemovalGoesOnByItselfWhenNobodyWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, step := range []string{"gone", "close"} {
			f := &fake{stuck: map[string]chan struct{}{step: make(chan struct{})}}
			r := New(t.Context(), f)
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(errStopped) })
			if err := r.Remove(ctx, 3); !errors.Is(err, errStopped) {
				t.Errorf("%s waits: %v", step, err)
			}
			if got := slices.Contains(f.taken(), "fault 3"); got != (step == "gone") {
				t.Errorf("%s waits: what is left faults: %v", step, got)
			}
			synctest.Wait()
			if free := len(r.held) == 0; free != (step == "gone") { // a core that still has listeners keeps others from changing the cores
				t.Errorf("%s waits: others may change the cores: %v", step, free)
			}
			close(f.stuck[step])
			free(t, r)
		}
	})
}

func TestOnlyAConnectionThatIsHereAndAtRestLeaves(t *testing.T) {
	for _, one := range []struct {
		name                   string
		c                      Conn
		evacuation, step, came bool
	}{
		{"it is here", Conn{Here: true}, true, true, true},
		{"it is elsewhere", Conn{}, false, false, false},
		{"it goes where its handshake is, which ends with a step", Conn{Here: true, Boarding: true}, false, true, false},
		{"it is about to leave", Conn{Here: true, Underway: true}, false, false, false},
		{"it is over", Conn{Here: true, Closing: true}, false, false, false},
		{"the core runs, or did when its evacuation began", Conn{Here: true, CoreRuns: true}, true, false, false},
		{"the core runs, and it is boarding", Conn{Here: true, Boarding: true, CoreRuns: true}, false, false, false},
	} {
		for at, want := range map[Moment]bool{Evacuation: one.evacuation, StepEnded: one.step, Arrival: one.came} {
			if got := one.c.Leaves(at); got != want {
				t.Errorf("%s, moment %d: leaves %v", one.name, at, got)
			}
		}
	}
}

func TestTheWaitForTheCoresEndsWithItsContextAndWithTheMessenger(t *testing.T) {
	stopped, down := errors.New("stopped waiting"), errors.New("down")
	synctest.Test(t, func(t *testing.T) {
		over, shutdown := context.WithCancelCause(t.Context())
		e := newExclusive(over)
		unlock, err := e.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 2)
		wait := func(ctx context.Context) {
			_, err := e.Lock(ctx)
			ended <- err
		}
		go wait(ctx)
		synctest.Wait()
		cancel(stopped)
		if err := <-ended; !errors.Is(err, stopped) {
			t.Errorf("its context has ended: %v", err)
		}
		go wait(t.Context())
		synctest.Wait()
		shutdown(down)
		if err := <-ended; !errors.Is(err, down) {
			t.Errorf("the messenger has ended: %v", err)
		}
		for range 20 { // of which some would get a lock that is free
			if _, err := newExclusive(t.Context()).Lock(ctx); !errors.Is(err, stopped) {
				t.Errorf("its context had ended before: %v", err)
			}
		}
	})
}
