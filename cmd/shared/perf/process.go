package perf

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Memory is the resident memory of a process, without memory of the kernel for it, for example
// socket buffers.
type Memory struct {
	Resident int64 // bytes now
	Peak     int64 // bytes at most since the process began
	Locked   int64 // bytes now that are locked, or pinned for requests to the kernel
}

// ReadMemory returns the memory of process pid.
func ReadMemory(pid int) (Memory, error) {
	process := "self"
	if pid != 0 {
		process = strconv.Itoa(pid)
	}
	text, err := os.ReadFile(filepath.Join("/proc", process, "status"))
	if err != nil {
		return Memory{}, err
	}
	status := status(text)
	return Memory{Resident: 1024 * status.number("VmRSS:"), Peak: 1024 * status.number("VmHWM:"),
		Locked: 1024 * (status.number("VmLck:") + status.number("VmPin:"))}, nil
}

// ReadCPU returns the CPU time that process pid has used: user and system time
// of all its threads, ended ones too. It is precise to a nanosecond.
func ReadCPU(pid int) (time.Duration, error) {
	// The kernel numbers the clocks of processes by the complement of their id.
	const scheduler = 2 // CPUCLOCK_SCHED: precise, user and system time together
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|scheduler, &ts); err != nil {
		return 0, fmt.Errorf("read the CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// status is the text of a status file: a name, a number and perhaps a unit on
// each line.
type status string

// number is the number after a name, 0 without that name.
func (s status) number(name string) int64 {
	for line := range strings.Lines(string(s)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			if fields := strings.Fields(rest); len(fields) > 0 {
				n, _ := strconv.ParseInt(fields[0], 10, 64)
				return n
			}
		}
	}
	return 0
}
