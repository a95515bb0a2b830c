package dataplane

import (
	"bytes"
	"os"
	"runtime"
	"testing"
	"time"
)

// mappings is the number of memory mappings of the process.
func mappings(t testing.TB) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	must(t, err)
	return bytes.Count(b, []byte("\n"))
}

// descriptors is the number of open descriptors of the process.
func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(list)
}

// settled waits until value comes down to limit, which goroutines that end and
// memory that the kernel takes back may delay, and returns it.
func settled(limit int, value func() int) int {
	v := value()
	for end := time.Now().Add(5 * time.Second); v > limit && time.Now().Before(end); v = value() {
		runtime.Gosched()
	}
	return v
}

// checkLeaks fails the test if f leaves goroutines, descriptors or mappings.
func checkLeaks(t *testing.T, f func()) {
	t.Helper()
	f() // whatever is kept for good is there now
	goroutines, fds, maps := runtime.NumGoroutine(), descriptors(t), mappings(t)
	const rounds = 5
	for range rounds {
		f()
	}
	if n := settled(goroutines, runtime.NumGoroutine); n > goroutines {
		t.Errorf("%d goroutines, %d after %d more rounds", goroutines, n, rounds)
	}
	if n := settled(fds, func() int { return descriptors(t) }); n > fds {
		t.Errorf("%d descriptors, %d after %d more rounds", fds, n, rounds)
	}
	// The Go runtime maps for itself now and then: a leak is one a round.
	if n := settled(maps+rounds-1, func() int { return mappings(t) }); n >= maps+rounds {
		t.Errorf("%d mappings, %d after %d more rounds", maps, n, rounds)
	}
}
