package loop

import (
	"sync/atomic"
	"time"
)

// Throttles are the receive budget of one connection: bounds that it shares
// with others, and a share of its own. Nil throttles do not bound.
type Throttles struct {
	Frames *Throttle // number of frames
	Bytes  *Throttle // payload bytes
	Shared *Throttle // payload bytes, MinShared at least for each frame; each connection has a Share of it
	// Share is the part of Shared that this connection may hold even if Shared is full,
	// in bytes, less than 2 GiB; 0: none. The shares of all connections together hold at
	// most Throttle.Reserve.
	Share int64

	held   atomic.Int64           // of Shared, by this connection
	paused atomic.Pointer[waiter] // the socket that waits, to be woken when its share is free
	since  atomic.Int64           // when that began to wait, on the clock of the cores
}

// Stopped says whether a socket does not read because of one of the throttles, and since
// when, on the clock of the cores (Config.Now). Any goroutine.
func (t *Throttles) Stopped() (since time.Duration, yes bool) {
	return time.Duration(t.since.Load()), t.paused.Load() != nil
}

// MinShared is the least that a frame takes of Throttles.Shared, in bytes. It stands
// for the bookkeeping, so that frames without payload are bounded, too.
const MinShared = 256

func sharedUnits(bytes int64) int64 { return max(bytes, MinShared) }

// Held is the number of bytes of Shared that the connection holds. Any goroutine.
func (t *Throttles) Held() int64 { return t.held.Load() }

// empty reports that there is no bound.
func (t *Throttles) empty() bool {
	return t == nil || t.Frames == nil && t.Bytes == nil && t.Shared == nil
}

// Charge is the part of a receive budget that one received frame holds. Owner: the
// core while the frame is received. After Feed only held changes.
//
// Far from the limits a complete frame is counted after Feed, and only if it is kept
// and in no sending queue (Keep). Most frames are released by then, and have cost the
// cores no shared counter.
type Charge struct {
	from  *Throttles
	bytes int64
	own   int32 // of the reserve of from.Shared, as the share of the connection
	held  int32 // a held constant; atomic from the end of Feed on
}

// The part of a charge that is counted in from.
const (
	heldNothing    int32 = iota
	heldUnfinished       // the bytes of an unfinished frame that have come, own included
	heldWithOwn          // all of it, own included
	heldPlainly          // all of it again, and nothing of the reserve
)

// Bounded says that the frame counts against a receive budget.
func (c *Charge) Bounded() bool { return c.from != nil }

// Unfinished says that the frame counts as unfinished.
func (c *Charge) Unfinished() bool { return c.held == heldUnfinished }

// Acquire takes the units of a complete frame of s. Without room it takes none and
// returns the throttle that is full, for Socket.Pause. The order is frames, bytes,
// shared.
func (t *Throttles) Acquire(s *Socket, bytes int64) (Charge, *Throttle) {
	if t.empty() {
		return Charge{}, nil
	}
	if t.ample(bytes) {
		return Charge{from: t, bytes: bytes}, nil
	}
	first := s.retrying
	if !t.Frames.acquire(1, first) {
		return Charge{}, t.Frames
	}
	if !t.Bytes.acquire(bytes, first) {
		t.Frames.release(1)
		return Charge{}, t.Bytes
	}
	own, ok := t.acquireShared(s, sharedUnits(bytes))
	if !ok {
		t.Bytes.release(bytes)
		t.Frames.release(1)
		return Charge{}, t.Shared
	}
	return Charge{from: t, bytes: bytes, own: int32(own), held: heldWithOwn}, nil
}

// ample reports that one frame of this size on each core at once is within all limits.
func (t *Throttles) ample(bytes int64) bool {
	return t.Frames.ample(1) && t.Bytes.ample(bytes) && t.Shared.ample(sharedUnits(bytes))
}

// acquireShared takes n units of Shared for s; own of them come from the reserve. Only the
// core of the connection takes units, so no other goroutine raises held.
func (t *Throttles) acquireShared(s *Socket, n int64) (own int64, ok bool) {
	if t.Shared == nil {
		return 0, true
	}
	if s.refused = 0; !t.Shared.acquire(n, s.retrying) {
		if had := t.held.Load(); had+n > t.Share || !t.Shared.takeReserve(n) {
			s.refused = had
			return 0, false
		}
		own = n
	}
	t.held.Add(n)
	return own, true
}

// Units is the number of units of full that one frame of this size takes.
func (t *Throttles) Units(full *Throttle, bytes int64) int64 {
	switch full {
	case t.Frames:
		return 1
	case t.Shared:
		return sharedUnits(bytes)
	default:
		return bytes
	}
}

// Begin takes the unit of an unfinished frame of s. Without room it takes none and
// returns the throttle that is full. Charge.Reserve takes the bytes.
func (t *Throttles) Begin(s *Socket) (Charge, *Throttle) {
	if t.empty() {
		return Charge{}, nil
	}
	if !t.Frames.acquire(1, s.retrying) {
		return Charge{}, t.Frames
	}
	return Charge{from: t, held: heldUnfinished}, nil
}

// Reserve takes units for up to want bytes of the unfinished frame; with none
// it returns the throttle that is full.
func (c *Charge) Reserve(s *Socket, want int64) (int64, *Throttle) {
	t, w, got := c.from, &s.waiter, want
	if got = t.Bytes.reserve(got, w); got == 0 {
		return 0, t.Bytes
	}
	if t.Shared != nil {
		had, n := t.held.Load(), t.Shared.reserve(got, w)
		if left := min(t.Share-had, got); n == 0 && left > 0 && t.Shared.takeReserve(left) {
			n = left
			c.own += int32(n)
			t.Shared.unfinished.Add(n)
		}
		t.held.Add(n)
		t.Bytes.complete(got - n)
		t.Bytes.release(got - n)
		if s.refused, got = 0, n; n == 0 {
			s.refused = had
			return 0, t.Shared
		}
	}
	c.bytes += got
	return got, nil
}

// Unreserve gives back the units of n bytes that did not come.
func (c *Charge) Unreserve(n int64) {
	t := c.from
	if t == nil || n == 0 {
		return
	}
	c.bytes -= n
	t.Shared.complete(n)
	c.giveBack(n)
	t.Bytes.complete(n)
	t.Bytes.release(n)
}

// Complete says that the frame is complete. From here on only its payload counts, in
// bytes, not the headers around it.
func (c *Charge) Complete(s *Socket, payload int64) {
	t, w, had := c.from, &s.waiter, c.bytes
	if t == nil || !c.Unfinished() {
		return
	}
	c.held, c.bytes = heldWithOwn, payload
	t.Bytes.complete(had)
	t.Bytes.release(had - payload)
	t.Bytes.finished(w)
	t.Shared.complete(had)
	c.giveBack(had - sharedUnits(payload))
	t.Shared.finished(w)
}

// giveBack returns n units of Shared, those of the reserve first.
// Negative units are taken, over the limit if need be.
func (c *Charge) giveBack(n int64) {
	t := c.from
	if t.Shared == nil {
		return
	}
	if own := min(int64(c.own), n); own > 0 {
		c.own -= int32(own)
		t.Shared.reserved.Add(-own)
	}
	t.held.Add(-n)
	t.Shared.release(n)
}

// Overdrawn returns a throttle whose limit other frames exceed, nil if there is none.
// A frame that is about to grow (Raise) waits for it, so that one frame of each core
// exceeds the limit, and not one of each connection.
func (c *Charge) Overdrawn(s *Socket) *Throttle {
	t := c.from
	if t == nil || c.held == heldNothing {
		return nil
	}
	if t.Bytes.overdrawn(c.bytes, &s.waiter) {
		return t.Bytes
	}
	mine := c.bytes
	if !c.Unfinished() {
		mine = sharedUnits(mine)
	}
	if t.Shared.overdrawn(mine, &s.waiter) {
		return t.Shared
	}
	return nil
}

// Yield has another unfinished frame go on beyond the limits in place of the
// one of s.
func (c *Charge) Yield(s *Socket) {
	t, w := c.from, &s.waiter
	if t == nil || !c.Unfinished() {
		return
	}
	t.Bytes.finished(w)
	t.Shared.finished(w)
}

// Contended says that other connections wait for the units that the frame holds.
func (c *Charge) Contended() bool {
	t := c.from
	return t != nil && c.bytes > 0 && (t.Bytes.Waiting() > 0 || t.Shared.Waiting() > 0)
}

// Raise makes the charge as large as bytes, over the limits if need be: the frame is
// in memory already, and the next frames wait for its release.
func (c *Charge) Raise(bytes int64) {
	t, before := c.from, c.bytes
	if t == nil || bytes <= before {
		return
	}
	c.bytes = bytes
	if c.held == heldNothing {
		return // it is counted by Keep
	}
	c.giveBack(sharedUnits(before) - sharedUnits(bytes))
	t.Bytes.force(bytes - before)
}

// Abandon gives back the units of an unfinished frame of s; s is nil if the socket is
// between two cores.
func (c *Charge) Abandon(s *Socket) {
	t, w := c.from, s.place()
	if t == nil || !c.Unfinished() {
		c.Release()
		return
	}
	c.held = heldNothing
	t.Shared.complete(c.bytes)
	c.giveBack(c.bytes)
	t.Shared.finished(w)
	t.Bytes.complete(c.bytes)
	t.Bytes.release(c.bytes)
	t.Bytes.finished(w)
	t.Frames.release(1)
}

// Release gives the units back, once. Any goroutine that has a reference to the frame.
func (c *Charge) Release() {
	t := c.from
	// Most charges were given back before, to a sending queue: a load is cheaper.
	if t == nil || atomic.LoadInt32(&c.held) == heldNothing {
		return
	}
	had := atomic.SwapInt32(&c.held, heldNothing)
	if had == heldNothing {
		return
	}
	if t.Shared != nil {
		if had == heldWithOwn { // own does not change: another goroutine may charge the frame again
			t.Shared.reserved.Add(-int64(c.own))
		}
		n := sharedUnits(c.bytes)
		t.held.Add(-n)
		t.Shared.release(n)
	}
	t.Bytes.release(c.bytes)
	t.Frames.release(1)
	if w := t.paused.Load(); w != nil {
		w.wake()
	}
}

// Reacquire counts a charge that was given back, or not counted yet, over the limits
// if need be. Any goroutine that has a reference to the frame.
func (c *Charge) Reacquire() {
	t := c.from
	if t == nil || !atomic.CompareAndSwapInt32(&c.held, heldNothing, heldPlainly) {
		return
	}
	t.Frames.force(1)
	t.Bytes.force(c.bytes)
	if n := sharedUnits(c.bytes); t.Shared != nil {
		t.held.Add(n)
		t.Shared.force(n)
	}
}
