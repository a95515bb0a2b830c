package trace

import (
	"io"
	"net/netip"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/keylog"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

// TCP is a TCP connection of a recording.
type TCP struct {
	Connector, Acceptor netip.AddrPort
	// Whole: the first segments of the connection were recorded. Without them the connector
	// is a guess.
	Whole bool
}

// Keys are the keys of connections in mode secure, from a file that
// Config.Diagnostics.KeyLog of a messenger writes. They are read only.
type Keys = keylog.Keys

// ReadKeys reads a file of keys. Its errors name the line.
func ReadKeys(r io.Reader) (*Keys, error) { return keylog.Read(r) }

// StreamOptions say how a recording is decoded.
type StreamOptions struct {
	// Keys decrypt connections in mode secure; nil: there are none.
	Keys *Keys
	// Cut is the number of recorded bytes of front, of middle and of data of a message.
	Cut int
	// Emit gets the records, in the order of the recording.
	Emit func(Record)
}

// Streams finds the frames of msgr2 and msgr1 in the two byte streams of a recorded TCP
// connection, and makes the same records as a [Log]. It recognizes the protocol: msgr1, or a
// revision of msgr2, in mode crc, in mode secure if the key was logged, and compressed. After
// missing or damaged bytes it searches for the next frame. It checks crcs, lengths and
// encodings, not the order of frames. A Streams belongs to one goroutine at a time, and holds
// at most 1 MiB of a direction, beside an unfinished frame.
type Streams struct {
	opt    StreamOptions
	id     func() uint64 // the number of a connection whose protocol is known
	socket uint64        // 0: not known yet
	tcp    TCP
	begun  time.Time
	at     time.Time // of the bytes at hand
	ends   bool      // no more bytes come
	proto  protocol
	dirs   [2]*direction // a direction may wait for bytes of the other
}

// protocol takes the frames of one direction apart.
type protocol interface {
	// step consumes bytes from the front of a direction. It returns false if it needs more
	// bytes of this direction, or of the other.
	step(d *direction) bool
	// lost handles missing bytes after the bytes of d.
	lost(d *direction)
}

// direction has the bytes of one sender.
type direction struct {
	side  Side
	buf   []byte // not consumed yet
	dead  bool   // its bytes cannot be decoded any more
	gap   uint64 // missing bytes after buf
	stuck uint64 // bytes that were passed over in search of a frame
	// search: bytes are missing, or the beginning was not recorded: the next frame is searched for.
	search bool
}

// NewStreams is the decoder of a connection that begins at this time. It calls id for the
// number of the connection once the protocol is known.
func NewStreams(at time.Time, tcp TCP, id func() uint64, opt StreamOptions) *Streams {
	return &Streams{
		opt: opt, id: id, tcp: tcp, begun: at,
		dirs: [2]*direction{{side: Connector}, {side: Acceptor}},
	}
}

// maxWaiting bounds the bytes of one direction that wait for a frame of the other. It is
// more than a handshake has.
const maxWaiting = 1 << 20

// maxUnknown bounds the search for a first frame, in bytes, in a connection that had begun
// before the recording.
const maxUnknown = 256 << 10

// Data decodes the next bytes of a direction. p belongs to the caller again when Data
// returns.
func (c *Streams) Data(at time.Time, from Side, p []byte) {
	d := c.dirs[from.index()]
	if d.dead {
		return
	}
	c.at = at
	d.buf = append(d.buf, p...)
	c.run(d)
}

// Gap reports that n bytes of a direction were not recorded.
func (c *Streams) Gap(at time.Time, from Side, n uint64) {
	d := c.dirs[from.index()]
	if d.dead {
		return
	}
	c.at = at
	d.gap = n
	c.run(d)
	if c.proto == nil {
		d.buf, d.stuck, d.search = nil, 0, true
	} else if !d.dead {
		c.emit(Record{Event: Lost, From: d.side, Count: n, Error: "bytes were not recorded"})
		c.proto.lost(d)
	}
	d.gap = 0
}

// End is the last call. why is the reason of the end, for people.
func (c *Streams) End(at time.Time, why string) {
	c.at, c.ends = at, true
	for _, d := range c.dirs {
		c.run(d)
	}
	if c.proto == nil {
		return
	}
	for _, d := range c.dirs {
		if n := uint64(len(d.buf)) + d.stuck; n > 0 && !d.dead {
			c.emit(Record{Event: Lost, From: d.side, Count: n, Error: "an unfinished frame at the end"})
		}
	}
	c.emit(Record{Event: End, Error: why})
}

// run decodes d and the other direction until both need more bytes.
func (c *Streams) run(d *direction) {
	if c.proto == nil && !c.detect(d) {
		return
	}
	for {
		if !d.dead && c.proto.step(d) {
			continue
		}
		other := c.dirs[d.side.Other().index()]
		if other.dead || len(other.buf) == 0 || !c.proto.step(other) {
			break
		}
	}
	if d.dead {
		d.buf = nil
	}
}

func (c *Streams) detect(d *direction) bool {
	if c.tcp.Whole && !d.search {
		// A connection whose beginning was recorded begins with a banner.
		if d.gap > 0 || len(d.buf) == 0 {
			return false
		}
		switch speech := wire2.MatchBanner(d.buf); {
		case len(d.buf) < wire2.BannerPrefixSize-2 && !c.ends:
			return false
		case speech == wire2.SpeechBanner:
			c.speak(newMsgr2(c))
		case speech == wire2.SpeechMsgr1:
			c.speak(newMsgr1(c))
		default:
			c.giveUp()
		}
		if other := c.dirs[d.side.Other().index()]; c.proto != nil && other.search {
			c.proto.lost(other) // its beginning
		}
		return c.proto != nil
	}
	switch p := c.search(d); {
	case p != nil:
		c.speak(p)
		return true
	case d.unknown() > maxUnknown:
		c.giveUp()
	}
	return false
}

func (c *Streams) giveUp() {
	for _, d := range c.dirs {
		d.dead, d.buf = true, nil
	}
}

// speak begins the records of the connection.
func (c *Streams) speak(p protocol) {
	c.proto, c.socket = p, c.id()
	r := Record{Time: c.begun, Socket: c.socket, Event: Open, Connector: c.tcp.Connector.String(), Acceptor: c.tcp.Acceptor.String()}
	if !c.tcp.Whole {
		r.Error = "it had begun before the recording"
	}
	c.opt.Emit(r)
}

func (c *Streams) emit(r Record) {
	r.Time, r.Socket = c.at, c.socket
	c.opt.Emit(r)
}

func (c *Streams) bad(d *direction, protocol, tag string, err error) {
	c.emit(Record{Event: Bad, From: d.side, Protocol: protocol, Tag: tag, Error: err.Error()})
}

func (c *Streams) kill(d *direction, why string) {
	c.emit(Record{Event: Bad, From: d.side, Error: why})
	d.dead, d.buf = true, nil
}

func (d *direction) take(n int) []byte {
	p := d.buf[:n:n]
	if d.buf = d.buf[n:]; len(d.buf) == 0 {
		d.buf = nil
	}
	return p
}

// pass passes over n bytes.
func (d *direction) pass(n int) {
	d.stuck += uint64(n)
	if n > 0 {
		d.take(n)
	}
}

// patient reports whether a direction can wait for the other.
func (c *Streams) patient(d *direction) bool {
	return !c.ends && len(d.buf) < maxWaiting && d.gap == 0
}

// index numbers the directions of a connection by their senders.
func (s Side) index() int {
	if s == Acceptor {
		return 1
	}
	return 0
}

// The preamble of a frame of msgr2 and the header of a message of msgr1 have a crc of
// their own, so that a search finds them in the middle of a stream.

// preambleAt is the offset of the first preamble in p. Without one it is the number of bytes
// that need no second search.
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

// found passes over the bytes before a frame. Once a frame is found it reports their number.
func (c *Streams) found(d *direction, at int, ok bool) bool {
	d.pass(at)
	d.search = !ok
	if ok && d.stuck > 0 {
		c.emit(Record{Event: Lost, From: d.side, Count: d.stuck, Error: "bytes that belong to no frame"})
		d.stuck = 0
	}
	return ok
}

// search finds the protocol of a connection that had begun before the recording. It returns
// nil as long as the protocol is not known. It passes over bytes in which no frame begins, so that no later search
// looks at them.
func (c *Streams) search(d *direction) protocol {
	at2, ok := preambleAt(d.buf)
	if ok {
		d.pass(at2)
		rev, known := revisionAt(d.buf)
		if !known && !c.ends && d.unknown() <= maxUnknown {
			return nil
		}
		return joined(c, rev)
	}
	at1, ok := headerAt(d.buf, frame1.NewDecoder(frame1.Config{}, nil, frame.DefaultLimits()))
	if ok {
		return joined1(c)
	}
	d.pass(min(at1, at2))
	return nil
}

// unknown is the number of bytes of a direction whose protocol is not known.
func (d *direction) unknown() int { return int(d.stuck) + len(d.buf) }

// revisionAt is the revision of the frame at the start of p, known once the frame is complete.
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
