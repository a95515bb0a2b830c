package engine

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/engine/machine"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
)

// The outcome of an operation that failed.
var (
	ErrNotSent = errors.New("not sent")
	ErrUnknown = errors.New("outcome unknown")
	ErrRefused = errors.New("refused")
)

var (
	// ErrClosed: the engine is closed. It wraps net.ErrClosed.
	ErrClosed = fmt.Errorf("rados: client closed: %w", net.ErrClosed)
	// ErrMessage: a message of an OSD or a monitor cannot be decoded, or contradicts itself.
	ErrMessage = errors.New("rados: malformed message")
	// ErrInUse: a Call is under way.
	ErrInUse = errors.New("rados: the call is under way")
)

// Error is an operation that failed.
type Error struct {
	Code    uint16 // of the first operation of the request; 0: it has none
	Object  osdop.Object
	Pool    string // its name; empty: no map has it
	OSD     int32  // that had the operation; -1: none
	Outcome error  // ErrNotSent, ErrUnknown or ErrRefused
	// Waiting is what the operation waited for when it was given up, and for how long; empty: it was answered.
	Waiting string
	For     time.Duration
	Err     error // an errno, the cause of a context, or why a message is malformed
}

// Error implements error.
func (e *Error) Error() string {
	pool := e.Pool
	if pool == "" {
		pool = fmt.Sprintf("pool %d", e.Object.Pool)
	}
	name := e.Object.Name
	if e.Object.Namespace != "" {
		name = e.Object.Namespace + "/" + name
	}
	text := fmt.Sprintf("%s object %q of %s", opName(e.Code), name, pool)
	if e.OSD >= 0 {
		text += fmt.Sprintf(" on osd.%d", e.OSD)
	}
	if e.Waiting != "" {
		text += fmt.Sprintf(": %v: for %v %s", e.Outcome, e.For.Round(time.Second), e.Waiting)
	}
	text += fmt.Sprintf(": %v", e.Err)
	switch {
	case errors.Is(e.Err, syscall.ESHUTDOWN):
		text += " (the cluster has blocklisted this client)"
	case errors.Is(e.Err, syscall.EPERM):
		text += " (the caps of the key do not allow it)"
	}
	return text
}

// Unwrap returns the outcome and the error.
func (e *Error) Unwrap() []error { return []error{e.Outcome, e.Err} }

// waitingLocked says what an operation waits for.
func (s *shard) waitingLocked(o *machine.Op) (text string, osd int32) {
	w, text, osd := o.Status()
	var why error
	switch w {
	case machine.WaitMap:
		why = s.e.noMap()
	case machine.WaitSession:
		if why = o.Session().Err(); s.link != nil && s.link.conn.Err() != nil {
			why = s.link.conn.Err()
		}
	}
	if why != nil {
		text += fmt.Sprintf(" (%v)", why)
	}
	return text, osd
}

// newError is the error of a call that no OSD has seen.
func (e *Engine) newError(c *Call, err error) *Error {
	x := &Error{Code: c.code(), Object: c.Request.Target, OSD: -1, Outcome: ErrNotSent, Err: err}
	if m := e.newest.Load(); m != nil {
		x.Pool = m.PoolName(x.Object.Pool)
	}
	return x
}

// errorLocked is the error of an operation that ends with err.
func (s *shard) errorLocked(c *Call, err error, answered bool) *Error {
	x := s.e.newError(c, err)
	var errno syscall.Errno
	if answered || errors.As(err, &errno) {
		_, _, x.OSD = c.op.Status()
		x.Outcome = ErrRefused
		return x
	}
	x.Waiting, x.OSD = s.waitingLocked(&c.op)
	x.For = s.e.now().Sub(c.since)
	if c.op.Attempt() >= 0 {
		x.Outcome = ErrUnknown
	}
	return x
}

// verbs name operations for people.
var verbs = map[uint16]string{
	osdop.CodeRead: "read", osdop.CodeSparseRead: "read", osdop.CodeStat: "stat", osdop.CodeList: "list",
	osdop.CodeWrite: "write", osdop.CodeWriteFull: "write", osdop.CodeWriteSame: "write", osdop.CodeAppend: "append to", osdop.CodeRemove: "remove",
	osdop.CodeWatch: "watch", osdop.CodeNotify: "notify", osdop.CodeCall: "call of a class on",
}

func opName(code uint16) string { return cmp.Or(verbs[code], fmt.Sprintf("operation %#x on", code)) }
