package wire

import "time"

// Timestamp is the 8-byte time of the protocol exactly as it travelled, so that a
// keepalive can be echoed unchanged whatever the peer has put there.
type Timestamp struct {
	Sec, Nsec uint32 // since the Unix epoch
}

// TimestampOf converts t; the zero time becomes zero. Seconds wrap in the year 2106.
func TimestampOf(t time.Time) Timestamp {
	if t.IsZero() {
		return Timestamp{}
	}
	return Timestamp{Sec: uint32(t.Unix()), Nsec: uint32(t.Nanosecond())}
}

// Time converts to the time that the sender meant. A nanosecond field of a second or
// more carries over.
func (t Timestamp) Time() time.Time { return time.Unix(int64(t.Sec), int64(t.Nsec)).UTC() }

func (t Timestamp) appendTo(dst []byte) []byte {
	return le.AppendUint32(le.AppendUint32(dst, t.Sec), t.Nsec)
}

func (r *Reader) timestamp() Timestamp { return Timestamp{Sec: r.U32(), Nsec: r.U32()} }

// Keepalive is the payload of KEEPALIVE2.
type Keepalive struct {
	Stamp Timestamp // the sender's clock
}

// AppendTo appends the payload.
func (k Keepalive) AppendTo(dst []byte) []byte { return k.Stamp.appendTo(dst) }

// DecodeKeepalive reads the payload of KEEPALIVE2.
func DecodeKeepalive(p []byte) (Keepalive, error) {
	r := NewReader(p)
	k := Keepalive{Stamp: r.timestamp()}
	return k, wrap("KEEPALIVE2", r.Err())
}

// KeepaliveAck is the payload of KEEPALIVE2_ACK.
type KeepaliveAck struct {
	Stamp Timestamp // the one of the KEEPALIVE2, unchanged
}

// AppendTo appends the payload.
func (k KeepaliveAck) AppendTo(dst []byte) []byte { return k.Stamp.appendTo(dst) }

// DecodeKeepaliveAck reads the payload of KEEPALIVE2_ACK.
func DecodeKeepaliveAck(p []byte) (KeepaliveAck, error) {
	r := NewReader(p)
	k := KeepaliveAck{Stamp: r.timestamp()}
	return k, wrap("KEEPALIVE2_ACK", r.Err())
}

// Ack is the payload of ACK.
type Ack struct {
	Seq uint64 // every message up to this one has arrived
}

// AppendTo appends the payload.
func (a Ack) AppendTo(dst []byte) []byte { return le.AppendUint64(dst, a.Seq) }

// DecodeAck reads the payload of ACK.
func DecodeAck(p []byte) (Ack, error) {
	r := NewReader(p)
	a := Ack{Seq: r.U64()}
	return a, wrap("ACK", r.Err())
}
