package flags

import (
	"flag"
	"io"
	"log/slog"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

// RegisterLogLevel makes --log-level.
func RegisterLogLevel(fs *flag.FlagSet, level *string, by string) {
	fs.StringVar(level, "log-level", by, "`LEVEL` from which to log to standard error: debug, info, warn, error, or off")
}

// Logger reads --log-level: a logger that writes text.
func Logger(level string, w io.Writer) (*slog.Logger, error) {
	if level == "off" {
		return slog.New(slog.DiscardHandler), nil
	}
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, cli.Usagef("--log-level %q: want off, debug, info, warn or error", level)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
}
