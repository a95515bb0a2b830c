package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/report"
)

// progress shows what is going on: on a terminal in one line that is
// overwritten, elsewhere in one line per cell.
type progress struct {
	w        io.Writer
	terminal bool
	drawn    bool
	started  time.Time
	first    time.Time // when the first cell began
	title    string
}

// newProgress writes to w.
func newProgress(w io.Writer) *progress {
	p := &progress{w: w, started: time.Now()}
	if f, ok := w.(*os.File); ok {
		_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
		p.terminal = err == nil
	}
	return p
}

// columns is the width of the terminal that w is; 0 if it is none.
func columns(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// lockedWriter lets several goroutines write.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// draw replaces the line.
func (p *progress) draw(text string) {
	fmt.Fprintf(p.w, "\r\x1b[K%s", text)
	p.drawn = true
}

// say shows a line that may vanish.
func (p *progress) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if p.terminal {
		p.draw(text)
	} else {
		fmt.Fprintln(p.w, text)
	}
}

// warn shows a line that stays.
func (p *progress) warn(text string) {
	p.clear()
	fmt.Fprintln(p.w, "bench: note:", text)
}

// cell says which cell begins.
func (p *progress) cell(i, n int, l report.Load) {
	if i == 1 {
		p.first = time.Now()
	}
	p.title = fmt.Sprintf("[%d/%d] %v", i, n, l)
	if i > 1 {
		each := time.Since(p.first) / time.Duration(i-1)
		p.title += fmt.Sprintf(", about %v left", (each * time.Duration(n-i+1)).Round(time.Second))
	}
	if !p.terminal {
		fmt.Fprintln(p.w, p.title)
	}
}

// round says which round of the cell begins.
func (p *progress) round(i, n int) {
	if p.terminal {
		p.draw(fmt.Sprintf("%s, round %d of %d", p.title, i, n))
	}
}

// clear removes the line.
func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
	}
}
