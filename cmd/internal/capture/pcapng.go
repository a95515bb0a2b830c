package capture

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// The blocks of pcapng that matter here.
const (
	blockSection   = magicNG
	blockInterface = 1
	blockSimple    = 3
	blockPacket    = 6
	orderMagic     = 0x1a2b3c4d
	optionEnd      = 0
	optionTSResol  = 9
	maxInterfaces  = 1 << 10
	maxBlock       = maxPacket + 64<<10
)

// pcapng reads the newer format: blocks, of which each says how long it is.
type pcapng struct {
	c      *Reader
	order  binary.ByteOrder
	ifaces []iface
}

// iface is an interface that packets were recorded on.
type iface struct {
	link    LinkType
	perSec  uint64 // units of its times in a second
	snapLen uint32
}

func (f *pcapng) next() (Packet, error) {
	for {
		typ, body, err := f.block()
		if err != nil {
			return Packet{}, err
		}
		switch typ {
		case blockInterface:
			err = f.addInterface(body)
		case blockPacket:
			if p, ok := f.packet(body); ok {
				return p, nil
			}
		case blockSimple:
			if p, ok := f.simple(body); ok {
				return p, nil
			}
		}
		if err != nil {
			return Packet{}, err
		}
	}
}

// block reads one block without its head and its trailing length.
func (f *pcapng) block() (typ uint32, body []byte, err error) {
	h, err := f.c.r.Peek(12)
	if err != nil {
		if len(h) > 0 {
			_, _ = f.c.r.Discard(len(h)) // what is left of a file that was cut
		}
		return 0, nil, ended(err)
	}
	if binary.LittleEndian.Uint32(h) == blockSection {
		switch {
		case binary.LittleEndian.Uint32(h[8:]) == orderMagic:
			f.order = binary.LittleEndian
		case binary.BigEndian.Uint32(h[8:]) == orderMagic:
			f.order = binary.BigEndian
		default:
			return 0, nil, fmt.Errorf("%w: a section without its byte order", ErrFormat)
		}
		f.ifaces = f.ifaces[:0]
	}
	typ, size := f.order.Uint32(h), f.order.Uint32(h[4:])
	if size < 12 || size%4 != 0 || size > maxBlock {
		return 0, nil, fmt.Errorf("%w: a block of %d bytes", ErrFormat, size)
	}
	p, err := f.c.read(int(size))
	if err != nil {
		return 0, nil, ended(err)
	}
	return typ, p[8 : size-4], nil
}

func (f *pcapng) addInterface(p []byte) error {
	if len(p) < 8 || len(f.ifaces) == maxInterfaces {
		return fmt.Errorf("%w: a wrong interface, or more than %d", ErrFormat, maxInterfaces)
	}
	i := iface{link: LinkType(f.order.Uint16(p)), perSec: 1e6, snapLen: f.order.Uint32(p[4:])}
	for p = p[8:]; len(p) >= 4; {
		code, n := f.order.Uint16(p), int(f.order.Uint16(p[2:]))
		if code == optionEnd || len(p) < 4+n {
			break
		}
		if code == optionTSResol && n == 1 {
			i.perSec = resolution(p[4])
		}
		p = p[min(len(p), 4+(n+3)&^3):]
	}
	f.ifaces = append(f.ifaces, i)
	return nil
}

// resolution is how many units a second has: a power of ten, or of two.
func resolution(b byte) uint64 {
	base, exp := uint64(10), b&0x7f
	if b&0x80 != 0 {
		base = 2
	}
	n := uint64(1)
	for range exp {
		if n > math.MaxUint32 {
			return 1e6 // no clock has that
		}
		n *= base
	}
	return n
}

func (f *pcapng) packet(p []byte) (Packet, bool) {
	if len(p) < 20 || f.order.Uint32(p) >= uint32(len(f.ifaces)) {
		return Packet{}, false
	}
	i := f.ifaces[f.order.Uint32(p)]
	units := uint64(f.order.Uint32(p[4:]))<<32 | uint64(f.order.Uint32(p[8:]))
	n, size := f.order.Uint32(p[12:]), f.order.Uint32(p[16:])
	if int64(n) > int64(len(p)-20) {
		return Packet{}, false
	}
	at := time.Unix(int64(units/i.perSec), int64(float64(units%i.perSec)/float64(i.perSec)*1e9)).UTC()
	return Packet{Time: at, Link: i.link, Data: p[20 : 20+n], Len: int(max(size, n))}, true
}

// simple is a packet without a time, of the first interface.
func (f *pcapng) simple(p []byte) (Packet, bool) {
	if len(p) < 4 || len(f.ifaces) == 0 {
		return Packet{}, false
	}
	size := f.order.Uint32(p)
	n := min(int64(size), int64(len(p)-4))
	if s := int64(f.ifaces[0].snapLen); s > 0 {
		n = min(n, s)
	}
	return Packet{Link: f.ifaces[0].link, Data: p[4 : 4+n], Len: int(size)}, true
}
