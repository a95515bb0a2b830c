package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/report"
)

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

// say writes a line.
func (p *progress) say(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// cell says which cell begins.
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
