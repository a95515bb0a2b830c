package uring

import (
	"testing"

	"golang.org/x/sys/unix"
)

// asked is an operation on a file as it is in the table.
func asked(t *testing.T, kind Kind, size int, bits opBits, grain int) *operation {
	t.Helper()
	o := &operation{kind: kind, bits: bits, vec: listOf(t, make([]byte, size))}
	o.file = fileRequest{off: 4096, grain: int32(grain)}
	return o
}

// What the kernel moves in part is gone on with behind that part, until the file ends
// or nothing is left.
// Matrix: ST-05
func TestAShortTransferGoesOn(t *testing.T) {
	const all = 8192
	for _, c := range []struct {
		name    string
		kind    Kind
		bits    opBits
		grain   int
		answers []int64
		final   int32
	}{
		{"in one piece", KindRead, 0, 0, []int64{all}, all},
		{"in three", KindRead, 0, 0, []int64{4096, 100, 3996}, all},
		{"to the end of the file", KindRead, 0, 0, []int64{100, 0}, 100},
		{"from behind it", KindRead, 0, 512, []int64{0}, 0},
		{"direct, to an end that is none of a block", KindRead, 0, 512, []int64{100}, 100},
		{"direct, to an end that is one of a block", KindRead, 0, 512, []int64{512, 0}, 512},
		{"a write in two", KindWrite, 0, 512, []int64{4096, 4096}, all},
		{"a write that finds no room for the rest", KindWrite, 0, 0, []int64{4096, -int64(unix.ENOSPC)}, -int32(unix.ENOSPC)},
		{"a write that moves nothing", KindWrite, 0, 0, []int64{0}, -int32(unix.EIO)},
		{"a write and its sync", KindWrite, opThenSync, 0, []int64{100, all - 100, 0}, all},
		{"a sync that fails behind its write", KindWrite, opThenSync, 0, []int64{all, -int64(unix.EIO)}, -int32(unix.EIO)},
		{"a sync that is interrupted", KindWrite, opThenSync, 0, []int64{all, -int64(unix.EINTR)}, -int32(unix.EINTR)},
		{"interrupted, then whole", KindRead, 0, 0, []int64{-int64(unix.EINTR), all}, all},
		{"cancelled in the middle", KindRead, opCancel, 0, []int64{100}, -int32(unix.ECANCELED)},
		{"cancelled, but whole", KindRead, opCancel, 0, []int64{all}, all},
		{"cancelled before its sync", KindWrite, opThenSync | opCancel, 0, []int64{all}, -int32(unix.ECANCELED)},
	} {
		o := asked(t, c.kind, all, c.bits, c.grain)
		for i, res := range c.answers {
			final, again := o.progress(res)
			if last := i == len(c.answers)-1; again == last || last && final != c.final {
				t.Errorf("%s: answer %d: %d, again %v", c.name, i, final, again)
			}
			if left := o.vec.left(); again && o.step() == stepTransfer && (len(left) != 1 || int(left[0].len) != all-o.sent) {
				t.Errorf("%s: answer %d: %d bytes left of %d", c.name, i, left, all-o.sent)
			}
		}
	}
}
