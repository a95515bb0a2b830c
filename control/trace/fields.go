package trace

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The fields of frames. Numbers without a unit are counts or identifiers of the protocol.
type (
	// Features are the features of a banner.
	Features struct {
		Supported uint64 `json:"supported"`
		Required  uint64 `json:"required"`
	}
	// Hello is HELLO.
	Hello struct {
		EntityType string    `json:"entity_type"` // of the sender
		PeerAddr   wire.Addr `json:"peer_addr"`   // of the receiver, as the sender knows it
	}
	// AuthRequest is AUTH_REQUEST.
	AuthRequest struct {
		Method  string   `json:"method"`
		Modes   []string `json:"modes"`
		Payload int      `json:"payload_bytes"`
	}
	// AuthBadMethod is AUTH_BAD_METHOD.
	AuthBadMethod struct {
		Method  string   `json:"method"`
		Result  int32    `json:"result"` // a negative errno
		Methods []string `json:"allowed_methods"`
		Modes   []string `json:"allowed_modes"`
	}
	// authMore is AUTH_REPLY_MORE or AUTH_REQUEST_MORE.
	authMore struct {
		Payload int `json:"payload_bytes"`
	}
	// AuthDone is AUTH_DONE.
	AuthDone struct {
		GlobalID uint64 `json:"global_id"`
		Mode     string `json:"mode"`
		Payload  int    `json:"payload_bytes"`
	}
	// AuthSignature is AUTH_SIGNATURE.
	AuthSignature struct {
		Signed bool `json:"signed"` // else it is zero, as with method none
	}
	// ClientIdent is CLIENT_IDENT.
	ClientIdent struct {
		Addrs     wire.AddrVec  `json:"addrs"`
		Target    wire.Addr     `json:"target"`
		GID       int64         `json:"gid"`
		GlobalSeq uint64        `json:"global_seq"`
		Supported wire.Features `json:"supported"`
		Required  wire.Features `json:"required"`
		Lossy     bool          `json:"lossy"`
		Cookie    uint64        `json:"cookie"`
	}
	// ServerIdent is SERVER_IDENT.
	ServerIdent struct {
		Addrs     wire.AddrVec  `json:"addrs"`
		GID       int64         `json:"gid"`
		GlobalSeq uint64        `json:"global_seq"`
		Supported wire.Features `json:"supported"`
		Required  wire.Features `json:"required"`
		Lossy     bool          `json:"lossy"`
		Cookie    uint64        `json:"cookie"`
	}
	// MissingFeatures is IDENT_MISSING_FEATURES.
	MissingFeatures struct {
		Features wire.Features `json:"features"`
	}
	// Reconnect is SESSION_RECONNECT.
	Reconnect struct {
		Addrs        wire.AddrVec `json:"addrs"`
		ClientCookie uint64       `json:"client_cookie"`
		ServerCookie uint64       `json:"server_cookie"`
		GlobalSeq    uint64       `json:"global_seq"`
		ConnectSeq   uint64       `json:"connect_seq"`
		MsgSeq       uint64       `json:"msg_seq"`
	}
	// ReconnectOK is SESSION_RECONNECT_OK.
	ReconnectOK struct {
		MsgSeq uint64 `json:"msg_seq"`
	}
	// Retry is SESSION_RETRY.
	Retry struct {
		ConnectSeq uint64 `json:"connect_seq"`
	}
	// RetryGlobal is SESSION_RETRY_GLOBAL.
	RetryGlobal struct {
		GlobalSeq uint64 `json:"global_seq"`
	}
	// Reset is SESSION_RESET.
	Reset struct {
		Full bool `json:"full"`
	}
	// compressionRequest is COMPRESSION_REQUEST.
	compressionRequest struct {
		Compress bool     `json:"compress"`
		Methods  []string `json:"methods"`
	}
	// CompressionDone is COMPRESSION_DONE.
	CompressionDone struct {
		Compress bool   `json:"compress"`
		Method   string `json:"method"`
	}
	// Message is the header of MESSAGE, or of MSG in msgr1.
	Message struct {
		Seq      uint64 `json:"seq"`
		TID      uint64 `json:"tid"`
		Type     uint16 `json:"type"`
		Priority uint16 `json:"priority"`
		Version  uint16 `json:"version"`
		Compat   uint16 `json:"compat_version"`
		AckSeq   uint64 `json:"ack_seq,omitempty"` // msgr1 has none
		Source   string `json:"source,omitempty"`  // msgr1 alone
	}
	// Ack is ACK.
	Ack struct {
		Seq uint64 `json:"seq"`
	}
	// Keepalive is KEEPALIVE2 or KEEPALIVE2_ACK.
	Keepalive struct {
		Stamp time.Time `json:"stamp"`
	}
)

// fieldsOf is an empty value of the type of a record's fields, nil for none.
func fieldsOf(e Event, protocol, tag string) any {
	switch {
	case e == Banner && protocol != Msgr1:
		return new(Features)
	case protocol == Msgr1:
		if strings.HasPrefix(tag, TagReply) {
			return new(Reply)
		}
		if m := makers1[tag]; m != nil {
			return m()
		}
	case e == Frame:
		for t, k := range kinds {
			if t.String() == tag {
				return k.empty()
			}
		}
	}
	return nil
}

// Msgr1 is the name of the older protocol in Record.Protocol.
const Msgr1 = "msgr1"

// The tags of the parts of a handshake in msgr1, which has no frames.
const (
	tagAddresses = "addresses" // the banner with the addresses
	tagConnect   = "connect"
	tagSeqs      = "seq" // after a reply with SEQ
	// TagReply begins the name of a reply to connect, such as "reply READY".
	TagReply = "reply "
)

// The fields of the handshake of msgr1.
type (
	// Addresses are the addresses that a side sends after its banner.
	Addresses struct {
		Own  wire.Addr  `json:"own"`
		Seen *wire.Addr `json:"seen,omitempty"` // the connector, as the acceptor sees it
	}
	// Connect is a connect message.
	Connect struct {
		Features   wire.Features `json:"features"`
		HostType   string        `json:"host_type"`
		GlobalSeq  uint32        `json:"global_seq"`
		ConnectSeq uint32        `json:"connect_seq"`
		Protocol   uint32        `json:"protocol_version"`
		Method     string        `json:"method,omitempty"`
		Authorizer int           `json:"authorizer_bytes"`
		Lossy      bool          `json:"lossy"`
	}
	// Reply is the answer to Connect.
	Reply struct {
		Features   wire.Features `json:"features"`
		GlobalSeq  uint32        `json:"global_seq"`
		ConnectSeq uint32        `json:"connect_seq"`
		Protocol   uint32        `json:"protocol_version"`
		Authorizer int           `json:"authorizer_bytes"`
		Lossy      bool          `json:"lossy"`
	}
	// Seqs is the highest sequence that a side has received.
	Seqs struct {
		Received uint64 `json:"received"`
	}
)

var makers1 = map[string]func() any{
	tagAddresses:     func() any { return new(Addresses) },
	tagConnect:       func() any { return new(Connect) },
	tagSeqs:          func() any { return new(Seqs) },
	"MSG":            func() any { return new(Message) },
	"ACK":            func() any { return new(Ack) },
	"KEEPALIVE2":     func() any { return new(Keepalive) },
	"KEEPALIVE2_ACK": func() any { return new(Keepalive) },
}

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
	// Tag is the name of a frame in the protocol.
	Tag string `json:"tag,omitempty"`
	// Segments are the lengths of its segments in bytes. A message has four: header,
	// front, middle, data.
	Segments []int `json:"segments,omitempty"`
	// Fields are the fields of the frame, a pointer to one of the types of this package;
	// nil if it has none, or they cannot be read.
	Fields any `json:"fields,omitempty"`
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

// UnmarshalJSON implements json.Unmarshaler. Fields get the type that their tag has.
func (r *Record) UnmarshalJSON(p []byte) error {
	type plain Record // without methods
	line := struct {
		*plain
		Fields json.RawMessage `json:"fields"`
	}{plain: (*plain)(r)}
	if err := json.Unmarshal(p, &line); err != nil {
		return err
	}
	r.Fields = nil
	if len(line.Fields) == 0 {
		return nil
	}
	f := fieldsOf(r.Event, r.Protocol, r.Tag)
	if f == nil {
		return nil // of a later version
	}
	if err := json.Unmarshal(line.Fields, f); err != nil {
		return fmt.Errorf("fields of %s: %w", r.Tag, err)
	}
	r.Fields = f
	return nil
}
