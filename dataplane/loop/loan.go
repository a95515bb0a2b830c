package loop

// Loan returns something to its core that framers have lent to other
// goroutines, such as a received frame with its buffer. It is embedded in
// that, so that giving back does not allocate.
type Loan struct {
	Of   Returner // what is lent
	next *Loan
}

// Returner is told on the core that it is back. When the core is gone it is told
// on another goroutine, one at a time: TakeBack and Local.Of can be used all the
// same.
type Returner interface{ Returned(c *Core) }

// Return gives l back: the core picks it up in its next turn. Any goroutine.
func (c *Core) Return(l *Loan) {
	if c.closed.Load() {
		c.afterEnd.Lock()
		defer c.afterEnd.Unlock()
		l.Of.Returned(c)
		c.drainPool()
		return
	}
	for {
		old := c.returns.Load()
		l.next = old
		if c.returns.CompareAndSwap(old, l) {
			break
		}
	}
	if c.closed.Load() { // in the meantime
		c.afterEnd.Lock()
		defer c.afterEnd.Unlock()
		c.takeReturned()
		c.drainPool()
	}
}

func (c *Core) takeReturned() {
	if c.returns.Load() == nil {
		return
	}
	for l := c.returns.Swap(nil); l != nil; {
		next := l.next
		l.next = nil
		l.Of.Returned(c)
		l = next
	}
}

// Local is a value of type T on each core, for what the framers of one protocol
// share there: free lists, scratch memory. It is declared once, as a variable of
// the protocol's package, and holds nothing itself.
type Local[T any] struct{ key byte } // its address is what names it

// local is the *T of one Local[T].
type local struct {
	key   *byte
	value any
}

// Of is the core's value, made as the zero T when it is first asked for. On the
// core.
func (l *Local[T]) Of(c *Core) *T {
	c.assertOwner()
	for i := range c.locals {
		if c.locals[i].key == &l.key {
			return c.locals[i].value.(*T)
		}
	}
	v := new(T)
	c.locals = append(c.locals, local{&l.key, v})
	return v
}
