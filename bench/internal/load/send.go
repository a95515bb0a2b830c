package load

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

const (
	copyBelow      = 8 << 10  // requests smaller than this on the wire are copied together and written at once
	gatherEach     = 2        // larger ones per writev
	sealedTogether = 32 << 10 // bytes of small encrypted requests that are written at once
	writesEach     = 4        // writes per visit, so that a fast reader cannot keep the loop
)

// sender keeps the requests of one connection that are not yet in its socket. They are numbered,
// and in mode secure encrypted, when their turn comes, so that a large one is in memory once only.
type sender struct {
	t   *template
	raw bool
	enc *frame.Encoder // of mode secure; else nil
	seq uint64         // of the last request that was begun
	tid uint64         // of the next one

	queued int      // requests that were not begun
	left   [][]byte // bytes of those that were
	pieces [3 * gatherEach][]byte
	heads  [gatherEach][headMax]byte
	out    []byte // small requests, or encrypted ones
}

// request queues one more.
func (s *sender) request() { s.queued++ }

// pending reports whether requests are queued.
func (s *sender) pending() bool { return s.queued > 0 || len(s.left) > 0 }

// withdraw takes back the requests that were not begun, and returns their number.
func (s *sender) withdraw() int {
	n := s.queued
	s.queued = 0
	return n
}

// flush writes until the queue is empty or the socket takes no more.
func (s *sender) flush(fd int) error {
	for range writesEach {
		if len(s.left) == 0 {
			if err := s.begin(); err != nil || len(s.left) == 0 {
				return err
			}
		}
		n, err := unix.Writev(fd, s.left)
		switch err {
		case nil:
		case unix.EAGAIN:
			return nil
		case unix.EINTR:
			continue
		default:
			return err
		}
		for len(s.left) > 0 && n >= len(s.left[0]) {
			n -= len(s.left[0])
			s.left = s.left[1:]
		}
		if len(s.left) > 0 {
			s.left[0] = s.left[0][n:]
		}
	}
	return nil
}

// begin makes the bytes of the next requests.
func (s *sender) begin() (err error) {
	s.out, s.left = s.out[:0], s.pieces[:0]
	for n := 0; s.queued > 0 && (n == 0 || s.together(n)) && err == nil; n++ {
		s.queued--
		s.seq++
		switch {
		case s.enc != nil:
			var header [headerLen]byte
			h := requestHeader()
			h.Seq, h.TID = s.seq, s.tid
			h.Put(&header)
			s.out, err = s.enc.AppendFrame(s.out, frame.TagMessage, header[:], nil, nil, s.t.payload)
		case len(s.t.frame) < copyBelow:
			at := len(s.out)
			s.out = append(s.out, s.t.frame...)
			s.number(s.out[at:])
		default:
			head := s.heads[n][:copy(s.heads[n][:], s.t.head)]
			s.number(head)
			s.left = append(s.left, head, s.t.payload, s.t.tail)
		}
		s.tid++
	}
	if len(s.out) > 0 {
		s.left = append(s.left, s.out)
	}
	return err
}

// together says whether one more request is written with the n before it.
func (s *sender) together(n int) bool {
	if s.enc != nil {
		return len(s.out)+s.t.wire <= sealedTogether
	}
	return len(s.t.frame) < copyBelow || n < gatherEach
}

func (s *sender) number(head []byte) {
	if !s.raw {
		s.t.number(head, s.seq, s.tid)
	}
}

// headerLen is the size of the header of a message of msgr2.
const headerLen = 41

// layout has the offsets of the numbers in a message with an empty front and middle: after the
// lead comes the header, which begins with sequence and transaction id, then the crc of the
// header.
type layout struct {
	lead   int    // the beginning of a message: the preamble, or in msgr1 the tag
	header int    // without its crc
	after  int    // after the payload
	seed   uint32 // of the crc
	// lens and lensEnd are where in the header the lengths are, if not in the lead.
	lens, lensEnd int
}

var (
	// layout2 is a MESSAGE frame of revision 1, crc mode.
	layout2 = layout{lead: frame.PreambleSize, header: headerLen, after: 13, seed: frame.SegmentCRCInit}
	// layout1 is a message of msgr1 with the new header and footer.
	layout1 = layout{lead: 1, header: frame1.NewHeaderSize - 4, after: frame1.NewFooterSize, lens: 22, lensEnd: 34}
)

// headMax is the larger of the two heads.
const headMax = frame.PreambleSize + headerLen + 4

// headLen is the size of lead and header together, with the crc.
func (l *layout) headLen() int { return l.lead + l.header + 4 }

func (l *layout) overhead() int { return l.headLen() + l.after }

// Payload returns the payload of every request of that size. It must not be changed.
func Payload(size int) []byte {
	p := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{'b', 'e', 'n', 'c', 'h'}).Read(p) // never fails
	return p
}

// messageType is the type of every request; servers do not look at it.
const messageType = 0x0bec

// template is a request that is complete but for its sequence and transaction
// id. All requests of a Load share its payload.
type template struct {
	layout
	msgr1   bool
	frame   []byte
	head    []byte // lead and header of frame
	payload []byte
	tail    []byte // late status and crcs, or in msgr1 the footer
	wire    int    // bytes of a request or reply, in the mode of the connections
}

// newTemplate builds a request with size random bytes, in msgr2 or msgr1.
func newTemplate(size int, msgr1 bool) (*template, error) {
	payload := Payload(size)
	t := &template{layout: layout2, msgr1: msgr1}
	encode := encode2
	if msgr1 {
		t.layout, encode = layout1, encode1
	}
	p, err := encode(payload)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	if len(p) != size+t.overhead() {
		return nil, fmt.Errorf("a request of %d bytes takes %d on the wire, not %d", size, len(p), size+t.overhead())
	}
	n := t.headLen()
	t.frame, t.head, t.payload, t.tail, t.wire = p, p[:n], p[n:n+size], p[n+size:], len(p)
	return t, nil
}

// encode2 is a request of msgr2, without numbers.
func encode2(payload []byte) ([]byte, error) {
	var header [headerLen]byte
	h := requestHeader()
	h.Put(&header)
	return frame.NewEncoder(frame.Rev1).AppendFrame(nil, frame.TagMessage, header[:], nil, nil, payload)
}

// encode1 is one of msgr1.
func encode1(payload []byte) ([]byte, error) {
	h := frame1.Header{Type: messageType, Priority: 127, Version: 1, SrcType: uint8(wire.Client), SrcNum: -1}
	return frame1.NewEncoder(frame1.Config{}, nil, [136]byte{}).AppendMessage(nil, &h, nil, nil, payload), nil
}

// requestHeader is the header of a request of msgr2, without numbers.
func requestHeader() frame.MessageHeader {
	return frame.MessageHeader{Type: messageType, Priority: 127, Version: 1, Flags: 3}
}

// number sets sequence and transaction id in head, a copy of the template's.
func (l *layout) number(head []byte, seq, tid uint64) {
	header := head[l.lead:]
	binary.LittleEndian.PutUint64(header, seq)
	binary.LittleEndian.PutUint64(header[8:], tid)
	binary.LittleEndian.PutUint32(header[l.header:], frame.SegmentCRC(l.seed, header[:l.header]))
}
