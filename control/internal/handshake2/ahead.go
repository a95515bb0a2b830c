package handshake2

import (
	"context"

	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// await waits once for two frames that the peer sends without an answer in between: one with
// the tag and a good payload, and any next one. It reads neither. If the first frame is
// another one, it does not wait for the second: a peer that breaks the rules is refused at
// once. With a link that does not queue, or in mode secure, where frames are read in order
// only, it does nothing.
func (s *Stream) await(ctx context.Context, tag frame.Tag, want wire2.AuthSignature, good check) error {
	if !s.link.Queues() || s.dec.IsSecure() {
		return nil
	}
	a := &s.ahead
	if a.ask == nil {
		a.ask = a.enough
	}
	a.dec, a.tag, a.want, a.good, a.size = *frame.NewDecoder(s.dec.Rev(), frame.PreAuthLimits()), tag, want, good, 0
	a.dec.SetSegmentCRC(s.dec.ChecksSegments())
	return s.link.Await(ctx, a.ask)
}

// ahead looks for two frames in mode crc. The link owns it while a call waits, and also after
// a call that failed: the link may still ask it when the stream has given up.
type ahead struct {
	dec  frame.Decoder
	tag  frame.Tag
	want wire2.AuthSignature // for good
	good check
	size int                      // of the first frame, once it is there and good
	ask  func(unread []byte) bool // enough
}

// check judges a payload; want is the signature that it must have, if it is one.
type check func(payload []byte, want *wire2.AuthSignature) bool

// enough reports whether both frames are in b, or there is no point in waiting.
func (a *ahead) enough(b []byte) bool {
	if a.size == 0 {
		h, size, done := a.whole(b)
		if size == 0 {
			return done
		}
		n := a.dec.HeadSize()
		f, err := a.dec.Finish(h, b[:n], b[n:size])
		if err != nil || h.Tag != a.tag || h.Num != 1 || f.Aborted || !a.good(f.Seg[0], &a.want) {
			return true
		}
		a.size = size
	}
	_, size, done := a.whole(b[a.size:])
	return done || size > 0
}

// whole returns the size of the frame at the start of b, 0 if it is not all there; done
// says that it never will be.
func (a *ahead) whole(b []byte) (h frame.Header, size int, done bool) {
	n := a.dec.HeadSize()
	if len(b) < n {
		return h, 0, false
	}
	h, err := a.dec.Open(b[:n])
	if err != nil {
		return h, 0, true
	}
	if size = n + a.dec.RestSize(h); len(b) < size {
		return h, 0, false
	}
	return h, size, false
}
