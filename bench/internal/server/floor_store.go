package server

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

const (
	// storeAhead is the size of a read where requests are small.
	storeAhead = 64 << 10
	// storeHead is the size of the first read of a request that is likely to be large: bytes
	// after its head are copied.
	storeHead = 4 << 10
	// storeLarge is the size from which on a request is large.
	storeLarge = 16 << 10
	// storeSpare bounds the buffers that are kept for the next requests.
	storeSpare = 64
)

// NewFloorStore starts a floor that delivers complete requests, like every server that gives
// messages to a user: it gathers each large request in a buffer of its own, small requests that
// come together in one, and sends them from there once they are complete. Its loop is the same.
// It is the fair bound for large messages.
func NewFloorStore() (*Floor, error) { return newFloor(&store{}) }

// store has the free buffers, the last used one at the end.
type store struct{ spare [][]byte }

// take returns a buffer of n bytes.
func (s *store) take(n int) []byte {
	for i := len(s.spare) - 1; i >= 0; i-- {
		if b := s.spare[i]; cap(b) >= n && cap(b) <= 2*n+storeAhead {
			s.spare = append(s.spare[:i], s.spare[i+1:]...)
			return b[:n]
		}
	}
	return make([]byte, n)
}

func (s *store) give(b []byte) {
	if len(s.spare) == storeSpare {
		s.spare = append(s.spare[:0], s.spare[1:]...)
	}
	s.spare = append(s.spare, b)
}

// stored is the state of a connection.
type stored struct {
	in    []byte // a request of which a part has come, in its buffer
	have  int    // bytes of it
	head  []byte // of a request of unknown size
	out   []byte // whole requests that are sent
	sent  int    // bytes of out that are gone
	large bool   // the last request was
}

// echoStored sends complete requests, and reads on.
func (f *Floor) echoStored(c *floorConn) outcome {
	s := &c.stored
	for range floorPieces {
		for s.out != nil {
			n, err := f.write(c.fd, s.out[s.sent:])
			if err != nil {
				return ended
			}
			if s.sent += n; s.sent < len(s.out) {
				return idle
			}
			f.store.give(s.out)
			s.out, s.sent = nil, 0
		}
		to := s.in[s.have:]
		if s.in == nil {
			to = f.buf[copy(f.buf, s.head):storeAhead]
			if s.large {
				to = to[:storeHead]
			}
		}
		n, err := unix.Read(c.fd, to)
		f.calls++
		switch {
		case err == unix.EAGAIN:
			return idle
		case err == unix.EINTR:
			continue
		case err != nil || n == 0:
			return ended
		case s.in != nil:
			s.have += n
		default:
			f.cut(s, f.buf[:len(s.head)+n])
		}
		if s.in != nil && s.have == len(s.in) {
			s.out, s.in, s.have = s.in, nil, 0
		}
	}
	return more
}

// cut moves requests from the common buffer to their own.
func (f *Floor) cut(s *stored, p []byte) {
	s.head = s.head[:0]
	whole := wholeRequests(p)
	if whole > 0 {
		s.out = f.store.take(whole)
		copy(s.out, p)
	}
	rest := p[whole:]
	if len(rest) < requestHead {
		s.head = append(s.head, rest...)
		return
	}
	n := requestSize(rest)
	s.large = n >= storeLarge
	s.in = f.store.take(n)
	s.have = copy(s.in, rest)
}

// A request of a raw client: its length stands in the first requestHead bytes, at
// requestLength, and does not count requestRest bytes around the payload.
const (
	requestHead   = 32
	requestLength = 20
	requestRest   = 90
)

// requestSize is the size of the request that begins with head.
func requestSize(head []byte) int {
	return requestRest + int(binary.LittleEndian.Uint32(head[requestLength:]))
}

// wholeRequests is the size of the requests at the beginning of p that are whole.
func wholeRequests(p []byte) (whole int) {
	for rest := p; len(rest) >= requestHead; rest = p[whole:] {
		n := requestSize(rest)
		if n > len(rest) {
			break
		}
		whole += n
	}
	return whole
}
