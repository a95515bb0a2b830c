package main

import (
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// screen is the terminal of a live view.
type screen struct {
	out   *os.File
	color bool
	keys  chan byte
}

// newScreen returns the terminal behind w, nil if there is none.
func newScreen(w io.Writer) *screen {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
		return nil
	}
	return &screen{out: f, color: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb", keys: make(chan byte)}
}

// size is the terminal's, or a usual one.
func (s *screen) size() (width, height int) {
	ws, err := unix.IoctlGetWinsize(int(s.out.Fd()), unix.TIOCGWINSZ)
	if err != nil || ws.Col == 0 || ws.Row == 0 {
		return 80, 24
	}
	return int(ws.Col), int(ws.Row)
}

// enter takes the screen, and the keys if in is a terminal; leave gives both
// back.
func (s *screen) enter(in io.Reader) (leave func(), err error) {
	restore := func() {}
	if f, ok := in.(*os.File); ok {
		fd := int(f.Fd())
		if old, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
			raw := *old
			raw.Lflag &^= unix.ICANON | unix.ECHO
			if err := unix.IoctlSetTermios(fd, unix.TCSETS, &raw); err != nil {
				return nil, err
			}
			restore = func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, old) } // the terminal may be gone
			go s.readKeys(f)
		}
	}
	if _, err := s.out.WriteString("\x1b[?1049h\x1b[?25l"); err != nil {
		restore()
		return nil, err
	}
	return func() {
		_, _ = s.out.WriteString("\x1b[?25h\x1b[?1049l") // the terminal may be gone
		restore()
	}, nil
}

// readKeys ends with its input, or with the program.
func (s *screen) readKeys(in io.Reader) {
	var b [1]byte
	for {
		if n, err := in.Read(b[:]); n == 0 || err != nil {
			return
		}
		s.keys <- b[0]
	}
}

// draw replaces what is on the screen, in one write and without a blank moment.
func (s *screen) draw(text string) error {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	_, err := s.out.WriteString("\x1b[H" + strings.Join(lines, "\x1b[K\r\n") + "\x1b[K\x1b[J")
	return err
}
