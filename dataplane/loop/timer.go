package loop

import "time"

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

// timers is a binary heap, earliest first: O(log n) to arm and to stop, O(1)
// to ask for the next deadline, and no tick while nothing is due.
type timers struct{ heap []*Timer }

// arm (re)arms t at when.
func (ts *timers) arm(t *Timer, when time.Duration) {
	if t.index == 0 {
		ts.heap = append(ts.heap, t)
		t.index = len(ts.heap)
		t.when = when
		ts.up(t.index - 1)
		return
	}
	old := t.when
	t.when = when
	if when < old {
		ts.up(t.index - 1)
	} else {
		ts.down(t.index - 1)
	}
}

// stop disarms t; it does nothing if t is not armed.
func (ts *timers) stop(t *Timer) {
	i := t.index - 1
	if i < 0 {
		return
	}
	last := len(ts.heap) - 1
	ts.swap(i, last)
	ts.heap[last] = nil
	ts.heap = ts.heap[:last]
	t.index = 0
	if i < last {
		ts.down(i)
		ts.up(i)
	}
}

// next is the earliest deadline.
func (ts *timers) next() (when time.Duration, ok bool) {
	if len(ts.heap) == 0 {
		return 0, false
	}
	return ts.heap[0].when, true
}

// expire fires at most max timers that are due; the rest waits for the next
// turn.
func (ts *timers) expire(c *Core, now time.Duration, max int) {
	for range max {
		if len(ts.heap) == 0 || ts.heap[0].when > now {
			return
		}
		t := ts.heap[0]
		ts.stop(t)
		t.Fire(c, now)
	}
}

func (ts *timers) swap(i, j int) {
	h := ts.heap
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

func (ts *timers) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if ts.heap[parent].when <= ts.heap[i].when {
			return
		}
		ts.swap(i, parent)
		i = parent
	}
}

func (ts *timers) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(ts.heap) {
			return
		}
		if r := child + 1; r < len(ts.heap) && ts.heap[r].when < ts.heap[child].when {
			child = r
		}
		if ts.heap[i].when <= ts.heap[child].when {
			return
		}
		ts.swap(i, child)
		i = child
	}
}
