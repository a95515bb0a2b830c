package dissect

import (
	"github.com/ringmsgr/ringmsgr/control/trace"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

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
