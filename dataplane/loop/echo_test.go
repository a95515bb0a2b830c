package loop_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// served is a server of the example.
type served struct {
	t     *testing.T
	plane *loop.Plane
	addr  string

	mu    sync.Mutex
	echos []*echo // by the order of accept; the core's, but for the list
}

// overBackends runs f with a server on each backend that the kernel has.
func overBackends(t *testing.T, f func(t *testing.T, s *served)) {
	for _, backend := range []uring.Backend{uring.Auto, uring.Epoll} {
		t.Run(string(backend), func(t *testing.T) {
			p, err := loop.New(loop.Config{Cores: 2, Driver: uring.Config{Backend: backend}})
			if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
				t.Skipf("refused: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.Close() })
			s := &served{t: t, plane: p}
			l, err := p.Core(0).Listen(netip.MustParseAddrPort("127.0.0.1:0"), uring.ListenOptions{}, s.accepted)
			if err != nil {
				t.Fatal(err)
			}
			s.addr = l.Addr().String()
			f(t, s)
		})
	}
}

func (s *served) accepted(l *loop.Link) {
	e := new(echo)
	s.mu.Lock()
	s.echos = append(s.echos, e)
	s.mu.Unlock()
	_ = l.Carry(e) // fails if the peer is gone already
}

// holds is what the server keeps for its first connection, in bytes.
func (s *served) holds() int {
	n, err := loop.Ask(s.plane.Core(0), func(*loop.Core) int {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.echos) == 0 {
			return 0
		}
		e := s.echos[0]
		return e.size
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// awaitStill waits until the server's core has received something, and then nothing more
// in many turns.
func (s *served) awaitStill() {
	s.t.Helper()
	var last uint64
	for turns, end := 0, time.Now().Add(patience); turns < 1000; turns++ {
		in, err := loop.Ask(s.plane.Core(0), func(c *loop.Core) uint64 { return c.Snapshot().BytesIn })
		if err != nil {
			s.t.Fatal(err)
		}
		if time.Now().After(end) {
			s.t.Fatalf("%d bytes received, and there is no end", in)
		}
		if in != last || in == 0 {
			turns = 0
		}
		last = in
	}
}

func (s *served) dial() *net.TCPConn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

// framesOf makes a stream of frames of all sizes.
func framesOf(seed uint64, n, most int) (stream []byte) {
	rng := rand.New(rand.NewPCG(seed, 1))
	fill := rand.NewChaCha8([32]byte{byte(seed)})
	for range n {
		size := rng.IntN(1 << rng.IntN(20))
		size = min(size, most)
		stream = binary.BigEndian.AppendUint32(stream, uint32(size))
		stream = append(stream, make([]byte, size)...)
		_, _ = fill.Read(stream[len(stream)-size:]) // never fails
	}
	return stream
}

// exchange sends stream and expects it back.
func exchange(t *testing.T, c *net.TCPConn, stream []byte) {
	t.Helper()
	written := make(chan error, 1)
	go func() { _, err := c.Write(stream); written <- err }()
	got := make([]byte, len(stream))
	if _, err := io.ReadFull(c, got); err != nil {
		t.Errorf("read: %v", err)
	}
	if err := <-written; err != nil {
		t.Errorf("write: %v", err)
	}
	if !bytes.Equal(got, stream) {
		t.Error("other bytes came back")
	}
}

func TestManyClientsOfTheExampleGetTheirFramesBack(t *testing.T) {
	overBackends(t, func(t *testing.T, s *served) {
		var running sync.WaitGroup
		for i := range 50 {
			c := s.dial()
			running.Go(func() { exchange(t, c, framesOf(uint64(i), 20, maxFrame-4)) })
		}
		running.Wait()
	})
}

// A peer that does not read is not read from any more: it costs a bounded amount
// of memory, holds up nobody, and loses nothing.
func TestAClientThatDoesNotReadStopsOnlyItself(t *testing.T) {
	overBackends(t, func(t *testing.T, s *served) {
		const buffer, largest = 64 << 10, 60_000
		// Small sockets: what they hold is soon there, and soon read.
		small := uring.SocketOptions{SendBuffer: buffer, ReceiveBuffer: buffer}
		l, err := s.plane.Core(0).Listen(netip.MustParseAddrPort("127.0.0.1:0"), uring.ListenOptions{SocketOptions: small}, s.accepted)
		if err != nil {
			t.Fatal(err)
		}
		s.addr = l.Addr().String()
		deaf := s.dial()
		_, _ = deaf.SetReadBuffer(buffer), deaf.SetWriteBuffer(buffer)
		stream := framesOf(7, 300, largest)
		for len(stream) < 4<<20 { // more than the sockets and the server hold
			stream = append(stream, stream...)
		}
		written := make(chan error, 1)
		go func() { _, err := deaf.Write(stream); written <- err }()
		s.awaitStill()
		select {
		case err := <-written:
			t.Fatalf("wrote %d bytes to a server whose answers nobody reads: %v", len(stream), err)
		default:
		}
		if held := s.holds(); held == 0 || held > maxOut+loop.ReceiveBytes+largest {
			t.Errorf("%d bytes are held for it, of %d", held, len(stream))
		}
		exchange(t, s.dial(), framesOf(8, 20, 5000))
		got := make([]byte, len(stream))
		if _, err := io.ReadFull(deaf, got); err != nil {
			t.Fatalf("read: %v", err)
		}
		if err := <-written; err != nil || !bytes.Equal(got, stream) {
			t.Errorf("write: %v, the same came back: %v", err, bytes.Equal(got, stream))
		}
	})
}
