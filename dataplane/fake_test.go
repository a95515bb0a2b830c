package dataplane

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
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
	mode wireMode
	sock *fakedriver.Sock
	peer *peerCodec
}

// handler makes a handler without a connection, with the bounds of cfg.
func (b *bed) handler(cfg HandlerConfig) *conn {
	c := &conn{bed: b, own: &recorder{}, mode: wireModes[1]}
	cfg.Owner = c.own
	c.h = NewHandler(b.c, cfg)
	return c
}

// conn makes a handler with a connection, in mode crc of msgr2.1 unless a mode is given.
func (b *bed) conn(opt OpenOptions, mode ...wireMode) *conn {
	b.t.Helper()
	c := b.handler(HandlerConfig{})
	c.open(opt, mode...)
	return c
}

// open gives the handler a new socket, in the mode of the last one unless one is given.
func (c *conn) open(opt OpenOptions, mode ...wireMode) {
	c.t.Helper()
	for _, c.mode = range mode {
	}
	c.openOn(c.d.Open(), opt)
}

// openOn is open with a socket of the test's.
func (c *conn) openOn(f *fakedriver.Sock, opt OpenOptions) {
	c.t.Helper()
	c.peer = newPeer(c.t, c.mode)
	opt.Codec, opt.Source = c.peer.ours(), Source{Type: 4, Num: 17}
	l, err := c.c.Adopt(f.Sock.FD())
	must(c.t, err)
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

// numbered has messages with these numbers, which are their TIDs, too, arrive.
func (c *conn) numbered(from, to uint64) {
	c.t.Helper()
	for seq := from; seq <= to; seq++ {
		c.sock.Arrive(c.peer.message(seq, 0, &Message{TID: seq}))
	}
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

// alive wants no fault up to now.
func (c *conn) alive(when ...any) {
	c.t.Helper()
	if err := c.own.fault(); err != nil {
		c.t.Fatalf("fault %v, %s", err, fmt.Sprint(when...))
	}
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

// peerCodec is the other end of a connection: it makes and parses frames. It names those of
// msgr1 by the tags of msgr2.
type peerCodec struct {
	t    testing.TB
	mode wireMode
	enc  *frame.Encoder
	dec  *frame.Decoder
	enc1 *frame1.Encoder
	dec1 *frame1.Decoder
	keys [2]frame.Keys // ours, and those of the peer
	left []byte
}

// newPeer makes the other end for a framing.
func newPeer(t testing.TB, m wireMode) *peerCodec {
	p := &peerCodec{t: t, mode: m}
	if m.msgr1 != nil {
		p.enc1, p.dec1 = p.codec1()
		return p
	}
	secret := make([]byte, 64)
	for i := range secret {
		secret[i] = byte(i*7 + 1)
	}
	for i := range p.keys {
		k, err := frame.KeysFromSecret(secret, i == 0)
		must(t, err)
		p.keys[i] = k
	}
	p.enc, p.dec = p.codec(1)
	return p
}

// codec makes the codec of a side: 0 is ours.
func (p *peerCodec) codec(side int) (*frame.Encoder, *frame.Decoder) {
	e, d := frame.NewEncoder(p.mode.rev), frame.NewDecoder(p.mode.rev, frame.DefaultLimits())
	if k := p.keys[side]; p.mode.secure {
		must(p.t, e.Secure(k.Key, k.TxNonce))
		must(p.t, d.Secure(k.Key, k.RxNonce))
	}
	return e, d
}

func (p *peerCodec) codec1() (*frame1.Encoder, *frame1.Decoder) {
	cfg, s := *p.mode.msgr1, p.mode.signer()
	return frame1.NewEncoder(cfg, s, [136]byte{}), frame1.NewDecoder(cfg, s, frame.DefaultLimits())
}

// ours is the codec of our end.
func (p *peerCodec) ours() Codec {
	if p.mode.msgr1 != nil {
		return Msgr1(p.codec1())
	}
	return Msgr2(p.codec(0))
}

// mixed is a signer that sees every field.
type mixed struct{}

func (mixed) Sign(s frame1.Signed) uint64 {
	x := uint64(1)
	for _, v := range [...]uint64{
		uint64(s.HeaderCRC), uint64(s.FrontCRC), uint64(s.MiddleCRC), uint64(s.DataCRC), uint64(s.FrontLen), uint64(s.MiddleLen),
		uint64(s.DataLen), s.Seq,
	} {
		x = x*6364136223846793005 + v
	}
	return x
}

// message encodes one message frame of the peer. The ack of msgr1 is a frame before it, unless it is 0.
func (p *peerCodec) message(seq, ack uint64, m *Message) (b []byte) {
	if p.mode.msgr1 != nil {
		if ack > 0 {
			b = p.ack(ack)
		}
		hd := frame1.Header{Seq: seq, TID: m.TID, Type: m.Type, Priority: m.Priority, DataOff: m.DataOff}
		return p.enc1.AppendMessage(b, &hd, m.Front, m.Middle, m.Data)
	}
	hd := frame.MessageHeader{Seq: seq, TID: m.TID, Type: m.Type, Priority: m.Priority, AckSeq: ack, Flags: 3}
	var seg0 [frame.MessageHeaderSize]byte
	hd.Put(&seg0)
	return p.frame(frame.TagMessage, seg0[:], m.Front, m.Middle, m.Data)
}

// tags1 has the tags of msgr1 by those of msgr2.
var tags1 = map[frame.Tag]frame1.Tag{tagMsg: frame1.TagMessage, tagAck: frame1.TagAck, tagPing: frame1.TagKeepalive2, tagPong: frame1.TagKeepalive2Ack}

func (p *peerCodec) frame(tag frame.Tag, segs ...[]byte) []byte {
	if p.mode.msgr1 != nil {
		return append([]byte{byte(tags1[tag])}, segs[0]...)
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

// decode parses whole frames.
func (p *peerCodec) decode(b []byte) (frames []parsed) {
	p.t.Helper()
	p.left = append(p.left, b...)
	for len(p.left) > 0 {
		if p.mode.msgr1 != nil {
			frames = append(frames, p.decode1())
			continue
		}
		head := p.dec.HeadSize()
		hd, err := p.dec.Open(p.next(head))
		must(p.t, err)
		f, err := p.dec.Finish(hd, p.next(head), p.next(head + p.dec.RestSize(hd))[head:])
		must(p.t, err)
		one := parsed{tag: f.Tag}
		for i, s := range f.Seg {
			one.seg[i] = bytes.Clone(s)
		}
		if f.Tag == frame.TagMessage {
			one.hd, err = frame.ParseMessageHeader(f.Seg[0])
			must(p.t, err)
		}
		p.left = p.left[head+p.dec.RestSize(hd):]
		frames = append(frames, one)
	}
	return frames
}

// next are the next n bytes.
func (p *peerCodec) next(n int) []byte {
	p.t.Helper()
	if len(p.left) < n {
		p.t.Fatalf("half a frame on the wire: %d of %d bytes", len(p.left), n)
	}
	return p.left[:n:n]
}

// decode1 is decode for one frame of msgr1.
func (p *peerCodec) decode1() (one parsed) {
	p.t.Helper()
	take := func(n int) []byte {
		b := bytes.Clone(p.next(n))
		p.left = p.left[n:]
		return b
	}
	tag := frame1.Tag(take(1)[0])
	n, err := p.mode.msgr1.Size(tag)
	must(p.t, err)
	one.seg[0] = take(n)
	for two, name := range tags1 {
		if tag == name || tag == frame1.TagKeepalive && two == tagPing {
			one.tag = two
		}
	}
	switch one.tag {
	case 0:
		p.t.Fatalf("%v on the wire", tag)
	case tagMsg:
		one.hd1, err = p.dec1.Header(one.seg[0])
		must(p.t, err)
		hd := one.hd1
		one.hd = frame.MessageHeader{
			Seq: hd.Seq, TID: hd.TID, Type: hd.Type, Priority: hd.Priority, Version: hd.Version, DataOff: hd.DataOff,
			CompatVersion: hd.CompatVersion,
		}
		for i, n := range []uint32{hd.FrontLen, hd.MiddleLen, hd.DataLen} {
			one.seg[i+1] = take(int(n))
		}
		must(p.t, p.dec1.Footer(hd, take(p.mode.msgr1.FooterSize()), frame1.SumsOf(one.seg[1], one.seg[2], one.seg[3])))
	}
	return one
}

// recorder is an Owner that notes what it is told. All of it may be read by any
// goroutine.
type recorder struct {
	mu        sync.Mutex
	messages  []received
	events    []string // everything but messages, in order
	faults    []error
	snapshots []Snapshot
	happened  []any
	acks      []Timestamp
	outs      []uint64 // numbers of notifications
	notice    chan struct{}

	// Called on the core, if set.
	onMessage func(h *Handler, m *Message)
	onFault   func(n uint64, err error, m Snapshot)
	onMoving  func()
	onMoved   func(h *Handler)
	// discard keeps nothing of messages.
	discard bool
}

// received is a copy of a message.
type received struct {
	typ, priority       uint16
	tid, seq            uint64
	front, middle, data []byte
}

func (r *recorder) Dispatch(h *Handler, m *Message) {
	if r.onMessage != nil {
		r.onMessage(h, m)
	}
	if r.discard {
		return
	}
	got := received{m.Type, m.Priority, m.TID, m.Seq(), bytes.Clone(m.Front), bytes.Clone(m.Middle), bytes.Clone(m.Data)}
	r.mu.Lock()
	r.messages = append(r.messages, got)
	r.mu.Unlock()
	r.told()
}

func (r *recorder) note(format string, args ...any) {
	r.mu.Lock()
	r.events = append(r.events, fmt.Sprintf(format, args...))
	r.mu.Unlock()
	r.told()
}

// told wakes whoever waits in until.
func (r *recorder) told() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.notice != nil {
		close(r.notice)
		r.notice = nil
	}
}

func (r *recorder) Faulted(n uint64, err error, m Snapshot) {
	r.mu.Lock()
	r.faults, r.snapshots, r.outs = append(r.faults, err), append(r.snapshots, m), append(r.outs, n)
	r.mu.Unlock()
	r.note("fault")
	if r.onFault != nil {
		r.onFault(n, err, m)
	}
}

func (r *recorder) Queued(n uint64) {
	r.mu.Lock()
	r.outs = append(r.outs, n)
	r.mu.Unlock()
	r.note("queued")
}

func (r *recorder) Moving(_ *Handler, to *loop.Core) {
	r.note("moving to %d", to.ID())
	if r.onMoving != nil {
		r.onMoving()
	}
}

func (r *recorder) Moved(h *Handler, from *loop.Core, ev MoveCause) {
	r.note("moved from %d accepted=%v replace=%v", from.ID(), ev.Accepted, ev.Replace)
	if r.onMoved != nil {
		r.onMoved(h)
	}
}

func (r *recorder) Happened(_ *Handler, what any) {
	r.mu.Lock()
	r.happened = append(r.happened, what)
	r.mu.Unlock()
	r.note("happened %v", what)
}

func (r *recorder) KeepaliveAck(_ *Handler, sent Timestamp) {
	r.mu.Lock()
	r.acks = append(r.acks, sent)
	r.mu.Unlock()
	r.told()
}

// list is a snapshot of the messages.
func (r *recorder) list() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received(nil), r.messages...)
}

// fault is the last fault, nil if there was none.
func (r *recorder) fault() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.faults) == 0 {
		return nil
	}
	return r.faults[len(r.faults)-1]
}

// log is a snapshot of the events.
func (r *recorder) log() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.events...)
}
