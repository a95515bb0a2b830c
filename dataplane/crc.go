package dataplane

import (
	"math/bits"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
)

// segmentCRCs are the checked crcs of the segments of a received message, or crcs that the user
// has set. A message that is sent on has them in its frame: its payload is not read again. Each
// belongs to the received bytes: another slice, for example a part of them, has none. A user
// that changes the bytes calls Message.Changed.
type segmentCRCs [3]segmentCRC // Front, Middle, Data

type segmentCRC struct {
	first *byte // of the bytes that it belongs to; nil: there is no crc
	n     int
	crc   uint32
	msgr1 bool // crc is that of msgr1, which begins with another seed
}

// take notes the crcs of a received frame; msgr1: they are of that form.
func (c *segmentCRCs) take(f *frame.Frame, msgr1 bool) {
	for i := range c {
		if p := f.Seg[i+1]; len(p) > 0 && f.CRCs.Known[i+1] {
			c[i].first, c[i].n, c[i].crc, c[i].msgr1 = &p[0], len(p), f.CRCs.Of[i+1], msgr1
		}
	}
}

// has says whether c is the crc of p.
func (c *segmentCRC) has(p []byte) bool { return c.first != nil && len(p) == c.n && &p[0] == c.first }

// moved says that p is a copy of old.
func (c *segmentCRC) moved(old, p []byte) {
	if c.has(old) {
		c.first = &p[0]
	}
}

// segments are Front, Middle and Data.
func (m *Message) segments() [3][]byte { return [3][]byte{m.Front, m.Middle, m.Data} }

// sums sets the crcs of Front, Middle and Data for a frame of msgr1 or msgr2; front, which
// stands for Middle, too, and data say which are needed. That of an empty one is 0.
func (m *Message) sums(to *[3]uint32, msgr1, front, data bool) {
	*to = [3]uint32{}
	if front && len(m.Front) > 0 {
		to[0] = m.crcs[0].sum(msgr1, m.Front)
	}
	if front && len(m.Middle) > 0 {
		to[1] = m.crcs[1].sum(msgr1, m.Middle)
	}
	if data && len(m.Data) > 0 {
		to[2] = m.crcs[2].sum(msgr1, m.Data)
	}
}

// sum is the crc of p, that of c if that is of p.
func (c *segmentCRC) sum(msgr1 bool, p []byte) uint32 {
	if c.has(p) {
		if crc, ok := c.in(msgr1, p); ok {
			return crc
		}
	}
	if msgr1 {
		return frame.SegmentCRC(0, p)
	}
	return frame.SegmentCRC(frame.SegmentCRCInit, p)
}

// in is the crc of p, which c has, as msgr1 or msgr2 has it. If it is that of the other
// protocol it is converted, unless it is cheaper to read p: not ok.
func (c *segmentCRC) in(msgr1 bool, p []byte) (crc uint32, ok bool) {
	if invariants.Enabled {
		seed := frame.SegmentCRCInit
		if c.msgr1 {
			seed = 0
		}
		invariants.Check(frame.SegmentCRC(seed, p) == c.crc, "the payload of a message was changed without Message.Changed, or another one's crc was set")
	}
	switch {
	case c.msgr1 == msgr1:
		return c.crc, true
	case len(p) >= reseedFrom*bits.OnesCount32(uint32(len(p))):
		return frame1.Reseed(c.crc, uint32(len(p))), true
	}
	return 0, false
}

// reseedFrom is the number of bytes whose crc costs more than a step of a conversion. A
// conversion has one step for each set bit of the length.
const reseedFrom = 4 << 10

// DataCRC is the crc32c of Data, as package hash/crc32 computes it with the Castagnoli
// polynomial, for example for a store that keeps it beside the bytes. A message received in
// mode crc came with it and was checked against it, so that Data is not read again; else it is
// computed now. Like any access to Data it needs a reference, and Changed before it after a
// change of bytes in place.
func (m *Message) DataCRC() uint32 {
	if len(m.Data) == 0 {
		return 0
	}
	return ^m.crcs[2].sum(false, m.Data)
}

// SetDataCRC says that crc is the DataCRC of the present Data: for data that came with its crc
// from a store, so that the messenger does not compute it again, in mode crc. Call it before
// Send, after all changes; a message of your own that is used again keeps it until the next
// call, or Changed. With a wrong crc the peer takes the frame for damaged, and ends the
// connection; a lossless session then sends the message again, without end.
func (m *Message) SetDataCRC(crc uint32) {
	m.crcs[2] = segmentCRC{}
	if len(m.Data) > 0 {
		m.crcs[2] = segmentCRC{first: &m.Data[0], n: len(m.Data), crc: ^crc}
	}
}

// Changed says that bytes of the payload of a received message were changed in place. Call it
// after the change and before Send or Clone: a received message is sent on with the crcs
// with which it came, while its segments are the received slices. With other bytes the peer
// would take the frame for damaged, and end the connection. Segments that are replaced or cut
// need no call, nor does a message of your own without SetDataCRC. As for any change, no other
// goroutine may use the message.
func (m *Message) Changed() { m.crcs = segmentCRCs{} }
