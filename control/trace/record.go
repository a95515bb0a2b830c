package trace

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
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

// DefaultCut is the number of recorded bytes of front, of middle and of data.
const DefaultCut = 16

// segments are the segments of one frame, in clear.
type segments = [frame.MaxSegments][]byte

// describe2 fills in r for a frame of msgr2: tag, lengths, fields, and the first cut bytes of
// front, of middle and of data. It keeps no memory of seg. For a malformed frame it sets
// Error.
func (r *Record) describe2(tag frame.Tag, seg *segments, cut int) {
	r.Event, r.Tag = Frame, tag.String()
	r.Segments = make([]int, max(1, len(used(seg[:]))))
	for i := range r.Segments {
		r.Segments[i] = len(seg[i])
	}
	if r.Aborted {
		return
	}
	if describe := kinds[tag]; describe != nil {
		var err error
		if r.Fields, err = describe(seg[0]); err != nil {
			r.Fields, r.Error = nil, err.Error()
			return
		}
	}
	if tag == frame.TagMessage {
		r.Payload = cutAll(seg[1:], cut)
	}
}

// cutAll is the beginning of each segment in hex.
func cutAll(segs [][]byte, cut int) []string {
	if segs = used(segs); len(segs) == 0 || cut <= 0 {
		return nil
	}
	out := make([]string, len(segs))
	for i, s := range segs {
		out[i] = hex.EncodeToString(s[:min(cut, len(s))])
	}
	return out
}

// used are the segments up to the last that is not empty.
func used(segs [][]byte) [][]byte {
	for len(segs) > 0 && len(segs[len(segs)-1]) == 0 {
		segs = segs[:len(segs)-1]
	}
	return segs
}

// says has a payload read by decode, and makes fields of its content.
func says[W any](decode func([]byte) (W, error), fields func(W) Fields) func(p []byte) (*Fields, error) {
	return func(p []byte) (*Fields, error) {
		w, err := decode(p)
		f := fields(w)
		return &f, err
	}
}

// kinds make the fields of the payloads of msgr2, of messages those of the header. WAIT has no
// fields.
var kinds = map[frame.Tag]func(p []byte) (*Fields, error){
	frame.TagHello: says(wire2.DecodeHello, func(h wire2.Hello) Fields {
		return Fields{EntityType: h.EntityType.String(), PeerAddr: h.PeerAddr}
	}),
	frame.TagAuthRequest: says(wire2.DecodeAuthRequest, func(a wire2.AuthRequest) Fields {
		return Fields{Method: method(a.Method), Modes: names(a.PreferredModes, mode), Payload: len(a.Payload)}
	}),
	frame.TagAuthBadMethod: says(wire2.DecodeAuthBadMethod, func(a wire2.AuthBadMethod) Fields {
		return Fields{
			Method: method(a.Method), Result: a.Result, Methods: names(a.AllowedMethods, method), Modes: names(a.AllowedModes, mode),
		}
	}),
	frame.TagAuthReplyMore:   says(wire2.DecodeAuthMore, more),
	frame.TagAuthRequestMore: says(wire2.DecodeAuthMore, more),
	frame.TagAuthDone: says(wire2.DecodeAuthDone, func(a wire2.AuthDone) Fields {
		return Fields{GlobalID: a.GlobalID, Mode: mode(a.Mode), Payload: len(a.Payload)}
	}),
	frame.TagAuthSignature: says(wire2.DecodeAuthSignature, func(a wire2.AuthSignature) Fields {
		return Fields{Signed: a != wire2.AuthSignature{}}
	}),
	frame.TagClientIdent: says(wire2.DecodeClientIdent, func(c wire2.ClientIdent) Fields {
		return Fields{
			Addrs: c.Addrs, Target: c.TargetAddr, GID: c.GID, GlobalSeq: c.GlobalSeq, Supported: c.Supported, Required: c.Required,
			Lossy: c.Flags&wire.IdentLossy != 0, Cookie: c.Cookie,
		}
	}),
	frame.TagServerIdent: says(wire2.DecodeServerIdent, func(s wire2.ServerIdent) Fields {
		return Fields{
			Addrs: s.Addrs, GID: s.GID, GlobalSeq: s.GlobalSeq, Supported: s.Supported, Required: s.Required,
			Lossy: s.Flags&wire.IdentLossy != 0, Cookie: s.Cookie,
		}
	}),
	frame.TagIdentMissingFeatures: says(wire2.DecodeIdentMissingFeatures, func(m wire2.IdentMissingFeatures) Fields {
		return Fields{Features: m.Features}
	}),
	frame.TagSessionReconnect: says(wire2.DecodeSessionReconnect, func(s wire2.SessionReconnect) Fields {
		return Fields{
			Addrs: s.Addrs, ClientCookie: s.ClientCookie, ServerCookie: s.ServerCookie,
			GlobalSeq: s.GlobalSeq, ConnectSeq: s.ConnectSeq, MsgSeq: s.MsgSeq,
		}
	}),
	frame.TagSessionReconnectOK: says(wire2.DecodeSessionReconnectOK, func(s wire2.SessionReconnectOK) Fields {
		return Fields{MsgSeq: s.MsgSeq}
	}),
	frame.TagSessionRetry: says(wire2.DecodeSessionRetry, func(s wire2.SessionRetry) Fields { return Fields{ConnectSeq: s.ConnectSeq} }),
	frame.TagSessionRetryGlobal: says(wire2.DecodeSessionRetryGlobal, func(s wire2.SessionRetryGlobal) Fields {
		return Fields{GlobalSeq: s.GlobalSeq}
	}),
	frame.TagSessionReset: says(wire2.DecodeSessionReset, func(s wire2.SessionReset) Fields { return Fields{Full: s.Full} }),
	frame.TagCompressionRequest: says(wire2.DecodeCompressionRequest, func(c wire2.CompressionRequest) Fields {
		return Fields{Compress: c.Compress, Methods: names(c.Preferred, compression)}
	}),
	frame.TagCompressionDone: says(wire2.DecodeCompressionDone, func(c wire2.CompressionDone) Fields {
		return Fields{Compress: c.Compress, Method: compression(c.Method)}
	}),
	frame.TagMessage: says(frame.ParseMessageHeader, func(h frame.MessageHeader) Fields {
		return Fields{
			Seq: h.Seq, TID: h.TID, Type: h.Type, Priority: h.Priority, Version: h.Version, Compat: h.CompatVersion, AckSeq: h.AckSeq,
		}
	}),
	frame.TagAck:           says(number, func(p [8]byte) Fields { return Fields{Seq: binary.LittleEndian.Uint64(p[:])} }),
	frame.TagKeepalive2:    says(number, stamp),
	frame.TagKeepalive2Ack: says(number, stamp),
}

func more(a wire2.AuthMore) Fields { return Fields{Payload: len(a.Payload)} }
func stamp(p [8]byte) Fields       { return Fields{Stamp: stampTime(p)} }

// number reads the payload of an ack or a keepalive.
func number(p []byte) (n [8]byte, err error) {
	r := wire.NewReader(p)
	r.Copy(n[:])
	return n, r.Err()
}

func method(m uint32) string      { return auth.Method(m).String() }
func mode(m uint32) string        { return auth.Mode(m).String() }
func compression(m uint32) string { return wire.CompressionMethod(m).String() }

func names(list []uint32, name func(uint32) string) []string {
	out := make([]string, len(list))
	for i, n := range list {
		out[i] = name(n)
	}
	return out
}

// stampTime is the time of a keepalive, the zero time for zeros.
func stampTime(p [8]byte) time.Time {
	sec, nsec := binary.LittleEndian.Uint32(p[:]), binary.LittleEndian.Uint32(p[4:])
	if sec == 0 && nsec == 0 {
		return time.Time{}
	}
	return time.Unix(int64(sec), int64(nsec)).UTC()
}

// describe1 is describe2 for a part of msgr1. If p is malformed it returns an error.
func (r *Record) describe1(p *probe.Part, cut int) (err error) {
	r.Event, r.Protocol = Frame, Msgr1
	switch p.Kind {
	case probe.PartAcceptorHello:
		var h wire1.AcceptorHello
		h, err = wire1.DecodeAcceptorHello(p.Bytes)
		r.Event, r.Tag, r.Fields = Banner, "addresses", &Fields{Own: h.Own, Seen: &h.Seen}
	case probe.PartConnectorHello:
		var h wire1.ConnectorHello
		h, err = wire1.DecodeConnectorHello(p.Bytes)
		r.Event, r.Tag, r.Fields = Banner, "addresses", &Fields{Own: h.Own}
	case probe.PartConnect:
		var c wire1.Connect
		c, err = wire1.DecodeConnect(p.Bytes)
		r.Tag, r.Fields = "connect", &Fields{
			Features: c.Features, HostType: c.HostType.String(), GlobalSeq: uint64(c.GlobalSeq), ConnectSeq: uint64(c.ConnectSeq),
			Protocol: c.Protocol, Authorizer: int(c.AuthorizerLen), Lossy: c.Lossy(),
		}
		if c.AuthMethod != 0 {
			r.Fields.Method = method(c.AuthMethod)
		}
	case probe.PartReply:
		var a wire1.Reply
		a, err = wire1.DecodeReply(p.Bytes)
		r.Tag, r.Fields = "reply "+a.Tag.String(), &Fields{
			Features: a.Features, GlobalSeq: uint64(a.GlobalSeq), ConnectSeq: uint64(a.ConnectSeq),
			Protocol: a.Protocol, Authorizer: int(a.AuthorizerLen), Lossy: a.Lossy(),
		}
	case probe.PartSeq:
		var s wire1.Seq
		s, err = wire1.DecodeSeq(p.Bytes)
		r.Tag, r.Fields = "seq", &Fields{Received: s.Received}
	default:
		r.Tag = p.Tag.String()
		r.Fields, err = describeOpen1(p)
		if h := p.Header; h != nil {
			r.Segments = []int{p.Form.HeaderSize(), len(p.Seg[0]), len(p.Seg[1]), len(p.Seg[2])}
			r.Payload = cutAll(p.Seg[:], cut)
		}
	}
	return err
}

// describeOpen1 are the fields of a frame with a tag.
func describeOpen1(p *probe.Part) (*Fields, error) {
	switch p.Tag {
	case frame1.TagMessage:
		h := p.Header
		return &Fields{
			Seq: h.Seq, TID: h.TID, Type: h.Type, Priority: h.Priority, Version: h.Version, Compat: h.CompatVersion,
			Source: source(h.SrcType, h.SrcNum),
		}, nil
	case frame1.TagAck:
		seq, err := frame1.ParseAck(p.Bytes)
		return &Fields{Seq: seq}, err
	case frame1.TagKeepalive2, frame1.TagKeepalive2Ack:
		at, err := frame1.ParseKeepalive(p.Bytes)
		return &Fields{Stamp: stampTime(at)}, err
	}
	return nil, nil
}

func source(typ uint8, num int64) string {
	if num < 0 {
		return wire.EntityType(typ).String() + ".?"
	}
	return fmt.Sprintf("%v.%d", wire.EntityType(typ), num)
}
