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

// DefaultCut is the number of recorded bytes of front, of middle and of data.
const DefaultCut = 16

// segments are the segments of one frame, in clear.
type segments = [frame.MaxSegments][]byte

// describe2 fills in r for a frame of msgr2: tag, lengths, fields, and the first cut bytes of
// front, of middle and of data. It keeps no memory of seg. For a malformed frame it sets
// Error.
func (r *Record) describe2(tag frame.Tag, seg *segments, cut int) {
	r.Event, r.Tag = Frame, tag.String()
	n := 1
	for i := range seg {
		if len(seg[i]) > 0 {
			n = i + 1
		}
	}
	r.Segments = make([]int, n)
	for i := range n {
		r.Segments[i] = len(seg[i])
	}
	if r.Aborted {
		return
	}
	if k, ok := kinds[tag]; ok {
		var err error
		if r.Fields, err = k.describe(seg[0]); err != nil {
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
	n := 0
	for i, s := range segs {
		if len(s) > 0 {
			n = i + 1
		}
	}
	if n == 0 || cut <= 0 {
		return nil
	}
	out := make([]string, n)
	for i := range out {
		out[i] = hex.EncodeToString(segs[i][:min(cut, len(segs[i]))])
	}
	return out
}

// kind is the content of the frames with one tag.
type kind struct {
	empty    func() any                  // fields without values
	describe func(p []byte) (any, error) // the fields of a payload; of a message, of its header
}

// says is a kind of frames whose payload decode reads, and whose fields describe makes of it.
func says[W, F any](decode func([]byte) (W, error), describe func(W) F) kind {
	return kind{
		func() any { return new(F) },
		func(p []byte) (any, error) {
			w, err := decode(p)
			f := describe(w)
			return &f, err
		},
	}
}

// kinds are those of msgr2, but for WAIT, which has no fields.
var kinds = map[frame.Tag]kind{
	frame.TagHello: says(wire2.DecodeHello, func(h wire2.Hello) Hello { return Hello{h.EntityType.String(), h.PeerAddr} }),
	frame.TagAuthRequest: says(wire2.DecodeAuthRequest, func(a wire2.AuthRequest) AuthRequest {
		return AuthRequest{method(a.Method), names(a.PreferredModes, mode), len(a.Payload)}
	}),
	frame.TagAuthBadMethod: says(wire2.DecodeAuthBadMethod, func(a wire2.AuthBadMethod) AuthBadMethod {
		return AuthBadMethod{method(a.Method), a.Result, names(a.AllowedMethods, method), names(a.AllowedModes, mode)}
	}),
	frame.TagAuthReplyMore:   more,
	frame.TagAuthRequestMore: more,
	frame.TagAuthDone: says(wire2.DecodeAuthDone, func(a wire2.AuthDone) AuthDone {
		return AuthDone{a.GlobalID, mode(a.Mode), len(a.Payload)}
	}),
	frame.TagAuthSignature: says(wire2.DecodeAuthSignature, func(a wire2.AuthSignature) AuthSignature {
		return AuthSignature{a != wire2.AuthSignature{}}
	}),
	frame.TagClientIdent: says(wire2.DecodeClientIdent, func(c wire2.ClientIdent) ClientIdent {
		return ClientIdent{c.Addrs, c.TargetAddr, c.GID, c.GlobalSeq, c.Supported, c.Required, c.Flags&wire.IdentLossy != 0, c.Cookie}
	}),
	frame.TagServerIdent: says(wire2.DecodeServerIdent, func(s wire2.ServerIdent) ServerIdent {
		return ServerIdent{s.Addrs, s.GID, s.GlobalSeq, s.Supported, s.Required, s.Flags&wire.IdentLossy != 0, s.Cookie}
	}),
	frame.TagIdentMissingFeatures: says(wire2.DecodeIdentMissingFeatures, func(m wire2.IdentMissingFeatures) MissingFeatures { return MissingFeatures(m) }),
	frame.TagSessionReconnect:     says(wire2.DecodeSessionReconnect, func(s wire2.SessionReconnect) Reconnect { return Reconnect(s) }),
	frame.TagSessionReconnectOK:   says(wire2.DecodeSessionReconnectOK, func(s wire2.SessionReconnectOK) ReconnectOK { return ReconnectOK(s) }),
	frame.TagSessionRetry:         says(wire2.DecodeSessionRetry, func(s wire2.SessionRetry) Retry { return Retry(s) }),
	frame.TagSessionRetryGlobal:   says(wire2.DecodeSessionRetryGlobal, func(s wire2.SessionRetryGlobal) RetryGlobal { return RetryGlobal(s) }),
	frame.TagSessionReset:         says(wire2.DecodeSessionReset, func(s wire2.SessionReset) Reset { return Reset(s) }),
	frame.TagCompressionRequest: says(wire2.DecodeCompressionRequest, func(c wire2.CompressionRequest) compressionRequest {
		return compressionRequest{c.Compress, names(c.Preferred, compression)}
	}),
	frame.TagCompressionDone: says(wire2.DecodeCompressionDone, func(c wire2.CompressionDone) CompressionDone {
		return CompressionDone{c.Compress, compression(c.Method)}
	}),
	frame.TagMessage: says(frame.ParseMessageHeader, func(h frame.MessageHeader) Message {
		return Message{Seq: h.Seq, TID: h.TID, Type: h.Type, Priority: h.Priority, Version: h.Version, Compat: h.CompatVersion, AckSeq: h.AckSeq}
	}),
	frame.TagAck:           says(number, func(p [8]byte) Ack { return Ack{binary.LittleEndian.Uint64(p[:])} }),
	frame.TagKeepalive2:    alive,
	frame.TagKeepalive2Ack: alive,
}

// Kinds of two tags each.
var (
	more  = says(wire2.DecodeAuthMore, func(a wire2.AuthMore) authMore { return authMore{len(a.Payload)} })
	alive = says(number, func(p [8]byte) Keepalive { return Keepalive{stampTime(p)} })
)

// number reads the payload of an ack or a keepalive.
func number(p []byte) (n [8]byte, err error) {
	r := wire.NewReader(p)
	r.Copy(n[:])
	return n, r.Err()
}

func method(m uint32) string      { return auth.Method(m).String() }
func mode(m uint32) string        { return auth.Mode(m).String() }
func compression(m uint32) string { return wire.CompressionMethod(m).String() }

// names are the names of the numbers in a list.
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

// What a record says of msgr1.

// describe1 is Describe for msgr1. If p is malformed it returns an error.
func (r *Record) describe1(p *probe.Part, cut int) (err error) {
	r.Event, r.Protocol = Frame, Msgr1
	switch p.Kind {
	case probe.PartAcceptorHello:
		var h wire1.AcceptorHello
		h, err = wire1.DecodeAcceptorHello(p.Bytes)
		r.Event, r.Tag, r.Fields = Banner, tagAddresses, &Addresses{Own: h.Own, Seen: &h.Seen}
	case probe.PartConnectorHello:
		var h wire1.ConnectorHello
		h, err = wire1.DecodeConnectorHello(p.Bytes)
		r.Event, r.Tag, r.Fields = Banner, tagAddresses, &Addresses{Own: h.Own}
	case probe.PartConnect:
		var c wire1.Connect
		c, err = wire1.DecodeConnect(p.Bytes)
		r.Tag, r.Fields = tagConnect, connectOf(&c)
	case probe.PartReply:
		var a wire1.Reply
		a, err = wire1.DecodeReply(p.Bytes)
		r.Tag, r.Fields = TagReply+a.Tag.String(), replyOf(&a)
	case probe.PartSeq:
		var s wire1.Seq
		s, err = wire1.DecodeSeq(p.Bytes)
		r.Tag, r.Fields = tagSeqs, &Seqs{Received: s.Received}
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

// describeOpen1 describes a frame with a tag.
func describeOpen1(p *probe.Part) (any, error) {
	switch p.Tag {
	case frame1.TagMessage:
		return messageOf(p.Header), nil
	case frame1.TagAck:
		seq, err := frame1.ParseAck(p.Bytes)
		return &Ack{seq}, err
	case frame1.TagKeepalive2, frame1.TagKeepalive2Ack:
		stamp, err := frame1.ParseKeepalive(p.Bytes)
		return &Keepalive{stampTime(stamp)}, err
	}
	return nil, nil
}

// connectOf are the fields of a connect message.
func connectOf(c *wire1.Connect) *Connect {
	f := &Connect{
		Features: c.Features, HostType: hostType(c.HostType), GlobalSeq: c.GlobalSeq, ConnectSeq: c.ConnectSeq, Protocol: c.Protocol,
		Authorizer: int(c.AuthorizerLen), Lossy: c.Lossy(),
	}
	if c.AuthMethod != 0 {
		f.Method = auth.Method(c.AuthMethod).String()
	}
	return f
}

func hostType(n uint32) string {
	if n > 0xff {
		return fmt.Sprintf("type(0x%x)", n)
	}
	return wire.EntityType(n).String()
}

// replyOf are the fields of the answer to a connect message.
func replyOf(a *wire1.Reply) *Reply {
	return &Reply{
		Features: a.Features, GlobalSeq: a.GlobalSeq, ConnectSeq: a.ConnectSeq, Protocol: a.Protocol, Authorizer: int(a.AuthorizerLen), Lossy: a.Lossy(),
	}
}

// messageOf are the fields of the header of a message of msgr1.
func messageOf(h *frame1.Header) *Message {
	return &Message{
		Seq: h.Seq, TID: h.TID, Type: h.Type, Priority: h.Priority, Version: h.Version, Compat: h.CompatVersion, Source: source(h.SrcType, h.SrcNum),
	}
}

func source(typ uint8, num int64) string {
	if num < 0 {
		return wire.EntityType(typ).String() + ".?"
	}
	return fmt.Sprintf("%v.%d", wire.EntityType(typ), num)
}
