package loop_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// echo sends frames back as they came: four bytes of length, then the payload. It
// is the Framer of one connection.
type echo struct {
	out  []answer
	size int // of out, in bytes
}

// answer is some frames, at the beginning of a buffer.
type answer struct {
	buf  *loop.Buffer
	size int
}

const (
	maxFrame = 1 << 20   // bytes
	maxOut   = 256 << 10 // from here on the peer has to read first
)

func (e *echo) Feed(s *loop.Socket, p []byte) (t loop.Taken) {
	for t.Need = 4; len(p)-t.Bytes >= t.Need && e.size+t.Bytes < maxOut; {
		if t.Need = 4 + int(binary.BigEndian.Uint32(p[t.Bytes:])); t.Need > maxFrame {
			s.Fault(fmt.Errorf("echo: frame of %d bytes", t.Need))
			return t
		}
		if len(p)-t.Bytes >= t.Need {
			t.Bytes, t.Frames, t.Need = t.Bytes+t.Need, t.Frames+1, 4
		}
	}
	if t.Bytes > 0 {
		b, err := s.Keep(p[:t.Bytes])
		if err != nil {
			s.Fault(err)
			return t
		}
		e.out, e.size = append(e.out, answer{b, t.Bytes}), e.size+t.Bytes
		s.Mark()
	}
	if e.size >= maxOut {
		s.Hold()
	}
	return t
}

func (e *echo) Pending(*loop.Socket) bool { return len(e.out) > 0 }

func (e *echo) Gather(s *loop.Socket, w *loop.Write) error {
	for len(e.out) > 0 && !w.Full() {
		a := e.out[0]
		w.Refer(a.buf.Bytes()[:a.size])
		w.Hold(a.buf)
		e.out, e.size = e.out[1:], e.size-a.size
	}
	s.Release()
	return nil
}

func (e *echo) Ended(*loop.Socket, error) {
	for _, a := range e.out {
		a.buf.LetGo()
	}
}

// A protocol of one's own on the loop: a server that echoes frames, and reads no
// further while its peer does not take what came back.
func Example() {
	plane, _ := loop.New(loop.Config{Cores: 1})
	defer plane.Close()
	l, _ := plane.Core(0).Listen(netip.MustParseAddrPort("127.0.0.1:0"), uring.ListenOptions{}, func(link *loop.Link) {
		_ = link.Carry(new(echo)) // fails if the peer is gone already
	})
	c, _ := net.Dial("tcp", l.Addr().String())
	defer c.Close()
	_, _ = c.Write([]byte("\x00\x00\x00\x05hello\x00\x00\x00\x05again"))
	answer := make([]byte, 18)
	_, _ = io.ReadFull(c, answer)
	fmt.Printf("%q\n", answer)
	// Output: "\x00\x00\x00\x05hello\x00\x00\x00\x05again"
}
