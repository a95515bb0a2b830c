//go:build !epoll

package uring

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func newTestRing(t *testing.T, cfg Config) *ringDriver {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	d, err := openRing(cfg)
	var refused *SetupError
	if errors.As(err, &refused) {
		t.Skip(err)
	}
	must(t, err)
	r := d.(*ringDriver)
	t.Cleanup(func() { must(t, r.CloseDriver()) })
	return r
}

func TestKernelStructuresHaveTheirSizes(t *testing.T) {
	for name, pair := range map[string][2]uintptr{
		"sqe":                {unsafe.Sizeof(sqe{}), 64},
		"cqe":                {unsafe.Sizeof(cqe{}), 16},
		"ringParams":         {unsafe.Sizeof(ringParams{}), 120},
		"waitArg":            {unsafe.Sizeof(waitArg{}), 24},
		"resourceTable":      {unsafe.Sizeof(resourceTable{}), 32},
		"resourceUpdate":     {unsafe.Sizeof(resourceUpdate{}), 32},
		"slotUpdate":         {unsafe.Sizeof(slotUpdate{}), 16},
		"bufferRegistration": {unsafe.Sizeof(bufferRegistration{}), 40},
		"bufferEntry":        {unsafe.Sizeof(bufferEntry{}), 16},
		"msghdr":             {unsafe.Sizeof(msghdr{}), unsafe.Sizeof(unix.Msghdr{})},
		"iovec":              {unsafe.Sizeof(iovec{}), unsafe.Sizeof(unix.Iovec{})},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s has %d bytes, the kernel's has %d", name, pair[0], pair[1])
		}
	}
}

// A notification may come before the rest was sent.
// Matrix: IO-06
func TestZeroCopyEndsAfterItsLastNotification(t *testing.T) {
	d := newTestRing(t, Config{})
	v := listOf(t, make([]byte, 100))
	for copied, flags := range map[uint32]Flags{0: 0, notificationCopied: Copied} {
		op, _ := d.ops.add(KindSend, MakeSocket(0), 9, v)
		d.ops.get(op).bits |= opZero
		var out []Completion
		for _, one := range []struct {
			res   uint32
			flags uint32
		}{{40, cqeMore}, {0, cqeNotification}, {20, cqeMore}, {40, cqeMore}, {copied, cqeNotification}, {0, cqeNotification}} {
			if len(out) != 0 {
				t.Fatalf("ended with a notification to come: %+v", out)
			}
			d.answer(&out, uint64(op), int32(one.res), one.flags)
			if one.res == 20 && (len(d.again) != 2 || v.message() == 0 || v.first != 0 || v.iovs[0].len != 40) {
				t.Fatalf("after short sends %d to resend, first piece %+v", len(d.again), v.iovs[0])
			}
		}
		if len(out) != 1 || out[0].Res != 100 || out[0].Flags != flags || out[0].User != 9 {
			t.Fatalf("completions %+v", out)
		}
		if v.iovs[0].len != 100 {
			t.Error("the list was not restored")
		}
		d.again = d.again[:0]
	}
}

// A quiet send has succeeded when the kernel has taken it without an answer, and not before.
func TestAQuietSendIsNotSettledBeforeTheKernelHasIt(t *testing.T) {
	d := newTestRing(t, Config{})
	d.flush() // its own requests
	s := ownPair(t, d)
	_, _, err := d.Send(s, listOf(t, make([]byte, 100)), 9, SendQuiet)
	must(t, err)
	var out []Completion
	if d.settle(&out); len(out) != 0 {
		t.Fatalf("ended before: %+v", out)
	}
	d.flush()
	d.reap(&out)
	if d.settle(&out); len(out) != 1 || out[0].Res != 100 || len(d.quiet) > 0 {
		t.Errorf("completions %+v, %d more are due", out, len(d.quiet))
	}
}

// Answers that come while room is made for requests are of the next turn, which then does not sleep: completions, the rest of a
// send that the kernel cut short, the end of the poll of the wake-up, and the end of the ring.
func TestATurnDoesNotSleepOverAnswersThatCameBefore(t *testing.T) {
	d := newTestRing(t, Config{})
	const sleep = time.Minute
	begun := time.Now()
	d.early = append(d.early, Completion{User: 7})
	if d.turn(sleep); len(d.out) != 1 || len(d.early) != 0 {
		t.Errorf("%d completions, %d are left", len(d.out), len(d.early))
	}
	d.out = d.out[:0]
	s := ownPair(t, d)
	op, _ := d.ops.add(KindSend, s, 9, listOf(t, make([]byte, 100)))
	d.answer(&d.early, uint64(op), 40, 0)
	if out, err := d.Wait(sleep); err != nil || len(out) != 1 || out[0].Res != 100 {
		t.Errorf("the rest of a send: %+v, %v", out, err)
	}
	for d.queueCancel(ownWake); d.wakeArmed; d.reap(&d.early) {
		d.enter(0)
	}
	d.woken = false // by the Wait during which it came
	d.Wake()
	if out, err := d.Wait(sleep); err != nil || len(out) != 0 {
		t.Errorf("woken: %+v, %v", out, err)
	}
	d.fail(unix.EBADR)
	if out, err := d.Wait(sleep); !errors.Is(err, unix.EBADR) || len(out) != 0 {
		t.Errorf("broken: %+v, %v", out, err)
	}
	d.err = nil
	if took := time.Since(begun); took >= sleep {
		t.Errorf("it slept for %v", took)
	}
}

// ownPair is a socket of d with a peer.
func ownPair(t *testing.T, d *ringDriver) Socket {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(fds[1]) })
	s, err := d.Adopt(fds[0])
	must(t, err)
	return s
}

func TestAPlaceInTheFileTableIsUsedAgain(t *testing.T) {
	d := newTestRing(t, Tuned(Config{}, Tuning{Files: 1}))
	if f := featureSet(d.info.Features).at(featureFileTable); !f.Have {
		t.Skip("the ring has no table of files: " + f.Why)
	}
	for range 3 {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		must(t, err)
		s, err := d.Adopt(fd)
		must(t, err)
		if s.fixed != 1 {
			t.Fatal("a socket has no place in the table, and no other is there")
		}
		d.Close(s)
	}
}

// Of an incremental buffer, every slice must be back and the kernel done with it
// before it is given again.
func TestIncrementalBufferComesBackWhenAllSlicesDo(t *testing.T) {
	const n, size = 2, 64
	b := &bufferRing{state: make([]bufferState, n), size: size}
	must(t, b.mapMemory(n))
	defer b.free()
	b.give(0)
	b.give(1)
	more := uint32(cqeBuffer | cqeBufferMore)
	p, first := b.take(more, 10)
	b.release(first)
	if b.tail != 2 {
		t.Fatal("given while the kernel still fills it")
	}
	q, second := b.take(more, 20)
	if len(p) != 10 || len(q) != 20 || &p[9] != &b.data[9] || &q[0] != &b.data[10] || cap(p) != 10 {
		t.Fatal("slices are not where the kernel wrote")
	}
	_, last := b.take(cqeBuffer, 34) // no more: the kernel is done
	b.release(second)
	if b.tail != 2 {
		t.Fatal("given while a slice is out")
	}
	b.release(last)
	if b.tail != 3 || b.entries[0].tail != 3 || b.entries[0].id != 0 {
		t.Fatalf("tail %d, shared %d", b.tail, b.entries[0].tail)
	}
	b.take(more, 5)
	b.release(last) // of a former life
	if b.tail != 3 || b.state[0].out != 1 {
		t.Fatal("a release of a former life counted")
	}
	if b.take(1<<cqeBufferShift|cqeBuffer, 0); b.tail != 4 {
		t.Fatal("a buffer that the kernel gave up empty is lost")
	}
}

// forbid makes a system call fail with EPERM on the calling thread, for the rest of its life.
func forbid(call uint32) error {
	const (
		load, jumpEqual, ret = 0x20, 0x15, 0x06
		allow, deny          = 0x7fff0000, 0x00050000 | uint32(unix.EPERM)
	)
	program := [...]unix.SockFilter{
		{Code: load},
		{Code: jumpEqual, Jf: 1, K: call},
		{Code: ret, K: deny},
		{Code: ret, K: allow},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&filter)), 0, 0)
}

// Matrix: IO-13
func TestForbiddenRing(t *testing.T) {
	before, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	for _, call := range []uint32{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER} {
		onThread(func() {
			if err := forbid(call); err != nil {
				t.Errorf("install filter: %v", err)
				return
			}
			d, err := Open(Config{})
			if err != nil {
				t.Error(err)
				return
			}
			defer d.CloseDriver()
			if info := d.Info(); info.Backend != Epoll || !strings.Contains(info.Fallback, "seccomp") {
				t.Errorf("opened %+v, want epoll and the reason", info)
			}
			_, err = Open(Config{Backend: Flavour})
			var refused *SetupError
			if !errors.As(err, &refused) || !errors.Is(err, unix.EPERM) || !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("a ring demanded: %v", err)
			}
			e, err := Open(Config{Backend: Epoll})
			if err != nil {
				t.Errorf("epoll demanded: %v", err)
				return
			}
			must(t, e.CloseDriver())
		})
	}
	if after, err := os.ReadDir("/proc/self/fd"); err != nil || len(after) != len(before) {
		t.Errorf("%d descriptors, %d before, %v", len(after), len(before), err)
	}
}

// Matrix: IO-10
func TestWrongThreadIsAnError(t *testing.T) {
	d := newTestRing(t, Config{})
	onThread(func() {
		if _, err := d.Wait(0); err == nil || !strings.Contains(err.Error(), "another thread") {
			t.Errorf("Wait on another thread: %v", err)
		}
	})
	d.err = nil // the ring itself is not hurt
}

// lastErrno is above every errno that the kernel gives to programs.
const lastErrno = 134

// oneOperation is a driver without a ring, with one operation in flight, and its
// memory, which the caller frees.
func oneOperation(t *testing.T, kind Kind, bits opBits) (*ringDriver, Op, *Vec) {
	t.Helper()
	d := &ringDriver{}
	v := listOf(t, []byte("four"))
	op, _ := d.ops.add(kind, MakeSocket(7), 42, v)
	d.ops.get(op).bits |= bits
	return d, op, v
}

// Whatever errno the kernel answers to whatever request: the operation has exactly one
// final completion with that errno, or it is queued again because that helps. A sync is never
// repeated, as it may have told of an error; a file system that cannot move registered memory is
// asked again for the same without.
// Matrix: FT-27, IO-05, IO-06, IO-08, ST-05, ST-06
func TestEveryErrnoEndsARequestOrHasItQueuedAgain(t *testing.T) {
	for _, one := range []struct {
		kind    Kind
		bits    opBits
		repeats []unix.Errno // that have it queued again
		plainly []unix.Errno // that have it queued again as a plain request
	}{
		{KindAccept, 0, nil, nil}, {KindConnect, 0, nil, nil}, {KindReady, 0, nil, nil}, {KindReceive, 0, nil, nil}, {KindReceive, opCancel, nil, nil},
		{KindSend, 0, interrupts, nil}, {KindSend, opQuiet, interrupts, nil}, {KindSend, opCancel, interrupts, nil},
		{KindSend, opZero, interrupts, []unix.Errno{unix.EOPNOTSUPP, unix.ENOMEM, unix.ENOBUFS, unix.EFAULT}},
		{KindRead, 0, interrupts, nil}, {KindWrite, 0, interrupts, nil}, {KindAllocate, 0, interrupts, nil},
		{KindRead, opCancel, nil, nil}, {KindWrite, opCancel, nil, nil}, {KindAllocate, opCancel, nil, nil},
		{KindRead, opFixed, interrupts, []unix.Errno{unix.EFAULT, unix.EINVAL, unix.EOPNOTSUPP}},
		{KindSync, 0, nil, nil}, {KindSync, opCancel, nil, nil},
		{KindWrite, opThenSync, interrupts, nil}, {KindWrite, opThenSync | opSyncing, nil, nil},
	} {
		for errno := unix.Errno(1); errno < lastErrno; errno++ {
			d, op, v := oneOperation(t, one.kind, one.bits)
			plainly := slices.Contains(one.plainly, errno)
			again, want, same := plainly || slices.Contains(one.repeats, errno), errno, one.bits&^opQuiet
			if one.kind.isFile() && one.bits&opCancel != 0 && slices.Contains(interrupts, errno) {
				want = unix.ECANCELED
			}
			var out []Completion
			d.answer(&out, uint64(op), -int32(errno), 0)
			switch {
			case again && (len(out) != 0 || len(d.again) != 1 || d.ops.inFlight != 1):
				t.Errorf("kind %d, %b, %v: %+v, %d queued again", one.kind, one.bits, errno, out, len(d.again))
			case again && (d.ops.get(op).bits&(same|opPlain) == same) == plainly:
				t.Errorf("kind %d, %b, %v: it is the same request again: %v", one.kind, one.bits, errno, plainly)
			case again && one.bits&opCancel != 0:
				if d.requeue(&out); len(out) != 1 || out[0].Errno() != unix.ECANCELED {
					t.Errorf("kind %d, %v, cancelled: %+v", one.kind, errno, out)
				}
			case again && one.bits == opFixed && plainly:
				d.ops.get(op).bits &^= opFixed // as the next request has it
				if d.answer(&out, uint64(op), -int32(errno), 0); len(out) != 1 || out[0].Errno() != errno {
					t.Errorf("%v, plain: %+v", errno, out)
				}
			case !again && (len(out) != 1 || out[0].Errno() != want || out[0].User != 42 || out[0].Kind != one.kind || out[0].Flags != 0 || d.ops.inFlight != 0):
				t.Errorf("kind %d, %b, %v: %+v, %d in flight", one.kind, one.bits, errno, out, d.ops.inFlight)
			}
			if !again { // an answer that comes once more is nobody's
				if d.answer(&out, uint64(op), 0, 0); len(out) != 1 || d.stats.Stale != 1 {
					t.Errorf("kind %d, %v: answered twice", one.kind, errno)
				}
			}
			v.Free()
		}
	}
}

// interrupts are the errnos after which a request begins again as it was.
var interrupts = []unix.Errno{unix.EAGAIN, unix.EINTR}

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
