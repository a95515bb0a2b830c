package osdop

import (
	"cmp"
	"fmt"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Types of messages.
const (
	TypeOp          = 42
	TypeOpReply     = 43
	TypeWatchNotify = 44
	TypeBackoff     = 61
)

// Head of MOSDOp (Version), and of stock clients' requests.
const (
	CompatOp   = 3
	PriorityOp = 63
)

// Flags of a request. The engine adds Retry and Redirected; Append itself adds OnDisk, KnownRedirect and
// PoolEIO.
const (
	OnDisk        uint32 = 0x4
	Retry         uint32 = 0x8
	FlagRead      uint32 = 0x10
	FlagWrite     uint32 = 0x20
	OrderSnap     uint32 = 0x40
	BalanceReads  uint32 = 0x100
	LocalizeReads uint32 = 0x2000
	RWOrdered     uint32 = 0x4000
	IgnoreCache   uint32 = 0x8000
	IgnoreOverlay uint32 = 0x20000
	Redirected    uint32 = 0x200000
	KnownRedirect uint32 = 0x400000
	FullTry       uint32 = 0x800000
	FullForce     uint32 = 0x1000000
	ReturnVec     uint32 = 0x4000000
	PoolEIO       uint32 = 0x8000000
)

// AnyReplica are the flags of reads that go to other OSDs than the primary.
const AnyReplica = BalanceReads | LocalizeReads

// Snapshots with a meaning of their own.
const (
	Head    uint64 = 1<<64 - 2 // the present state
	SnapDir uint64 = 1<<64 - 1 // the snapshot of a request with CodeListSnaps
)

// Object names an object.
type Object struct {
	Pool      int64
	Namespace string
	Locator   string // the key in place of Name that places it; empty: none
	Name      string
	// ByHash has Hash place it, in place of Locator and Name: lists have no name.
	ByHash bool
	Hash   uint32
}

// AppendLocator appends object_locator_t: all but the name.
func (o *Object) AppendLocator(b []byte) []byte {
	compat, hash := uint8(3), ^uint64(0)
	if o.ByHash {
		compat, hash = 6, uint64(o.Hash)
	}
	b, mark := wire.BeginEnvelope(b, 6, compat)
	b = le.AppendUint64(b, uint64(o.Pool))
	b = le.AppendUint32(b, 0xffffffff) // preferred OSD: none
	b = wire.AppendString(b, o.Locator)
	b = wire.AppendString(b, o.Namespace)
	return wire.EndEnvelope(le.AppendUint64(b, hash), mark)
}

// Request is what a caller wants of one object. The OSD carries its operations out in order, all or
// none of them, and stops at the first that fails.
type Request struct {
	Target  Object
	Snap    uint64   // that reads see; 0: Head
	SnapSeq uint64   // the snapshot context of writes
	Snaps   []uint64 // newest first
	Flags   uint32   // FlagRead or FlagWrite, and others; the message has those of the Envelope
	Ops     []Op
	MTime   time.Time // of writes
}

// Envelope has the fields that the sender adds. The transaction id is that of the message.
type Envelope struct {
	Epoch uint32
	PG    osdmap.PG // the actual one
	Hash  uint32    // that led to it
	Shard int8      // -1: the pool is replicated
	// Target is where the request goes in place of Request.Target, for a cache tier or a redirect; nil:
	// there.
	Target  *Object
	Attempt int32 // from 0 on
	Flags   uint32
	// Features are those of the connection. They decide about the version.
	Features wire.Features
}

// featureSquid: MOSDOp version 9 is understood.
const featureSquid wire.Features = 1<<49 | wire.FeatureServerJewel

// Version is that of MOSDOp on a connection.
func Version(f wire.Features) uint16 {
	if f.Has(featureSquid) {
		return 9
	}
	return 8
}

// Bounds of a request, beyond which OSDs take none.
const (
	MaxOps  = 1 << 16
	MaxData = 1 << 31
)

// Append appends the front of MOSDOp and returns the data of the message, which is the input of the
// operations: of the only one that has some, or a copy of them all.
func (r *Request) Append(front []byte, e *Envelope) (out, data []byte, err error) {
	if data, err = r.data(); err != nil {
		return front, nil, err
	}
	target, write := cmp.Or(e.Target, &r.Target), e.Flags&FlagWrite != 0
	b := appendShard(front, e.PG, e.Shard)
	b = le.AppendUint32(b, e.Hash)
	b = le.AppendUint32(b, e.Epoch)
	b = le.AppendUint32(b, e.Flags|OnDisk|KnownRedirect|PoolEIO)
	b, mark := wire.BeginEnvelope(b, 2, 2)
	b = append(b, zeros[:21]...) // request id: that of the message
	b = wire.EndEnvelope(b, mark)
	b = append(b, zeros[:24]...) // trace
	if Version(e.Features) >= 9 {
		b, mark = wire.BeginEnvelope(b, 1, 1)
		b = wire.EndEnvelope(append(b, 0), mark) // another trace: none
	}
	b = le.AppendUint32(b, 0) // incarnation of the client
	if write {
		b = wire.AppendUtime(b, r.MTime)
	} else {
		b = le.AppendUint64(b, 0)
	}
	b = target.AppendLocator(b)
	b = wire.AppendString(b, target.Name)
	b = le.AppendUint16(b, uint16(len(r.Ops)))
	for i := range r.Ops {
		b = r.Ops[i].appendTo(b)
	}
	b = le.AppendUint64(b, cmp.Or(r.Snap, Head))
	b = le.AppendUint64(b, r.SnapSeq)
	b = le.AppendUint32(b, uint32(len(r.Snaps)))
	for _, s := range r.Snaps {
		b = le.AppendUint64(b, s)
	}
	b = le.AppendUint32(b, uint32(e.Attempt))
	return le.AppendUint64(b, uint64(e.Features)), data, nil
}

var zeros [32]byte

// data joins the input of the operations, without a copy if one has it all.
func (r *Request) data() ([]byte, error) {
	var only []byte
	total, parts := 0, 0
	for i := range r.Ops {
		op := &r.Ops[i]
		if op.Code == 0 {
			return nil, fmt.Errorf("%w: a name in operation %d of %d is too long", wire.ErrMalformed, i, len(r.Ops))
		}
		if len(op.Data) > 0 {
			only, total, parts = op.Data, total+len(op.Data), parts+1
		}
		if total > MaxData {
			return nil, fmt.Errorf("%w: more than %d bytes of input", wire.ErrMalformed, MaxData)
		}
	}
	if len(r.Ops) >= MaxOps {
		return nil, fmt.Errorf("%w: %d operations in one request", wire.ErrMalformed, len(r.Ops))
	}
	if parts <= 1 {
		return only, nil
	}
	all := make([]byte, 0, total)
	for i := range r.Ops {
		all = append(all, r.Ops[i].Data...)
	}
	return all, nil
}

const opSize = 38

func (op *Op) appendTo(b []byte) []byte {
	b = le.AppendUint16(b, op.Code)
	b = le.AppendUint32(b, op.Flags)
	b = append(b, op.Args[:]...)
	return le.AppendUint32(b, uint32(len(op.Data)))
}

const pgSize = 17

// appendShard appends a placement group and the shard of it.
func appendShard(b []byte, pg osdmap.PG, shard int8) []byte {
	b, mark := wire.BeginEnvelope(b, 1, 1)
	return wire.EndEnvelope(append(AppendPG(b, pg), uint8(shard)), mark)
}

// AppendPG appends a placement group, as osdmap.ReadPG reads it.
func AppendPG(b []byte, pg osdmap.PG) []byte {
	b = append(b, 1)
	b = le.AppendUint64(b, uint64(pg.Pool))
	b = le.AppendUint32(b, pg.Seed)
	return le.AppendUint32(b, 0xffffffff)
}
