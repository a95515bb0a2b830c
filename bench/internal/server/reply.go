package server

import "github.com/ringmsgr/ringmsgr/dataplane/frame"

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
