//go:build !epoll

package uring

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// lastErrno is above every errno that the kernel gives to programs.
const lastErrno = 134

// Whatever errno the kernel answers to whatever request: the operation has exactly one
// final completion with that errno, or it is queued again because that helps.
// Matrix: FT-27, IO-05, IO-06, IO-08
func TestEveryErrnoEndsARequestOrHasItQueuedAgain(t *testing.T) {
	kinds := map[string]Kind{"accept": KindAccept, "connect": KindConnect, "ready": KindReady, "receive": KindReceive, "send": KindSend}
	for name, kind := range kinds {
		for _, bits := range []opBits{0, opQuiet, opCancel} {
			if kind != KindSend && bits == opQuiet {
				continue
			}
			for errno := unix.Errno(1); errno < lastErrno; errno++ {
				d := &ringDriver{}
				v, err := NewVec(1)
				must(t, err)
				v.Append([]byte("four"))
				op, _ := d.ops.add(kind, MakeSocket(7), 42, v)
				d.ops.get(op).bits |= bits
				var out []Completion
				d.answer(&out, uint64(op), -int32(errno), 0)
				again := kind == KindSend && (errno == unix.EAGAIN || errno == unix.EINTR)
				switch {
				case again && (len(out) != 0 || len(d.again) != 1 || d.ops.inFlight != 1):
					t.Errorf("%s %b, %v: %+v, %d queued again", name, bits, errno, out, len(d.again))
				case again && bits&opCancel != 0:
					if d.requeue(&out); len(out) != 1 || out[0].Errno() != unix.ECANCELED {
						t.Errorf("%s, %v, cancelled: %+v", name, errno, out)
					}
				case !again && (len(out) != 1 || out[0].Errno() != errno || out[0].User != 42 || out[0].Kind != kind || out[0].Flags != 0 || d.ops.inFlight != 0):
					t.Errorf("%s %b, %v: %+v, %d in flight", name, bits, errno, out, d.ops.inFlight)
				}
				if !again { // an answer that comes once more is nobody's
					if d.answer(&out, uint64(op), 0, 0); len(out) != 1 || d.stats.Stale != 1 {
						t.Errorf("%s, %v: answered twice", name, errno)
					}
				}
				v.Free()
			}
		}
	}
}

// The first error that ends a ring is the one to tell; an overflow is counted.
func TestTheFirstErrnoThatEndsARingStays(t *testing.T) {
	for errno := unix.Errno(1); errno < lastErrno; errno++ {
		d := &ringDriver{}
		d.fail(errno)
		d.fail(unix.EIO)
		if !errors.Is(d.err, errno) {
			t.Errorf("%v: %v", errno, d.err)
		}
		if overflowed := d.stats.Overflows == 1; overflowed != (errno == unix.EBADR) {
			t.Errorf("%v: overflowed %v", errno, overflowed)
		}
	}
}
