package trace

import (
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

// msgr1 decodes the older protocol.
type msgr1 struct {
	c     *Streams
	asked wire1.Connect // the last one
	dirs  [2]parts
}

// phase is the part of the protocol that a side sends next.
type phase uint8

const (
	greets phase = iota // banner and addresses
	asks                // connect, or the reply to it
	awaits              // nothing before the reply to connect
	counts              // the sequence of the last message that it has received
	open                // messages, acks and keepalives
)

// parts is one direction.
type parts struct {
	phase  phase
	dec    *frame1.Decoder
	search bool
}

func newMsgr1(c *Streams) *msgr1 { return &msgr1{c: c} }

// joined1 is msgr1 of a connection that had begun before the recording. It assumes the
// features of all releases since Jewel.
func joined1(c *Streams) *msgr1 {
	m := newMsgr1(c)
	m.open(frame1.Form{})
	for i := range m.dirs {
		m.dirs[i].phase, m.dirs[i].search = open, true
	}
	return m
}

func (m *msgr1) open(form frame1.Form) {
	for i := range m.dirs {
		m.dirs[i].dec = frame1.NewDecoder(frame1.Config{Form: form}, nil, frame.DefaultLimits())
	}
}

// lost implements protocol.
func (m *msgr1) lost(d *direction) {
	p := &m.dirs[d.side.index()]
	if p.phase != open {
		m.c.kill(d, "the rest of a handshake cannot be decoded after a gap")
		return
	}
	d.stuck += uint64(len(d.buf))
	d.buf, p.search = nil, true
}

// step implements protocol.
func (m *msgr1) step(d *direction) bool {
	p := &m.dirs[d.side.index()]
	if len(d.buf) == 0 {
		return false
	}
	switch p.phase {
	case greets:
		return m.greeting(d, p)
	case asks:
		if d.side == Connector {
			return m.connect(d, p)
		}
		return m.reply(d, p)
	case awaits:
		if m.c.patient(d) {
			return false
		}
		m.c.kill(d, "the answer to connect is missing")
		return false
	case counts:
		return m.sequence(d, p)
	}
	if p.search {
		return m.find(d, p)
	}
	return m.part(d, p)
}

func (m *msgr1) emit(d *direction, tag string, fields any) {
	m.c.emit(Record{Event: Frame, From: d.side, Protocol: Msgr1, Tag: tag, Fields: fields})
}

func (m *msgr1) fail(d *direction, err error) bool {
	m.c.kill(d, err.Error())
	return false
}

func (m *msgr1) greeting(d *direction, p *parts) bool {
	size := wire1.ConnectorHelloSize
	if d.side == Acceptor {
		size = wire1.AcceptorHelloSize
	}
	if err := wire1.CheckBanner(d.buf); err != nil {
		return m.fail(d, err)
	}
	if len(d.buf) < size {
		return false
	}
	var a Addresses
	var err error
	if d.side == Acceptor {
		var h wire1.AcceptorHello
		h, err = wire1.DecodeAcceptorHello(d.take(size))
		a = Addresses{Own: h.Own, Seen: &h.Seen}
	} else {
		var h wire1.ConnectorHello
		h, err = wire1.DecodeConnectorHello(d.take(size))
		a.Own = h.Own
	}
	if err != nil {
		return m.fail(d, err)
	}
	m.c.emit(Record{Event: Banner, From: d.side, Protocol: Msgr1, Tag: tagAddresses, Fields: &a})
	p.phase = asks
	return true
}

func (m *msgr1) connect(d *direction, p *parts) bool {
	if len(d.buf) < wire1.ConnectSize {
		return false
	}
	c, err := wire1.DecodeConnect(d.buf[:wire1.ConnectSize])
	if err != nil {
		return m.fail(d, err)
	}
	size := wire1.ConnectSize + int(c.AuthorizerLen)
	if len(d.buf) < size {
		return false
	}
	d.take(size)
	m.emit(d, tagConnect, connectOf(&c))
	m.asked, p.phase = c, awaits
	return true
}

func (m *msgr1) reply(d *direction, p *parts) bool {
	if len(d.buf) < wire1.ReplySize {
		return false
	}
	a, err := wire1.DecodeReply(d.buf[:wire1.ReplySize])
	if err != nil {
		return m.fail(d, err)
	}
	size := wire1.ReplySize + int(a.AuthorizerLen)
	if len(d.buf) < size {
		return false
	}
	d.take(size)
	m.emit(d, TagReply+a.Tag.String(), replyOf(&a))
	other := &m.dirs[d.side.Other().index()]
	switch a.Tag {
	case wire1.TagReady, wire1.TagSeq:
		both := m.asked.Features & a.Features
		m.open(frame1.Form{
			OldHeader: !both.Has(wire.FeatureNoSrcAddr), OldFooter: !both.Has(wire.FeatureMsgAuth), OldKeepalive: !both.Has(wire.FeatureMsgrKeepalive2),
		})
		p.phase, other.phase = open, open
		if a.Tag == wire1.TagSeq {
			p.phase, other.phase = counts, counts
		}
	default:
		other.phase = asks
	}
	return true
}

func (m *msgr1) sequence(d *direction, p *parts) bool {
	if len(d.buf) < wire1.SeqSize {
		return false
	}
	s, err := wire1.DecodeSeq(d.take(wire1.SeqSize))
	if err != nil {
		return m.fail(d, err)
	}
	m.emit(d, tagSeqs, &Seqs{Received: s.Received})
	p.phase = open
	return true
}

// part reads a frame. A frame begins with its tag.
func (m *msgr1) part(d *direction, p *parts) bool {
	tag := frame1.Tag(d.buf[0])
	n, err := p.dec.Form().Size(tag)
	if err != nil {
		return m.damaged(d, p, tag, err)
	}
	if len(d.buf) < 1+n {
		return false
	}
	body := d.buf[1 : 1+n]
	switch tag {
	case frame1.TagMessage:
		return m.message(d, p, body)
	case frame1.TagAck:
		seq, _ := frame1.ParseAck(body) // its size is right
		m.emit(d, tag.String(), &Ack{Seq: seq})
	case frame1.TagKeepalive2, frame1.TagKeepalive2Ack:
		m.emit(d, tag.String(), &Keepalive{Stamp: stampTime([8]byte(body))})
	default:
		m.emit(d, tag.String(), nil)
	}
	d.take(1 + n)
	return true
}

// message reads a message, whose header is there.
func (m *msgr1) message(d *direction, p *parts, header []byte) bool {
	h, err := p.dec.Header(header)
	if err != nil {
		return m.damaged(d, p, frame1.TagMessage, err)
	}
	head := 1 + len(header)
	foot := p.dec.Form().FooterSize()
	size := head + int(h.PayloadSize()) + foot
	if len(d.buf) < size {
		return false
	}
	all := d.take(size)
	front, rest := all[head:head+int(h.FrontLen)], all[head+int(h.FrontLen):]
	middle, data := rest[:h.MiddleLen], rest[h.MiddleLen:uint64(h.MiddleLen)+uint64(h.DataLen)]
	if err := p.dec.Footer(h, all[size-foot:], frame1.SumsOf(front, middle, data)); err != nil {
		m.c.bad(d, Msgr1, frame1.TagMessage.String(), err)
		return true // its length is known
	}
	m.c.emit(Record{
		Event: Frame, From: d.side, Protocol: Msgr1, Tag: frame1.TagMessage.String(),
		Segments: []int{len(header), len(front), len(middle), len(data)},
		Fields:   messageOf(&h),
		Payload:  cutPayload(front, middle, data, m.c.opt.Cut),
	})
	return true
}

func (m *msgr1) damaged(d *direction, p *parts, tag frame1.Tag, err error) bool {
	m.c.bad(d, Msgr1, tag.String(), err)
	d.take(1)
	d.stuck++
	p.search = true
	return true
}
