//go:build !epoll

package uring

import (
	"errors"
	"runtime"
	"strings"
	"testing"
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
	t.Cleanup(func() {
		if err := r.CloseDriver(); err != nil {
			t.Error(err)
		}
	})
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
	b.release(last) // of a former life
	if b.tail != 3 || b.state[0].out != 0 {
		t.Fatal("a release of a former life counted")
	}
}

// forbidRings makes io_uring_setup fail with EPERM on the calling thread, for
// the rest of its life.
func forbidRings() error {
	const (
		load, jumpEqual, ret = 0x20, 0x15, 0x06
		allow, deny          = 0x7fff0000, 0x00050000 | uint32(unix.EPERM)
	)
	program := [...]unix.SockFilter{
		{Code: load},
		{Code: jumpEqual, Jf: 1, K: unix.SYS_IO_URING_SETUP},
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
	onThread(func() {
		if err := forbidRings(); err != nil {
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
		if _, err := Open(Config{Backend: Epoll}); err != nil {
			t.Errorf("epoll demanded: %v", err)
		}
	})
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
