package pair

import (
	"slices"
	"testing"
)

// Matrix: KV-12
func TestALedgerNoticesWhatMustNotBeThere(t *testing.T) {
	var l ledger
	found := func(version uint64, want bool) {
		t.Helper()
		if err := l.Found("k", version); (err == nil) != want {
			t.Errorf("version %d: %v", version, err)
		}
	}
	found(0, true)
	l.Acknowledged("k", 1)
	found(1, true)
	l.Refused("k", 2)
	found(1, true)
	found(2, false) // not before the next process
	l.Acknowledged("k", 3)
	l.Refused("k", 4)
	l.Refused("k", 5)
	l.Restarted()
	found(4, true)
	found(5, false) // that is decided
	l.Acknowledged("k", 6)
	l.Refused("k", 7)
	l.Acknowledged("k", 8)
	l.Restarted()
	found(7, false) // what came later was acknowledged
	l.Acknowledged("k", 9)
	found(0, false) // it is lost
	l.Acknowledged("k", 0)
	l.Acknowledged("b", 1)
	l.Acknowledged("a", 1)
	if keys := l.Present(); !slices.Equal(keys, []string{"a", "b"}) {
		t.Errorf("there is %q", keys)
	}
}
