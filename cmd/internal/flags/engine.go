package flags

import (
	"flag"
	"io"
	"log/slog"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/uring"
)

// What the flags of Engine can be, for the completion of a shell.
var (
	Backends = []string{"auto", "io_uring", "epoll"}
	Levels   = []string{"debug", "info", "warn", "error", "off"}
)

// Engine are --backend and --log-level, which every program with a messenger has.
type Engine struct{ Backend, LogLevel string }

// Register makes the flags.
func (e *Engine) Register(fs *flag.FlagSet) {
	fs.StringVar(&e.Backend, "backend", "auto", "I/O `ENGINE`: auto, io_uring or epoll")
	fs.StringVar(&e.LogLevel, "log-level", "warn", "`LEVEL` from which to log to standard error: debug, info, warn, error, or off")
}

// Read reads them. The logger writes text to w.
func (e *Engine) Read(w io.Writer) (uring.Backend, *slog.Logger, error) {
	log, err := logger(e.LogLevel, w)
	if err != nil {
		return "", nil, err
	}
	switch b := uring.Backend(e.Backend); b {
	case uring.Auto, uring.IOUring, uring.Epoll:
		return b, log, nil
	}
	return "", nil, cli.Usagef("--backend %q: want auto, io_uring or epoll", e.Backend)
}

// logger reads --log-level.
func logger(level string, w io.Writer) (*slog.Logger, error) {
	if level == "off" {
		return slog.New(slog.DiscardHandler), nil
	}
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, cli.Usagef("--log-level %q: want off, debug, info, warn or error", level)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
}
