package control_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// nobody is a user that neither we nor root are.
const nobody = 65534

// asNobody runs f as another user: the thread, not the process.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	runtime.LockOSThread()
	become := func(user uintptr) unix.Errno {
		const same = ^uintptr(0)
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

// meeting is a connection over an abstract socket, which has no permissions of
// its own: the kernel notes who listened and who connected.
func meeting(t *testing.T, listener, connector func(func())) (listened, connected *net.UnixConn) {
	t.Helper()
	at := &unix.SockaddrUnix{Name: fmt.Sprintf("@ringmsgr-test-%d-%s", os.Getpid(), t.Name())}
	socket := func() int {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		return fd
	}
	door, to := socket(), socket()
	defer unix.Close(door)
	var err error
	listener(func() { err = errors.Join(unix.Bind(door, at), unix.Listen(door, 1)) })
	must(t, err)
	connector(func() { err = unix.Connect(to, at) })
	must(t, err)
	from, _, err := unix.Accept4(door, unix.SOCK_CLOEXEC)
	must(t, err)
	var ends [2]*net.UnixConn
	for i, fd := range []int{from, to} {
		f := os.NewFile(uintptr(fd), "meeting")
		c, err := net.FileConn(f)
		_ = f.Close()
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// The other side would go on in both cases: to it we are root, or its own user.
func TestAHandOverIsNotForAnotherUser(t *testing.T) {
	asNobody(t, func() {}) // or skip
	nodetest.CheckLeaks(t)
	ctx := deadline(t)
	m, at := handoverServer(t, uring.Auto, 1)
	s := newStream(t, uring.Auto, wire.OSD, control.LosslessPeer(), at)
	us := func(f func()) { f() }
	them := func(f func()) { asNobody(t, f) }
	for _, c := range []struct {
		name                string
		listener, connector func(func())
		foreignSuccessor    bool
	}{
		{"the successor is another user", us, them, true},
		{"the predecessor is another user", them, us, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			predecessor, successor := meeting(t, c.listener, c.connector)
			handed := make(chan error, 1)
			go func() { handed <- m.HandOver(ctx, predecessor) }()
			next, taken := control.TakeOver(ctx, serverConfig(uring.Auto, 1), successor)
			if next != nil {
				end(t, next)
			}
			over := <-handed
			judge, other := over, taken
			if !c.foreignSuccessor {
				judge, other = taken, over
			}
			if !errors.Is(judge, os.ErrPermission) || !errors.Is(judge, control.ErrHandOver) {
				t.Errorf("hand over: %v; take over: %v", over, taken)
			}
			if other == nil {
				t.Error("the other side believes that it went well")
			}
		})
	}
	s.progress(20)
}
