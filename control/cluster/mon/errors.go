package mon

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

var (
	// ErrConfig: a setting is wrong.
	ErrConfig = errors.New("mon: invalid configuration")
	// ErrClosed: the client is closed. It wraps net.ErrClosed.
	ErrClosed = fmt.Errorf("mon: client closed: %w", net.ErrClosed)
	// ErrNoAnswer: a monitor does not answer: an attempt to reach it, a renewal, or a
	// command.
	ErrNoAnswer = errors.New("mon: the monitor does not answer")
	// errMessage: a message cannot be decoded.
	errMessage = errors.New("mon: malformed message")
)

// CommandError is a command that a monitor, or a daemon, did not carry out.
type CommandError struct {
	Prefix string        // of the command
	Errno  syscall.Errno // ENOENT and others
	Status string        // the text of the daemon
}

// Error implements error.
func (e *CommandError) Error() string {
	if e.Status == "" {
		return fmt.Sprintf("command %q: %v", e.Prefix, e.Errno)
	}
	return fmt.Sprintf("command %q: %s (%v)", e.Prefix, e.Status, e.Errno)
}

// Unwrap returns the errno.
func (e *CommandError) Unwrap() error { return e.Errno }
