package resize

import "context"

// Exclusive lets one goroutine at a time change the cores of a messenger, or the listeners
// and sessions that depend on them. Its holder may do I/O, and give it to another goroutine.
// Any goroutine may use it.
type Exclusive struct {
	held chan struct{} // capacity 1
	over context.Context
}

// newExclusive makes one for a messenger that lives as long as over.
func newExclusive(over context.Context) Exclusive {
	return Exclusive{held: make(chan struct{}, 1), over: over}
}

// Lock waits for its turn, but not beyond ctx, nor beyond the messenger's end; the
// error is the cause.
func (e Exclusive) Lock(ctx context.Context) (unlock func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case e.held <- struct{}{}:
		return func() { <-e.held }, nil
	case <-e.over.Done():
		return nil, context.Cause(e.over)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
