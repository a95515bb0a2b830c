package loop

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCoresHaveTheirNicenessOrSayThatTheyHaveNot(t *testing.T) {
	const rawZero = 20 // getpriority(2) returns 20 minus the niceness
	for _, nice := range []int{5, -5} {
		var log bytes.Buffer
		p := newPlane(t, Config{Cores: 1, Nice: nice, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		var got int
		done := make(chan error)
		must(t, p.Core(0).Do(func(*Core) {
			raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
			got = rawZero - raw
			done <- err
		}))
		must(t, <-done)
		warned := strings.Contains(log.String(), "niceness of a core not set")
		if granted := got == nice; granted == warned || nice > 0 && !granted {
			t.Errorf("niceness %d: the thread has %d, the log says %q", nice, got, &log)
		}
	}
}
