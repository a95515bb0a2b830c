package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

// save writes the JSON file, if one is wanted. It is replaced in one step.
func (r *runner) save() error {
	if r.opt.json == "" {
		return nil
	}
	p, err := json.MarshalIndent(&r.file, "", "  ")
	if err != nil {
		return fmt.Errorf("encode results: %w", err)
	}
	temporary := r.opt.json + ".new"
	if err := os.WriteFile(temporary, append(p, '\n'), 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	if err := os.Rename(temporary, r.opt.json); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}

func show(path string, stdout io.Writer) error {
	f, err := report.Read(path)
	if err != nil {
		return fmt.Errorf("--show: %w", err)
	}
	return f.WriteTable(stdout)
}

// progress reports the progress, in a line for each cell. Any goroutine, as the children of the
// run write to the same place.
type progress struct {
	mu    sync.Mutex
	w     io.Writer // guarded by mu
	first time.Time // when the first cell began; the runner's
}

// Write implements io.Writer.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.w.Write(b)
}

func (p *progress) say(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (p *progress) cell(i, n int, l report.Load) {
	left := ""
	if i == 1 {
		p.first = time.Now()
	} else {
		each := time.Since(p.first) / time.Duration(i-1)
		left = fmt.Sprintf(", about %v left", (each * time.Duration(n-i+1)).Round(time.Second))
	}
	p.say("[%d/%d] %v%s", i, n, l, left)
}

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

var modelName = regexp.MustCompile(`(?m)^model name[\t ]*:[\t ]*(.*\S)`)

// cpuModel returns the name of the processor, or its architecture.
func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	if m := modelName.FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return runtime.GOARCH
}
