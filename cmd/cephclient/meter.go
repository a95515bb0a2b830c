package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

// meter shows the progress of a transfer on a terminal. The zero value shows none.
type meter struct {
	to          io.Writer
	size, done  int64 // size 0: it is not known
	begun, said time.Time
}

// meter begins one, if standard error is a terminal.
func (e env) meter(size func() int64) *meter {
	if f, ok := e.stderr.(*os.File); ok && !e.options.quiet {
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
			return &meter{to: f, size: size(), begun: time.Now()}
		}
	}
	return &meter{}
}

// add counts bytes.
func (m *meter) add(n int) {
	if m.done += int64(n); m.to != nil && time.Since(m.said) > time.Second/10 {
		m.say()
	}
}

func (m *meter) say() {
	m.said = time.Now()
	bar := ""
	if m.size > 0 {
		n := int(20 * min(m.done, m.size) / m.size)
		bar = fmt.Sprintf("[%-20s] of %s, ", "===================="[:n], cli.Bytes(m.size))
	}
	rate := float64(m.done) / time.Since(m.begun).Seconds()
	fmt.Fprintf(m.to, "\r\x1b[K%s %s%s", cli.Bytes(m.done), bar, cli.Rate(rate, "B/s"))
}

// close leaves the last state on a line of its own.
func (m *meter) close() {
	if m.to != nil && m.done > 0 {
		m.say()
		fmt.Fprintln(m.to)
	}
}
