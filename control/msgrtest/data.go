package msgrtest

import (
	"encoding/binary"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// Ack is the payload of ACK.
type Ack struct {
	Seq uint64 // every message up to this one has arrived
}

// AppendTo appends the payload.
func (a Ack) AppendTo(dst []byte) []byte { return binary.LittleEndian.AppendUint64(dst, a.Seq) }

// DecodeAck reads the payload of ACK. Errors: wire.ErrTruncated.
func DecodeAck(p []byte) (Ack, error) {
	r := wire.NewReader(p)
	a := Ack{Seq: r.U64()}
	if err := r.Err(); err != nil {
		return Ack{}, fmt.Errorf("decode ACK: %w", err)
	}
	return a, nil
}

// Keepalive is the payload of KEEPALIVE2, and of KEEPALIVE2_ACK.
type Keepalive struct {
	// Stamp is the clock of the sender of KEEPALIVE2. The ack has it unchanged.
	Stamp dataplane.Timestamp
}

// AppendTo appends the payload.
func (k Keepalive) AppendTo(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, k.Stamp.Sec)
	return binary.LittleEndian.AppendUint32(dst, k.Stamp.Nsec)
}

// DecodeKeepalive reads the payload of KEEPALIVE2 or KEEPALIVE2_ACK. Errors:
// wire.ErrTruncated.
func DecodeKeepalive(p []byte) (Keepalive, error) {
	r := wire.NewReader(p)
	k := Keepalive{Stamp: dataplane.Timestamp{Sec: r.U32(), Nsec: r.U32()}}
	if err := r.Err(); err != nil {
		return Keepalive{}, fmt.Errorf("decode KEEPALIVE2: %w", err)
	}
	return k, nil
}
