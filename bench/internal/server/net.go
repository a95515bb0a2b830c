// Package server holds servers to compare the messenger with: the floor, which echoes bytes
// without decoding them, and a usual Go program on package net.
package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/ringmsgr/ringmsgr/bench/internal/session"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

const (
	netBuffer = 64 << 10
	netPage   = 4096
)

// NewNet starts the echo server that a Go programmer writes with package net: a
// goroutine per connection, buffered reading and writing, replies flushed when
// no complete request is waiting, large payloads written from where they are,
// buffers used again. It speaks msgr2.1, in crc mode or in secure mode.
func NewNet(secure bool) (*Listener, error) {
	return Listen(secure, func(c net.Conn, enc *frame.Encoder, dec *frame.Decoder) error {
		n := NewFramed(c, enc, dec, nil)
		return n.Serve(n.Reply)
	})
}

// Framed is a connection in the data phase. It belongs to one goroutine.
type Framed struct {
	c     net.Conn
	r     *bufio.Reader
	w     *bufio.Writer
	dec   *frame.Decoder
	enc   *frame.Encoder
	reply *Replier
	in    []byte // current frame, used again

	out []byte // a large encrypted frame
	vec [3][]byte
}

// NewFramed prepares the data phase. Frames are read into room as long as it has room for
// them, so that the data of each begins at its second page.
func NewFramed(c net.Conn, enc *frame.Encoder, dec *frame.Decoder, room []byte) *Framed {
	return &Framed{
		c: c, r: bufio.NewReaderSize(c, netBuffer), w: bufio.NewWriterSize(c, netBuffer),
		dec: dec, enc: enc, reply: NewReplier(enc), in: append(room[:0], make([]byte, netPage)...),
	}
}

// Serve has answer take each message, which is good until answer returns, until the peer
// closes or breaks the protocol.
func (n *Framed) Serve(answer func(f *frame.Frame) error) error {
	for {
		f, err := n.read()
		if err != nil {
			return err
		}
		switch {
		case f.Aborted:
		case f.Tag == frame.TagMessage:
			err = answer(&f)
		case f.Tag == frame.TagKeepalive2:
			err = n.acknowledge(f.Seg[0])
		case f.Tag == frame.TagKeepalive2Ack, f.Tag == frame.TagAck:
		default:
			err = fmt.Errorf("unexpected frame %v", f.Tag)
		}
		if err != nil {
			return err
		}
	}
}

// read reads one frame, whose segments are valid until the next read.
func (n *Framed) read() (frame.Frame, error) {
	size := n.dec.HeadSize()
	head := n.in[:size]
	if err := n.fill(head); err != nil {
		return frame.Frame{}, err
	}
	h, err := n.dec.Open(head)
	if err != nil {
		return frame.Frame{}, err
	}
	prefix, _ := n.dec.Split(h)
	at := max(0, netPage-size-prefix) // of the head, so that the data begins at a page
	// Head and rest in one piece: that is decrypted in place.
	end := at + size + n.dec.RestSize(h)
	if end > cap(n.in) {
		n.in = append(make([]byte, 0, end), head...)
	}
	n.in = n.in[:max(end, netPage)]
	copy(n.in[at:], n.in[:size])
	head, rest := n.in[at:at+size], n.in[at+size:end]
	if err := n.fill(rest); err != nil {
		return frame.Frame{}, err
	}
	return n.dec.Finish(h, head, rest)
}

// fill reads all of p. It flushes written bytes before it has to wait.
func (n *Framed) fill(p []byte) error {
	if n.r.Buffered() < len(p) {
		if err := n.w.Flush(); err != nil {
			return err
		}
	}
	_, err := io.ReadFull(n.r, p)
	return err
}

// Reply sends the segments of f back, with the header of an answer to it. It leaves at
// once, or when no complete message waits.
func (n *Framed) Reply(f *frame.Frame) error {
	if n.reply.Large(f) {
		return n.writeLarge(f)
	}
	if err := n.room(len(f.Seg[1]) + len(f.Seg[2]) + len(f.Seg[3])); err != nil {
		return err
	}
	p, err := n.reply.Append(n.w.AvailableBuffer(), f) // straight into the writer's buffer
	if err != nil {
		return err
	}
	_, err = n.w.Write(p)
	return err
}

func (n *Framed) acknowledge(stamp []byte) error {
	if err := n.room(len(stamp)); err != nil {
		return err
	}
	p, err := n.enc.AppendFrame(n.w.AvailableBuffer(), frame.TagKeepalive2Ack, stamp)
	if err != nil {
		return err
	}
	_, err = n.w.Write(p)
	return err
}

// frameOverhead is more than a frame of the data phase adds to the segments of its
// user: in secure mode 144 bytes and three paddings.
const frameOverhead = 192

// room makes place in the writer's buffer for a frame.
func (n *Framed) room(size int) error {
	if n.w.Available() >= size+frameOverhead {
		return nil
	}
	return n.w.Flush()
}

func (n *Framed) writeLarge(f *frame.Frame) error {
	if err := n.w.Flush(); err != nil {
		return err
	}
	if !n.reply.Gathers() { // encrypted
		var err error
		if n.out, err = n.reply.Append(n.out[:0], f); err == nil {
			_, err = n.c.Write(n.out)
		}
		return err
	}
	before, after, err := n.reply.Gather(f)
	if err != nil {
		return err
	}
	n.vec = [3][]byte{before, f.Seg[3], after} // without a copy of the data
	buffers := net.Buffers(n.vec[:])
	_, err = buffers.WriteTo(n.c)
	return err
}

// Listener accepts the connections of a server on package net, which has a goroutine for
// each.
type Listener struct {
	secure   bool
	serve    func(c net.Conn, enc *frame.Encoder, dec *frame.Decoder) error
	listener net.Listener
	cancel   context.CancelFunc
	wait     sync.WaitGroup
}

// Listen starts one on a free port of the loopback address, in crc mode or in secure mode.
// serve is called on a goroutine of each connection, once its handshake is done; the
// connection ends with it.
func Listen(secure bool, serve func(c net.Conn, enc *frame.Encoder, dec *frame.Decoder) error) (*Listener, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("net: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Listener{secure: secure, serve: serve, listener: l, cancel: cancel}
	s.wait.Go(func() { s.accept(ctx) })
	return s, nil
}

// Addr returns where it listens.
func (s *Listener) Addr() net.Addr { return s.listener.Addr() }

// Close ends it and all connections, and waits for their goroutines. Call it once.
func (s *Listener) Close() error {
	s.cancel()
	err := s.listener.Close()
	s.wait.Wait()
	return err
}

func (s *Listener) accept(ctx context.Context) {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.wait.Go(func() {
			defer c.Close()
			stop := context.AfterFunc(ctx, func() { c.Close() })
			defer stop()
			enc, dec, err := session.Accept(ctx, c, s.secure)
			if err != nil {
				return // the client reports its side of the handshake
			}
			_ = s.serve(c, enc, dec) // and of the data phase
		})
	}
}

// gatherAbove is the size from which on data segments are written from where they were
// read.
const gatherAbove = 16 << 10

// Replier makes the replies to the messages of one connection, each with the segments
// of its message, for the servers that stand on another library than the messenger. It
// belongs to one goroutine.
type Replier struct {
	enc *frame.Encoder
	seq uint64 // of the last message sent

	header [frame.MessageHeaderSize]byte
	pieces []byte // the bytes around a gathered payload
}

// NewReplier makes one for the frames of enc.
func NewReplier(enc *frame.Encoder) *Replier { return &Replier{enc: enc} }

// Large says whether a message should be written as Gather or Append has it, and not
// through a buffer that small replies share.
func (r *Replier) Large(f *frame.Frame) bool { return len(f.Seg[3]) >= gatherAbove }

// Gathers says whether the bytes of a payload are on the wire as they are.
func (r *Replier) Gathers() bool { return r.enc.Gathers() }

// Size is the number of bytes that Append adds for a message.
func (r *Replier) Size(f *frame.Frame) int {
	return r.enc.FrameSize(frame.MessageHeaderSize, len(f.Seg[1]), len(f.Seg[2]), len(f.Seg[3]))
}

// Append adds the reply to a message.
func (r *Replier) Append(p []byte, f *frame.Frame) ([]byte, error) {
	m, err := r.number(f)
	if err != nil {
		return p, err
	}
	m.Put(&r.header)
	return r.enc.AppendFrame(p, frame.TagMessage, r.header[:], f.Seg[1], f.Seg[2], f.Seg[3])
}

// Gather returns the bytes before and after the data of the reply to a message, valid until the
// next call.
func (r *Replier) Gather(f *frame.Frame) (before, after []byte, err error) {
	m, err := r.number(f)
	if err != nil {
		return nil, nil, err
	}
	r.pieces = r.enc.AppendMessage(r.pieces[:0], &m, len(f.Seg[1]), len(f.Seg[2]), len(f.Seg[3]))
	r.pieces = append(r.pieces, f.Seg[1]...)
	r.pieces = append(r.pieces, f.Seg[2]...)
	n := len(r.pieces)
	r.pieces = r.enc.AppendClose(r.pieces, f.Seg)
	return r.pieces[:n], r.pieces[n:], nil
}

// number makes the header of the next reply.
func (r *Replier) number(f *frame.Frame) (m frame.MessageHeader, err error) {
	if m, err = frame.ParseMessageHeader(f.Seg[0]); err == nil {
		r.seq++
		m.AckSeq, m.Seq = m.Seq, r.seq
	}
	return m, err
}
