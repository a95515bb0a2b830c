package rados

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Lock is an advisory lock on an object, as class lock of the OSDs keeps it. Its owner is this client with
// the cookie.
type Lock struct {
	Name        string
	Shared      bool          // with others of the same Tag
	Cookie      string        // that tells owners in one client apart
	Tag         string        // of shared locks
	Description string        // for people
	Duration    time.Duration // after which it is over; 0: never. Whole nanoseconds.
	Renew       bool          // one that is held already is renewed
}

const classLock = "lock"

var le = binary.LittleEndian

// lockShared is the type of shared locks; that of others is lower by 1.
const lockShared = 2

// Lock takes a lock; EBUSY: somebody else has it, EEXIST: this owner has it.
func (o Object) Lock(ctx context.Context, l Lock) error { return o.callLock(ctx, "lock", l.input()) }

func (l *Lock) input() []byte {
	kind := uint8(lockShared)
	if !l.Shared {
		kind--
	}
	b, mark := wire.BeginEnvelope(nil, 1, 1)
	b = append(wire.AppendString(b, l.Name), kind)
	for _, s := range []string{l.Cookie, l.Tag, l.Description} {
		b = wire.AppendString(b, s)
	}
	b = le.AppendUint32(b, uint32(l.Duration/time.Second))
	b = le.AppendUint32(b, uint32(l.Duration%time.Second))
	return wire.EndEnvelope(wire.AppendBool(b, l.Renew), mark)
}

// Unlock gives a lock back; ENOENT: this owner does not have it.
func (o Object) Unlock(ctx context.Context, name, cookie string) error {
	b, mark := wire.BeginEnvelope(nil, 1, 1)
	b = wire.AppendString(wire.AppendString(b, name), cookie)
	return o.callLock(ctx, "unlock", wire.EndEnvelope(b, mark))
}

// BreakLock takes a lock from the owner that a Locker names. It does not keep a client that is cut off from
// writing later.
func (o Object) BreakLock(ctx context.Context, name string, owner Locker) error {
	b, mark := wire.BeginEnvelope(nil, 1, 1)
	b = append(wire.AppendString(b, name), uint8(owner.Type))
	b = le.AppendUint64(b, uint64(owner.Client))
	return o.callLock(ctx, "break_lock", wire.EndEnvelope(wire.AppendString(b, owner.Cookie), mark))
}

func (o Object) callLock(ctx context.Context, method string, in []byte) error {
	return o.write(ctx, func(op *WriteOp) { op.Exec(classLock, method, in) })
}

// Locker is an owner of a lock.
type Locker struct {
	Type        wire.EntityType `json:"type"`   // client
	Client      int64           `json:"client"` // its global id
	Cookie      string          `json:"cookie"`
	Expires     time.Time       `json:"expires"` // the zero of Unix: never
	Addr        wire.Addr       `json:"addr"`
	Description string          `json:"description"`
}

// Lockers returns the owners of a lock; none: it is free.
func (o Object) Lockers(ctx context.Context, name string) (owners []Locker, shared bool, tag string, err error) {
	b, mark := wire.BeginEnvelope(nil, 1, 1)
	in := wire.EndEnvelope(wire.AppendString(b, name), mark)
	l, err := read(ctx, o, func(op *ReadOp) *Result[lockers] {
		return addResult(&op.steps, osdop.Call(classLock, "get_info", in), readLockers)
	})
	return l.owners, l.kind == lockShared, l.tag, err
}

// lockers are the owners of a lock, its type and its tag.
type lockers struct {
	owners []Locker
	kind   uint8
	tag    string
}

var readLockers = output("class lock", func(r *wire.Reader) (all lockers) {
	r.Envelope(1, func(_ uint8, r *wire.Reader) {
		all.owners = wire.ListOf(r, 6+6, func(r *wire.Reader) (l Locker) {
			r.Envelope(1, func(_ uint8, r *wire.Reader) {
				l.Type, l.Client, l.Cookie = wire.EntityType(r.U8()), r.S64(), r.Str()
			})
			r.Envelope(1, func(_ uint8, r *wire.Reader) {
				l.Expires, l.Addr, l.Description = r.Utime(), r.Addr(), r.Str()
			})
			return l
		})
		all.kind, all.tag = r.U8(), r.Str()
	})
	return all
})

// Locks lists the names of the locks on the object.
func (o Object) Locks(ctx context.Context) ([]string, error) {
	return read(ctx, o, func(op *ReadOp) *Result[[]string] {
		return addResult(&op.steps, osdop.Call(classLock, "list_locks", nil), readLocks)
	})
}

var readLocks = output("class lock", func(r *wire.Reader) []string { return enveloped(r, 4, (*wire.Reader).Str) })
