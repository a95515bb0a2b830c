package capture

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// LinkType says what a packet begins with.
type LinkType uint32

// The link types that are known here.
const (
	LinkNull     LinkType = 0   // BSD loopback
	LinkEthernet LinkType = 1   // also Linux' loopback
	LinkRaw      LinkType = 101 // an IP header
	LinkLoop     LinkType = 108 // OpenBSD loopback
	LinkSLL      LinkType = 113 // Linux' "any"
	LinkIPv4     LinkType = 228
	LinkIPv6     LinkType = 229
	LinkSLL2     LinkType = 276 // Linux' "any", the newer form
)

func (t LinkType) known() bool {
	switch t {
	case LinkNull, LinkEthernet, LinkRaw, LinkLoop, LinkSLL, LinkIPv4, LinkIPv6, LinkSLL2:
		return true
	}
	return false
}

const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
	etherVLAN = 0x8100
	etherQinQ = 0x88a8
	protoTCP  = 6
)

// Segment is a TCP segment.
type Segment struct {
	Time     time.Time
	Src, Dst netip.AddrPort
	Seq, Ack uint32
	SYN, FIN, RST,
	HasAck bool
	Payload []byte
	// Len is how many bytes of payload it had on the wire: more than Payload, if the
	// recording has cut it.
	Len int
}

var be = binary.BigEndian

// Segment returns the TCP segment of a packet; ok is false for other packets, and for
// what is damaged or a fragment.
func (p Packet) Segment() (s Segment, ok bool) {
	ip := network(p.Link, p.Data)
	if len(ip) == 0 {
		return s, false
	}
	cut := p.Len - len(p.Data) // behind ip
	s.Time = p.Time
	switch ip[0] >> 4 {
	case 4:
		return s, s.ipv4(ip, cut)
	case 6:
		return s, s.ipv6(ip, cut)
	}
	return s, false
}

// network is what follows the header of the link, nil if that is no IP.
func network(t LinkType, p []byte) []byte {
	skip, typeAt := 0, 0
	switch t {
	case LinkRaw, LinkIPv4, LinkIPv6:
		return p
	case LinkNull, LinkLoop:
		return from(p, 4) // the version of IP says the same as the address family
	case LinkEthernet:
		skip, typeAt = 14, 12
	case LinkSLL:
		skip, typeAt = 16, 14
	case LinkSLL2:
		skip, typeAt = 20, 0
	default:
		return nil
	}
	if len(p) < skip {
		return nil
	}
	typ := be.Uint16(p[typeAt:])
	p = p[skip:]
	for range 2 {
		if typ != etherVLAN && typ != etherQinQ || len(p) < 4 {
			break
		}
		typ, p = be.Uint16(p[2:]), p[4:]
	}
	if typ != etherIPv4 && typ != etherIPv6 {
		return nil
	}
	return p
}

func from(p []byte, n int) []byte {
	if len(p) < n {
		return nil
	}
	return p[n:]
}

func (s *Segment) ipv4(p []byte, cut int) bool {
	if len(p) < 20 {
		return false
	}
	head, total := int(p[0]&15)*4, int(be.Uint16(p[2:]))
	if total == 0 { // larger than the field: offloaded to the network card
		total = len(p) + cut
	}
	fragment := be.Uint16(p[6:])&0x3fff != 0
	if head < 20 || len(p) < head || total < head || p[9] != protoTCP || fragment {
		return false
	}
	src, dst := netip.AddrFrom4([4]byte(p[12:])), netip.AddrFrom4([4]byte(p[16:]))
	return s.tcp(src, dst, p[head:min(len(p), total)], total-head)
}

func (s *Segment) ipv6(p []byte, cut int) bool {
	if len(p) < 40 {
		return false
	}
	total, next := int(be.Uint16(p[4:])), p[6]
	if total == 0 {
		total = len(p) + cut - 40
	}
	src, dst := netip.AddrFrom16([16]byte(p[8:])).Unmap(), netip.AddrFrom16([16]byte(p[24:])).Unmap()
	p = p[40:]
	for range 8 {
		switch next {
		case protoTCP:
			return s.tcp(src, dst, p[:min(len(p), total)], total)
		case 0, 43, 60: // options and routes
			if len(p) < 2 {
				return false
			}
			n := (int(p[1]) + 1) * 8
			if len(p) < n || total < n {
				return false
			}
			next, p, total = p[0], p[n:], total-n
		default:
			return false
		}
	}
	return false
}

// tcp takes a segment of size bytes, of which p is what was recorded.
func (s *Segment) tcp(src, dst netip.Addr, p []byte, size int) bool {
	if len(p) < 20 {
		return false
	}
	head := int(p[12]>>4) * 4
	if head < 20 || size < head {
		return false
	}
	s.Src, s.Dst = netip.AddrPortFrom(src, be.Uint16(p)), netip.AddrPortFrom(dst, be.Uint16(p[2:]))
	s.Seq, s.Ack = be.Uint32(p[4:]), be.Uint32(p[8:])
	s.FIN, s.SYN, s.RST, s.HasAck = p[13]&1 != 0, p[13]&2 != 0, p[13]&4 != 0, p[13]&16 != 0
	s.Payload, s.Len = from(p, head), size-head
	return true
}
