package drivertest

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// mappedBytes is how many bytes the process has mapped by uring: memory of uring.Map, which no child process
// inherits, and the queues of rings and of Linux AIO. What the Go runtime maps for itself is not among them.
func mappedBytes(t testing.TB) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/smaps")
	Must(t, err)
	n, err := mapped(b)
	Must(t, err)
	return n
}

// mapped adds up the mappings of smaps that are ours.
func mapped(smaps []byte) (total int, err error) {
	size, queue, anonymous := 0, false, false
	for line := range bytes.Lines(smaps) {
		words := strings.Fields(string(line))
		if len(words) == 0 {
			continue
		}
		switch {
		case !strings.HasSuffix(words[0], ":"): // a mapping begins: range, rights, offset, device, inode, name
			name := strings.Join(words[min(5, len(words)):], " ")
			queue = strings.HasPrefix(name, "anon_inode:[io_uring]") || strings.HasPrefix(name, "/[aio]")
			anonymous = name == ""
		case words[0] == "Size:":
			if size, err = strconv.Atoi(words[1]); err != nil {
				return 0, err
			}
		case words[0] == "VmFlags:":
			if queue || anonymous && slices.Contains(words, "dc") {
				total += size << 10
			}
		}
	}
	return total, nil
}

// Descriptors is the number of open descriptors of the process. Those of the runtime's own
// poller are among them, which the first os.Open makes.
func Descriptors(t testing.TB) int {
	t.Helper()
	dir, err := os.Open("/proc/self/fd")
	Must(t, err)
	defer dir.Close()
	list, err := dir.Readdirnames(-1)
	Must(t, err)
	return len(list)
}

// settleTime is the time for which settled waits.
var settleTime = patience

// settled waits until value comes down to limit, which goroutines that end and
// memory that the kernel takes back may delay, and returns it.
func settled(limit int, value func() int) int {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	v := value()
	for end := time.Now().Add(settleTime); v > limit && time.Now().Before(end); v = value() {
		<-tick.C
	}
	return v
}

// rounds is how often CheckLeaks calls f to find what grows.
const rounds = 5

// CheckLeaks fails the test if f leaves goroutines, descriptors or mapped memory.
func CheckLeaks(t *testing.T, f func()) {
	t.Helper()
	f() // whatever is kept for good is there now
	check := Leaks(t)
	for range rounds {
		f()
	}
	check()
}

// Leaks notes the goroutines, descriptors and mapped memory of the process. check reports what is
// more then.
func Leaks(t testing.TB) (check func()) {
	t.Helper()
	rest, bytes := running(t), mappedBytes(t)
	return func() {
		t.Helper()
		rest()
		if n := settled(bytes, func() int { return mappedBytes(t) }); n > bytes {
			t.Errorf("%d bytes are mapped, %d before", n, bytes)
		}
	}
}

// LeavesNothing fails the test if it leaves goroutines or descriptors behind. Call it first, so
// that it looks last, and not in tests that run parallel to others.
func LeavesNothing(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // has the runtime open the descriptors that it keeps for good
	Must(t, err)
	Must(t, l.Close())
	t.Cleanup(running(t))
}

// running notes the goroutines and descriptors of the process. check reports those that are more then.
func running(t testing.TB) (check func()) {
	t.Helper()
	goroutines, fds := runtime.NumGoroutine(), Descriptors(t)
	return func() {
		t.Helper()
		if n := settled(goroutines, runtime.NumGoroutine); n > goroutines {
			var stacks strings.Builder
			_ = pprof.Lookup("goroutine").WriteTo(&stacks, 2) // into memory
			t.Errorf("%d goroutines, %d before:\n%s", n, goroutines, &stacks)
		}
		if n := settled(fds, func() int { return Descriptors(t) }); n > fds {
			list, _ := filepath.Glob("/proc/self/fd/*") // the pattern is right
			for i, fd := range list {
				target, _ := os.Readlink(fd) // or it is closed by now
				list[i] = filepath.Base(fd) + " -> " + target
			}
			t.Errorf("%d descriptors, %d before: %q", n, fds, list)
		}
	}
}
