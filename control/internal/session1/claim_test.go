package session1

import "testing"

// What the peer may have on record: all since the number that messages have confirmed, the
// first and the last ones if there are too many.
func TestTheNumbersOfRepliesAreKnownUntilMessagesHaveConfirmedOne(t *testing.T) {
	var k told
	known := func(want ...uint64) {
		t.Helper()
		for n := uint64(0); n < 30; n++ {
			is := false
			for _, w := range want {
				is = is || w == n
			}
			if k.knows(n) != is {
				t.Errorf("%d is known: %v, want %v", n, !is, want)
			}
		}
	}
	known()
	k.confirm()
	k.add(3)
	k.open()
	k.add(5)
	k.open()
	k.add(7) // its socket broke off
	known(3, 5, 7)
	k.confirm()
	known(5, 7)
	for n := uint64(11); n < 21; n++ {
		k.add(n)
	}
	known(5, 14, 15, 16, 17, 18, 19, 20)
	k.open()
	k.confirm()
	known(20)
	if k.last() != 20 {
		t.Errorf("last %d", k.last())
	}
}
