package drivertest

import (
	"bytes"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Mapped is how many bytes the process has mapped by uring: memory of uring.Map, which no child process
// inherits, and the queues of rings. What the Go runtime maps for itself is not among them.
func Mapped(t testing.TB) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/smaps")
	must(t, err)
	n, err := mapped(b)
	must(t, err)
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
			queue, anonymous = strings.HasPrefix(name, "anon_inode:[io_uring]"), name == ""
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
	must(t, err)
	defer dir.Close()
	list, err := dir.Readdirnames(-1)
	must(t, err)
	return len(list)
}

// Settled waits until value comes down to limit, which goroutines that end and
// memory that the kernel takes back may delay, and returns it.
func Settled(limit int, value func() int) int {
	v := value()
	for end := time.Now().Add(5 * time.Second); v > limit && time.Now().Before(end); v = value() {
		runtime.Gosched()
	}
	return v
}

// rounds is how often CheckLeaks calls f to find what grows.
const rounds = 5

// CheckLeaks fails the test if f leaves goroutines, descriptors or mapped memory.
func CheckLeaks(t *testing.T, f func()) {
	t.Helper()
	f() // whatever is kept for good is there now
	goroutines, fds, bytes := runtime.NumGoroutine(), Descriptors(t), Mapped(t)
	for range rounds {
		f()
	}
	if n := Settled(goroutines, runtime.NumGoroutine); n > goroutines {
		t.Errorf("%d goroutines, %d after %d more rounds", goroutines, n, rounds)
	}
	if n := Settled(fds, func() int { return Descriptors(t) }); n > fds {
		t.Errorf("%d descriptors, %d after %d more rounds", fds, n, rounds)
	}
	if n := Settled(bytes, func() int { return Mapped(t) }); n > bytes {
		t.Errorf("%d bytes are mapped, %d after %d more rounds", bytes, n, rounds)
	}
}
