package storage

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
	"github.com/ringmsgr/ringmsgr/bench/internal/session"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/uring"
)

const (
	readBuffer  = 64 << 10
	gatherAbove = 16 << 10 // data from this size on is sent from where it was read
	frameRoom   = 192      // more than a frame adds to its segments
)

// Blocking is the storage server that a Go programmer writes with package net: a goroutine
// per connection reads requests, calls ReadAt or WriteAt, and writes answers, which are
// flushed when no complete request is waiting. It speaks msgr2.1.
type Blocking struct {
	cfg      Config
	files    files
	listener net.Listener
	cancel   context.CancelFunc
	wait     sync.WaitGroup
	fill     atomic.Bool
	filling  sync.WaitGroup
}

// NewBlocking starts one on a free port of the loopback address.
func NewBlocking(cfg Config) (*Blocking, error) {
	f, err := openFiles(cfg)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		f.close()
		return nil, fmt.Errorf("net: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &Blocking{cfg: cfg, files: f, listener: l, cancel: cancel}
	b.wait.Go(func() { b.accept(ctx) })
	return b, nil
}

// Addr returns where it listens.
func (b *Blocking) Addr() net.Addr { return b.listener.Addr() }

// Settings says what it runs on.
func (b *Blocking) Settings() map[string]string {
	return map[string]string{"GOMAXPROCS": strconv.Itoa(runtime.GOMAXPROCS(0))}
}

// Close ends it and all connections. Call it once.
func (b *Blocking) Close() error {
	b.cancel()
	err := b.listener.Close()
	b.fill.Store(false)
	b.wait.Wait()
	b.filling.Wait()
	b.files.close()
	return err
}

// Saturate has so many goroutines read random blocks, for nobody; 0: none.
func (b *Blocking) Saturate(n int) error {
	b.fill.Store(false)
	b.filling.Wait()
	b.fill.Store(true)
	for range n {
		mem, err := uring.Map(blocks.Size)
		if err != nil {
			return err
		}
		b.filling.Go(func() {
			random := newDice(b.cfg.Size)
			for b.fill.Load() {
				r := blocks.Request{Kind: blocks.Read, Flags: blocks.Direct, Len: blocks.Size, Off: random.roll()}
				if b.files.carryOut(r, mem.Bytes()[:blocks.Size]) != nil {
					break
				}
			}
			_ = mem.Unmap() // nobody has it
		})
	}
	return nil
}

func (b *Blocking) accept(ctx context.Context) {
	for {
		c, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.wait.Go(func() {
			defer c.Close()
			stop := context.AfterFunc(ctx, func() { c.Close() })
			defer stop()
			enc, dec, err := session.Accept(ctx, c, false)
			if err != nil {
				return // the client reports what it saw of it
			}
			mem, err := uring.Map(blocks.MaxLen)
			if err != nil {
				return
			}
			defer func() { _ = mem.Unmap() }() // nobody has it
			_ = (&blockingConn{
				b: b, c: c, r: bufio.NewReaderSize(c, readBuffer), w: bufio.NewWriterSize(c, readBuffer),
				enc: enc, dec: dec, data: mem.Bytes(),
			}).serve()
		})
	}
}

// blockingConn is a connection in the data phase.
type blockingConn struct {
	b    *Blocking
	c    net.Conn
	r    *bufio.Reader
	w    *bufio.Writer
	enc  *frame.Encoder
	dec  *frame.Decoder
	seq  uint64 // of the last message sent
	data []byte // of the request or the answer, on a page

	head   [frame.PreambleSize]byte
	prefix []byte // what stands before the data of a frame, used again
	suffix []byte // and behind it
	header [frame.MessageHeaderSize]byte
	pieces []byte // what surrounds gathered data
	vec    [3][]byte
}

// serve answers until the peer closes or breaks the protocol.
func (n *blockingConn) serve() error {
	for {
		f, err := n.read()
		switch {
		case err != nil:
		case f.Aborted:
		case f.Tag == frame.TagMessage:
			err = n.carryOut(&f)
		case f.Tag == frame.TagKeepalive2:
			err = n.write(frame.TagKeepalive2Ack, f.Seg[0])
		case f.Tag == frame.TagKeepalive2Ack, f.Tag == frame.TagAck:
		default:
			err = fmt.Errorf("unexpected frame %v", f.Tag)
		}
		if err != nil {
			return err
		}
	}
}

// read reads one frame, its data into n.data.
func (n *blockingConn) read() (frame.Frame, error) {
	if err := n.receive(n.head[:]); err != nil {
		return frame.Frame{}, err
	}
	h, err := n.dec.Open(n.head[:])
	if err != nil {
		return frame.Frame{}, err
	}
	prefix, suffix := n.dec.Split(h)
	size := n.dec.RestSize(h) - prefix - suffix
	if size > len(n.data) {
		return frame.Frame{}, fmt.Errorf("%d bytes of data", size)
	}
	n.prefix, n.suffix = grown(n.prefix, prefix), grown(n.suffix, suffix)
	for _, p := range [][]byte{n.prefix, n.data[:size], n.suffix} {
		if err := n.receive(p); err != nil {
			return frame.Frame{}, err
		}
	}
	f, err := n.dec.FinishSplit(h, n.prefix, frame.SegmentCRC(frame.SegmentCRCInit, n.data[:size]), n.suffix)
	f.Seg[3] = n.data[:size]
	return f, err
}

// grown returns n bytes, of p if that has as many.
func grown(p []byte, n int) []byte {
	if n > cap(p) {
		return make([]byte, n)
	}
	return p[:n]
}

// receive reads all of p. What was written goes out before it has to wait.
func (n *blockingConn) receive(p []byte) error {
	if n.r.Buffered() < len(p) {
		if err := n.w.Flush(); err != nil {
			return err
		}
	}
	_, err := io.ReadFull(n.r, p)
	return err
}

// carryOut does what a message asks for, and answers.
func (n *blockingConn) carryOut(f *frame.Frame) error {
	m, err := frame.ParseMessageHeader(f.Seg[0])
	if err != nil {
		return err
	}
	what, err := blocks.Parse(f.Seg[1], n.b.cfg.Size)
	data := f.Seg[3]
	if err == nil && what.Kind == blocks.Read {
		data = n.data[:what.Len]
	}
	if err == nil {
		err = n.b.files.carryOut(what, data)
	}
	n.seq++
	m.Type, m.AckSeq, m.Seq = blocks.TypeDone, m.Seq, n.seq
	if err != nil {
		m.Type = blocks.TypeFailed
		m.Put(&n.header)
		return n.write(frame.TagMessage, n.header[:], []byte(err.Error()))
	}
	m.Put(&n.header)
	switch {
	case what.Kind != blocks.Read:
		return n.write(frame.TagMessage, n.header[:])
	case len(data) >= gatherAbove:
		return n.writeGathered(data)
	}
	return n.write(frame.TagMessage, n.header[:], nil, nil, data)
}

// write encodes a small frame straight into the writer's buffer.
func (n *blockingConn) write(tag frame.Tag, segs ...[]byte) error {
	size := frameRoom
	for _, s := range segs {
		size += len(s)
	}
	if n.w.Available() < size {
		if err := n.w.Flush(); err != nil {
			return err
		}
	}
	p, err := n.enc.AppendFrame(n.w.AvailableBuffer(), tag, segs...)
	if err != nil {
		return err
	}
	_, err = n.w.Write(p)
	return err
}

// writeGathered sends an answer without copying its data.
func (n *blockingConn) writeGathered(data []byte) error {
	if err := n.w.Flush(); err != nil {
		return err
	}
	n.pieces = n.enc.AppendOpen(n.pieces[:0], frame.TagMessage, n.header[:], [4]int{3: len(data)})
	before := len(n.pieces)
	n.pieces = n.enc.AppendClose(n.pieces, n.header[:], [4][]byte{3: data})
	n.vec = [3][]byte{n.pieces[:before], data, n.pieces[before:]}
	buffers := net.Buffers(n.vec[:])
	_, err := buffers.WriteTo(n.c)
	return err
}
