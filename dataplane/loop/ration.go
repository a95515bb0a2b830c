package loop

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// LinesPerMinute is how many lines a cause may have in a minute.
const LinesPerMinute = 10

// RationedLogger writes at most LinesPerMinute lines a minute for each message. A message
// must be one of a few constants; variable parts are attributes. After dropped lines the
// next line has their number ("left_out"). Any goroutine may use it.
type RationedLogger struct {
	log *slog.Logger
	now func() time.Time

	mu     sync.Mutex
	causes map[string]*cause // guarded by mu
}

type cause struct {
	since   time.Time // begin of the present minute
	lines   int       // in it
	leftOut uint64
}

// NewRationedLogger makes a RationedLogger that writes to log; now is the time.
func NewRationedLogger(log *slog.Logger, now func() time.Time) *RationedLogger {
	return &RationedLogger{log: log, now: now, causes: make(map[string]*cause)}
}

// Info writes a line of that level, or counts it.
func (l *RationedLogger) Info(msg string, args ...any) { l.write(slog.LevelInfo, msg, args) }

// Warn writes a line of that level, or counts it.
func (l *RationedLogger) Warn(msg string, args ...any) { l.write(slog.LevelWarn, msg, args) }

// WarnAside is Warn for a caller that must not wait for the log, such as a core: a
// goroutine writes the line.
func (l *RationedLogger) WarnAside(msg string, args ...any) {
	if args, ok := l.take(slog.LevelWarn, msg, args); ok {
		go l.log.Warn(msg, args...)
	}
}

func (l *RationedLogger) write(level slog.Level, msg string, args []any) {
	if args, ok := l.take(level, msg, args); ok {
		l.log.Log(context.Background(), level, msg, args...)
	}
}

// take says whether a line may be written, and adds the number of dropped lines to args.
func (l *RationedLogger) take(level slog.Level, msg string, args []any) ([]any, bool) {
	if !l.log.Enabled(context.Background(), level) {
		return nil, false
	}
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.causes[msg]
	if c == nil {
		c = &cause{since: now}
		l.causes[msg] = c
	}
	if now.Sub(c.since) >= time.Minute {
		c.since, c.lines = now, 0
	}
	if c.lines == LinesPerMinute {
		c.leftOut++
		return nil, false
	}
	c.lines++
	if c.leftOut > 0 {
		args = append(args[:len(args):len(args)], "left_out", c.leftOut)
		c.leftOut = 0
	}
	return args, true
}
