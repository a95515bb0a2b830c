package syscount

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
)

func TestCountsTheCallsOfAProcess(t *testing.T) {
	s, err := Open()
	if err != nil {
		if os.Geteuid() == 0 {
			t.Log("root, but no tracepoint: ", err)
		}
		t.Skip("needs root or CAP_PERFMON and a kernel with tracepoints: ", err)
	}
	runtime.LockOSThread() // a thread that starts beside Start may be unknown to it
	defer runtime.UnlockOSThread()
	c, err := s.Start(os.Getpid())
	clitest.Must(t, err)
	defer c.Close()
	before, err := c.Read()
	clitest.Must(t, err)
	const calls = 10000
	for range calls {
		unix.Getppid()
	}
	after, err := c.Read()
	clitest.Must(t, err)
	// The runtime and the reading itself make some calls too.
	if n := after - before; n < calls || n > calls+1000 {
		t.Fatalf("%d calls counted, %d made", n, calls)
	}
}

func TestAProcessThatDoesNotExistIsAnError(t *testing.T) {
	s := &Source{id: 1}
	if _, err := s.Start(1 << 30); err == nil {
		t.Fatal("no error")
	}
}
