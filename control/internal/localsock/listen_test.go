package localsock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control/internal/handover"
	"github.com/ringmsgr/ringmsgr/control/internal/localsock"
	"github.com/ringmsgr/ringmsgr/control/internal/statsock"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

var must = drivertest.Must

// Whoever comes keeps the path, whenever the one before it goes.
func TestPrivateSocketStaysWhileAnotherGoes(t *testing.T) {
	drivertest.LeavesNothing(t)
	path := filepath.Join(t.TempDir(), "socket")
	last, err := localsock.Listen(path)
	must(t, err)
	for range 500 {
		gone := make(chan error)
		go func(l net.Listener) { gone <- l.Close() }(last)
		next, err := localsock.Listen(path)
		must(t, errors.Join(err, <-gone))
		c, err := net.Dial("unix", path)
		must(t, err)
		_ = c.Close()
		last = next
	}
	must(t, last.Close())
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// A process may lose the way to its path, for example with its privileges. It stops listening all the same.
func TestPrivateSocketThatCannotBeRemovedIsClosed(t *testing.T) {
	drivertest.LeavesNothing(t)
	dir := filepath.Join(t.TempDir(), "dir")
	must(t, os.Mkdir(dir, 0o700))
	l, err := localsock.Listen(filepath.Join(dir, "socket"))
	must(t, err)
	must(t, os.RemoveAll(dir))
	must(t, os.WriteFile(dir, nil, 0o600))
	ended := make(chan error, 1)
	go func() { _, err := l.Accept(); ended <- err }()
	if err := l.Close(); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("close: %v", err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it listens still")
	}
}

// Not for a moment, whatever the umask.
func TestPrivateSocketIsBoundPrivate(t *testing.T) {
	before := unix.Umask(0)
	defer unix.Umask(before)
	path := filepath.Join(t.TempDir(), "socket")
	l, err := localsock.BindPrivate(path)
	must(t, err)
	defer l.Close()
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("bound: %v, %v", st.Mode(), err)
	}
}

func TestPrivateSocketTakesThePlaceOfAnother(t *testing.T) {
	drivertest.LeavesNothing(t)
	path := filepath.Join(t.TempDir(), "socket")
	first, err := localsock.Listen(path)
	must(t, err)
	second, err := localsock.Listen(path)
	must(t, err)
	must(t, first.Close())
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("behind the end of the first: %v, %v", st, err)
	}
	c, err := net.Dial("unix", path)
	must(t, err)
	_ = c.Close()
	must(t, second.Close())
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("behind the end of both: %v", err)
	}
	must(t, os.WriteFile(path, nil, 0o600))
	if l, err := localsock.Listen(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("in the place of a file: %v, %v", l, err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestOurOwnUserIsLetIn(t *testing.T) {
	drivertest.LeavesNothing(t)
	l, err := localsock.Listen(filepath.Join(t.TempDir(), "socket"))
	must(t, err)
	defer l.Close()
	c, err := net.Dial("unix", l.Addr().String())
	must(t, err)
	defer c.Close()
	must(t, localsock.SameUser(c.(*net.UnixConn)))
	_ = c.Close()
	if err := localsock.SameUser(c.(*net.UnixConn)); err == nil {
		t.Error("nobody is let in")
	}
}

// asNobody runs f as a user that neither we nor root are: the thread, not the process.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	const same, nobody = ^uintptr(0), 65534
	runtime.LockOSThread()
	become := func(user uintptr) unix.Errno {
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, user, same)
		return errno
	}
	own := uintptr(os.Geteuid())
	if errno := become(nobody); errno != 0 {
		runtime.UnlockOSThread()
		t.Skipf("only root can be somebody else: %v", errno)
	}
	defer func() {
		if errno := become(own); errno != 0 {
			t.Fatalf("user %d again: %v", own, errno) // the thread ends with the goroutine
		}
		runtime.UnlockOSThread()
	}()
	f()
}

// Messengers to which nothing may happen, but that a hand-over ends.
type (
	predecessor struct{ handover.Predecessor }
	successor   struct{ handover.Successor }
)

func (predecessor) Undo()                            {}
func (successor) Hello() (h handover.Hello, _ error) { return h, nil }
func (successor) Undo() error                        { return nil }

// An abstract socket lets anybody in: the kernel notes who listened and who connected.
func TestNeitherAHandOverNorStatisticsAreForAnotherUser(t *testing.T) {
	asNobody(t, func() {}) // or skip
	path := fmt.Sprintf("@ringmsgr-test-%d", os.Getpid())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	us, them := func(f func()) { f() }, func(f func()) { asNobody(t, f) }
	for name, c := range map[string]struct{ listen, connect func(func()) }{"it connects": {us, them}, "it listens": {them, us}} {
		var l net.Listener
		var from, to net.Conn
		var err error
		c.listen(func() { l, err = net.Listen("unix", path+name) })
		must(t, err)
		defer l.Close()
		c.connect(func() { from, err = net.Dial("unix", l.Addr().String()) })
		must(t, err)
		defer from.Close()
		to, err = l.Accept()
		must(t, err)
		defer to.Close()
		ours := map[string]net.Conn{"it connects": to, "it listens": from}[name].(*net.UnixConn)
		for side, err := range map[string]error{
			"predecessor": handover.Pass(ctx, ours, predecessor{}), "successor": handover.Take(ctx, ours, successor{}),
		} {
			if !errors.Is(err, os.ErrPermission) || !errors.Is(err, handover.ErrHandOver) {
				t.Errorf("%s, our %s: let in: %v", name, side, err)
			}
		}
	}
	s, err := statsock.Serve(path, func() (statsock.Snapshot, error) { t.Error("a snapshot"); return nil, os.ErrInvalid }, slog.New(slog.DiscardHandler))
	must(t, err)
	var c net.Conn
	asNobody(t, func() { c, err = net.Dial("unix", path) })
	must(t, err)
	defer c.Close()
	if p, _ := io.ReadAll(c); len(p) > 0 {
		t.Errorf("statistics %q", p)
	}
	must(t, s.Close())
}
