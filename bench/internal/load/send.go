package load

import (
	"golang.org/x/sys/unix"
)

const (
	copyBelow  = 8 << 10 // requests smaller than this on the wire are copied together and written at once
	gatherEach = 2       // larger ones per writev
	writesEach = 4       // writevs per visit, so that a fast reader cannot keep the loop
)

// sender keeps the requests of one connection that are not yet in its socket.
type sender struct {
	t   *template
	raw bool
	seq uint64 // of the last request queued
	tid uint64 // of the next request

	out []byte // small requests: bytes to send

	heads  []byte // large requests: a numbered head for each open one, by sequence
	depth  int
	queued int // large requests not completely sent
	sent   int // bytes of the first of them that are
	vec    [3 * gatherEach][]byte
}

// newSender returns one that may have depth requests queued.
func newSender(t *template, raw bool, tid uint64, depth int) sender {
	s := sender{t: t, raw: raw, tid: tid, depth: depth}
	if len(t.frame) < copyBelow {
		s.out = make([]byte, 0, depth*len(t.frame))
		return s
	}
	s.heads = make([]byte, depth*t.headLen())
	for i := range depth {
		copy(s.head(uint64(i)), t.head)
	}
	return s
}

// small says whether requests are copied.
func (s *sender) small() bool { return s.heads == nil }

// head returns the place of the head of request seq.
func (s *sender) head(seq uint64) []byte {
	n := s.t.headLen()
	i := int(seq%uint64(s.depth)) * n
	return s.heads[i : i+n]
}

// request queues one more.
func (s *sender) request() {
	s.seq++
	if s.small() {
		start := len(s.out)
		s.out = append(s.out, s.t.frame...)
		if !s.raw {
			s.t.number(s.out[start:], s.seq, s.tid)
		}
	} else {
		if !s.raw {
			s.t.number(s.head(s.seq), s.seq, s.tid)
		}
		s.queued++
	}
	s.tid++
}

// pending reports whether requests are queued.
func (s *sender) pending() bool { return len(s.out) > 0 || s.queued > 0 }

// withdraw takes back the large requests without a sent byte and returns their number.
func (s *sender) withdraw() int {
	n := s.queued
	if s.sent > 0 {
		n--
	}
	s.queued -= n
	s.seq -= uint64(n)
	s.tid -= uint64(n)
	return n
}

// flush writes until the queue is empty or the socket takes no more.
func (s *sender) flush(fd int) error {
	if s.small() {
		return s.flushSmall(fd)
	}
	for range writesEach {
		if s.queued == 0 {
			return nil
		}
		n, err := unix.Writev(fd, s.gather())
		switch err {
		case nil:
		case unix.EAGAIN:
			return nil
		case unix.EINTR:
			continue
		default:
			return err
		}
		n += s.sent
		for s.queued > 0 && n >= len(s.t.frame) {
			n -= len(s.t.frame)
			s.queued--
		}
		s.sent = n
	}
	return nil
}

// flushSmall writes the copied requests.
func (s *sender) flushSmall(fd int) error {
	if len(s.out) == 0 {
		return nil
	}
	n, err := unix.Write(fd, s.out)
	switch err {
	case nil:
		s.out = s.out[:copy(s.out, s.out[n:])]
		return nil
	case unix.EAGAIN, unix.EINTR:
		return nil
	default:
		return err
	}
}

// gather lists the unsent bytes of the first queued requests.
func (s *sender) gather() [][]byte {
	vec := s.vec[:0]
	skip := s.sent
	for i := range min(s.queued, gatherEach) {
		first := s.seq - uint64(s.queued) + 1
		for _, piece := range [3][]byte{s.head(first + uint64(i)), s.t.payload, s.t.tail} {
			if skip >= len(piece) {
				skip -= len(piece)
				continue
			}
			vec = append(vec, piece[skip:])
			skip = 0
		}
	}
	return vec
}
