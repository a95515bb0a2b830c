package trace

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

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
