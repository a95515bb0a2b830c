package load

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// cpuClock is the CPU clock of a process: all its threads, ended ones too.
type cpuClock int32

// processClock returns the clock of process pid, 0 for this one. The kernel
// numbers the clocks of other processes by the complement of their id.
func processClock(pid int) cpuClock {
	const scheduler = 2 // CPUCLOCK_SCHED: precise, user and system time together
	return cpuClock(int32(^pid)<<3 | scheduler)
}

// read returns the CPU time used so far.
func (c cpuClock) read() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(c), &ts); err != nil {
		return 0, fmt.Errorf("read CPU clock: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
