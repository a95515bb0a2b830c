package handshake2

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// Stream reads and writes control frames over a [Link]. [Connect] and [Accept] make it;
// the session layer uses it until the session is established. It belongs to one
// goroutine at a time.
type Stream struct {
	link  handshake.Transport
	tap   probe.Tap      // nil: nobody watches
	enc   *frame.Encoder // nil before the banners and after Release
	dec   *frame.Decoder
	log   transcript
	in    []byte            // the frame being read; reused
	out   []byte            // the frame being written; reused
	room  func(n int) error // AcceptConfig.Room
	ahead ahead
	first firstSpace
	space *space // nil before the banners
}

// firstSpace is memory for the banners. The connection of a peer that sends nothing takes
// no more.
type firstSpace struct {
	rx, tx, body [48]byte
	in           [leastIn]byte
}

// space is memory for the usual frames after the banners; larger ones get their own.
type space struct {
	rx, tx [384]byte // transcript
	out    [320]byte
	body   [256]byte // a payload
}

// begin makes a stream of s.
func (s *Stream) begin(link handshake.Link, p *probe.Socket) {
	s.link.Begin(link, p)
	s.log = transcript{on: true, rx: s.first.rx[:0], tx: s.first.tx[:0]}
}

// Scratch is empty memory for the payload of the next WriteFrame.
func (s *Stream) Scratch() []byte {
	if s.space == nil {
		return s.first.body[:0]
	}
	return s.space.body[:0]
}

// ReadFrame reads the next control frame. The payload is valid until the next call.
//
// An error wraps [ErrUnexpectedFrame] if the frame has more than one segment, [frame.ErrFrame]
// if it is damaged, or is the one of the link or the probe. The stream is of no use after an
// error. Frames that the sender aborted are passed over (Ceph's frames_v2.h).
func (s *Stream) ReadFrame(ctx context.Context) (frame.Tag, []byte, error) {
	for {
		tag, payload, aborted, err := s.readFrame(ctx)
		if err != nil || !aborted {
			return tag, payload, err
		}
	}
}

func (s *Stream) readFrame(ctx context.Context) (tag frame.Tag, payload []byte, aborted bool, err error) {
	if s.dec == nil {
		return 0, nil, false, ErrReleased
	}
	n := s.dec.HeadSize()
	if err := s.growIn(n); err != nil {
		return 0, nil, false, err
	}
	if err := s.readFull(ctx, s.in[:n]); err != nil {
		return 0, nil, false, err
	}
	h, err := s.dec.Open(s.in[:n])
	if err != nil {
		return 0, nil, false, err
	}
	rest := s.dec.RestSize(h)
	p := probe.Point{Step: probe.FrameRead, Tag: h.Tag}
	if err := s.growIn(n + rest); err != nil {
		return h.Tag, nil, false, fmt.Errorf("%v: %w", h.Tag, err)
	}
	if err := s.link.Step(ctx, p, probe.Before); err != nil {
		return h.Tag, nil, false, err
	}
	if rest > 0 {
		if err := s.readFull(ctx, s.in[n:n+rest]); err != nil {
			return h.Tag, nil, false, fmt.Errorf("%v: %w", h.Tag, err)
		}
	}
	f, err := s.dec.Finish(h, s.in[:n], s.in[n:n+rest])
	if err != nil {
		return h.Tag, nil, false, fmt.Errorf("%v: %w", h.Tag, err)
	}
	if s.tap != nil {
		s.tap.Frame(probe.Frame{Tag: h.Tag, Seg: f.Seg, Aborted: f.Aborted})
	}
	if h.Num != 1 {
		return h.Tag, nil, false, fmt.Errorf("%w: %v with %d segments", ErrUnexpectedFrame, h.Tag, h.Num)
	}
	return h.Tag, f.Seg[0], f.Aborted, s.link.Step(ctx, p, probe.After)
}

// WriteFrame writes a control frame, or leaves it to a [handshake.BufferedLink], which sends it
// before the next read that has to wait. It does not keep payload.
func (s *Stream) WriteFrame(ctx context.Context, tag frame.Tag, payload []byte) error {
	if s.enc == nil {
		return ErrReleased
	}
	return s.link.Probed(ctx, probe.Point{Step: probe.FrameWrite, Tag: tag}, func() error {
		out, err := s.enc.AppendFrame(s.out[:0], tag, payload)
		if err != nil {
			return err
		}
		s.out = out
		if s.tap != nil {
			s.tap.Frame(probe.Frame{Sent: true, Tag: tag, Seg: [frame.MaxSegments][]byte{payload}})
		}
		return s.write(ctx, out)
	})
}

// Queues says that WriteFrame leaves frames to the link, and so does not wait.
func (s *Stream) Queues() bool { return s.link.Queues() }

// Release gives up the codecs, with the keys and the nonce counters of this connection,
// and ends the use of the stream. The decoder has the limits for authenticated peers,
// [frame.DefaultLimits]. The caller reads and writes the link from now on, beginning with
// the queued bytes, and wipes the codecs when the connection ends.
func (s *Stream) Release() (*frame.Encoder, *frame.Decoder) {
	enc, dec := s.enc, s.dec
	if dec != nil {
		dec.SetLimits(frame.DefaultLimits())
	}
	s.enc, s.dec, s.in, s.out = nil, nil, nil, nil
	return enc, dec
}

// Wipe overwrites the keys and ends the use of the stream, unless it was released.
func (s *Stream) Wipe() {
	if s.enc != nil {
		s.enc.Wipe()
	}
	if s.dec != nil {
		s.dec.Wipe()
	}
	s.log.stop()
	s.enc, s.dec, s.in, s.out = nil, nil, nil, nil
}

// start sets up the framing that the banners agreed on.
func (s *Stream) start(rev frame.Revision) {
	s.enc, s.dec = frame.NewCodec(rev, frame.PreAuthLimits())
	s.space = new(space)
	s.log.rx, s.log.tx = append(s.space.rx[:0], s.log.rx...), append(s.space.tx[:0], s.log.tx...)
	s.out = s.space.out[:0]
}

// secure encrypts everything from here on, in both directions.
func (s *Stream) secure(k *frame.Keys) error {
	if err := s.enc.Secure(k.Key, k.TxNonce); err != nil {
		return err
	}
	return s.dec.Secure(k.Key, k.RxNonce)
}

// exchangeBanners sends the own banner, reads the peer's, checks both and sets up the
// framing. It returns the features that both sides support.
func (s *Stream) exchangeBanners(ctx context.Context, own wire2.Banner) (features uint64, err error) {
	err = s.link.Probed(ctx, probe.Point{Step: probe.BannerWrite}, func() error {
		if s.tap != nil {
			s.tap.Banner(true, own.Supported, own.Required)
		}
		return s.write(ctx, own.AppendTo(s.Scratch()))
	})
	if err != nil {
		return 0, err
	}
	const size, length = wire2.BannerPrefixSize, 2
	prefix, err := s.readBanner(ctx, probe.BannerRead, size, size-length, wire2.CheckBanner)
	if err != nil {
		return 0, err
	}
	n, err := wire2.ParseBannerPrefix(prefix)
	if err != nil {
		return 0, err
	}
	payload, err := s.readBanner(ctx, probe.BannerPayloadRead, n, 0, func([]byte) error { return nil })
	if err != nil {
		return 0, err
	}
	peer, err := wire2.DecodeBanner(payload)
	if err != nil {
		return 0, err
	}
	if s.tap != nil {
		s.tap.Banner(false, peer.Supported, peer.Required)
	}
	if missing := peer.Required &^ own.Supported; missing != 0 {
		return 0, fmt.Errorf("%w: peer requires 0x%x", handshake.ErrFeatures, missing)
	}
	features = own.Supported & peer.Supported
	s.start(wire2.RevisionOf(features))
	return features, nil
}

// readBanner reads a part of the peer's banner; see handshake.Transport.
func (s *Stream) readBanner(ctx context.Context, step probe.Step, n, magic int, check func(begun []byte) error) ([]byte, error) {
	err := s.link.Probed(ctx, probe.Point{Step: step}, func() error {
		if err := s.growIn(n); err != nil {
			return err
		}
		return s.recorded(s.in[:n], false, func() error { return s.link.ReadBanner(ctx, s.in[:n], magic, check) })
	})
	if err != nil {
		return nil, err
	}
	return s.in[:n], nil
}

func (s *Stream) readFull(ctx context.Context, p []byte) error {
	return s.recorded(p, false, func() error { return s.link.ReadFull(ctx, p) })
}

func (s *Stream) write(ctx context.Context, p []byte) error {
	return s.recorded(p, true, func() error { return s.link.Write(ctx, p) })
}

// recorded reads or writes p by do, and records it. Nothing else reads or writes the link.
func (s *Stream) recorded(p []byte, sent bool, do func() error) error {
	err := s.log.room(len(p))
	if err == nil && s.log.on {
		err = s.ask(len(p))
	}
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	s.log.add(p, sent)
	return nil
}

// growIn makes room for a frame of n bytes.
func (s *Stream) growIn(n int) error {
	if more := max(n, leastIn) - cap(s.in); more > 0 {
		if err := s.ask(more); err != nil {
			return err
		}
	}
	if s.in == nil {
		s.in = s.first.in[:0]
	}
	if n > cap(s.in) {
		s.in = append(make([]byte, 0, max(n, leastIn)), s.in...)
	}
	s.in = s.in[:cap(s.in)]
	return nil
}

func (s *Stream) ask(n int) error {
	if s.room == nil {
		return nil
	}
	return s.room(n)
}

// leastIn is the least room for a frame.
const leastIn = 512

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

// maxTranscript bounds what both sides together send before authentication is done, in
// bytes. Real handshakes need two or three thousand.
const maxTranscript = 256 << 10

// transcript records the raw bytes of both directions from the first byte of the banner
// up to AUTH_DONE (Ceph's ProtocolV2.cc). Received bytes are recorded when they are
// consumed, not when they arrive: the peer's signature may be in the link already.
type transcript struct {
	on bool
	rx []byte
	tx []byte
}

// room fails if n more bytes would exceed the bound. It is asked before they are read.
func (t *transcript) room(n int) error {
	if t.on && n > maxTranscript-len(t.rx)-len(t.tx) {
		return fmt.Errorf("%w: more than %d bytes before the signatures", ErrTooLong, maxTranscript)
	}
	return nil
}

func (t *transcript) add(p []byte, sent bool) {
	switch {
	case !t.on:
	case sent:
		t.tx = append(t.tx, p...)
	default:
		t.rx = append(t.rx, p...)
	}
}

// signatures ends the recording and returns the signature to send, which covers the
// received bytes, and the one to expect, which covers the sent bytes. Both are zero without
// a key.
func (t *transcript) signatures(key []byte) (own, peer wire2.AuthSignature) {
	if len(key) > 0 {
		own, peer = sign(key, t.rx), sign(key, t.tx)
	}
	t.stop()
	return own, peer
}

// stop ends the recording and drops it.
func (t *transcript) stop() { *t = transcript{} }

func sign(key, p []byte) (sig wire2.AuthSignature) {
	mac := hmac.New(sha256.New, key)
	mac.Write(p)
	mac.Sum(sig[:0])
	return sig
}
