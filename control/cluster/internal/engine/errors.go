package engine

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
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
	// Waiting names the condition for which the operation waited when it was given up, For how long; empty:
	// it was answered.
	Waiting string
	For     time.Duration
	Silent  bool  // it waited for the OSD, which said nothing
	Why     error // the error that keeps it from the OSD, or from a map; nil: there is none
	Err     error // an errno, the cause of a context, or why a message is malformed
}

// Error implements error.
func (e *Error) Error() string {
	pool := "pool " + e.Pool
	if e.Pool == "" {
		pool = fmt.Sprintf("pool %d", e.Object.Pool)
	}
	name := e.Object.Name
	if e.Object.Namespace != "" {
		name = e.Object.Namespace + "/" + name
	}
	text := fmt.Sprintf("%s object %q of %s", opName(e.Code), name, pool)
	if e.Object.ByHash { // a list
		text = opName(e.Code) + " " + pool
	}
	if e.OSD >= 0 {
		text += fmt.Sprintf(" on osd.%d", e.OSD)
	}
	if e.Waiting != "" {
		text += fmt.Sprintf(": %v: for %v %s", e.Outcome, e.For.Round(time.Second), e.Waiting)
	}
	return text + fmt.Sprintf(": %v", e.Err) + e.remedy()
}

// remedy says what the errno means for the operation, and what to do.
func (e *Error) remedy() string {
	switch {
	case errors.Is(e.Err, syscall.ESHUTDOWN):
		return " (the cluster has blocklisted this client)"
	case errors.Is(e.Err, syscall.EPERM):
		return " (the caps of the key do not allow it)"
	case errors.Is(e.Err, syscall.EFBIG):
		return " (osd_max_object_size is the most that an object may have: cut it into several)"
	case errors.Is(e.Err, syscall.EMSGSIZE):
		return " (osd_max_write_size is the most that an operation may write)"
	case errors.Is(e.Err, syscall.EROFS):
		return " (a snapshot does not change)"
	case errors.Is(e.Err, syscall.EOPNOTSUPP) && e.Code == osdop.CodeCall:
		return " (the OSD has no such class or method: osd_class_load_list, or a package of classes)"
	case errors.Is(e.Err, syscall.EOPNOTSUPP):
		return " (the release of the OSD does not know it, or the pool is erasure-coded: allow_ec_overwrites, no omap)"
	case errors.Is(e.Err, &auth.Refused{Errno: auth.EACCES}):
		return " (the key has no caps of OSDs, the clocks of the OSD and the monitors differ, or the OSD has not fetched their newest secret)"
	}
	return ""
}

// Unwrap returns the outcome and the errors.
func (e *Error) Unwrap() []error {
	if e.Why == nil {
		return []error{e.Outcome, e.Err}
	}
	return []error{e.Outcome, e.Err, notEnd{e.Why}}
}

// notEnd is an error that is not io.EOF, though it may wrap that: a connection has ended, and not the object
// that is read.
type notEnd struct{ error }

func (e notEnd) Is(target error) bool { return target != io.EOF && errors.Is(e.error, target) }
func (e notEnd) As(target any) bool   { return errors.As(e.error, target) }

// newError is the error of an operation that no OSD has seen.
func (e *Engine) newError(code uint16, o osdop.Object, err error) *Error {
	x := &Error{Code: code, Object: o, OSD: -1, Outcome: ErrNotSent, Err: err}
	if m := e.newest.Load(); m != nil {
		x.Pool = m.PoolName(x.Object.Pool)
	}
	return x
}

// errorLocked is the error of an operation that ends with err. refused: an OSD or the map says so, not the
// user or a connection, whatever the error is.
func (s *shard) errorLocked(o *machine.Op, code uint16, since time.Time, err error, refused bool) *Error {
	x := s.e.newError(code, o.Object, err)
	w, text, osd := o.Status()
	switch x.OSD = osd; {
	case refused:
		x.Outcome = ErrRefused
		return x
	case o.Seen():
		x.Outcome = ErrUnknown
	}
	switch w {
	case machine.WaitReply:
		x.Silent = true
	case machine.WaitMap:
		x.Why = s.e.noMap()
	case machine.WaitSession:
		if x.Why = o.Session.Err; s.link != nil && s.link.conn.Err() != nil {
			x.Why = s.link.conn.Err()
		}
		x.Silent = x.Why == nil
	}
	if x.Why != nil && !errors.Is(err, x.Why) { // which is told once
		text += fmt.Sprintf(" (%v)", x.Why)
	}
	x.Waiting, x.For = text, s.e.now().Sub(since)
	return x
}

// verdict says that an error of the machine comes from an OSD, or from the map.
func verdict(err error) bool {
	_, ok := err.(syscall.Errno) // not wrapped: those of connections are
	return ok
}

// doubtful says that a write which ends with err may have been carried out by an attempt before: the map knows of none, and an OSD looks
// at caps and at the blocklist before it looks whether it knows the request. Of a pool that is gone nothing stays.
func doubtful(o *machine.Op, answered bool, err error) bool {
	if answered {
		return o.Flags&osdop.FlagWrite != 0 && o.Attempt > 0 && (err == syscall.EPERM || err == syscall.ESHUTDOWN)
	}
	return o.Flags&osdop.FlagWrite != 0 && o.Seen() && err == syscall.EIO
}

// verbs name operations for people, but for those that read or write content, attributes or the omap.
var verbs = map[uint16]string{
	osdop.CodeStat: "stat", osdop.CodeChecksum: "checksum", osdop.CodeAssertVer: "compare", osdop.CodeCmpExt: "compare",
	osdop.CodeAppend: "append to", osdop.CodeCreate: "create", osdop.CodeRemove: "remove",
	osdop.CodeTruncate: "truncate", osdop.CodeZero: "zero", osdop.CodeRollback: "roll back",
	osdop.CodeCopyFrom: "copy to", osdop.CodeCall: "call of a class on", osdop.CodeList: "list",
	osdop.CodeWatch: "watch", osdop.CodeNotify: "notify", osdop.CodeWatchers: "list watchers of",
	osdop.CodeListSnaps: "list snapshots of",
}

func opName(code uint16) string {
	verb, of := "read", ""
	if code >= osdop.CodeWrite {
		verb = "write"
	}
	switch {
	case code >= osdop.CodeGetXattr && code <= osdop.CodeCmpXattr, code >= osdop.CodeSetXattr:
		of = " xattrs of"
	case code >= osdop.CodeOmapKeys && code <= osdop.CodeOmapCmp, code == osdop.CodeOmapRmRange,
		code >= osdop.CodeOmapSet && code <= osdop.CodeOmapRemove:
		of = " omap of"
	}
	return cmp.Or(verbs[code], verb+of)
}
