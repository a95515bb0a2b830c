package dissect

import (
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/internal/capture"
	"github.com/ringmsgr/ringmsgr/control/keylog"
	"github.com/ringmsgr/ringmsgr/control/trace"
	"github.com/ringmsgr/ringmsgr/control/wire"
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
