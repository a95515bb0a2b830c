package uring_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
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
	must(t, h.Close(fd))
	const without = "/proc/self/status"
	if _, err := h.Open(without, uring.FileOptions{Direct: uring.Direct}); err == nil {
		t.Error("direct I/O on a file that has none")
	}
	fd, err = h.Open(without, uring.FileOptions{Direct: uring.TryDirect})
	must(t, err)
	if info, err := h.Stat(fd); err != nil || info.Alignment.Direct() {
		t.Errorf("%+v, %v", info, err)
	}
	must(t, h.Close(fd))
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

// newFile is a file that the driver of r has, which is made if it is not there.
func (r *rig) newFile(t *testing.T, path string, direct uring.DirectMode) uring.File {
	t.Helper()
	fd, err := uring.Host().Open(path, uring.FileOptions{Write: true, Create: true, Direct: direct})
	must(t, err)
	f, err := r.d.AdoptFile(fd)
	must(t, err)
	return f
}

// Requests on files cost no allocation, whichever way they take.
func TestFileRequestsCostNoAllocation(t *testing.T) {
	overFiles(t, func(t *testing.T, cfg uring.Config, direct uring.DirectMode) {
		r := lockedRig(t, cfg)
		f := r.newFile(t, t.TempDir()+"/f", direct)
		mem, err := uring.Map(8192)
		must(t, err)
		defer mem.Unmap()
		_ = r.d.RegisterMemory(mem) // the same holds where it cannot
		defer r.d.UnregisterMemory(mem)
		v, w := r.vec(mem.Bytes()[:4096]), r.vec(mem.Bytes()[4096:])
		round := func() {
			_, errs := r.d.AskFile(f, uring.FileRequest{Kind: uring.KindWrite, Vec: v, User: 1})
			_, errr := r.d.AskFile(f, uring.FileRequest{Kind: uring.KindRead, Vec: w, User: 2})
			_, errw := r.d.AskFile(f, uring.FileRequest{Kind: uring.KindSync, User: 3})
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

// A result is 31 bits: no request asks for more. Only kinds of files are taken.
func TestATransferOfTwoGigabytesAndARequestOfAnotherKindAreRefused(t *testing.T) {
	overFiles(t, func(t *testing.T, cfg uring.Config, direct uring.DirectMode) {
		r := lockedRig(t, cfg)
		f := r.newFile(t, t.TempDir()+"/f", direct)
		mem, err := uring.Map(1 << 30) // nobody touches it
		must(t, err)
		defer mem.Unmap()
		v := r.vec(mem.Bytes(), mem.Bytes())
		for _, kind := range []uring.Kind{uring.KindSend, uring.KindWrite, uring.KindRead} {
			if _, err := r.d.AskFile(f, uring.FileRequest{Kind: kind, Vec: v, User: 1}); !errors.Is(err, unix.EINVAL) {
				t.Errorf("a request of kind %v: %v", kind, err)
			}
		}
		socket, _ := r.plain()
		if _, _, err := r.d.Send(socket, v, 1, 0); !errors.Is(err, unix.EMSGSIZE) {
			t.Errorf("a send: %v", err)
		}
		r.d.Close(r.listener)
		r.until("the listener is still open", func() bool { return r.unended == 0 })
		if n := r.d.Stats().InFlight; n != 0 {
			t.Errorf("%d operations in flight", n)
		}
	})
}

// Mounts of these tests are those of one thread, which ends with its test: whatever
// becomes of the test, nothing stays mounted.

// mountHere mounts a file system for this goroutine alone.
func mountHere(t *testing.T, source, kind, options string) (dir string) {
	t.Helper()
	runtime.LockOSThread() // for ever
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Skipf("mounting needs root: %v", err)
	}
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	dir = t.TempDir()
	if err := unix.Mount(source, dir, kind, 0, options); err != nil {
		t.Skipf("mounting %s: %v", kind, err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// loopDevice makes a block device of size bytes of a file that takes no room yet. It ends
// with the last that has it open.
func loopDevice(t *testing.T, backing string, size int64) (path string) {
	t.Helper()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no loop devices: %v", err)
	}
	defer control.Close()
	file, err := os.OpenFile(backing, os.O_RDWR|os.O_CREATE, 0o600)
	must(t, err)
	defer file.Close()
	must(t, file.Truncate(size))
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			t.Skipf("no loop device is free: %v", err)
		}
		path = "/dev/loop" + strconv.Itoa(n)
		dev, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Skipf("no loop device: %v", err)
		}
		t.Cleanup(func() { _ = dev.Close() })
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &unix.LoopConfig{
			Fd: uint32(file.Fd()), Size: 4096, Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR},
		})
		if errors.Is(err, unix.EBUSY) {
			continue // somebody else has got it meanwhile
		}
		if err != nil {
			t.Skipf("no loop device: %v", err)
		}
		return path
	}
}

// Mounts without direct I/O, or without reads that do not wait, take the same calls.
// Matrix: ST-02
func TestFilesKeepTheContractOnMountsThatCanDoLess(t *testing.T) {
	for _, backend := range backends {
		for _, kind := range []string{"ramfs", "tmpfs"} {
			t.Run(string(backend)+"/"+kind, func(t *testing.T) {
				drivertest.Files(t, func(t *testing.T) *drivertest.Bed {
					dir := mountHere(t, "none", kind, "")
					r := newRig(t, uring.Config{Backend: backend})
					t.Cleanup(r.finish)
					for range 2 { // it leaves no file
						_, err := uring.Host().Open(dir+"/direct", uring.FileOptions{Write: true, Create: true, Exclusive: true, Direct: uring.Direct})
						if kind == "ramfs" && !errors.Is(err, errors.ErrUnsupported) {
							t.Fatalf("direct I/O on ramfs: %v", err)
						}
					}
					return &drivertest.Bed{Driver: r.d, Disk: uring.Host(), Dir: dir, Direct: uring.TryDirect}
				})
			})
		}
	}
}

// answerTo makes one request on a file, and returns its result.
func answerTo(t *testing.T, r *rig, f uring.File, ask uring.FileRequest) unix.Errno {
	t.Helper()
	_, err := r.d.AskFile(f, ask)
	must(t, err)
	for {
		got, err := r.d.Wait(patience)
		must(t, err)
		if len(got) == 1 {
			return got[0].Errno()
		}
		if len(got) > 1 {
			t.Fatalf("%d answers to one request", len(got))
		}
	}
}

// pieceOf is a list of one piece of memory that direct I/O can use, all of bytes b.
func pieceOf(t *testing.T, r *rig, n int, b byte) (*uring.Vec, []byte) {
	t.Helper()
	m, err := uring.Map(n)
	must(t, err)
	t.Cleanup(func() { _ = m.Unmap() })
	for i := range m.Bytes() {
		m.Bytes()[i] = b
	}
	return r.vec(m.Bytes()), m.Bytes()
}

// fillUp writes to a file of a small file system until it is full, and uses it on.
func fillUp(t *testing.T, r *rig, dir string, direct uring.DirectMode) {
	const piece = 256 << 10
	f := r.newFile(t, dir+"/f", direct)
	v, _ := pieceOf(t, r, piece, 7)
	back, got := pieceOf(t, r, piece, 0)
	at := int64(0)
	write := func(durable bool) unix.Errno {
		return answerTo(t, r, f, uring.FileRequest{Kind: uring.KindWrite, Vec: v, Off: at, Durable: durable})
	}
	errno := unix.Errno(0)
	for errno = write(false); errno == 0 && at < 1<<30; errno = write(false) {
		at += piece
	}
	if errno != unix.ENOSPC || at == 0 {
		t.Fatalf("%d bytes fit, then %v", at, errno)
	}
	if errno := write(true); errno != unix.ENOSPC {
		t.Errorf("a durable write: %v", errno)
	}
	errno = answerTo(t, r, f, uring.FileRequest{Kind: uring.KindAllocate, Off: at, Length: 64 << 20})
	if errno != unix.ENOSPC && errno != unix.EOPNOTSUPP {
		t.Errorf("reserved on a full disk: %v", errno)
	}
	if errno := answerTo(t, r, f, uring.FileRequest{Kind: uring.KindSync}); errno != 0 {
		t.Errorf("a sync on a full disk: %v", errno)
	}
	errno = answerTo(t, r, f, uring.FileRequest{Kind: uring.KindRead, Vec: back})
	if errno != 0 || got[0] != 7 || !bytes.Equal(got[1:], got[:piece-1]) {
		t.Errorf("a read on a full disk: %v, or other bytes", errno)
	}
	must(t, uring.Host().Truncate(f.FD(), 0))
	at = 0
	if errno := write(true); errno != 0 {
		t.Errorf("with room again: %v", errno)
	}
	r.d.CloseFile(f)
}

// Matrix: ST-03
func TestAFullFileSystemRefusesWritesAndNothingElse(t *testing.T) {
	overFiles(t, func(t *testing.T, cfg uring.Config, direct uring.DirectMode) {
		t.Run("tmpfs", func(t *testing.T) {
			dir := mountHere(t, "none", "tmpfs", "size=1100k")
			r := newRig(t, cfg)
			defer r.finish()
			fillUp(t, r, dir, direct)
		})
		t.Run("ext4 on a loop device", func(t *testing.T) {
			format, err := exec.LookPath("mkfs.ext4")
			if err != nil {
				t.Skipf("no file system to fill: %v", err)
			}
			dev := loopDevice(t, t.TempDir()+"/image", 8<<20)
			if said, err := exec.Command(format, "-q", "-b", "4096", dev).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, said)
			}
			dir := mountHere(t, dev, "ext4", "")
			r := newRig(t, cfg)
			defer r.finish()
			fillUp(t, r, dir, direct)
		})
	})
}

// A block device whose other end fails answers with errors: each to its request, and a
// sync tells of what the page cache has taken.
// Matrix: ST-04
func TestAFailingDeviceFailsWhatItCannotDo(t *testing.T) {
	overFiles(t, func(t *testing.T, cfg uring.Config, direct uring.DirectMode) {
		backing := mountHere(t, "none", "tmpfs", "size=1m") + "/image"
		dev := loopDevice(t, backing, 16<<20)
		r := newRig(t, cfg)
		defer r.finish()
		f := r.newFile(t, dev, direct)
		v, _ := pieceOf(t, r, 64<<10, 7)
		failed := unix.Errno(0)
		for at := int64(0); at < 4<<20; at += 64 << 10 {
			if errno := answerTo(t, r, f, uring.FileRequest{Kind: uring.KindWrite, Vec: v, Off: at}); errno != 0 {
				failed = errno
			}
		}
		if direct != uring.Buffered && failed != unix.EIO && failed != unix.ENOSPC || direct == uring.Buffered && failed != 0 {
			t.Errorf("writes: %v", failed)
		}
		errno := answerTo(t, r, f, uring.FileRequest{Kind: uring.KindSync})
		if lost := errno == unix.EIO || errno == unix.ENOSPC; lost != (direct == uring.Buffered) {
			t.Errorf("the sync: %v", errno)
		}
		if errno := answerTo(t, r, f, uring.FileRequest{Kind: uring.KindRead, Vec: v}); errno != 0 {
			t.Errorf("a read: %v", errno)
		}
		must(t, os.Truncate(backing, 0)) // the medium is gone
		w, _ := pieceOf(t, r, 64<<10, 7)
		if errno := answerTo(t, r, f, uring.FileRequest{Kind: uring.KindRead, Vec: w, Off: 12 << 20}); errno != unix.EIO {
			t.Errorf("a read of what is gone: %v", errno)
		}
		if errno := answerTo(t, r, f, uring.FileRequest{Kind: uring.KindWrite, Vec: v, Off: 16 << 20}); errno != unix.ENOSPC {
			t.Errorf("a write behind the end of the device: %v", errno)
		}
		r.d.CloseFile(f)
	})
}

// Matrix: KV-08
func TestADirectoryIsLockedByOneAtATime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "here")
	for range 2 {
		first, err := uring.LockDir(dir)
		must(t, err)
		if _, err := uring.LockDir(dir); !errors.Is(err, unix.EWOULDBLOCK) {
			t.Errorf("locked twice: %v", err)
		}
		child, err := unix.FcntlInt(first.(interface{ Fd() uintptr }).Fd(), unix.F_DUPFD_CLOEXEC, 0) // as it has between fork and exec
		must(t, err)
		defer unix.Close(child)
		must(t, first.Close())
	}
}
