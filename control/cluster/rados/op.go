package rados

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Types of messages.
const (
	typeOSDMap     = 41
	typeOp         = 42
	typeOpReply    = 43
	typeOSDBackoff = 61
)

// Operations.
const (
	opRead      = 0x1201
	opStat      = 0x1202
	opWrite     = 0x2201
	opWriteFull = 0x2202
	opDelete    = 0x2205

	opWrites = 0x2000 // bit of those that change an object
)

// Flags of MOSDOp.
const (
	flagOnDisk   = 0x4
	flagRetry    = 0x8
	flagRead     = 0x10
	flagWrite    = 0x20
	flagKnownDir = 0x400000 // the client knows redirections of pools
)

// head is the snapshot id of an object's present state.
const head = 0xfffffffffffffffe

var le = binary.LittleEndian

// Error is an operation that the cluster refused.
type Error struct {
	Op     string // read, write, stat or remove
	Object string
	Errno  syscall.Errno // ENOENT: there is no such object
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%s object %q: %v", e.Op, e.Object, e.Errno) }

// Unwrap returns the errno, for which errors.Is(err, fs.ErrNotExist) works.
func (e *Error) Unwrap() error { return e.Errno }

// ErrMessage: a message of an OSD cannot be decoded.
var ErrMessage = errors.New("rados: malformed message")

// place is where an object is, by one epoch of the map.
type place struct {
	group osdmap.PG
	shard int8   // of the OSD; -1: the pool is replicated
	hash  uint32 // of the object's name
	epoch uint32
	osd   int32
	addr  wire.Addr
}

// same says whether a request need not be sent again for a new map.
func (p *place) same(q *place) bool {
	return p.group == q.group && p.shard == q.shard && p.osd == q.osd && p.addr == q.addr
}

// request is one operation on one object.
type request struct {
	name  string // of the operation
	op    uint16
	pool  int64 // as the user named it
	place place
	obj   string
	data  []byte
	mtime time.Time
	// offset is where to begin; length is how much to read, 0: everything.
	offset, length uint64
	into           []byte // where what is read goes; nil: to memory of its own
	tid            uint64
	retry          int32
}

// message makes MOSDOp version 8. Its data is the request's.
func (r *request) message() *control.Message {
	b := make([]byte, 0, 256)
	b, mark := wire.BeginEnvelope(b, 1, 1)
	b = r.place.appendGroup(b)
	b = append(b, uint8(r.place.shard))
	b = wire.EndEnvelope(b, mark)
	b = le.AppendUint32(b, r.place.hash)
	b = le.AppendUint32(b, r.place.epoch)
	b = le.AppendUint32(b, r.flags())
	b, mark = wire.BeginEnvelope(b, 2, 2)
	b = append(b, make([]byte, 21)...) // request id: that of the message
	b = wire.EndEnvelope(b, mark)
	b = append(b, make([]byte, 3*8)...) // trace
	b = le.AppendUint32(b, 0)           // incarnation of the client
	if r.op&opWrites != 0 {
		b = wire.AppendUtime(b, r.mtime)
	} else {
		b = le.AppendUint64(b, 0)
	}
	b, mark = wire.BeginEnvelope(b, 6, 3)
	b = le.AppendUint64(b, uint64(r.place.group.Pool))
	b = le.AppendUint32(b, 0xffffffff) // preferred OSD: none
	b = wire.AppendString(b, "")       // locator
	b = wire.AppendString(b, "")       // namespace
	b = le.AppendUint64(b, ^uint64(0)) // hash: by the name
	b = wire.EndEnvelope(b, mark)
	b = wire.AppendString(b, r.obj)
	b = le.AppendUint16(b, 1)
	b = le.AppendUint16(b, r.op)
	b = le.AppendUint32(b, 0) // flags of the operation
	b = le.AppendUint64(b, r.offset)
	b = le.AppendUint64(b, max(uint64(len(r.data)), r.length))
	b = append(b, make([]byte, 12)...) // no truncation
	b = le.AppendUint32(b, uint32(len(r.data)))
	b = le.AppendUint64(b, head)
	b = le.AppendUint64(b, 0) // newest snapshot
	b = le.AppendUint32(b, 0) // snapshots
	b = le.AppendUint32(b, uint32(r.retry))
	b = le.AppendUint64(b, uint64(wire.FeaturesPacific))
	m := control.NewMessage(typeOp, b, r.data)
	m.TID, m.Version, m.CompatVersion, m.Priority = r.tid, 8, 3, 63
	return m
}

// appendGroup appends the placement group.
func (p *place) appendGroup(b []byte) []byte {
	b = append(b, 1)
	b = le.AppendUint64(b, uint64(p.group.Pool))
	b = le.AppendUint32(b, p.group.Seed)
	return le.AppendUint32(b, 0xffffffff)
}

func (r *request) flags() uint32 {
	f := uint32(flagOnDisk | flagKnownDir | flagRead)
	if r.op&opWrites != 0 {
		f ^= flagRead | flagWrite
	}
	if r.retry > 0 {
		f |= flagRetry
	}
	return f
}

// opReply is MOSDOpReply, as far as it matters for one operation.
type opReply struct {
	result int32
	epoch  uint32 // of the OSD's map
	data   []byte // aliases the message
}

// decodeOpReply reads MOSDOpReply version 8 with one operation.
func decodeOpReply(front, data []byte) (opReply, error) {
	const groupSize, versionSize, opSize = 17, 12, 38
	r := wire.NewReader(front)
	r.Blob() // object
	r.Skip(groupSize)
	r.U64() // flags
	p := opReply{result: r.S32()}
	r.Skip(versionSize)
	p.epoch = r.U32()
	n := r.Count(opSize)
	var size uint32
	for range n {
		r.Skip(opSize - 4)
		size = r.U32()
	}
	r.S32() // attempt
	for range n {
		// The result of the operation is that of the request.
		r.S32()
	}
	if err := r.Err(); err != nil {
		return p, fmt.Errorf("%w: MOSDOpReply: %w", ErrMessage, err)
	}
	if n > 1 || uint64(size) > uint64(len(data)) {
		return p, fmt.Errorf("%w: MOSDOpReply: %d operations, output of %d bytes in %d", ErrMessage, n, size, len(data))
	}
	p.data = data[:size]
	return p, nil
}

// Info is what Stat says.
type Info struct {
	Size    uint64    `json:"size"` // bytes
	ModTime time.Time `json:"mtime"`
}

func decodeStat(data []byte) (Info, error) {
	r := wire.NewReader(data)
	i := Info{Size: r.U64(), ModTime: r.Utime()}
	if err := r.Err(); err != nil {
		return Info{}, fmt.Errorf("%w: stat: %w", ErrMessage, err)
	}
	return i, nil
}
