package session

import "time"

// Backoff is the pause between failed attempts (msgr2.md 9.10): it doubles from
// Initial up to Max, and is Max at once after WAIT. There is no jitter.
type Backoff struct {
	Initial, Max time.Duration
	last         time.Duration // 0: no attempt has failed since the last success
}

// Next is the pause before the next attempt. waited: the peer sent WAIT.
func (b *Backoff) Next(waited bool) time.Duration {
	switch {
	case waited:
		b.last = b.Max
	case b.last == 0:
		b.last = min(b.Initial, b.Max)
	default:
		b.last = min(2*b.last, b.Max)
	}
	return b.last
}

// Reset begins anew: the session is ready, or an accepted socket takes over; of
// Lifecycle.Useless: it was of use.
func (b *Backoff) Reset() { b.last = 0 }
