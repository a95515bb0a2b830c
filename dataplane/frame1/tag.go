package frame1

import (
	"encoding/binary"
	"fmt"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

var le = binary.LittleEndian

// Tag is the byte that everything on an open connection begins with (Ceph's msgr.h and
// ProtocolV1.cc).
type Tag uint8

// The tags of the open phase. The tags of the handshake are in package wire1.
const (
	TagClose         Tag = 6  // the sender closes the connection
	TagMessage       Tag = 7  // a message
	TagAck           Tag = 8  // u64: every message up to this one has arrived
	TagKeepalive     Tag = 9  // nothing; daemons since Pacific stop reading behind it
	TagKeepalive2    Tag = 14 // a time
	TagKeepalive2Ack Tag = 15 // the time of a KEEPALIVE2, unchanged
)

var tagNames = map[Tag]string{
	TagClose: "CLOSE", TagMessage: "MSG", TagAck: "ACK", TagKeepalive: "KEEPALIVE", TagKeepalive2: "KEEPALIVE2",
	TagKeepalive2Ack: "KEEPALIVE2_ACK",
}

// String is the name in the protocol text.
func (t Tag) String() string {
	if name, ok := tagNames[t]; ok {
		return name
	}
	return fmt.Sprintf("tag(%d)", uint8(t))
}

// controlSize is the size of an ack, and of a keepalive with a time, without the tag.
const controlSize = 8

// Size is the number of bytes that follow the tag: of a message, the header alone.
// Error: [frame.ErrTag] for a tag that the protocol does not have.
func (f Form) Size(t Tag) (int, error) {
	switch t {
	case TagMessage:
		return f.HeaderSize(), nil
	case TagAck, TagKeepalive2, TagKeepalive2Ack:
		return controlSize, nil
	case TagKeepalive, TagClose:
		return 0, nil
	}
	return 0, fmt.Errorf("%w: %v", frame.ErrTag, t)
}

// AppendAck appends an ack for every message up to seq.
func AppendAck(dst []byte, seq uint64) []byte { return le.AppendUint64(append(dst, byte(TagAck)), seq) }

// ParseAck reads the bytes after the tag of an ack. Error: [frame.ErrTruncated].
func ParseAck(p []byte) (seq uint64, err error) {
	if len(p) != controlSize {
		return 0, fmt.Errorf("%w: ACK of %d", frame.ErrTruncated, len(p))
	}
	return le.Uint64(p), nil
}

// AppendKeepalive appends a KEEPALIVE2 with a time, in the 8 bytes of package wire,
// or without one, for a peer that lacks the feature, a KEEPALIVE.
func (f Form) AppendKeepalive(dst []byte, stamp [8]byte) []byte {
	if f.OldKeepalive {
		return append(dst, byte(TagKeepalive))
	}
	return append(append(dst, byte(TagKeepalive2)), stamp[:]...)
}

// AppendKeepaliveAck appends the answer to a KEEPALIVE2: the same 8 bytes.
func AppendKeepaliveAck(dst []byte, stamp [8]byte) []byte {
	return append(append(dst, byte(TagKeepalive2Ack)), stamp[:]...)
}

// ParseKeepalive reads the bytes after the tag of KEEPALIVE2 or of its answer. Error:
// [frame.ErrTruncated].
func ParseKeepalive(p []byte) (stamp [8]byte, err error) {
	if len(p) != controlSize {
		return stamp, fmt.Errorf("%w: keepalive of %d", frame.ErrTruncated, len(p))
	}
	return [8]byte(p), nil
}
