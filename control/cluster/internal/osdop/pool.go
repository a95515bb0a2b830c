package osdop

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// What a PoolOp does.
const (
	PoolCreate          uint32 = 0x01
	PoolDelete          uint32 = 0x02
	PoolCreateSnap      uint32 = 0x11 // of this Name
	PoolDeleteSnap      uint32 = 0x12
	PoolCreateUnmanaged uint32 = 0x21 // a self-managed snapshot: the answer has its id
	PoolDeleteUnmanaged uint32 = 0x22 // of this Snap
)

// Versions of MPoolOp.
const (
	VersionPoolOp = 4
	CompatPoolOp  = 2
)

const paxosSize = 18 // of the head of messages to and from monitors

// PoolOp is MPoolOp, which a monitor carries out.
type PoolOp struct {
	Epoch uint32 // of the sender's map
	FSID  [16]byte
	Pool  int64
	What  uint32
	Snap  uint64
	Name  string
}

// AppendTo appends the front of MPoolOp.
func (p *PoolOp) AppendTo(dst []byte) []byte {
	dst = le.AppendUint64(dst, uint64(p.Epoch))
	dst = le.AppendUint16(dst, 0xffff)
	dst = append(le.AppendUint64(dst, 0), p.FSID[:]...)
	dst = le.AppendUint32(dst, uint32(p.Pool))
	dst = le.AppendUint32(dst, p.What)
	dst = le.AppendUint64(dst, 0)
	dst = le.AppendUint64(dst, p.Snap)
	dst = wire.AppendString(dst, p.Name)
	return append(dst, 0, 0, 0)
}

// PoolOpReply is MPoolOpReply.
type PoolOpReply struct {
	Result int32
	Epoch  uint32 // the map that has the change, which is to be waited for
	Data   []byte // aliases the message
}

// DecodePoolOpReply reads the front of MPoolOpReply.
func DecodePoolOpReply(front []byte) (p PoolOpReply, err error) {
	r := wire.NewReader(front)
	r.Skip(paxosSize + 16)
	p.Result, p.Epoch = r.S32(), r.U32()
	if r.Bool() {
		p.Data = r.Blob()
	}
	if err := r.Err(); err != nil {
		return PoolOpReply{}, fmt.Errorf("MPoolOpReply: %w", err)
	}
	return p, nil
}

// Snap is the id that PoolCreateUnmanaged made; 0: there is none.
func (p *PoolOpReply) Snap() uint64 {
	if len(p.Data) < 8 {
		return 0
	}
	return le.Uint64(p.Data)
}
