package trace

import "github.com/ringmsgr/ringmsgr/control/wire"

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
