//go:build !epoll && !giouring

package uring

import "testing"

// The indices of both queues count requests and answers for ever, in 32
// bits. Here they are about to begin anew, and the test is the kernel.
// Matrix: IO-22
func TestRingIndicesWrap(t *testing.T) {
	const entries, completions, start = 4, 8, ^uint32(0) - 5
	sqHead, sqTail, sqFlags, cqHead, cqTail := uint32(start), uint32(start), uint32(0), uint32(start), uint32(start)
	r := &ring{
		sqHead: &sqHead, sqTail: &sqTail, sqFlags: &sqFlags, sqes: make([]sqe, entries), tail: start, shown: start,
		cqHead: &cqHead, cqTail: &cqTail, cqes: make([]cqe, completions), head: start, seen: start,
	}
	for asked, answered := uint64(0), uint64(0); answered < 40; {
		for {
			e, at := r.next()
			if e == nil {
				break
			}
			if at >= entries {
				t.Fatalf("place %d", at)
			}
			e.user = asked
			asked++
		}
		if n := r.unsubmitted(); n != entries {
			t.Fatalf("%d requests wait in a full queue of %d", n, entries)
		}
		if n := r.show(); n != entries || sqTail-sqHead != entries {
			t.Fatalf("%d requests shown", n)
		}
		for ; sqHead != sqTail; sqHead++ { // the kernel takes them, and answers
			r.cqes[cqTail%completions] = cqe{user: r.sqes[sqHead%entries].user}
			cqTail++
		}
		for c := r.peek(); c != nil; c = r.peek() {
			if c.user != answered {
				t.Fatalf("answer %d where %d was due", c.user, answered)
			}
			answered++
			r.skip()
		}
		if r.commit(); cqHead != cqTail || answered != asked {
			t.Fatalf("%d answers of %d, the kernel sees %d of %d", answered, asked, cqHead-start, cqTail-start)
		}
	}
	if sqTail > start || cqTail > start {
		t.Error("the indices did not wrap")
	}
}
