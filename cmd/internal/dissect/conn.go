// Package dissect finds the frames of msgr2 and msgr1 in the two byte streams of a TCP
// connection, as a recording has them, and makes the records of package trace of them.
//
//   - conn.go is a [Conn]: it tells the protocols apart and feeds both directions, of which
//     one often waits for what the other says. Where bytes are missing or damaged it finds
//     the next frame.
//   - msgr2.go has banners and frames of both revisions, in mode crc, in mode secure if the
//     key was logged, and compressed.
//   - msgr1.go has the handshake and the messages of the older protocol.
//
// It judges bytes: crcs, lengths, encodings. Whether a frame is legal where it stands is
// for package judge.
package dissect

import (
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/internal/capture"
	"github.com/ringmsgr/ringmsgr/control/keylog"
	"github.com/ringmsgr/ringmsgr/control/trace"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

// Options of a decoder.
type Options struct {
	// Keys decrypt connections in mode secure; nil: there are none.
	Keys *keylog.Keys
	// Cut is how many bytes of the parts of a message are shown.
	Cut int
	// Emit gets the records.
	Emit func(trace.Record)
}

// Conn decodes one TCP connection. It implements capture.Handler.
type Conn struct {
	opt    Options
	id     func() uint64 // numbers connections that speak a protocol that is known
	socket uint64        // 0: not known yet
	tcp    capture.Conn
	begun  time.Time
	at     time.Time // of the bytes that are being looked at
	ends   bool      // no more bytes come
	proto  protocol
	dirs   [2]*direction
}

var _ capture.Handler = (*Conn)(nil)

// protocol takes the frames of one direction apart.
type protocol interface {
	// step consumes from the front of a direction's bytes. It says whether it got any
	// further; if not it waits for more bytes, or for the other direction.
	step(d *direction) bool
	// lost says that bytes are missing behind those that d has.
	lost(d *direction)
}

// direction is what one side has sent.
type direction struct {
	side  capture.Side
	buf   []byte // not consumed yet
	dead  bool   // nothing more can be read of it
	gap   uint64 // bytes that are missing behind buf
	stuck uint64 // bytes that were passed over in search of a frame
}

// NewConn makes one for a connection that begins at this time. id gives it its number,
// once it is known to speak msgr.
func NewConn(at time.Time, tcp capture.Conn, id func() uint64, opt Options) *Conn {
	return &Conn{
		opt: opt, id: id, tcp: tcp, begun: at,
		dirs: [2]*direction{{side: capture.Connector}, {side: capture.Acceptor}},
	}
}

// maxWaiting is how many bytes of one direction wait for what the other one says. It is
// more than a handshake has.
const maxWaiting = 1 << 20

// maxUnknown is how many bytes are searched for a first frame, in a connection that had
// begun before the recording.
const maxUnknown = 256 << 10

// Data implements capture.Handler.
func (c *Conn) Data(at time.Time, from capture.Side, p []byte) {
	d := c.dirs[from]
	if d.dead {
		return
	}
	c.at = at
	d.buf = append(d.buf, p...)
	c.run(d)
}

// Gap implements capture.Handler.
func (c *Conn) Gap(at time.Time, from capture.Side, n uint64) {
	d := c.dirs[from]
	if d.dead {
		return
	}
	c.at = at
	d.gap = n
	c.run(d)
	if c.proto == nil {
		d.buf = nil
	} else if !d.dead {
		c.emit(trace.Record{Event: trace.Lost, From: sideOf(d.side), Count: n, Error: "bytes were not recorded"})
		c.proto.lost(d)
	}
	d.gap = 0
}

// End implements capture.Handler.
func (c *Conn) End(at time.Time, why string) {
	c.at, c.ends = at, true
	for _, d := range c.dirs {
		c.run(d)
	}
	if c.proto == nil {
		return
	}
	for _, d := range c.dirs {
		if n := uint64(len(d.buf)) + d.stuck; n > 0 && !d.dead {
			c.emit(trace.Record{Event: trace.Lost, From: sideOf(d.side), Count: n, Error: "an unfinished frame at the end"})
		}
	}
	c.emit(trace.Record{Event: trace.End, Error: why})
}

// run goes on with d, and with the other direction, as long as one gets any further.
func (c *Conn) run(d *direction) {
	if c.proto == nil && !c.detect(d) {
		return
	}
	for {
		if !d.dead && c.proto.step(d) {
			continue
		}
		other := c.dirs[d.side.Other()]
		if other.dead || len(other.buf) == 0 || !c.proto.step(other) {
			break
		}
	}
	if d.dead {
		d.buf = nil
	}
}

// detect finds out what is spoken.
func (c *Conn) detect(d *direction) bool {
	if c.tcp.Whole {
		// A connection whose beginning was recorded begins with a banner.
		if d.gap > 0 || len(d.buf) == 0 {
			return false
		}
		switch speech := wire.MatchBanner(d.buf); {
		case len(d.buf) < wire.BannerPrefixSize-2 && !c.ends:
			return false
		case speech == wire.SpeechBanner:
			c.speak(newMsgr2(c))
		case speech == wire.SpeechMsgr1:
			c.speak(newMsgr1(c))
		default:
			c.giveUp()
		}
		return c.proto != nil
	}
	switch p := c.search(d); {
	case p != nil:
		c.speak(p)
		return true
	case len(d.buf) > maxUnknown:
		c.giveUp()
	}
	return false
}

func (c *Conn) giveUp() {
	for _, d := range c.dirs {
		d.dead, d.buf = true, nil
	}
}

// speak begins the records of the connection.
func (c *Conn) speak(p protocol) {
	c.proto, c.socket = p, c.id()
	r := trace.Record{Time: c.begun, Socket: c.socket, Event: trace.Open, Connector: c.tcp.Connector.String(), Acceptor: c.tcp.Acceptor.String()}
	if !c.tcp.Whole {
		r.Error = "it had begun before the recording"
	}
	c.opt.Emit(r)
}

func (c *Conn) emit(r trace.Record) {
	r.Time, r.Socket = c.at, c.socket
	c.opt.Emit(r)
}

// bad reports bytes that are no frame.
func (c *Conn) bad(d *direction, protocol, tag string, err error) {
	c.emit(trace.Record{Event: trace.Bad, From: sideOf(d.side), Protocol: protocol, Tag: tag, Error: err.Error()})
}

// kill ends what can be read of a direction.
func (c *Conn) kill(d *direction, why string) {
	c.emit(trace.Record{Event: trace.Bad, From: sideOf(d.side), Error: why})
	d.dead, d.buf = true, nil
}

// take removes n bytes from the front.
func (d *direction) take(n int) []byte {
	p := d.buf[:n:n]
	if d.buf = d.buf[n:]; len(d.buf) == 0 {
		d.buf = nil
	}
	return p
}

// patient says that a direction can wait for the other one.
func (c *Conn) patient(d *direction) bool {
	return !c.ends && len(d.buf) < maxWaiting && d.gap == 0
}

func sideOf(s capture.Side) trace.Side {
	if s == capture.Connector {
		return trace.Connector
	}
	return trace.Acceptor
}

// The preamble of a frame of msgr2 and the header of a message of msgr1 have a crc of
// their own, so that they can be found in the middle of a stream.

// preambleAt is the offset of the first preamble in p, or how many bytes need no second
// look, if there is none.
func preambleAt(p []byte) (at int, ok bool) {
	for at = 0; len(p)-at >= frame.PreambleSize; at++ {
		if !frame.Tag(p[at]).Known() || p[at+1] == 0 || p[at+1] > frame.MaxSegments {
			continue
		}
		h, err := frame.ParsePreamble(p[at : at+frame.PreambleSize])
		if err == nil && h.Num <= h.Tag.Bound().Segments {
			return at, true
		}
	}
	return at, false
}

// headerAt is the same for messages of msgr1.
func headerAt(p []byte, dec *frame1.Decoder) (at int, ok bool) {
	n := 1 + dec.Form().HeaderSize()
	for at = 0; len(p)-at >= n; at++ {
		if frame1.Tag(p[at]) != frame1.TagMessage {
			continue
		}
		if _, err := dec.Header(p[at+1 : at+n]); err == nil {
			return at, true
		}
	}
	return at, false
}

// find looks for the next frame in mode crc.
func (m *msgr2) find(d *direction, f *frames) bool {
	at, ok := preambleAt(d.buf)
	if m.c.found(d, at, ok) {
		f.search = false
	}
	return ok
}

// find looks for the next message.
func (m *msgr1) find(d *direction, p *parts) bool {
	at, ok := headerAt(d.buf, p.dec)
	if m.c.found(d, at, ok) {
		p.search = false
	}
	return ok
}

// found passes over the bytes before a frame, and says so once there is one.
func (c *Conn) found(d *direction, at int, ok bool) bool {
	d.stuck += uint64(at)
	if at > 0 {
		d.take(at)
	}
	if ok && d.stuck > 0 {
		c.emit(trace.Record{Event: trace.Lost, From: sideOf(d.side), Count: d.stuck, Error: "bytes that belong to no frame"})
		d.stuck = 0
	}
	return ok
}

// search finds out what a connection speaks that had begun before the recording, nil as
// long as it is not known.
func (c *Conn) search(d *direction) protocol {
	if at, ok := preambleAt(d.buf); ok {
		rev, known := revisionAt(d.buf[at:])
		if !known && !c.ends && len(d.buf) <= maxUnknown {
			return nil
		}
		return joined(c, rev)
	}
	if _, ok := headerAt(d.buf, frame1.NewDecoder(frame1.Config{}, nil, frame.DefaultLimits())); ok {
		return joined1(c)
	}
	return nil
}

// revisionAt says of which revision the frame at the start of p is, once it is all there.
func revisionAt(p []byte) (rev frame.Revision, known bool) {
	for _, rev := range []frame.Revision{frame.Rev1, frame.Rev0} {
		dec := frame.NewDecoder(rev, frame.DefaultLimits())
		h, err := dec.Open(p[:frame.PreambleSize])
		if err != nil {
			return frame.Rev1, true // it is damaged, or compressed
		}
		size := frame.PreambleSize + dec.RestSize(h)
		if len(p) < size {
			continue
		}
		if _, err := dec.Finish(h, p[:frame.PreambleSize], p[frame.PreambleSize:size]); err == nil {
			return rev, true
		}
	}
	return frame.Rev1, false
}
