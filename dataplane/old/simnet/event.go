package simnet

import "time"

// event is something at a time: the arrival of a segment, or a call. Events of
// one time happen in the order in which they were scheduled.
type event struct {
	at  time.Duration
	seq uint64
	run func() // nil: an arrival, or prevented

	from, to *end
	seg      []byte
	last     bool
}

// void says that the event was prevented.
func (e *event) void() bool { return e.run == nil && e.from == nil }

func (e *event) happen() {
	if e.from != nil {
		e.from.land(e.to, e.seg, e.last)
		return
	}
	run := e.run
	e.run = nil
	run()
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// agenda is a binary heap of events, the earliest first.
type agenda []*event

func (a *agenda) push(e *event) {
	h := append(*a, e)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].before(e) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
	*a = h
}

func (a *agenda) pop() *event {
	h := *a
	top, e := h[0], h[len(h)-1]
	h[len(h)-1] = nil
	h = h[:len(h)-1]
	*a = h
	if len(h) == 0 {
		return top
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if r := child + 1; r < len(h) && h[r].before(h[child]) {
			child = r
		}
		if e.before(h[child]) {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = e
	return top
}
