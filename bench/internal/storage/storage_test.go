package storage

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/uring"
)

// served is a server of any kind.
type served interface {
	Addr() net.Addr
	Close() error
}

// kinds start every kind of server.
var kinds = []struct {
	name  string
	raw   bool
	start func(cfg Config) (served, error)
}{
	{"ring", true, func(cfg Config) (served, error) { return NewRing(cfg, "auto") }},
	{"ring over epoll", true, func(cfg Config) (served, error) { return NewRing(cfg, "epoll") }},
	{"messenger", false, func(cfg Config) (served, error) { return NewMessenger(cfg, "auto") }},
	{"messenger over epoll", false, func(cfg Config) (served, error) { return NewMessenger(cfg, "epoll") }},
	{"net", false, func(cfg Config) (served, error) { return NewBlocking(cfg) }},
}

const testSize = 4 << 20

func newFile(t *testing.T) *File {
	t.Helper()
	f, err := NewFile(t.TempDir(), testSize)
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("the file system has no files without a name")
	}
	clitest.Must(t, err)
	t.Cleanup(f.Close)
	return f
}

// options are the options of a load on s.
func options(s served, raw bool, f *File, kind blocks.Kind, flags uint8, size int) load.Options {
	o := load.Options{Kind: kind, Flags: flags, Path: f.Path(), File: f.size}
	o.Addr, o.PID, o.Raw, o.Conns, o.Depth, o.Size = s.Addr().String(), os.Getpid(), raw, 3, 4, size
	if n, ok := s.(interface{ Nonce() uint32 }); ok {
		o.Nonce = n.Nonce()
	}
	return o
}

// slice ends when every request was answered.
var slice = load.Slice{WarmMax: time.Minute, Window: time.Millisecond, WindowMax: time.Minute}

// The client checks each answer, and reads back what was acknowledged.
// Matrix: BE-08
func TestEveryServerReadsAndWritesWhatItIsAskedFor(t *testing.T) {
	f := newFile(t)
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			s, err := k.start(f.Config())
			clitest.Must(t, err)
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			for _, kind := range []blocks.Kind{blocks.Read, blocks.Write} {
				for _, flags := range []uint8{0, blocks.Grouped, blocks.Direct, blocks.Direct | blocks.Grouped} {
					for _, size := range []int{blocks.Size, 16 * blocks.Size} {
						if flags&blocks.Direct != 0 && !f.Direct {
							continue
						}
						l, err := load.OpenStorage(t.Context(), options(s, k.raw, f, kind, flags, size))
						clitest.Must(t, err)
						res, err := l.Run(slice)
						l.Close()
						if err != nil || !res.Steady || res.Total < 12 ||
							res.Bytes%uint64(res.PerReply) != 0 && res.Bytes == 0 {
							t.Fatalf("kind %d, flags %#x, %d bytes: %+v, %v", kind, flags, size, res, err)
						}
					}
				}
			}
		})
	}
}

// A read may cover blocks of several writes.
func TestReadsAreRightBehindSmallerWrites(t *testing.T) {
	f := newFile(t)
	s, err := NewBlocking(f.Config())
	clitest.Must(t, err)
	defer s.Close()
	for _, c := range []struct {
		kind blocks.Kind
		size int
	}{{blocks.Write, blocks.Size}, {blocks.Read, 16 * blocks.Size}} {
		l, err := load.OpenStorage(t.Context(), options(s, false, f, c.kind, 0, c.size))
		clitest.Must(t, err)
		defer l.Close()
		// Of each 64 reads of a place one is compared byte by byte.
		for replies := uint64(0); replies < 3*4*64; {
			res, err := l.Run(slice)
			if err != nil {
				t.Fatalf("kind %d, %d bytes: %v", c.kind, c.size, err)
			}
			replies += res.Total
		}
	}
}

// A block that is not what it should be is answered as a failure, or ends the connection.
// Matrix: BE-08
func TestNoServerPassesOnADamagedBlock(t *testing.T) {
	f := newFile(t)
	_, err := f.f.WriteAt(make([]byte, testSize), 0)
	clitest.Must(t, err)
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			s, err := k.start(f.Config())
			clitest.Must(t, err)
			defer s.Close() // it may have ended with the damage
			o := options(s, k.raw, f, blocks.Read, 0, blocks.Size)
			l, err := load.OpenStorage(t.Context(), o)
			clitest.Must(t, err)
			defer l.Close()
			// The client's own check of the block is not enough.
			_, err = l.Run(slice)
			if err == nil || !strings.Contains(err.Error(), "the server says") &&
				!strings.Contains(err.Error(), "the server closed") && !errors.Is(err, unix.ECONNRESET) {
				t.Fatal(err)
			}
		})
	}
}

// A server that acknowledges what it has not written is found out.
// Matrix: BE-08
func TestAWriteThatWasNotMadeIsNoticed(t *testing.T) {
	f, elsewhere := newFile(t), newFile(t)
	s, err := NewBlocking(elsewhere.Config())
	clitest.Must(t, err)
	defer s.Close()
	l, err := load.OpenStorage(t.Context(), options(s, false, f, blocks.Write, 0, blocks.Size))
	clitest.Must(t, err)
	defer l.Close()
	if _, err := l.Run(slice); !errors.Is(err, load.ErrReply) {
		t.Fatal(err)
	}
}

// silent is a driver whose sockets bring no bytes.
type silent struct {
	uring.Driver
	armed int
}

func (d *silent) Recv(uring.Socket, []byte, []byte) (int, unix.Errno) { return 0, unix.EAGAIN }

func (d *silent) Arm(uring.Kind, uring.Socket, uint64) (uring.Op, error) {
	d.armed++
	return 0, nil
}

// The kernel may end a multishot request with a notice about bytes that were read already.
func TestTheFloorHearsOfWhatComesBehindTheLastNotice(t *testing.T) {
	d := new(silent)
	c := &ringConn{r: &Ring{drv: d, stage: make([]byte, ringStage)}}
	for _, flags := range []uring.Flags{uring.More, 0} {
		clitest.Must(t, c.ready(&uring.Completion{Flags: flags}))
		if want := map[uring.Flags]int{uring.More: 0, 0: 1}[flags]; d.armed != want {
			t.Errorf("flags %d: asked %d times, want %d", flags, d.armed, want)
		}
	}
}
