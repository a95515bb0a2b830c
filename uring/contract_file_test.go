package uring_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// overFiles runs f for each driver of the build, each way in which it does file I/O.
func overFiles(t *testing.T, f func(t *testing.T, cfg uring.Config, direct uring.DirectMode)) {
	for _, backend := range backends {
		cfg := uring.Config{Backend: backend}
		t.Run(string(backend)+"/buffered", func(t *testing.T) { f(t, cfg, uring.Buffered) })
		t.Run(string(backend)+"/direct", func(t *testing.T) { f(t, cfg, uring.TryDirect) })
		if backend != uring.Epoll { // limits of its tables
			few := uring.Tuned(cfg, uring.Tuning{Files: 1, RegisteredBytes: 20 << 12})
			t.Run(string(backend)+"/few", func(t *testing.T) { f(t, few, uring.TryDirect) })
			none := uring.Without(cfg, uring.FeatureFileTable, uring.FeatureRegisteredBuffers)
			t.Run(string(backend)+"/none", func(t *testing.T) { f(t, none, uring.TryDirect) })
		}
		if backend == uring.Epoll {
			cfg = uring.Tuned(cfg, uring.Tuning{FileWorkers: 3, Off: []string{uring.FeatureAIO}})
			t.Run(string(backend)+"/threads", func(t *testing.T) { f(t, cfg, uring.TryDirect) })
		}
	}
}

// Matrix: KV-11, ST-01
func TestFilesKeepTheContract(t *testing.T) {
	overFiles(t, func(t *testing.T, cfg uring.Config, direct uring.DirectMode) {
		before := drivertest.Descriptors(t)
		drivertest.Files(t, func(t *testing.T) *drivertest.Bed {
			return &drivertest.Bed{Driver: lockedRig(t, cfg).d, Disk: uring.Host(), Dir: t.TempDir(), Direct: direct}
		})
		if after := drivertest.Descriptors(t); after != before {
			t.Errorf("%d descriptors before, %d after", before, after)
		}
	})
}

// The kernel says what direct I/O wants; where a file system has none, one mode
// says so and another does without.
// Matrix: ST-02
func TestDirectModes(t *testing.T) {
	h := uring.Host()
	path := t.TempDir() + "/f"
	fd, err := h.Open(path, uring.FileOptions{Write: true, Create: true, Direct: uring.TryDirect})
	must(t, err)
	info, err := h.Stat(fd)
	if a := info.Alignment; err != nil || a.Offset&(a.Offset-1) != 0 || a.Memory&(a.Memory-1) != 0 {
		t.Errorf("%+v, %v", info, err)
	}
	if err := h.Close(fd); err != nil {
		t.Error(err)
	}
	const without = "/proc/self/status"
	if _, err := h.Open(without, uring.FileOptions{Direct: uring.Direct}); err == nil {
		t.Error("direct I/O on a file that has none")
	}
	fd, err = h.Open(without, uring.FileOptions{Direct: uring.TryDirect})
	must(t, err)
	if info, err := h.Stat(fd); err != nil || info.Alignment.Direct() {
		t.Errorf("%+v, %v", info, err)
	}
	if err := h.Close(fd); err != nil {
		t.Error(err)
	}
}

func TestTheHostsDirectories(t *testing.T) {
	h := uring.Host()
	dir := t.TempDir() + "/a/b"
	must(t, h.MakeDir(dir))
	must(t, h.MakeDir(dir)) // again
	if names, err := h.List(dir); err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
	must(t, h.SyncDir(dir))
	if err := h.SyncDir("/proc"); !errors.Is(err, unix.EINVAL) { // it has no fsync
		t.Errorf("sync of a directory that the kernel cannot sync: %v", err)
	}
}

// newFile is an empty file that the driver of r has.
func (r *rig) newFile(t *testing.T, direct uring.DirectMode) uring.File {
	t.Helper()
	fd, err := uring.Host().Open(t.TempDir()+"/f", uring.FileOptions{Write: true, Create: true, Direct: direct})
	must(t, err)
	f, err := r.d.AdoptFile(fd)
	must(t, err)
	return f
}

// Requests on files cost no allocation, whichever way they take.
func TestFileRequestsCostNoAllocation(t *testing.T) {
	overFiles(t, func(t *testing.T, cfg uring.Config, direct uring.DirectMode) {
		r := lockedRig(t, cfg)
		f := r.newFile(t, direct)
		mem, err := uring.Map(8192)
		must(t, err)
		defer mem.Unmap()
		_ = r.d.RegisterMemory(mem) // the same holds where it cannot
		defer r.d.UnregisterMemory(mem)
		v, w := r.vec(mem.Bytes()[:4096]), r.vec(mem.Bytes()[4096:])
		round := func() {
			_, errs := r.d.WriteFile(f, v, 0, 1, false)
			_, errr := r.d.ReadFile(f, w, 0, 2)
			_, errw := r.d.SyncFile(f, 3)
			if errs != nil || errr != nil || errw != nil {
				t.Fatal(errs, errr, errw)
			}
			for n := 0; n < 3; {
				got, err := r.d.Wait(patience)
				must(t, err)
				n += len(got)
			}
		}
		for range 10 { // lists grow to their size
			round()
		}
		if n := testing.AllocsPerRun(20, round); n >= 1 { // not the goroutines that wait for files now and then
			t.Errorf("%v allocations for three requests", n)
		}
	})
}

// A result is 31 bits: no request asks for more.
func TestATransferOfTwoGigabytesIsRefused(t *testing.T) {
	overFiles(t, func(t *testing.T, cfg uring.Config, direct uring.DirectMode) {
		r := lockedRig(t, cfg)
		f := r.newFile(t, direct)
		mem, err := uring.Map(1 << 30) // nobody touches it
		must(t, err)
		defer mem.Unmap()
		v := r.vec(mem.Bytes(), mem.Bytes())
		if _, err := r.d.WriteFile(f, v, 0, 1, false); !errors.Is(err, unix.EINVAL) {
			t.Errorf("written: %v", err)
		}
		if _, err := r.d.ReadFile(f, v, 0, 1); !errors.Is(err, unix.EINVAL) {
			t.Errorf("read: %v", err)
		}
		if n := r.d.Stats().InFlight; n != 0 {
			t.Errorf("%d operations in flight", n)
		}
	})
}
