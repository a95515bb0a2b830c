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
	in   []byte // the beginning of a frame whose end has not come
	out  []byte // whole frames, to be sent
	sent []byte // those of the write in flight, else free memory
}

const (
	maxFrame = 1 << 20   // bytes
	maxOut   = 256 << 10 // from here on the peer has to read first
)

func (e *echo) Feed(s *loop.Socket, p []byte) []byte {
	e.in = append(e.in, p...)
	whole := 0
	for rest := e.in; len(rest) >= 4; rest = e.in[whole:] {
		n := 4 + int(binary.BigEndian.Uint32(rest))
		if n > maxFrame {
			s.Fault(fmt.Errorf("echo: frame of %d bytes", n))
			return nil
		}
		if n > len(rest) {
			break
		}
		whole += n
	}
	e.out = append(e.out, e.in[:whole]...)
	e.in = e.in[:copy(e.in, e.in[whole:])]
	if s.Mark(); len(e.out) >= maxOut {
		s.Hold()
	}
	return nil
}

func (e *echo) Pending(*loop.Socket) bool { return len(e.out) > 0 }

// Gather is not called before the write has ended for which it was called last,
// so two buffers take turns.
func (e *echo) Gather(s *loop.Socket, w *loop.Write) error {
	e.out, e.sent = e.sent[:0], e.out
	w.Refer(e.sent)
	w.Hold(e)
	s.Release()
	return nil
}

func (e *echo) LetGo()                    {}
func (e *echo) Ended(*loop.Socket, error) {}

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
