// Package invariants holds the checks of builds with the tag "invariants",
// which the race detector switches on by itself. With Enabled false every
// call compiles to nothing.
package invariants

// PoisonByte fills memory that its owner gave back.
const PoisonByte = 0xdb

// Poison overwrites p, so that a use after release fails loudly. It copies: the race
// detector looks at a range at once, and at each assignment of a loop.
func Poison(p []byte) {
	if !Enabled || len(p) == 0 {
		return
	}
	p[0] = PoisonByte
	for n := 1; n < len(p); n *= 2 {
		copy(p[n:], p[:n])
	}
}

// Check panics with msg if ok is false: our own code broke its contract.
func Check(ok bool, msg string) {
	if Enabled && !ok {
		panic("ringmsgr: broken invariant: " + msg)
	}
}
