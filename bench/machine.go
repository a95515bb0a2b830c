package main

import (
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

// machine describes the machine, and the sources of this program.
func machine() report.Machine {
	built := cli.ReadBuild()
	m := report.Machine{
		CPU: cpuModel(), Cores: runtime.NumCPU(), Kernel: "unknown",
		Go: built.Go, Commit: built.Commit, Modified: built.Modified,
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return m
}

// cpuModel returns the name of the processor, or its architecture.
func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(text)) {
			key, value, ok := strings.Cut(line, ":")
			if ok && strings.TrimSpace(key) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	return runtime.GOARCH
}
