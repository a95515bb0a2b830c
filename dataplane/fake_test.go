package dataplane

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/uring"
)

// fakeDriver is a driver in memory whose every answer the test decides. It is
// used with a Manual plane, on the goroutine of the test.
type fakeDriver struct {
	uring.FileDriver // nil: no files yet

	multishot bool // Receive works
	socks     map[int]*fakeSock
	queue     []uring.Completion
	last      []uring.Completion
	nextFD    int
	nextOp    uring.Op
	waitErr   error
	released  int
	lent      int
	closed    bool
}

// fakeSock is one socket of it.
type fakeSock struct {
	drv        *fakeDriver
	sock       uring.Socket
	user       uint64
	armed      bool // Ready
	receiving  bool // Receive
	recvOp     uring.Op
	readyOp    uring.Op
	pieces     [][]byte // what each read finds
	whole      []byte   // or one stream, read as far as the buffer reaches
	end        bool
	errno      unix.Errno
	reads      int
	sent       []byte // what was transmitted
	writes     int
	park       bool // sends stay in flight until finish
	inFlight   *uring.Vec
	sendUser   uint64
	sendFlags  uring.SendFlags
	cancelled  int
	closeCalls int
}

// firstFakeFD is far above what the kernel hands out.
const firstFakeFD = 1 << 24

func newFakeDriver() *fakeDriver {
	return &fakeDriver{socks: map[int]*fakeSock{}, nextFD: firstFakeFD}
}

func (d *fakeDriver) open() *fakeSock {
	d.nextFD++
	s := &fakeSock{drv: d, sock: uring.MakeSocket(d.nextFD)}
	d.socks[d.nextFD] = s
	return s
}

func (d *fakeDriver) op() uring.Op { d.nextOp++; return d.nextOp }

func (d *fakeDriver) Info() uring.Info {
	return uring.Info{Backend: "fake", Receive: d.multishot}
}

func (d *fakeDriver) Listen(netip.AddrPort, uring.ListenOptions) (uring.Socket, error) {
	return d.open().sock, nil
}

func (d *fakeDriver) Adopt(fd int) (uring.Socket, error) {
	if s := d.socks[fd]; s != nil {
		return s.sock, nil
	}
	return uring.Socket{}, unix.EBADF
}

func (d *fakeDriver) Accept(uring.Socket, uint64) (uring.Op, error) { return d.op(), nil }

func (d *fakeDriver) Connect(_, _ netip.AddrPort, _ uring.SocketOptions, user uint64) (uring.Socket, uring.Op, error) {
	s, op := d.open(), d.op()
	d.queue = append(d.queue, uring.Completion{Kind: uring.KindConnect, User: user, Op: op})
	return s.sock, op, nil
}

func (d *fakeDriver) Ready(s uring.Socket, user uint64) (uring.Op, error) {
	f := d.socks[s.FD()]
	f.armed, f.user = true, user
	if len(f.pieces) > 0 || len(f.whole) > 0 || f.end || f.errno != 0 {
		f.edge(0)
	}
	f.readyOp = d.op()
	return f.readyOp, nil
}

func (d *fakeDriver) Receive(s uring.Socket, user uint64) (uring.Op, error) {
	if !d.multishot {
		return 0, errors.ErrUnsupported
	}
	f := d.socks[s.FD()]
	f.receiving, f.user, f.recvOp = true, user, d.op()
	f.flow()
	return f.recvOp, nil
}

func (d *fakeDriver) Release(uring.Buffer) { d.released++ }

func (d *fakeDriver) Recv(s uring.Socket, p []byte) (int, unix.Errno) { return d.Recvv(s, p, nil) }

func (d *fakeDriver) Recvv(s uring.Socket, p, q []byte) (int, unix.Errno) {
	f := d.socks[s.FD()]
	f.reads++
	take := func(src []byte) int {
		n := copy(p, src)
		return n + copy(q, src[n:])
	}
	switch {
	case len(f.whole) > 0:
		n := take(f.whole)
		f.whole = f.whole[n:]
		return n, 0
	case len(f.pieces) > 0:
		n := take(f.pieces[0])
		if n == len(f.pieces[0]) {
			f.pieces = f.pieces[1:]
			if len(f.pieces) > 0 {
				f.edge(0) // each piece is an arrival of its own
			}
		} else {
			f.pieces[0] = f.pieces[0][n:]
		}
		return n, 0
	case f.errno != 0:
		return 0, f.errno
	case f.end:
		return 0, 0
	}
	return 0, unix.EAGAIN
}

func (d *fakeDriver) Send(s uring.Socket, v *uring.Vec, user uint64, flags uring.SendFlags) (bool, uring.Op, error) {
	f := d.socks[s.FD()]
	f.writes++
	f.inFlight, f.sendUser, f.sendFlags = v, user, flags
	if f.park {
		return false, d.op(), nil
	}
	f.sent = v.AppendTo(f.sent)
	f.inFlight = nil
	return true, 0, nil
}

func (d *fakeDriver) Cancel(op uring.Op) {
	for _, f := range d.socks {
		if f.receiving && f.recvOp == op {
			f.cancelled++
			f.receiving = false
			d.queue = append(d.queue, uring.Completion{Kind: uring.KindReceive, User: f.user, Op: op, Res: -int32(unix.ECANCELED)})
		}
		if f.armed && f.readyOp == op {
			f.armed = false
			d.queue = append(d.queue, uring.Completion{Kind: uring.KindReady, User: f.user, Op: op, Res: -int32(unix.ECANCELED)})
		}
	}
}

func (d *fakeDriver) Shutdown(uring.Socket) {}

func (d *fakeDriver) Detach(s uring.Socket) (int, error) { return s.FD(), nil }

func (d *fakeDriver) Close(s uring.Socket) {
	f := d.socks[s.FD()]
	if f == nil {
		return
	}
	f.closeCalls++
	if f.armed {
		f.armed = false
		d.queue = append(d.queue, uring.Completion{Kind: uring.KindReady, User: f.user, Res: -int32(unix.ECANCELED)})
	}
	if f.receiving {
		f.receiving = false
		d.queue = append(d.queue, uring.Completion{Kind: uring.KindReceive, User: f.user, Res: -int32(unix.ECANCELED)})
	}
	if f.inFlight != nil {
		f.finish(-int32(unix.ECANCELED))
	}
}

func (d *fakeDriver) LocalAddr(uring.Socket) netip.AddrPort { return netip.AddrPort{} }

func (d *fakeDriver) PeerAddr(uring.Socket) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 1}), 1)
}

func (d *fakeDriver) Wait(time.Duration) ([]uring.Completion, error) {
	if d.waitErr != nil {
		return nil, d.waitErr
	}
	// Two lists, so that the one handed out stays valid until the next Wait.
	d.queue, d.last = d.last[:0], d.queue
	return d.last, nil
}

func (d *fakeDriver) Wake()              {}
func (d *fakeDriver) Stats() uring.Stats { return uring.Stats{} }
func (d *fakeDriver) CloseDriver() error { d.closed = true; return nil }

// edge reports readiness with more bits of the poll mask.
func (f *fakeSock) edge(more int32) {
	if f.armed {
		f.drv.queue = append(f.drv.queue, uring.Completion{Kind: uring.KindReady, User: f.user, Res: unix.POLLIN | more, Flags: uring.More})
	}
}

// arrive adds what one read finds.
func (f *fakeSock) arrive(pieces ...[]byte) {
	for _, p := range pieces {
		if len(p) > 0 { // an empty read would be the end
			f.pieces = append(f.pieces, append([]byte(nil), p...))
		}
	}
	f.flow()
	f.edge(0)
}

// flow hands pieces to an armed multishot receive.
func (f *fakeSock) flow() {
	if !f.receiving {
		return
	}
	for _, p := range f.pieces {
		f.drv.lent++
		f.drv.queue = append(f.drv.queue, uring.Completion{
			Kind: uring.KindReceive, User: f.user, Op: f.recvOp, Res: int32(len(p)), Data: p, Buf: 1, Flags: uring.More,
		})
	}
	f.pieces = nil
	if f.end {
		f.receiving = false
		f.drv.queue = append(f.drv.queue, uring.Completion{Kind: uring.KindReceive, User: f.user, Op: f.recvOp})
	}
}

// hangUp is the end of the peer's stream.
func (f *fakeSock) hangUp() {
	f.end = true
	f.flow()
	f.edge(unix.POLLRDHUP)
}

// finish ends the send in flight: res is its result, or all of it for 0.
func (f *fakeSock) finish(res int32) {
	v := f.inFlight
	f.inFlight = nil
	if res == 0 {
		f.sent = v.AppendTo(f.sent)
		res = int32(v.Size())
	}
	f.drv.queue = append(f.drv.queue, uring.Completion{Kind: uring.KindSend, User: f.sendUser, Res: res})
}

// bed is a Manual plane of one core over a fakeDriver, with a clock.
type bed struct {
	t    testing.TB
	p    *Plane
	c    *Core
	d    *fakeDriver
	time time.Duration
}

func newBed(t testing.TB, change func(*Config, *fakeDriver)) *bed {
	t.Helper()
	b := &bed{t: t, d: newFakeDriver()}
	cfg := Config{
		Cores: 1, Manual: true,
		Open: func(int) (uring.Driver, error) { return b.d, nil },
		Now:  func() time.Duration { return b.time },
		Wall: func() time.Time { return time.Unix(1000, 5).Add(b.time) },
	}
	if change != nil {
		change(&cfg, b.d)
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.p, b.c = p, p.Core(0)
	t.Cleanup(b.close)
	return b
}

func (b *bed) close() {
	if !b.d.closed {
		b.p.Close()
	}
}

// settle runs the core until nothing is left to do.
func (b *bed) settle() {
	b.t.Helper()
	for range 1 << 20 {
		if err := b.c.Turn(false); err != nil {
			b.t.Fatal(err)
		}
		if !b.c.Busy() && len(b.d.queue) == 0 {
			return
		}
	}
	b.t.Fatal("the core never comes to rest")
}

// after moves the clock and lets timers fire.
func (b *bed) after(d time.Duration) {
	b.t.Helper()
	b.time += d
	b.settle()
	b.settle()
}

// link makes a connected link over a fake socket.
func (b *bed) link() (*Link, *fakeSock) {
	f := b.d.open()
	s := newSocket(b.c)
	l := &Link{core: b.c, sock: s, result: make(chan error, 1)}
	s.sock, s.link = f.sock, l
	s.arm()
	return l, f
}

// conn is a handler with an open fake connection.
type conn struct {
	*bed
	h    *Handler
	own  *recorder
	sock *fakeSock
	peer *peerCodec
}

func (b *bed) conn(opt OpenOptions) *conn { return b.connRev(opt, frame.Rev1, false) }

func (b *bed) connRev(opt OpenOptions, rev frame.Revision, secure bool) *conn {
	b.t.Helper()
	c := &conn{bed: b, own: &recorder{}}
	c.h = NewHandler(b.c, HandlerConfig{Owner: c.own})
	c.open(opt, rev, secure)
	return c
}

// open gives the handler a new socket.
func (c *conn) open(opt OpenOptions, rev frame.Revision, secure bool) {
	c.t.Helper()
	c.peer = newPeerCodec(c.t, rev, secure)
	opt.Encoder, opt.Decoder = c.peer.ourEncoder(), c.peer.ourDecoder()
	l, f := c.link()
	c.sock = f
	c.h.Open(l, opt)
	c.settle()
}

// take decodes what the handler has sent since the last take.
func (c *conn) take() []parsed {
	c.t.Helper()
	frames := c.peer.decode(c.sock.sent)
	c.sock.sent = nil
	return frames
}

// peerCodec is the other end of a connection: it makes and parses frames.
type peerCodec struct {
	t      testing.TB
	rev    frame.Revision
	secure bool
	enc    *frame.Encoder
	dec    *frame.Decoder
	keys   [2]frame.Keys
	left   []byte
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
			if err != nil {
				t.Fatal(err)
			}
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
	hd := frame.MessageHeader{Seq: seq, TID: m.TID, Type: m.Type, Priority: m.Priority, AckSeq: ack, Flags: 3}
	var seg0 [frame.MessageHeaderSize]byte
	hd.Put(&seg0)
	return p.frame(frame.TagMessage, seg0[:], m.Front, m.Middle, m.Data)
}

func (p *peerCodec) frame(tag frame.Tag, segs ...[]byte) []byte {
	b, err := p.enc.AppendFrame(nil, tag, segs...)
	must(p.t, err)
	return b
}

// parsed is one frame that the peer received.
type parsed struct {
	tag frame.Tag
	hd  frame.MessageHeader
	seg [4][]byte
}

func (p *peerCodec) decode(b []byte) (frames []parsed) {
	p.t.Helper()
	p.left = append(p.left, b...)
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

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
