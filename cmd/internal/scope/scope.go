// Package scope has what all programs with a messenger share: their flags, addresses as people
// write them (address.go), keys; it ends that messenger. Errors of flags are usage errors that
// name them.
package scope

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/trace"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// shutdownTime bounds the end of a messenger. Only a defect takes as long, or a machine that
// gives a core no time.
const shutdownTime = 10 * time.Second

// Close ends m. It waits for no peer: Messenger.Drain before it does.
func Close(m *control.Messenger) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	return m.Shutdown(ctx)
}

// StatsPath is the path of the socket at which a process serves statistics, by its number, or the
// path itself.
func StatsPath(pidOrPath string) string {
	if pid, err := strconv.ParseUint(pidOrPath, 10, 31); err == nil {
		return control.StatsSocket(int(pid))
	}
	return pidOrPath
}

// Stats calls f while the statistics of m are served, for "ringmsgr top" and the exporter: at
// the path of a Unix socket, or with auto where both look for a process. Without a path it
// only calls f.
func Stats(m *control.Messenger, path string, f func() error) error {
	if path == "" {
		return f()
	}
	at := path
	if path == "auto" {
		at = control.StatsSocket(os.Getpid())
	}
	stats, err := m.ServeStats(at)
	if err != nil {
		return fmt.Errorf("--stats %s: %s", path, strings.TrimPrefix(cli.Cause(err).Error(), control.ErrStats.Error()+": "))
	}
	return errors.Join(f(), stats.Close())
}

// Session are the flags of every program that talks to a peer: our name, the protocol, and how
// long we wait.
type Session struct {
	Name, Proto string
	Timeout     time.Duration
	Recording
}

// Register makes the flags, which set cfg. bound is the effect of --timeout, for the help.
func (s *Session) Register(fs *pflag.FlagSet, cfg *control.Config, name string, timeout time.Duration, bound string) {
	fs.StringVar(&s.Name, "name", name, "our name: `ENTITY`, such as client.admin or mon.a")
	modes := func(text string) (list []auth.Mode, err error) {
		if list, err = auth.ParseModes(text); err != nil {
			err = errors.New("want crc, secure, or both with a comma, the preferred one first")
		}
		return list, err
	}
	cli.Var(fs, &cfg.Auth.Modes, "mode", "",
		"connection modes, preferred first: `LIST` of crc and secure (default by the preferences of both "+
			"sides)", modes, "crc", "secure", "secure,crc")
	cli.ChoiceVar(fs, &s.Proto, "proto", "",
		"`PROTOCOL` of addresses: v2, or v1 for msgr1 (default as each address says, else v2)", "v1", "v2")
	oldest := func(text string) (bool, error) {
		if text != "0" && text != "1" {
			return false, errors.New("want 0 or 1")
		}
		return text == "0", nil
	}
	cli.Var(fs, &cfg.Protocol.Rev0, "rev", "1", "highest protocol `REVISION`: 0 for msgr2.0, 1 for msgr2.1", oldest,
		"0", "1")
	cli.DurationVar(fs, &s.Timeout, "timeout", timeout, 1, "`DURATION`: "+bound)
	s.Recording.Register(fs)
}

// Entity is the name of --name.
func (s *Session) Entity() (wire.EntityName, error) {
	name, err := wire.ParseEntityName(s.Name)
	if err != nil {
		err = cli.Usagef("--name %q: want TYPE.ID, such as client.admin, mon.a or osd.0", s.Name)
	}
	return name, err
}

// Keyring reads the file of --keyring, and finds the key of an entity in it, which must be there.
// The caller wipes the keyring, and own is one of its keys.
func Keyring(ctx context.Context, file string, name wire.EntityName) (ring *cephx.Keyring, own cephx.Key, err error) {
	if ring, err = File(ctx, "--keyring", file, cephx.ReadKeyring); err != nil {
		return nil, own, err
	}
	e, ok := ring.Lookup(name)
	if !ok {
		ring.Wipe()
		return nil, own, cli.Usagef("--keyring %s has no key of %v", file, name)
	}
	return ring, e.Key, nil
}

// File reads the file of a flag. Its error is a usage error, unless ctx ends.
func File[T any](ctx context.Context, flag, file string, read func(io.Reader) (T, error)) (v T, err error) {
	reading, stop := context.WithCancel(ctx) // closes the file
	defer stop()
	switch v, err = read(cli.Input(reading, file, nil)); {
	case err == nil:
	case ctx.Err() != nil:
		err = fmt.Errorf("%s %s: it is not read to its end: %w", flag, file, context.Cause(ctx))
	default:
		err = cli.Usagef("%s %s: %w", flag, file, cli.Cause(err))
	}
	return v, err
}

// Engine are --backend and --log-level, which every program with a messenger has.
type Engine struct {
	Backend uring.Backend
	Level   slog.Level
}

// Register makes the flags.
func (e *Engine) Register(fs *pflag.FlagSet) {
	cli.ChoiceVar(fs, &e.Backend, "backend", "auto", "I/O `ENGINE`: auto, io_uring or epoll",
		uring.Auto, uring.IOUring, uring.Epoll)
	level := func(text string) (l slog.Level, err error) {
		if text == "off" {
			return math.MaxInt, nil
		}
		if l.UnmarshalText([]byte(text)) != nil {
			err = errors.New("want off, debug, info, warn or error")
		}
		return l, err
	}
	cli.Var(fs, &e.Level, "log-level", "warn",
		"`LEVEL` from which to log to standard error: debug, info, warn, error, or off", level,
		"debug", "info", "warn", "error", "off")
}

// Logger writes text to w.
func (e *Engine) Logger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: e.Level}))
}

// Recording are --trace and --keylog.
type Recording struct {
	trace, keyLog string
	log           *trace.Log
	keys          *os.File
}

// Register makes the flags.
func (r *Recording) Register(fs *pflag.FlagSet) {
	fs.StringVar(&r.trace, "trace", "",
		"`FILE` to write every frame to, payloads cut; at 64 MiB it goes on in a new one, and the old one is FILE.1")
	fs.StringVar(&r.keyLog, "keylog", "",
		"`FILE` that gets the keys of connections in mode secure, for \"ringmsgr decode --keys\": its readers can decrypt recordings")
}

// Apply opens the files and sets cfg up. Close closes them, once the messenger is shut
// down.
func (r *Recording) Apply(cfg *control.Config) (err error) {
	if r.trace != "" {
		if r.log, err = trace.Create(r.trace, trace.Options{}); err != nil {
			return fmt.Errorf("--trace %s: %s", r.trace, cli.Cause(err))
		}
		cfg.Diagnostics.Tracer = r.log
	}
	if r.keyLog != "" {
		if r.keys, err = trace.CreateKeys(r.keyLog); err != nil {
			return errors.Join(fmt.Errorf("--keylog %s: %s", r.keyLog, cli.Cause(err)), r.Close())
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
			err = fmt.Errorf("--trace %s: %s", r.trace, cli.Cause(e))
		}
	}
	if r.keys != nil {
		if e := r.keys.Close(); e != nil {
			err = errors.Join(err, fmt.Errorf("--keylog %s: %s", r.keyLog, cli.Cause(e)))
		}
	}
	r.log, r.keys = nil, nil
	return err
}
