package unanswered

import (
	"slices"
	"testing"
	"time"
)

// clock is a time that the test moves.
type clock struct {
	now    time.Time
	timers []timer
}

type timer struct {
	at time.Time
	f  func()
}

func (c *clock) Now() time.Time { return c.now }

func (c *clock) AfterFunc(d time.Duration, f func()) func() bool {
	at := c.now.Add(d)
	c.timers = append(c.timers, timer{at, f})
	return func() bool {
		c.timers = slices.DeleteFunc(c.timers, func(t timer) bool { return t.at.Equal(at) })
		return true
	}
}

// pass lets time pass, with what is due in it.
func (c *clock) pass(d time.Duration) {
	for end := c.now.Add(d); ; {
		next := -1
		for i, t := range c.timers {
			if !t.at.After(end) && (next < 0 || t.at.Before(c.timers[next].at)) {
				next = i
			}
		}
		if next < 0 {
			c.now = end
			return
		}
		t := c.timers[next]
		c.timers = slices.Delete(c.timers, next, next+1)
		c.now = t.at
		t.f()
	}
}

type said struct {
	who   string
	after time.Duration // since it began
	over  bool
}

func watched() (*Watch[string], *clock, *[]said) {
	c, all := &clock{now: time.Unix(1_000_000, 0)}, new([]said)
	return New(c, func(d Due[string]) { *all = append(*all, said{d.Conn, c.now.Sub(d.Since), d.Over}) }), c, all
}

func TestWarningsBecomeRareAndEndWithTheAnswer(t *testing.T) {
	w, c, all := watched()
	var e Entry[string]
	w.Begin(&e, "a", 0)
	began := c.now
	c.pass(10 * time.Second)
	w.Begin(&e, "a", 0) // the next attempt
	c.pass(3*time.Hour - 10*time.Second)
	want := []said{{"a", time.Minute, false}, {"a", 10 * time.Minute, false}, {"a", 70 * time.Minute, false}, {"a", 130 * time.Minute, false}}
	if !slices.Equal(*all, want) || !e.Since().Equal(began) {
		t.Errorf("said %v since %v, want %v", *all, e.Since(), want)
	}
	w.End(&e)
	w.End(&e)
	c.pass(time.Hour * 10)
	if n, _ := w.Count(); len(*all) != len(want) || n != 0 || !e.Since().IsZero() || len(c.timers) != 0 {
		t.Errorf("behind the answer: said %v, %d left, %d timers", *all, n, len(c.timers))
	}
}

func TestOneTimerServesAllAndEachGivesUpInItsTime(t *testing.T) {
	w, c, all := watched()
	var long, short, answered Entry[string]
	w.Begin(&long, "long", time.Hour)
	c.pass(time.Second)
	w.Begin(&short, "short", 5*time.Second)
	w.Begin(&answered, "answered", 5*time.Second)
	if n, oldest := w.Count(); n != 3 || !oldest.Equal(long.Since()) {
		t.Errorf("%d, the oldest since %v", n, oldest)
	}
	w.End(&answered)
	c.pass(5 * time.Second)
	if want := []said{{"short", 5 * time.Second, true}}; !slices.Equal(*all, want) {
		t.Fatalf("said %v, want %v", *all, want)
	}
	w.End(&short)
	c.pass(time.Hour)
	want := []said{{"short", 5 * time.Second, true}, {"long", time.Minute, false}, {"long", 10 * time.Minute, false}, {"long", time.Hour, true}}
	if !slices.Equal(*all, want) || len(c.timers) != 1 {
		t.Errorf("said %v, want %v; %d timers", *all, want, len(c.timers))
	}
	c.pass(time.Minute)
	if last := (*all)[len(*all)-1]; last != (said{"long", 61 * time.Minute, true}) {
		t.Errorf("one that stood still for a hand-over hears %v", last)
	}
}

func TestAWatchThatIsClosedSaysNothing(t *testing.T) {
	w, c, all := watched()
	var e, later Entry[string]
	w.Begin(&e, "a", 0)
	w.Close()
	w.Begin(&later, "b", time.Second)
	if c.pass(time.Hour); len(*all) != 0 || len(c.timers) != 0 {
		t.Errorf("said %v, %d timers", *all, len(c.timers))
	}
}
