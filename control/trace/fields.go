package trace

import (
	"time"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Fields are the fields of a frame, or of a part of a handshake of msgr1. A frame has few of
// them, and those of value zero are left out of JSON. Numbers without a unit are counts or
// identifiers of the protocol.
type Fields struct {
	// HELLO and the addresses of msgr1
	EntityType string     `json:"entity_type,omitempty"` // of the sender
	PeerAddr   wire.Addr  `json:"peer_addr,omitzero"`    // of the receiver, as the sender knows it
	Own        wire.Addr  `json:"own,omitzero"`
	Seen       *wire.Addr `json:"seen,omitempty"` // the connector, as the acceptor sees it

	// authentication and compression
	Method   string   `json:"method,omitempty"`
	Result   int32    `json:"result,omitempty"`  // a negative errno
	Methods  []string `json:"methods,omitempty"` // that are allowed, or preferred
	Modes    []string `json:"modes,omitempty"`   // likewise
	GlobalID uint64   `json:"global_id,omitempty"`
	Mode     string   `json:"mode,omitempty"`
	Payload  int      `json:"payload_bytes,omitempty"`
	Signed   bool     `json:"signed,omitempty"` // false: the signature is zero, as with method none
	Compress bool     `json:"compress,omitempty"`

	// the session; a banner has the features of the protocol
	HostType     string        `json:"host_type,omitempty"`
	Addrs        wire.AddrVec  `json:"addrs,omitempty"`
	Target       wire.Addr     `json:"target,omitzero"`
	GID          int64         `json:"gid,omitempty"`
	GlobalSeq    uint64        `json:"global_seq,omitempty"`
	ConnectSeq   uint64        `json:"connect_seq,omitempty"`
	MsgSeq       uint64        `json:"msg_seq,omitempty"`
	Received     uint64        `json:"received,omitempty"` // the highest sequence of a message
	Features     wire.Features `json:"features,omitempty"`
	Supported    wire.Features `json:"supported,omitempty"`
	Required     wire.Features `json:"required,omitempty"`
	Protocol     uint32        `json:"protocol_version,omitempty"`
	Authorizer   int           `json:"authorizer_bytes,omitempty"`
	Lossy        bool          `json:"lossy,omitempty"`
	Cookie       uint64        `json:"cookie,omitempty"`
	ClientCookie uint64        `json:"client_cookie,omitempty"`
	ServerCookie uint64        `json:"server_cookie,omitempty"`
	Full         bool          `json:"full,omitempty"`

	// messages, acks and keepalives
	Seq      uint64    `json:"seq,omitempty"`
	TID      uint64    `json:"tid,omitempty"`
	Type     uint16    `json:"type,omitempty"`
	Priority uint16    `json:"priority,omitempty"`
	Version  uint16    `json:"version,omitempty"`
	Compat   uint16    `json:"compat_version,omitempty"`
	AckSeq   uint64    `json:"ack_seq,omitempty"` // msgr1 has none
	Source   string    `json:"source,omitempty"`  // msgr1 alone
	Stamp    time.Time `json:"stamp,omitzero"`
}

// Msgr1 is the name of the older protocol in Record.Protocol.
const Msgr1 = "msgr1"

// Event is the subject of a record.
type Event string

// The events.
const (
	Open   Event = "open"   // a TCP connection exists
	Banner Event = "banner" // the first bytes of a side
	Frame  Event = "frame"  // a frame, or a part of a handshake or stream of msgr1
	End    Event = "end"    // the TCP connection is over
	Lost   Event = "lost"   // records, or bytes of the stream, are missing here
	Bad    Event = "bad"    // bytes that are no frame, or a damaged frame

	// The conclusions of "ringmsgr decode" from the other events.
	State Event = "state" // the connection has reached another state
	Wrong Event = "wrong" // a peer broke a rule, or refused the other
)

// Side is one end of a TCP connection.
type Side string

// The sides.
const (
	Connector Side = "connector" // it has dialled
	Acceptor  Side = "acceptor"
)

// Other is the other side.
func (s Side) Other() Side {
	if s == Connector {
		return Acceptor
	}
	return Connector
}

// Record is one line of a trace.
type Record struct {
	Time   time.Time `json:"time"`
	Socket uint64    `json:"socket"` // numbers the TCP connections of a trace
	Event  Event     `json:"event"`
	From   Side      `json:"from,omitempty"` // the sender

	// With Open: the addresses, and the side that has written the trace, if it was one of
	// both.
	Connector string `json:"connector,omitempty"`
	Acceptor  string `json:"acceptor,omitempty"`
	Recorder  Side   `json:"recorder,omitempty"`

	// Protocol is "msgr1", "msgr2.0", "msgr2.1", or "msgr2" as long as the revision is not
	// known.
	Protocol string `json:"protocol,omitempty"`
	// Tag is the name of a frame in the protocol. The parts of a handshake of msgr1 are
	// "addresses", "connect", "reply READY" and others, and "seq" after a reply with SEQ.
	Tag string `json:"tag,omitempty"`
	// Segments are the lengths of its segments in bytes. A message has four: header,
	// front, middle, data.
	Segments []int `json:"segments,omitempty"`
	// Fields are the fields of the frame; nil if it has none, or they cannot be read.
	Fields *Fields `json:"fields,omitempty"`
	// Payload is the beginning of front, middle and data in hex.
	Payload    []string `json:"payload,omitempty"`
	Compressed bool     `json:"compressed,omitempty"`
	Aborted    bool     `json:"aborted,omitempty"` // the sender has given it up

	// Text is the conclusion, with State and Wrong.
	Text string `json:"text,omitempty"`
	// Count is the number of lost records or bytes.
	Count uint64 `json:"count,omitempty"`
	// Error is the reason of the end of a connection, or the error of a frame.
	Error string `json:"error,omitempty"`
}
