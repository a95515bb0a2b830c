package nodetest

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
)

// leakPatience is the time for which CheckLeaks waits for the last of them to end.
const leakPatience = time.Minute

// CheckLeaks notes the goroutines and open descriptors of the process, and
// fails the test if there are more of them at its end. Call it first, so that
// it looks last, and not in tests that run parallel to others.
func CheckLeaks(t testing.TB) {
	t.Helper()
	checkLeaks(t, leakPatience)
}

func checkLeaks(t testing.TB, patience time.Duration) {
	t.Helper()
	warmUp()
	goroutines, files := runtime.NumGoroutine(), descriptors()
	t.Cleanup(func() {
		deadline := time.Now().Add(patience)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			extra := newDescriptors(files)
			if runtime.NumGoroutine() <= goroutines && len(extra) == 0 {
				return
			}
			if time.Now().After(deadline) {
				if n := runtime.NumGoroutine(); n > goroutines {
					t.Errorf("%d goroutines left, %d before:\n%s", n, goroutines, stacks())
				}
				if len(extra) > 0 {
					t.Errorf("descriptors left: %v", extra)
				}
				return
			}
			<-tick.C
		}
	})
}

// warmUp has the runtime open the descriptors that it keeps for good.
func warmUp() {
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		_ = l.Close() // it was only opened for its side effect
	}
}

// descriptors maps the number of each open descriptor to its file.
func descriptors() map[string]string {
	out := make(map[string]string)
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return out
	}
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			out[e.Name()] = target
		}
	}
	return out
}

// newDescriptors are the open descriptors that files does not have.
func newDescriptors(files map[string]string) []string {
	now := descriptors()
	if len(now) <= len(files) {
		return nil
	}
	maps.DeleteFunc(now, func(fd, target string) bool { return files[fd] == target })
	var out []string
	for fd, target := range now {
		out = append(out, fmt.Sprintf("%s -> %s", fd, target))
	}
	slices.Sort(out)
	return out
}

func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}
