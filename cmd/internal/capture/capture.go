// Package capture reads recordings of network traffic, as tcpdump and Wireshark write
// them, and puts the streams of TCP connections together.
//
//   - capture.go has a [Reader] of the TCP segments of a recording. gopacket decodes the
//     formats and the headers below TCP.
//   - streams.go has an [Assembler], which gives the bytes of each direction in order, and
//     reports missing bytes. The assembler of gopacket ignores the acks of the other side, so
//     that it gives the bytes after a gap too late to tell which side spoke first.
//
// Files are not trusted: a Reader has bounded memory. It passes over packets that it cannot
// decode; a damaged file is an error.
package capture

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// ErrFormat is wrapped by the errors about a file that is no recording, or is damaged.
var ErrFormat = errors.New("no recording of network traffic")

// maxPacket is how large a packet can be in a recording, in bytes.
const maxPacket = 1 << 20

// Segment is a TCP segment.
type Segment struct {
	Time     time.Time
	Src, Dst netip.AddrPort
	Seq, Ack uint32
	SYN, FIN, RST,
	HasAck bool
	Payload []byte
	// Len is the size of the payload on the wire, in bytes: more than that of Payload if the
	// recording has cut it.
	Len int
}

// Is tells by its first bytes whether a file is a recording.
func Is(head []byte) bool {
	if len(head) < 4 {
		return false
	}
	switch binary.LittleEndian.Uint32(head) {
	case 0xa1b2c3d4, 0xd4c3b2a1, 0xa1b23c4d, 0x4d3cb2a1, magicNG: // pcap in microseconds, in nanoseconds; pcapng
		return true
	}
	return false
}

const magicNG = 0x0a0d0d0a

// Reader reads the TCP segments of a recording, in the format of pcap or pcapng.
type Reader struct {
	packets interface {
		ReadPacketData() ([]byte, gopacket.CaptureInfo, error)
	}
	link layers.LinkType // of a pcap
	// Truncated says that the recording ended within a packet, because it was stopped or cut.
	// It is valid when Next has returned io.EOF.
	Truncated bool
}

// NewReader reads the head of a recording.
func NewReader(r io.Reader) (*Reader, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	magic, err := b.Peek(4)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: it ends within its head", ErrFormat)
	case !Is(magic):
		return nil, fmt.Errorf("%w: it begins with % x", ErrFormat, magic)
	}
	if binary.LittleEndian.Uint32(magic) == magicNG {
		ng, err := pcapgo.NewNgReader(b, pcapgo.NgReaderOptions{WantMixedLinkType: true, SkipUnknownVersion: true})
		if err != nil {
			return nil, damaged(err)
		}
		return &Reader{packets: ng}, nil
	}
	p, err := pcapgo.NewReader(b)
	if err != nil {
		return nil, damaged(err)
	}
	p.SetSnaplen(maxPacket)
	if !known(p.LinkType()) {
		return nil, fmt.Errorf("%w: link type %d is not known here", ErrFormat, p.LinkType())
	}
	return &Reader{packets: p, link: p.LinkType()}, nil
}

// known are the links whose headers are read: Ethernet, also for Linux' loopback, both forms of
// Linux' "any", BSD loopback, and raw IP.
func known(t layers.LinkType) bool {
	switch t {
	case layers.LinkTypeNull, layers.LinkTypeEthernet, layers.LinkTypeRaw, layers.LinkTypeLoop, layers.LinkTypeLinuxSLL,
		layers.LinkTypeIPv4, layers.LinkTypeIPv6, layers.LinkTypeLinuxSLL2:
		return true
	}
	return false
}

func damaged(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends within its head", ErrFormat)
	}
	return fmt.Errorf("%w: %w", ErrFormat, err)
}

// Next returns the next TCP segment, io.EOF after the last one. It passes over packets of other
// protocols, damaged packets and fragments.
func (r *Reader) Next() (Segment, error) {
	for {
		p, at, err := r.packets.ReadPacketData()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			r.Truncated = at.CaptureLength > 0 || errors.Is(err, io.ErrUnexpectedEOF)
			return Segment{}, io.EOF
		case err != nil:
			return Segment{}, damaged(err)
		}
		link := r.link
		if len(at.AncillaryData) > 0 {
			link, _ = at.AncillaryData[0].(layers.LinkType)
		}
		if !known(link) {
			continue
		}
		if s, ok := segment(link, p, at.Length-len(p)); ok {
			s.Time = at.Timestamp
			return s, nil
		}
	}
}

// segment finds the TCP segment in a packet. The recording has cut the last bytes of the
// packet, cut in number.
func segment(link layers.LinkType, p []byte, cut int) (s Segment, ok bool) {
	packet := gopacket.NewPacket(p, link, gopacket.DecodeOptions{Lazy: true, NoCopy: true})
	tcp, ok := packet.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if !ok {
		return s, false
	}
	var src, dst netip.Addr
	for _, l := range packet.Layers() { // the innermost IP counts
		switch ip := l.(type) {
		case *layers.IPv4:
			src, dst = addr(ip.SrcIP), addr(ip.DstIP)
			if binary.BigEndian.Uint16(ip.Contents[2:]) != 0 { // 0: larger than the field, offloaded to the network card
				cut = min(cut, int(ip.Length)-len(ip.Contents)-len(ip.Payload))
			}
		case *layers.IPv6:
			src, dst = addr(ip.SrcIP), addr(ip.DstIP)
			if declared := int(ip.Length); declared != 0 {
				if ip.HopByHop != nil {
					declared -= ip.HopByHop.ActualLength
				}
				cut = min(cut, declared-len(ip.Payload))
			}
		}
	}
	s = Segment{
		Src: netip.AddrPortFrom(src, uint16(tcp.SrcPort)), Dst: netip.AddrPortFrom(dst, uint16(tcp.DstPort)),
		Seq: tcp.Seq, Ack: tcp.Ack, SYN: tcp.SYN, FIN: tcp.FIN, RST: tcp.RST, HasAck: tcp.ACK, Payload: tcp.Payload,
		Len: len(tcp.Contents) + len(tcp.Payload) + max(cut, 0) - int(tcp.DataOffset)*4,
	}
	return s, src.IsValid() && tcp.DataOffset >= 5 && s.Len >= len(s.Payload)
}

func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
