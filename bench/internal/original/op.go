package original

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The types of the messages.
const (
	typeOp      = 42 // MOSDOp
	typeOpReply = 43 // MOSDOpReply
)

const (
	opVersion = 8
	opCompat  = 3
	opWrite   = 0x2201
	groupSize = 17 // of a placement group
	replyMax  = 128
)

// errMessage is the error of an unexpected message.
var errMessage = errors.New("unexpected message")

var le = binary.LittleEndian

// newOp makes an MOSDOp that writes data to an object.
func newOp(data []byte) *control.Message {
	b := make([]byte, 0, 256)
	b, mark := wire.BeginEnvelope(b, 1, 1)
	b = append(b, 1)
	b = append(b, make([]byte, 12)...) // pool and seed
	b = le.AppendUint32(b, ^uint32(0)) // preferred OSD: none
	b = append(b, 0xff)                // shard: none
	b = wire.EndEnvelope(b, mark)
	b = append(b, make([]byte, 12)...) // hash, epoch, flags
	b, mark = wire.BeginEnvelope(b, 2, 2)
	b = append(b, make([]byte, 21)...) // request id: that of the message
	b = wire.EndEnvelope(b, mark)
	b = append(b, make([]byte, 24+4+8)...) // trace, incarnation, time
	b, mark = wire.BeginEnvelope(b, 6, 3)
	b = le.AppendUint64(b, 0)
	b = le.AppendUint32(b, ^uint32(0))
	b = append(b, make([]byte, 8)...) // no locator, no namespace
	b = le.AppendUint64(b, ^uint64(0))
	b = wire.EndEnvelope(b, mark)
	b = wire.AppendString(b, "object")
	b = le.AppendUint16(b, 1)
	b = le.AppendUint16(b, opWrite)
	b = append(b, make([]byte, 4+8)...) // flags, offset
	b = le.AppendUint64(b, uint64(len(data)))
	b = append(b, make([]byte, 12)...) // no truncation
	b = le.AppendUint32(b, uint32(len(data)))
	b = le.AppendUint64(b, ^uint64(1))    // newest version of the object
	b = append(b, make([]byte, 8+4+4)...) // no snapshots, first attempt
	b = le.AppendUint64(b, uint64(wire.FeaturesPacific))
	m := control.NewMessage(typeOp, b, data)
	m.Version, m.CompatVersion = opVersion, opCompat
	return m
}

// putReply makes reply, which has replyMax bytes, the MOSDOpReply that their server sends:
// about the placement group of the request, and no operation.
func putReply(reply, op *control.Message) error {
	if op.Type != typeOp {
		return fmt.Errorf("%w: message of type %d in place of MOSDOp", errMessage, op.Type)
	}
	b := reply.Data[:4]
	clear(reply.Data) // no name, and all other fields zero:
	r := wire.NewReader(op.Front)
	r.Envelope(1, func(_ uint8, r *wire.Reader) { b = append(b, r.Bytes(groupSize)...) })
	r.U32() // hash
	epoch, flags := r.U32(), r.U32()
	if err := r.Err(); err != nil {
		return fmt.Errorf("%w: MOSDOp: %w", errMessage, err)
	}
	b = le.AppendUint64(b, uint64(flags))
	b = b[:len(b)+4+12] // result, version
	b = le.AppendUint32(b, epoch)
	b = b[:len(b)+4]                   // no operations
	b = le.AppendUint32(b, ^uint32(0)) // attempt: not known
	b = b[:len(b)+12+8+1+24]           // versions, no redirect, trace
	reply.Front, reply.Data = b, nil
	reply.TID, reply.Version, reply.CompatVersion = op.TID, 8, 2
	return nil
}
