package uring

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A thread that has begun knows a file by its number, which nobody else may get meanwhile;
// and what it was interrupted in was cancelled.
func TestAFileKeepsItsNumberWhileAThreadHasIt(t *testing.T) {
	drv, err := openEpoll(Config{}, "")
	if err != nil {
		t.Fatal(err)
	}
	d := drv.(*epollDriver)
	d.disk.pool.limit = 0 // this test is the thread
	fd, err := Host{}.Open(t.TempDir()+"/f", FileOptions{Write: true, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	f, err := d.AdoptFile(fd)
	if err != nil {
		t.Fatal(err)
	}
	begun, err := d.SyncFile(f, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = d.SyncFile(f, 2, 0); err != nil {
		t.Fatal(err)
	}
	j := d.ops.get(begun).file.job
	j.state.Store(jobBegun)
	d.CloseFile(f)
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
		t.Errorf("the number is free already: %v", err)
	}
	expect := func(user uint64) {
		t.Helper()
		got, err := d.Wait(0)
		if err != nil || len(got) != 1 || got[0].User != user || got[0].Errno() != unix.ECANCELED {
			t.Errorf("%+v, %v; want that %d was cancelled", got, err, user)
		}
	}
	expect(2)
	d.disk.pool.line, d.disk.pool.last = nil, nil
	d.disk.pool.out = 1
	j.res, j.next, d.disk.pool.done = -int64(unix.EINTR), nil, j
	d.disk.ended.wake()
	expect(1)
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
		t.Error("the file is still open")
	}
	if err := d.CloseDriver(); err != nil {
		t.Error(err)
	}
}
