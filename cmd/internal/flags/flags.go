// Package flags reads the values of the flags that all programs have. Errors
// are usage errors that name the flag.
package flags

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/internal/address"
	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/trace"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Session are the flags of every program that talks to a peer: our name, the protocol, and how
// long we wait.
type Session struct {
	Name, Proto string
	Timeout     time.Duration
	mode        string
	rev         int
	Recording
}

// Register makes the flags. bound is the effect of --timeout, for the help.
func (s *Session) Register(fs *flag.FlagSet, name string, timeout time.Duration, bound string) {
	fs.StringVar(&s.Name, "name", name, "our name: `ENTITY`, such as client.admin or mon.a")
	fs.StringVar(&s.mode, "mode", "",
		"connection modes, preferred first: `LIST` of crc and secure (default by the preferences of both "+
			"sides)")
	fs.StringVar(&s.Proto, "proto", "", "`PROTOCOL` of addresses: v2, or v1 for msgr1 (default as each address says, else v2)")
	fs.IntVar(&s.rev, "rev", 1, "highest protocol `REVISION`: 0 for msgr2.0, 1 for msgr2.1")
	fs.DurationVar(&s.Timeout, "timeout", timeout, "`DURATION`: "+bound)
	s.Recording.Register(fs)
}

// Read sets cfg by the flags. Apply opens the files, once all flags are checked.
func (s *Session) Read(cfg *control.Config) (err error) {
	if cfg.Name, err = wire.ParseEntityName(s.Name); err != nil {
		return cli.Usagef("--name %q: want TYPE.ID, such as client.admin, mon.a or osd.0", s.Name)
	}
	if s.mode != "" {
		if cfg.Auth.Modes, err = auth.ParseModes(s.mode); err != nil {
			return cli.Usagef("--mode %q: want crc, secure, or both with a comma, the preferred one first", s.mode)
		}
	}
	if _, err := (address.Reader{}).For(s.Proto, ""); err != nil {
		return cli.Usagef("--proto: %w", err)
	}
	if s.rev != 0 && s.rev != 1 {
		return cli.Usagef("--rev %d: want 0 or 1", s.rev)
	}
	if s.Timeout <= 0 {
		return cli.Usagef("--timeout %v: want more than nothing", s.Timeout)
	}
	cfg.Protocol.Rev0 = s.rev == 0
	return nil
}

// Keyring reads the file of --keyring. The caller wipes it.
func Keyring(file string) (*cephx.Keyring, error) { return File("--keyring", file, cephx.ReadKeyring) }

// File reads the file of a flag.
func File[T any](flag, file string, read func(io.Reader) (T, error)) (v T, err error) {
	f, err := os.Open(file)
	if err != nil {
		return v, cli.Usagef("%s %s: %s", flag, file, scope.Cause(err))
	}
	defer f.Close()
	if v, err = read(f); err != nil {
		return v, cli.Usagef("%s %s: %w", flag, file, err)
	}
	return v, nil
}

// The values of the flags of Engine, for the completion of a shell.
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

// Recording are --trace and --keylog.
type Recording struct {
	trace, keyLog string
	log           *trace.Log
	keys          *os.File
}

// Register makes the flags.
func (r *Recording) Register(fs *flag.FlagSet) {
	fs.StringVar(&r.trace, "trace", "",
		"`FILE` to write every frame to, payloads cut; at 64 MiB it goes on in a new one, and the old one "+
			"is FILE.1")
	fs.StringVar(&r.keyLog, "keylog", "",
		"`FILE` that gets the keys of connections in mode secure, for \"ringmsgr decode --keys\": its readers can decrypt recordings")
}

// Apply opens the files and sets cfg up. Close closes them, once the messenger is shut
// down.
func (r *Recording) Apply(cfg *control.Config) (err error) {
	if r.trace != "" {
		if r.log, err = trace.Create(r.trace, trace.Options{}); err != nil {
			return fmt.Errorf("--trace %s: %s", r.trace, scope.Cause(err))
		}
		cfg.Diagnostics.Tracer = r.log
	}
	if r.keyLog != "" {
		if r.keys, err = os.OpenFile(r.keyLog, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
			return errors.Join(fmt.Errorf("--keylog %s: %s", r.keyLog, scope.Cause(err)), r.Close())
		}
		cfg.Diagnostics.KeyLog = r.keys
	}
	return nil
}

// Close closes the files. The error is the first of each.
func (r *Recording) Close() error {
	var err error
	if r.log != nil {
		if e := r.log.Close(); e != nil {
			err = fmt.Errorf("--trace %s: %s", r.trace, scope.Cause(e))
		}
	}
	if r.keys != nil {
		if e := r.keys.Close(); e != nil {
			err = errors.Join(err, fmt.Errorf("--keylog %s: %s", r.keyLog, scope.Cause(e)))
		}
	}
	r.log, r.keys = nil, nil
	return err
}
