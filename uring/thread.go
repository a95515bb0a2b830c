package uring

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// AllowedCPUs returns the CPUs that the calling thread may run on, ascending.
func AllowedCPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read the CPUs of this thread: %w", err)
	}
	cpus := make([]int, 0, set.Count())
	for cpu := 0; len(cpus) < cap(cpus); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// PinThread ties the calling OS thread to one CPU. The goroutine must be
// locked to the thread (runtime.LockOSThread) and should stay so until the thread ends,
// because the runtime does not undo it.
//
// Pin only to CPUs that nothing else uses: on shared ones it makes the slowest responses
// slower, because the thread cannot move away.
func PinThread(cpu int) error {
	var set unix.CPUSet
	if cpu < 0 || cpu >= 8*int(unsafe.Sizeof(set)) {
		return fmt.Errorf("pin thread to CPU %d: %w", cpu, unix.EINVAL)
	}
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin thread to CPU %d: %w", cpu, err)
	}
	return nil
}

// SharpTimers lets the timers of the calling OS thread fire when they are due
// (timer slack 1 ns) instead of up to 50 microseconds later. Threads that this
// one creates inherit it. Goroutine and thread should be locked.
func SharpTimers() error {
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set timer slack: %w", err)
	}
	return nil
}
