package rados

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/engine"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// ErrSkipped: a step of an operation did not run, as one before it failed, or the whole.
var ErrSkipped = errors.New("rados: a step before failed, or the whole operation")

// Result is that of a step of a compound operation. It is set when the operation returns, also when that
// fails.
type Result[T any] struct {
	Value T
	Err   error // of this step: an errno, or ErrSkipped
}

// Op is a compound operation: steps that one OSD carries out on one object, in their order, all of them or
// none. It is a ReadOp or a WriteOp. It may be used again, but not by two goroutines at a time.
type Op interface{ list() *steps }

// steps are the operations, and the functions that take the results of some of them, in their order.
type steps struct {
	ops     []osdop.Op
	results []result
	mtime   time.Time
	into    []byte // memory for all of the answer's data: of a ReadInto that is the only step
}

type result struct {
	step int
	set  func(op *osdop.Op, skipped error)
}

func (s *steps) list() *steps { return s }

// add adds an operation without output.
func (s *steps) add(op osdop.Op) { s.ops, s.into = append(s.ops, op), nil }

// addResult adds an operation, and has decode read its output.
func addResult[T any](s *steps, op osdop.Op, decode func(out []byte) (T, error)) *Result[T] {
	r := new(Result[T])
	s.results = append(s.results, result{len(s.ops), func(op *osdop.Op, skipped error) {
		*r = Result[T]{Err: skipped}
		switch {
		case skipped != nil:
		case op.Result < 0:
			r.Err = reason(op.Result)
		default:
			r.Value, r.Err = decode(op.Out)
		}
	}})
	s.add(op)
	return r
}

// cloned keeps an output.
func cloned(out []byte) ([]byte, error) { return bytes.Clone(out), nil }

// output makes the decoder of an output, which errors call what. The value keeps none of the output.
func output[T any](what string, read func(r *wire.Reader) T) func(out []byte) (T, error) {
	return func(out []byte) (T, error) {
		r := wire.NewReader(out)
		v := read(r)
		if r.Err() != nil {
			return *new(T), fmt.Errorf("%w: output of %s: %w", ErrMessage, what, r.Err())
		}
		return v, nil
	}
}

// enveloped reads the list in an envelope, whose elements have at least size bytes.
func enveloped[T any](r *wire.Reader, size int, read func(r *wire.Reader) T) (list []T) {
	r.Envelope(1, func(_ uint8, r *wire.Reader) { list = wire.ListOf(r, size, read) })
	return list
}

// Operate carries out a compound operation, and returns the version of the object then. The error is that of
// the first step that failed; each step has its own in its Result.
func (o Object) Operate(ctx context.Context, op Op) (version uint64, err error) {
	s := op.list()
	reply, err := o.do(ctx, o.compound(op), s.ops, s.into)
	s.conclude(&reply, err)
	return reply.UserVersion, err
}

// Start is Operate for callers that do not wait: done is called once, on a core, which it must not block, or on
// a goroutine that is in a method here, as in Start itself. It may start others. At the bounds of Options
// Start waits, but on a core. Any goroutine, a core's too.
func (o Object) Start(ctx context.Context, op Op, done func(version uint64, err error)) error {
	s := op.list()
	c := &engine.Call{Request: o.compound(op), Into: s.into, Done: func(c *engine.Call) {
		err := o.explained(c.Err)
		s.conclude(&c.Reply, err)
		done(c.Reply.UserVersion, err)
	}}
	c.Request.Ops = s.ops
	return o.pool.c.engine.Start(ctx, c)
}

// compound makes the request, without the operations, whose results it clears.
func (o Object) compound(op Op) osdop.Request {
	s := op.list()
	_, write := op.(*WriteOp)
	r := o.request(write)
	if !s.mtime.IsZero() {
		r.MTime = s.mtime
	}
	for i := range s.ops {
		s.ops[i].Result, s.ops[i].Out = 0, nil
	}
	return r
}

// conclude sets the results of the steps, and releases the answer.
func (s *steps) conclude(reply *osdop.Reply, err error) {
	defer reply.Release()
	skipped := err
	if errors.Is(err, ErrRefused) {
		if skipped = nil; !slices.ContainsFunc(s.ops, failed) {
			skipped = ErrSkipped // it was refused as a whole, as where there is no object
		}
	}
	results := s.results
	for i := range s.ops {
		if len(results) > 0 && results[0].step == i {
			results[0].set(&s.ops[i], skipped)
			results = results[1:]
		}
		if skipped == nil && failed(s.ops[i]) {
			skipped = ErrSkipped
		}
	}
}

// failed says that an operation ended its request.
func failed(op osdop.Op) bool { return op.Result < 0 && op.Flags&osdop.OpFailOK == 0 }

// mismatch is the result of CompareExtent where the first byte differs, mismatch - i where byte i does.
const mismatch = -4095

// MismatchError says that CompareExtent found another byte, the first of them here. It wraps ECANCELED.
type MismatchError struct{ At uint64 }

// Error implements error.
func (e *MismatchError) Error() string { return fmt.Sprintf("byte %d differs", e.At) }

// Unwrap returns ECANCELED.
func (e *MismatchError) Unwrap() error { return syscall.ECANCELED }

// explained completes an error of the engine's.
func (o Object) explained(err error) error {
	failed, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	if errno, ok := failed.Err.(syscall.Errno); ok && errno >= -mismatch && errno < 1<<31 {
		failed.Err = reason(-int32(errno))
	}
	if failed.Pool == "" { // no map has it
		failed.Pool = o.pool.name
		if errors.Is(err, syscall.ENOENT) {
			failed.Err = fmt.Errorf("%w (the pool was deleted)", failed.Err)
		}
	}
	return err
}

// reason is the error of a negative result.
func reason(result int32) error {
	if result <= mismatch {
		return &MismatchError{uint64(mismatch - int64(result))}
	}
	return syscall.Errno(-result)
}
