package dataplane

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/fakedriver"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/planetest"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/stepped"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// bed is a plane of one core over a fake driver, which the test turns itself.
type bed struct {
	*planetest.Bed
	t testing.TB
	p *loop.Plane
	c *loop.Core
	d *fakedriver.Driver // of the core
}

func newBed(t testing.TB, change func(*loop.Config, *fakedriver.Driver)) *bed {
	t.Helper()
	b := &bed{Bed: planetest.NewBed(t), t: t}
	b.d = b.D
	cfg := loop.Config{Cores: 1, Stepped: func(_ *loop.Core, s stepped.Stepper) { b.By = s }, Open: b.Open, Now: b.Now, Wall: b.Wall}
	if change != nil {
		change(&cfg, b.d)
	}
	p, err := loop.New(cfg)
	must(t, err)
	b.p, b.c = p, p.Core(0)
	t.Cleanup(b.close)
	return b
}

func (b *bed) close() {
	if !b.d.Closed {
		b.p.Close()
	}
}

func (b *bed) settle() { b.t.Helper(); b.Settle() }

func (b *bed) after(d time.Duration) { b.t.Helper(); b.After(d) }

// link makes a connected link over a fake socket.
func (b *bed) link() (*loop.Link, *fakedriver.Sock) {
	f := b.d.Open()
	l, err := b.c.Adopt(f.Sock.FD())
	must(b.t, err)
	return l, f
}

// conn is a handler with an open fake connection.
type conn struct {
	*bed
	h    *Handler
	own  *recorder
	sock *fakedriver.Sock
	peer *peerCodec
}

func (b *bed) conn(opt OpenOptions) *conn { return b.connRev(opt, frame.Rev1, false) }

func (b *bed) connRev(opt OpenOptions, rev frame.Revision, secure bool) *conn {
	b.t.Helper()
	return b.connMode(opt, wireMode{rev: rev, secure: secure})
}

func (b *bed) connMode(opt OpenOptions, m wireMode) *conn {
	b.t.Helper()
	c := &conn{bed: b, own: &recorder{}}
	c.h = NewHandler(b.c, HandlerConfig{Owner: c.own})
	c.openMode(opt, m)
	return c
}

// open gives the handler a new socket.
func (c *conn) open(opt OpenOptions, rev frame.Revision, secure bool) {
	c.t.Helper()
	c.openMode(opt, wireMode{rev: rev, secure: secure})
}

func (c *conn) openMode(opt OpenOptions, m wireMode) {
	c.t.Helper()
	c.peer = newModeCodec(c.t, m)
	c.peer.ours(&opt)
	l, f := c.link()
	c.sock = f
	c.h.Open(l, opt)
	c.settle()
}

// arrive has the socket read each piece, and the core rest.
func (c *conn) arrive(pieces ...[]byte) {
	c.t.Helper()
	c.sock.Arrive(pieces...)
	c.settle()
}

// send has the handler send m, and the core rest.
func (c *conn) send(m *Message) {
	c.t.Helper()
	must(c.t, c.h.Send(m))
	c.settle()
}

// finish ends the write in flight with a result, 0: all of it.
func (c *conn) finish(res int32) {
	c.t.Helper()
	c.sock.Finish(res)
	c.settle()
}

// hangUp ends the stream of the peer.
func (c *conn) hangUp() {
	c.t.Helper()
	c.sock.HangUp()
	c.settle()
}

// delay takes the socket from the handler.
func (c *conn) delay() {
	c.t.Helper()
	c.h.Delay(false, nil)
	c.settle()
}

// closeHandler ends the handler with its socket.
func (c *conn) closeHandler() {
	c.t.Helper()
	c.h.Close(nil)
	c.settle()
}

// arriveInPieces has a stream arrive cut by chance, also between turns.
func (c *conn) arriveInPieces(rng *rand.Rand, stream []byte) {
	c.t.Helper()
	for len(stream) > 0 {
		n := min(1+rng.IntN(1<<(4+rng.IntN(15))), len(stream))
		c.sock.Arrive(stream[:n])
		stream = stream[n:]
		if rng.IntN(3) == 0 {
			c.settle()
		}
	}
	c.settle()
}

// keep has c retain its messages, in the order of their arrival.
func (c *conn) keep() *[]*Message {
	kept := new([]*Message)
	c.own.onMessage = func(_ *Handler, m *Message) {
		m.Retain()
		*kept = append(*kept, m)
	}
	return kept
}

// releaseEach releases one message after the other, with those that come meanwhile.
func (b *bed) releaseEach(kept *[]*Message) {
	for len(*kept) > 0 {
		m := (*kept)[0]
		*kept = (*kept)[1:]
		m.Release()
		b.settle()
	}
}

// take decodes what the handler has sent since the last take.
func (c *conn) take() []parsed {
	c.t.Helper()
	frames := c.peer.decode(c.sock.Sent)
	c.sock.Sent = nil
	return frames
}

// peerCodec is the other end of a connection: it makes and parses frames.
type peerCodec struct {
	t      testing.TB
	one    *peerCodec1 // nil: msgr2
	rev    frame.Revision
	secure bool
	enc    *frame.Encoder
	dec    *frame.Decoder
	keys   [2]frame.Keys
	left   []byte
}

// newModeCodec makes the other end for a framing.
func newModeCodec(t testing.TB, m wireMode) *peerCodec {
	if m.msgr1 != nil {
		return &peerCodec{t: t, one: newPeerCodec1(t, m)}
	}
	return newPeerCodec(t, m.rev, m.secure)
}

// ours sets the codec of our end.
func (p *peerCodec) ours(opt *OpenOptions) {
	if p.one != nil {
		p.one.ours(opt)
		return
	}
	opt.Codec = Msgr2(p.ourEncoder(), p.ourDecoder())
}

func newPeerCodec(t testing.TB, rev frame.Revision, secure bool) *peerCodec {
	p := &peerCodec{t: t, rev: rev, secure: secure, enc: frame.NewEncoder(rev), dec: frame.NewDecoder(rev, frame.DefaultLimits())}
	if secure {
		secret := make([]byte, 64)
		for i := range secret {
			secret[i] = byte(i*7 + 1)
		}
		for i, connector := range []bool{true, false} {
			k, err := frame.KeysFromSecret(secret, connector)
			must(t, err)
			p.keys[i] = k
		}
		must(t, p.enc.Secure(p.keys[1].Key, p.keys[1].TxNonce))
		must(t, p.dec.Secure(p.keys[1].Key, p.keys[1].RxNonce))
	}
	return p
}

func (p *peerCodec) ourEncoder() *frame.Encoder {
	e := frame.NewEncoder(p.rev)
	if p.secure {
		must(p.t, e.Secure(p.keys[0].Key, p.keys[0].TxNonce))
	}
	return e
}

func (p *peerCodec) ourDecoder() *frame.Decoder {
	d := frame.NewDecoder(p.rev, frame.DefaultLimits())
	if p.secure {
		must(p.t, d.Secure(p.keys[0].Key, p.keys[0].RxNonce))
	}
	return d
}

// message encodes one message frame of the peer.
func (p *peerCodec) message(seq, ack uint64, m *Message) []byte {
	if p.one != nil {
		return p.one.message(seq, ack, m)
	}
	hd := frame.MessageHeader{Seq: seq, TID: m.TID, Type: m.Type, Priority: m.Priority, AckSeq: ack, Flags: 3}
	var seg0 [frame.MessageHeaderSize]byte
	hd.Put(&seg0)
	return p.frame(frame.TagMessage, seg0[:], m.Front, m.Middle, m.Data)
}

func (p *peerCodec) frame(tag frame.Tag, segs ...[]byte) []byte {
	if p.one != nil {
		return p.one.control(tag, segs[0])
	}
	b, err := p.enc.AppendFrame(nil, tag, segs...)
	must(p.t, err)
	return b
}

// ack is the frame that acknowledges all messages up to a number.
func (p *peerCodec) ack(seq uint64) []byte {
	b := seqPayload(seq)
	return p.frame(frame.TagAck, b[:])
}

// stamped is a frame that has a time.
func (p *peerCodec) stamped(tag frame.Tag, at Timestamp) []byte {
	b := at.payload()
	return p.frame(tag, b[:])
}

// parsed is one frame that the peer received.
type parsed struct {
	tag frame.Tag
	hd  frame.MessageHeader
	hd1 frame1.Header // msgr1
	seg [4][]byte
}

func (p *peerCodec) decode(b []byte) (frames []parsed) {
	p.t.Helper()
	p.left = append(p.left, b...)
	if p.one != nil {
		frames, p.left = p.one.decode(p.left)
		return frames
	}
	for {
		head := p.dec.HeadSize()
		if len(p.left) < head {
			if len(p.left) > 0 {
				p.t.Fatalf("half a frame on the wire: %d bytes", len(p.left))
			}
			return frames
		}
		hd, err := p.dec.Open(p.left[:head])
		must(p.t, err)
		size := head + p.dec.RestSize(hd)
		if len(p.left) < size {
			p.t.Fatalf("frame cut at %d of %d bytes", len(p.left), size)
		}
		f, err := p.dec.Finish(hd, p.left[:head], p.left[head:size])
		must(p.t, err)
		one := parsed{tag: f.Tag}
		for i, s := range f.Seg {
			one.seg[i] = append([]byte(nil), s...)
		}
		if f.Tag == frame.TagMessage {
			one.hd, err = frame.ParseMessageHeader(f.Seg[0])
			must(p.t, err)
		}
		p.left = p.left[size:]
		frames = append(frames, one)
	}
}
