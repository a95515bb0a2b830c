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
	keys  chan keypress
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
	return &screen{out: f, color: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb", keys: make(chan keypress)}
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

// keypress is a key that was pressed: a letter, or one of these.
type keypress rune

const (
	keyUp keypress = -1 - iota
	keyDown
	keyPageUp
	keyPageDown
	keyHome
	keyEnd
	keyOther
)

// escaped are the keys that come as several bytes: VT100, xterm and the console.
var escaped = map[string]keypress{
	"[A": keyUp, "[B": keyDown, "OA": keyUp, "OB": keyDown, "[5~": keyPageUp, "[6~": keyPageDown,
	"[H": keyHome, "OH": keyHome, "[1~": keyHome, "[F": keyEnd, "OF": keyEnd, "[4~": keyEnd,
}

// readKeys ends with its input, or with the program. A key that sends several
// bytes sends them at once.
func (s *screen) readKeys(in io.Reader) {
	var b [32]byte
	for {
		n, err := in.Read(b[:])
		for _, k := range decodeKeys(b[:n]) {
			s.keys <- k
		}
		if n == 0 || err != nil {
			return
		}
	}
}

// decodeKeys tells the keys in what a terminal sent.
func decodeKeys(b []byte) (keys []keypress) {
	for len(b) > 0 {
		if b[0] != 0x1b {
			keys, b = append(keys, keypress(b[0])), b[1:]
			continue
		}
		end := 1 // of the sequence: its last byte is a letter or ~
		for end < len(b) && (end == 1 || b[end] < '@' || b[end] > '~') {
			end++
		}
		end = min(end+1, len(b))
		k, ok := escaped[string(b[1:end])]
		if !ok {
			k = keyOther
		}
		keys, b = append(keys, k), b[end:]
	}
	return keys
}

// draw replaces what is on the screen, in one write and without a blank moment.
func (s *screen) draw(text string) error {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	_, err := s.out.WriteString("\x1b[H" + strings.Join(lines, "\x1b[K\r\n") + "\x1b[K\x1b[J")
	return err
}
