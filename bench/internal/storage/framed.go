package storage

import (
	"bufio"
	"fmt"
	"io"
	"net"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

const (
	bufferSize  = 64 << 10
	gatherAbove = 16 << 10 // data from this size on is sent from where it is
	frameRoom   = 192      // more than a frame adds to its segments
)

// framed is a connection in the data phase, in crc mode. It belongs to one goroutine.
type framed struct {
	data []byte // where the data of messages is read to; as large as that may be
	c    net.Conn
	r    *bufio.Reader
	w    *bufio.Writer
	enc  *frame.Encoder
	dec  *frame.Decoder
	seq  uint64 // of the last message sent

	head   [frame.PreambleSize]byte
	prefix []byte // what stands before the data of a frame, used again
	suffix []byte // and behind it
	header [frame.MessageHeaderSize]byte
	pieces []byte // what surrounds gathered data
	vec    [3][]byte
}

// serve has carryOut answer each message until the peer closes, or one side breaks. The
// message is good until carryOut returns.
func (n *framed) serve(carryOut func(m frame.MessageHeader, front, data []byte) error) error {
	for {
		f, err := n.read()
		switch {
		case err != nil:
		case f.Aborted:
		case f.Tag == frame.TagMessage:
			var m frame.MessageHeader
			if m, err = frame.ParseMessageHeader(f.Seg[0]); err == nil {
				err = carryOut(m, f.Seg[1], f.Seg[3])
			}
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

// answer answers a message of header m by one of another type. It leaves at once, or when
// no complete message waits.
func (n *framed) answer(m frame.MessageHeader, typ uint16, front, data []byte) error {
	n.seq++
	m.Type, m.AckSeq, m.Seq = typ, m.Seq, n.seq
	m.Put(&n.header)
	if len(data) >= gatherAbove {
		return n.writeGathered(front, data)
	}
	return n.write(frame.TagMessage, n.header[:], front, nil, data)
}

// read reads one frame, its data into n.data.
func (n *framed) read() (frame.Frame, error) {
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
func (n *framed) receive(p []byte) error {
	if n.r.Buffered() < len(p) {
		if err := n.w.Flush(); err != nil {
			return err
		}
	}
	_, err := io.ReadFull(n.r, p)
	return err
}

// write encodes a small frame straight into the writer's buffer.
func (n *framed) write(tag frame.Tag, segs ...[]byte) error {
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

// writeGathered sends a message without copying its data.
func (n *framed) writeGathered(front, data []byte) error {
	if err := n.w.Flush(); err != nil {
		return err
	}
	n.pieces = n.enc.AppendOpen(n.pieces[:0], frame.TagMessage, n.header[:], [4]int{1: len(front), 3: len(data)})
	n.pieces = append(n.pieces, front...)
	before := len(n.pieces)
	n.pieces = n.enc.AppendClose(n.pieces, [4][]byte{1: front, 3: data})
	n.vec = [3][]byte{n.pieces[:before], data, n.pieces[before:]}
	buffers := net.Buffers(n.vec[:])
	_, err := buffers.WriteTo(n.c)
	return err
}
