package machine

// Line is operations in their order, linked through themselves: each is in one Line at a time. The zero Line
// is empty.
type Line struct{ first, last *Op }

// First is the first operation; nil: there is none.
func (l *Line) First() *Op { return l.first }

// Next is the operation behind o in its Line; nil: there is none.
func (o *Op) Next() *Op { return o.next }

// Push puts an operation that is in no Line behind all others.
func (l *Line) Push(o *Op) { l.Join(&Line{o, o}) }

// Join puts another Line behind this one, and empties it.
func (l *Line) Join(other *Line) {
	switch {
	case other.first == nil:
		return
	case l.last != nil:
		l.last.next, other.first.prev = other.first, l.last
	default:
		l.first = other.first
	}
	l.last = other.last
	*other = Line{}
}

// Remove takes an operation out.
func (l *Line) Remove(o *Op) {
	if o.prev != nil {
		o.prev.next = o.next
	} else {
		l.first = o.next
	}
	if o.next != nil {
		o.next.prev = o.prev
	} else {
		l.last = o.prev
	}
	o.prev, o.next = nil, nil
}
