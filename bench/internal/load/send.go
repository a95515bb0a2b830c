package load

import (
	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
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

// number sets the numbers of a request.
func (s *sender) number(head []byte) {
	if !s.raw {
		s.t.number(head, s.seq, s.tid)
	}
}
