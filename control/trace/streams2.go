package trace

import (
	"errors"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/compress"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// msgr2 decodes msgr2.0 and msgr2.1.
type msgr2 struct {
	c    *Streams
	rev  frame.Revision
	dirs [2]frames
}

// frames is one direction.
type frames struct {
	banner  *wire2.Banner // nil: not seen yet
	dec     *frame.Decoder
	waits   bool // the answer of the other side decides how to decode the next bytes
	opened  bool // the head of a frame was read, and decrypted in place
	hd      frame.Header
	skipped bool // the banner was not recorded
}

func newMsgr2(c *Streams) *msgr2 { return &msgr2{c: c, rev: frame.Rev1} }

// joined is msgr2 of a connection that had begun before the recording.
func joined(c *Streams, rev frame.Revision) *msgr2 {
	m := newMsgr2(c)
	m.begin(rev)
	for i := range m.dirs {
		c.dirs[i].search, m.dirs[i].skipped = true, true
	}
	return m
}

func (m *msgr2) begin(rev frame.Revision) {
	m.rev = rev
	for i := range m.dirs {
		m.dirs[i].dec = frame.NewDecoder(rev, frame.DefaultLimits())
	}
}

func (m *msgr2) step(d *direction) bool {
	f := &m.dirs[d.side.index()]
	switch {
	case len(d.buf) == 0:
		return false
	case f.banner == nil && !f.skipped:
		return m.readBanner(d, f)
	case f.dec == nil: // the other side's banner says what follows
		if m.c.patient(d) {
			return false
		}
		m.begin(wire2.RevisionOf(f.banner.Supported))
		return true
	case f.waits && m.c.patient(d):
		return false
	case d.search:
		at, ok := preambleAt(d.buf)
		return m.c.found(d, at, ok)
	}
	return m.frame(d, f)
}

func (m *msgr2) lost(d *direction) {
	f := &m.dirs[d.side.index()]
	m.other(d).waits = false // the answer may be among them
	switch {
	case f.dec != nil && f.dec.IsSecure():
		m.c.kill(d, "mode secure cannot be decoded after a gap")
	case f.dec == nil && m.dirs[d.side.Other().index()].banner == nil && f.banner == nil:
		f.skipped = true
		m.begin(frame.Rev1)
		fallthrough
	default:
		d.stuck += uint64(len(d.buf))
		d.buf, d.search, f.opened, f.waits, f.skipped = nil, true, false, false, true
		if f.dec == nil {
			m.begin(m.rev)
		}
	}
}

func (m *msgr2) readBanner(d *direction, f *frames) bool {
	if len(d.buf) < wire2.BannerPrefixSize {
		return false
	}
	n, err := wire2.ParseBannerPrefix(d.buf)
	if err == nil && len(d.buf) < wire2.BannerPrefixSize+n {
		return false
	}
	var b wire2.Banner
	if err == nil {
		b, err = wire2.DecodeBanner(d.buf[wire2.BannerPrefixSize : wire2.BannerPrefixSize+n])
	}
	if err != nil {
		m.c.kill(d, err.Error())
		return false
	}
	d.take(wire2.BannerPrefixSize + n)
	f.banner = &b
	fields := &Fields{Supported: wire.Features(b.Supported), Required: wire.Features(b.Required)}
	m.c.emit(Record{Event: Banner, From: d.side, Protocol: "msgr2", Fields: fields})
	if other := m.dirs[d.side.Other().index()].banner; other != nil && f.dec == nil {
		m.begin(wire2.RevisionOf(b.Supported & other.Supported))
	}
	return true
}

func (m *msgr2) frame(d *direction, f *frames) bool {
	n := f.dec.HeadSize()
	if len(d.buf) < n {
		return false
	}
	if !f.opened {
		hd, err := f.dec.Open(d.buf[:n])
		if err != nil {
			return m.damaged(d, f, "", err)
		}
		f.hd, f.opened = hd, true
	}
	size := n + f.dec.RestSize(f.hd)
	if len(d.buf) < size {
		return false
	}
	f.opened = false
	p := d.take(size)
	got, err := f.dec.Finish(f.hd, p[:n], p[n:])
	switch {
	case err != nil && f.dec.IsSecure():
		return m.damaged(d, f, f.hd.Tag.String(), err)
	case err != nil: // its length is known: the next frame is where it has to be
		m.c.bad(d, m.rev.String(), f.hd.Tag.String(), err)
		return true
	}
	r := Record{From: d.side, Protocol: m.rev.String(), Compressed: got.Compressed(), Aborted: got.Aborted}
	r.describe2(got.Tag, &got.Seg, m.c.opt.Cut)
	m.c.emit(r)
	if !got.Aborted {
		m.follow(d, f, &got)
	}
	return true
}

// damaged reports a damaged frame, and begins the search for the next.
func (m *msgr2) damaged(d *direction, f *frames, tag string, err error) bool {
	if errors.Is(err, frame.ErrAuthTag) && m.other(d).dec != nil {
		err = fmt.Errorf("%w: the key is not that of this connection, or bytes are damaged", err)
	}
	m.c.bad(d, m.rev.String(), tag, err)
	if f.dec.IsSecure() {
		d.dead, d.buf = true, nil
		return false
	}
	d.search, f.opened = true, false
	d.pass(min(len(d.buf), 1))
	return true
}

func (m *msgr2) other(d *direction) *frames { return &m.dirs[d.side.Other().index()] }

// follow changes how the next frames are decoded, as a frame of the handshake says.
func (m *msgr2) follow(d *direction, f *frames, got *frame.Frame) {
	switch got.Tag {
	case frame.TagAuthRequest, frame.TagAuthRequestMore, frame.TagCompressionRequest:
		f.waits = true
	case frame.TagAuthBadMethod, frame.TagAuthReplyMore:
		m.other(d).waits = false
	case frame.TagAuthDone:
		m.other(d).waits = false
		if a, err := wire2.DecodeAuthDone(got.Seg[0]); err == nil && auth.Mode(a.Mode) == auth.Secure {
			m.secure(got.Seg[0])
		}
	case frame.TagCompressionDone:
		m.other(d).waits = false
		if c, err := wire2.DecodeCompressionDone(got.Seg[0]); err == nil && c.Compress {
			m.decompress(wire.CompressionMethod(c.Method))
		}
	}
}

// secure decrypts the next frames of both directions, if there is a key.
func (m *msgr2) secure(done []byte) {
	secret := m.c.opt.Keys.Secret(done)
	for i := range m.dirs {
		d, f := m.c.dirs[i], &m.dirs[i]
		if d.dead || f.dec.IsSecure() {
			continue
		}
		if secret == nil {
			m.c.emit(Record{Event: Lost, From: d.side, Error: "mode secure, without its key: the rest cannot be decoded"})
			d.dead, d.buf = true, nil
			continue
		}
		// The keys of the side that receives this direction.
		k, err := frame.KeysFromSecret(secret, d.side == Acceptor)
		if err == nil {
			err = f.dec.Secure(k.Key, k.RxNonce)
		}
		if err != nil {
			m.c.kill(d, err.Error())
		}
	}
}

// decompress accepts compressed frames of both directions from now on.
func (m *msgr2) decompress(method wire.CompressionMethod) {
	c, err := compress.New(method)
	if err != nil {
		return // a compressed frame is reported as one
	}
	for i := range m.dirs {
		m.dirs[i].dec.Decompress(c)
	}
}
