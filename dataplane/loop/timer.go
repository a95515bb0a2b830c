package loop

import (
	"container/heap"
	"time"
)

// Timer is one deadline of a core. It is embedded in its user and lies in the core's heap
// while armed (Core.Arm). Owner: the core.
//
// A timer that is pushed back often (idle, keepalive) is not moved in the heap
// each time: its owner notes the activity and re-arms when it fires.
type Timer struct {
	// Fire runs on the core when the time has come, and the timer is not armed
	// any more. It is set before the first Arm.
	Fire  func(c *Core, now time.Duration)
	when  time.Duration // core clock
	index int           // position in the heap + 1, 0: not armed
}

// Arm has t fire at when, on the clock of Now, or changes when that is. On the
// core.
func (c *Core) Arm(t *Timer, when time.Duration) {
	c.assertOwner()
	c.timers.arm(t, when)
}

// Stop disarms t; it does nothing if t is not armed. On the core.
func (c *Core) Stop(t *Timer) {
	c.assertOwner()
	c.timers.stop(t)
}

// Armed says whether t is going to fire. On the core.
func (t *Timer) Armed() bool { return t.index != 0 }

// timers is a heap, earliest first: O(log n) to arm and to stop, O(1)
// to ask for the next deadline, and no tick while nothing is due.
type timers []*Timer

// arm (re)arms t at when.
func (ts *timers) arm(t *Timer, when time.Duration) {
	if t.when = when; t.Armed() {
		heap.Fix(ts, t.index-1)
	} else {
		heap.Push(ts, t)
	}
}

// stop disarms t; it does nothing if t is not armed.
func (ts *timers) stop(t *Timer) {
	if t.Armed() {
		heap.Remove(ts, t.index-1)
	}
}

// next is the earliest deadline.
func (ts timers) next() (when time.Duration, ok bool) {
	if len(ts) == 0 {
		return 0, false
	}
	return ts[0].when, true
}

// expire fires at most max timers that are due; the rest waits for the next
// turn.
func (ts *timers) expire(c *Core, now time.Duration, max int) {
	for range max {
		if when, ok := ts.next(); !ok || when > now {
			return
		}
		t := (*ts)[0]
		ts.stop(t)
		t.Fire(c, now)
	}
}

// The rest is heap.Interface.

func (ts timers) Len() int           { return len(ts) }
func (ts timers) Less(i, j int) bool { return ts[i].when < ts[j].when }

func (ts timers) Swap(i, j int) {
	ts[i], ts[j] = ts[j], ts[i]
	ts[i].index, ts[j].index = i+1, j+1
}

func (ts *timers) Push(t any) {
	*ts = append(*ts, t.(*Timer))
	t.(*Timer).index = len(*ts)
}

func (ts *timers) Pop() any {
	last := len(*ts) - 1
	t := (*ts)[last]
	(*ts)[last], t.index = nil, 0
	*ts = (*ts)[:last]
	return t
}
