package probe

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

// Probe is asked at every point of every connection. Implementations are called by
// many goroutines at once.
type Probe interface {
	// At says what happens at a point; the package text has the answers. In a
	// handshake it is called on its goroutine and may wait until ctx ends. In the
	// data phase it is called on a core, and at SocketDecided by the goroutine that
	// decided: there it must not block, and at SocketDecided it must not call the messenger
	// or its connections.
	At(ctx context.Context, e Event) error
}

// Func is a function as a Probe.
type Func func(ctx context.Context, e Event) error

// At implements Probe.
func (f Func) At(ctx context.Context, e Event) error { return f(ctx, e) }

// Answers of a Probe. Handshakes take ErrHold for a fault.
var (
	// ErrReset ends the socket, and the peer sees a TCP reset.
	ErrReset = errors.New("probe: reset at a break point")
	// ErrHalfClose ends our direction of the socket and goes on: later writes fail,
	// and the bytes of the peer are still read. Before there is a socket it is a
	// fault.
	ErrHalfClose = errors.New("probe: half-closed at a break point")
	// ErrHold stops that direction of the data phase before the frame.
	ErrHold = errors.New("probe: held at a break point")
)

// Event is one point on one connection.
type Event struct {
	Point
	When   When
	Socket *Socket
	// Conn is nil until an acceptor has decided which connection its socket
	// belongs to.
	Conn Conn
	// TookOver, at SocketDecided, says that Conn is one that existed, else the
	// socket made it.
	TookOver bool
}

// When says whether an event comes before or after its step.
type When uint8

// A step of a handshake is told of twice, unless it fails, a frame of the data phase
// once: before it is written, and when the head of a received one is there.
const (
	Before When = iota // a step of a handshake is about to happen
	After              // it has happened
	Data               // a frame of the data phase is about to pass
)

// Conn is a connection as a probe sees it: a *control.Conn.
type Conn interface {
	// ID numbers the connection within its messenger, from 1.
	ID() uint64
	// Resume lets a data phase go on that ErrHold stopped. Any goroutine.
	Resume()
}

// Point is a place at which a connection can be disturbed (Ceph's Interceptor.h).
type Point struct {
	Step Step
	Tag  frame.Tag // with FrameWrite and FrameRead only
}

// String describes the point, such as "read HELLO".
func (p Point) String() string {
	if p.Step == FrameWrite || p.Step == FrameRead {
		return p.Step.String() + " " + p.Tag.String()
	}
	return p.Step.String()
}

// Step is the kind of a Point.
type Step uint8

// The steps. Before a frame of a handshake is read its tag is not known, so
// Before of FrameRead comes when the head of the frame has arrived and been
// checked, before the rest of it is read. In mode secure of msgr2.0 the tag is not
// authenticated at that moment.
const (
	SocketConnecting  Step = iota + 1 // before the connector dials; Before only
	SocketAccepted                    // a socket was accepted; Before only
	BannerWrite                       // own banner
	BannerRead                        // first ten bytes of the peer's banner
	BannerPayloadRead                 // the rest of it
	FrameWrite                        // one frame, see Point.Tag
	FrameRead                         // one frame, see Point.Tag

	// The messages of the handshake of msgr1, whose BannerWrite is the banner with the
	// addresses behind it, and whose BannerPayloadRead are those addresses. A connect
	// message and its answer come with what belongs to their authorizer.
	ConnectWrite
	ConnectRead
	ReplyWrite // with TagSeq, what was received is in it
	ReplyRead
	SeqWrite
	SeqRead

	// SocketDecided comes once for every accepted socket, After only: it made
	// Event.Conn, or took it over, or was closed without a connection of its own
	// (Conn is nil). It comes before the accept event. The answer is ignored.
	SocketDecided
)

var stepNames = [...]string{
	SocketConnecting: "socket connecting", SocketAccepted: "socket accepted", BannerWrite: "banner write",
	BannerRead: "banner read", BannerPayloadRead: "banner payload read", FrameWrite: "write", FrameRead: "read",
	ConnectWrite: "connect write", ConnectRead: "connect read", ReplyWrite: "reply write", ReplyRead: "reply read",
	SeqWrite: "sequence write", SeqRead: "sequence read",
	SocketDecided: "socket decided",
}

// String names the step.
func (s Step) String() string {
	if int(s) < len(stepNames) && stepNames[s] != "" {
		return stepNames[s]
	}
	return "unknown step"
}

// Socket is one TCP connection with a Probe. The handshake and the data phase ask the
// probe by it; the nil Socket asks no probe. The probe disturbs it by Reset and
// HalfClose, which have no effect before it is connected and once the data phase
// has begun; any goroutine may call them, but no dispatcher on a core.
type Socket struct {
	probe    Probe
	id       uint64
	accepted bool
	link     atomic.Pointer[Link]
	conn     Conn // what it is told of; changed by Decided alone, between two steps
	decided  bool
}

// Link is the TCP connection of a Socket: a *loop.Link.
type Link interface {
	PeerAddr() netip.AddrPort
	Reset()
	HalfClose()
}

// NewSocket is a socket that p is told of, nil if p is nil. id numbers it within its
// messenger, from 1. conn is the connection that dials, nil if it is accepted.
func NewSocket(p Probe, id uint64, accepted bool, conn Conn) *Socket {
	if p == nil {
		return nil
	}
	return &Socket{probe: p, id: id, accepted: accepted, conn: conn}
}

// ID is the number of the socket in its messenger.
func (s *Socket) ID() uint64 { return s.id }

// Accepted says whether we accepted it, else we dialled.
func (s *Socket) Accepted() bool { return s.accepted }

// Peer is the socket address of the other end, zero before it is connected.
func (s *Socket) Peer() (a netip.AddrPort) {
	s.with(func(l Link) { a = l.PeerAddr() })
	return a
}

// Reset closes the socket with a TCP reset.
func (s *Socket) Reset() { s.with(Link.Reset) }

// HalfClose ends our direction of the stream; the peer's is still read.
func (s *Socket) HalfClose() { s.with(Link.HalfClose) }

// with says whether there is a link, and does something to it.
func (s *Socket) with(do func(Link)) bool {
	l := s.link.Load()
	if l != nil {
		do(*l)
	}
	return l != nil
}

// Connected is called with the TCP connection, once there is one.
func (s *Socket) Connected(l Link) {
	if s != nil {
		s.link.Store(&l)
	}
}

// Step asks the probe about a step of a handshake, and returns the fault that it
// asks for, or nil.
func (s *Socket) Step(ctx context.Context, p Point, w When) error {
	if s == nil {
		return nil
	}
	return s.step(ctx, p, w)
}

func (s *Socket) step(ctx context.Context, p Point, w When) error {
	err := s.probe.At(ctx, Event{Point: p, When: w, Socket: s, Conn: s.conn})
	switch err {
	case ErrReset:
		s.Reset()
	case ErrHalfClose:
		if s.with(Link.HalfClose) {
			return nil
		}
	}
	return err
}

// Decided tells the probe what became of an accepted socket, the first time that it
// is called: SocketDecided. conn is nil for none.
func (s *Socket) Decided(ctx context.Context, conn Conn, tookOver bool) {
	if s == nil || s.decided {
		return
	}
	s.conn, s.decided = conn, true
	_ = s.probe.At(ctx, Event{Point: Point{Step: SocketDecided}, When: After, Socket: s, Conn: conn, TookOver: tookOver}) // there is nothing to disturb
}

// Frame asks the probe about a frame of the data phase, and returns its answer. On
// the core.
func (s *Socket) Frame(tag frame.Tag, write bool) error {
	if s == nil {
		return nil
	}
	p := Point{Step: FrameRead, Tag: tag}
	if write {
		p.Step = FrameWrite
	}
	return s.probe.At(context.Background(), Event{Point: p, When: Data, Socket: s, Conn: s.conn})
}

// Tracer gives each socket its tap. Implementations are called by many goroutines at
// once, and must not call the messenger.
type Tracer interface {
	// Trace is called once for each TCP connection, before its first byte. nil: the
	// socket is not watched.
	Trace(s TracedSocket) Tap
}

// TracedSocket is one TCP connection.
type TracedSocket struct {
	Accepted bool // we accepted it, else we dialled
	Local    netip.AddrPort
	Peer     netip.AddrPort
}

// Tap gets the frames of one socket. During the handshake it is called by one goroutine
// at a time, in the data phase by the core that owns the connection, which it must not
// block. It gets a sent frame before the kernel does.
type Tap interface {
	// Banner: the features of a banner, a frame of neither direction.
	Banner(sent bool, supported, required uint64)
	// Frame: its slices are valid during the call.
	Frame(f Frame)
	// Part is Banner and Frame of msgr1; its slices are valid during the call.
	Part(p Part)
	// Ended: the socket is closed, and why. It can come from any goroutine, and again:
	// the first call has the cause, and later calls of any method are to be ignored.
	Ended(why error)
}

// Frame is one frame that was decoded, or is about to be encoded.
type Frame struct {
	Sent bool // else received
	Tag  frame.Tag
	// Seg are the segments in clear: decrypted and decompressed.
	Seg [frame.MaxSegments][]byte
	// Compressed and Aborted are known of received frames alone.
	Compressed, Aborted bool
}

// PartKind is the kind of a Part.
type PartKind uint8

// The kinds, in the order in which they come.
const (
	PartAcceptorHello  PartKind = iota + 1 // banner and addresses
	PartConnectorHello                     // the same
	PartConnect                            // a connect message
	PartReply                              // to a connect message
	PartSeq                                // what a side has received, behind a reply with SEQ
	PartOpen                               // what has a frame1.Tag
)

// Part is a message of the handshake or a frame of msgr1.
type Part struct {
	Sent bool // else received
	Kind PartKind
	// Bytes are all of it, without an authorizer, and with PartOpen what follows the tag of an
	// ACK or a keepalive.
	Bytes []byte
	// Tag is set with PartOpen, and Form, Header and Seg, which are front, middle and data,
	// if that is a message.
	Tag    frame1.Tag
	Form   frame1.Form
	Header *frame1.Header
	Seg    [3][]byte
}
