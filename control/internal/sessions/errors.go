package sessions

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// Errors of sessions. Package control says when they come, under the same names.
var (
	ErrConfig           = errors.New("control: invalid configuration")
	ErrShutdown         = fmt.Errorf("control: messenger shut down: %w", net.ErrClosed)
	ErrMarkedDown       = fmt.Errorf("control: marked down: %w", net.ErrClosed)
	ErrReplaced         = fmt.Errorf("control: replaced by a newer connection: %w", net.ErrClosed)
	ErrHandedOver       = fmt.Errorf("control: handed over to another process: %w", net.ErrClosed)
	ErrRebound          = fmt.Errorf("control: another address was bound: %w", ErrMarkedDown)
	ErrHandshakeTimeout = fmt.Errorf("control: handshake not complete in time: %w", os.ErrDeadlineExceeded)
	ErrExpired          = errors.New("control: the peer did not come back")
	ErrUnanswered       = errors.New("control: the peer does not answer")
	ErrStuck            = errors.New("control: dialling again does not help")
	ErrNotBound         = errors.New("control: not bound")
)
