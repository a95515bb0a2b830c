package capture

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// ErrFormat is wrapped by the errors about a file that is no recording, or is damaged.
var ErrFormat = errors.New("no recording of network traffic")

// Packet is one packet of a recording.
type Packet struct {
	Time time.Time
	Link LinkType
	Data []byte // what was recorded, valid until the next packet is read
	Len  int    // bytes that it had on the wire
}

// maxPacket is how large a packet can be in a recording, in bytes.
const maxPacket = 1 << 20

// Reader reads the packets of a recording.
type Reader struct {
	r    *bufio.Reader
	next func() (Packet, error)
	buf  []byte // of the last packet
}

const (
	magicMicros = 0xa1b2c3d4
	magicNanos  = 0xa1b23c4d
	magicNG     = 0x0a0d0d0a
)

// Is tells by its first bytes whether a file is a recording.
func Is(head []byte) bool {
	if len(head) < 4 {
		return false
	}
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		switch order.Uint32(head) {
		case magicMicros, magicNanos, magicNG:
			return true
		}
	}
	return false
}

// NewReader reads the head of a recording, in the format of pcap or pcapng.
func NewReader(r io.Reader) (*Reader, error) {
	c := &Reader{r: bufio.NewReaderSize(r, 64<<10)}
	magic, err := c.r.Peek(4)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, noEOF(err))
	}
	if !Is(magic) {
		return nil, fmt.Errorf("%w: it begins with % x", ErrFormat, magic)
	}
	if binary.LittleEndian.Uint32(magic) == magicNG {
		c.next = (&pcapng{c: c}).next
		return c, nil
	}
	return c, c.pcap()
}

// Next returns the next packet, io.EOF behind the last one. A recording that ends within
// a packet, because it was stopped, ends before it.
func (c *Reader) Next() (Packet, error) { return c.next() }

// read reads n bytes, which the next call overwrites.
func (c *Reader) read(n int) ([]byte, error) {
	if cap(c.buf) < n {
		c.buf = make([]byte, n)
	}
	c.buf = c.buf[:n]
	_, err := io.ReadFull(c.r, c.buf)
	return c.buf, err
}

// pcap reads the head of the older format.
func (c *Reader) pcap() error {
	h, err := c.read(24)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, noEOF(err))
	}
	var order binary.ByteOrder = binary.LittleEndian
	if m := order.Uint32(h); m != magicMicros && m != magicNanos {
		order = binary.BigEndian
	}
	unit := time.Microsecond
	if order.Uint32(h) == magicNanos {
		unit = time.Nanosecond
	}
	link := LinkType(order.Uint32(h[20:]) & 0xffff)
	if !link.known() {
		return fmt.Errorf("%w: link type %d is not known here", ErrFormat, link)
	}
	c.next = func() (Packet, error) {
		h, err := c.read(16)
		if err != nil {
			return Packet{}, ended(err)
		}
		at := time.Unix(int64(order.Uint32(h)), int64(order.Uint32(h[4:]))*int64(unit)).UTC()
		n, size := order.Uint32(h[8:]), order.Uint32(h[12:])
		if n > maxPacket {
			return Packet{}, fmt.Errorf("%w: a packet of %d bytes", ErrFormat, n)
		}
		p, err := c.read(int(n))
		if err != nil {
			return Packet{}, ended(err)
		}
		return Packet{Time: at, Link: link, Data: p, Len: int(max(size, n))}, nil
	}
	return nil
}

// ended has a recording that was cut end where it was cut.
func ended(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
