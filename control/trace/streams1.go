package trace

import (
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
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
	phase phase
	dec   *frame1.Decoder
}

func newMsgr1(c *Streams) *msgr1 { return &msgr1{c: c} }

// joined1 is msgr1 of a connection that had begun before the recording. It assumes the
// features of all releases since Jewel.
func joined1(c *Streams) *msgr1 {
	m := newMsgr1(c)
	m.open(frame1.Form{})
	for i := range m.dirs {
		m.dirs[i].phase, c.dirs[i].search = open, true
	}
	return m
}

func (m *msgr1) open(form frame1.Form) {
	for i := range m.dirs {
		m.dirs[i].dec = frame1.NewDecoder(frame1.Config{Form: form}, nil, frame.DefaultLimits())
	}
}

func (m *msgr1) lost(d *direction) {
	p := &m.dirs[d.side.index()]
	if p.phase != open {
		m.c.kill(d, "the rest of a handshake cannot be decoded after a gap")
		return
	}
	d.stuck += uint64(len(d.buf))
	d.buf, d.search = nil, true
}

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
	if d.search {
		at, ok := headerAt(d.buf, p.dec)
		return m.c.found(d, at, ok)
	}
	return m.part(d, p)
}

func (m *msgr1) say(d *direction, p probe.Part) bool {
	r := Record{From: d.side}
	if err := r.describe1(&p, m.c.opt.Cut); err != nil {
		return m.fail(d, err)
	}
	m.c.emit(r)
	return true
}

func (m *msgr1) fail(d *direction, err error) bool {
	m.c.kill(d, err.Error())
	return false
}

func (m *msgr1) greeting(d *direction, p *parts) bool {
	kind, size := probe.PartConnectorHello, wire1.ConnectorHelloSize
	if d.side == Acceptor {
		kind, size = probe.PartAcceptorHello, wire1.AcceptorHelloSize
	}
	if err := wire1.CheckBanner(d.buf); err != nil {
		return m.fail(d, err)
	}
	if len(d.buf) < size || !m.say(d, probe.Part{Kind: kind, Bytes: d.take(size)}) {
		return false
	}
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
	m.asked, p.phase = c, awaits
	return m.say(d, probe.Part{Kind: probe.PartConnect, Bytes: d.take(size)[:wire1.ConnectSize]})
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
	m.say(d, probe.Part{Kind: probe.PartReply, Bytes: d.take(size)[:wire1.ReplySize]})
	other := &m.dirs[d.side.Other().index()]
	switch a.Tag {
	case wire1.TagReady, wire1.TagSeq:
		m.open(wire1.FormOf(m.asked.Features & a.Features))
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
	p.phase = open
	return m.say(d, probe.Part{Kind: probe.PartSeq, Bytes: d.take(wire1.SeqSize)})
}

// part reads a frame. A frame begins with its tag.
func (m *msgr1) part(d *direction, p *parts) bool {
	tag := frame1.Tag(d.buf[0])
	n, err := p.dec.Form().Size(tag)
	if err != nil {
		return m.damaged(d, tag, err)
	}
	if len(d.buf) < 1+n {
		return false
	}
	body := d.buf[1 : 1+n]
	if tag == frame1.TagMessage {
		return m.message(d, p, body)
	}
	d.take(1 + n)
	return m.say(d, probe.Part{Kind: probe.PartOpen, Tag: tag, Bytes: body})
}

// message reads a message, whose header is there.
func (m *msgr1) message(d *direction, p *parts, header []byte) bool {
	h, err := p.dec.Header(header)
	if err != nil {
		return m.damaged(d, frame1.TagMessage, err)
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
	return m.say(d, probe.Part{
		Kind: probe.PartOpen, Tag: frame1.TagMessage, Form: p.dec.Form(), Header: &h, Seg: [3][]byte{front, middle, data},
	})
}

func (m *msgr1) damaged(d *direction, tag frame1.Tag, err error) bool {
	m.c.bad(d, Msgr1, tag.String(), err)
	d.pass(1)
	d.search = true
	return true
}
