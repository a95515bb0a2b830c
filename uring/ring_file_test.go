//go:build !epoll

package uring

import (
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// The kernel has one thread for the writes to a file through the page cache. A durable one
// that is not alone does not hold it while it waits for the disk.
// Matrix: ST-14
func TestADurableWriteThatIsNotAloneIsAWriteAndASyncOfItsBytes(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	drv, err := Open(Config{})
	must(t, err)
	d := drv.(*ringDriver)
	defer func() {
		if err := d.CloseDriver(); err != nil {
			t.Error(err)
		}
	}()
	fd, err := Host().Open(filepath.Join(t.TempDir(), "f"), FileOptions{Write: true, Create: true})
	must(t, err)
	f, err := d.AdoptFile(fd)
	must(t, err)
	write := func(text string, off int64, user uint64) *operation {
		t.Helper()
		v, err := NewVec(1)
		must(t, err)
		t.Cleanup(v.Free)
		v.Append([]byte(text))
		op, err := d.WriteFile(f, v, off, user, true)
		must(t, err)
		return d.ops.get(op)
	}
	asks := func(o *operation) (e sqe) {
		d.fillFile(&e, o)
		return e
	}
	if e := asks(write("one", 0, 1)); e.opcode != opcodeWrite || e.opFlags != unix.RWF_DSYNC {
		t.Errorf("alone it is %d with %x, want a write (%d) with RWF_DSYNC", e.opcode, e.opFlags, opcodeWrite)
	}
	o := write("two..", 3, 2)
	if e := asks(o); e.opcode != opcodeWrite || e.opFlags != 0 || e.off != 3 {
		t.Errorf("beside another it is %d with %x at %d, want a write (%d) at 3", e.opcode, e.opFlags, e.off, opcodeWrite)
	}
	again := *o
	if _, more := again.progress(5); !more {
		t.Error("it ends with its write")
	}
	if e := asks(&again); e.opcode != opcodeFsync || e.opFlags != fsyncData || e.off != 3 || e.len != 5 {
		t.Errorf("then it is %d with %x of %d bytes at %d, want a data sync (%d) of 5 at 3", e.opcode, e.opFlags, e.len, e.off, opcodeFsync)
	}
	o.vec.rewind()
	write("", 8, 3)
	for want := map[uint64]int32{1: 3, 2: 5, 3: 0}; len(want) > 0; {
		got, err := d.Wait(-1)
		must(t, err)
		for _, c := range got {
			if res, ok := want[c.User]; !ok || c.Res != res {
				t.Errorf("request %d ends with %d, want %d", c.User, c.Res, res)
			}
			delete(want, c.User)
		}
	}
	var got [9]byte
	if n, err := unix.Pread(fd, got[:], 0); err != nil || string(got[:n]) != "onetwo.." {
		t.Errorf("the file has %q, %v", got[:n], err)
	}
}
