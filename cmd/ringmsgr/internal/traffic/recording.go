// Package traffic reads recordings of network traffic, as tcpdump and Wireshark write them, and
// judges connections.
//
//   - recording.go has [Read], which makes the records of package trace of a recording. gopacket
//     decodes the formats and the headers below TCP. Files are not trusted: memory is bounded,
//     packets that cannot be decoded are passed over, and a damaged file is an error.
//   - streams.go puts the segments of TCP connections together.
//   - judge.go has a [Judge] of records, those of a trace or of a recording.
package traffic

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/ringmsgr/ringmsgr/control/trace"
)

// errFormat is the error of a file that is no recording, or is damaged.
var errFormat = errors.New("no recording of network traffic")

// maxPacket is how large a packet can be in a recording, in bytes, and was on the wire.
const maxPacket = 1 << 20

// segment is a TCP segment.
type segment struct {
	at       time.Time
	src, dst netip.AddrPort
	seq, ack uint32
	syn, fin, rst,
	hasAck bool
	payload []byte
	// size is that of the payload on the wire, in bytes: more than that of payload if the
	// recording has cut it.
	size int
}

const magicNG = 0x0a0d0d0a

// magics are those of pcap in microseconds, in nanoseconds, and of pcapng.
var magics = []uint32{0xa1b2c3d4, 0xd4c3b2a1, 0xa1b23c4d, 0x4d3cb2a1, magicNG}

// Is tells by its first bytes whether a file is a recording.
func Is(head []byte) bool {
	return len(head) >= 4 && slices.Contains(magics, binary.LittleEndian.Uint32(head))
}

// Read calls opt.Emit for the records of a recording, in the format of pcap or pcapng. whole is
// false if the recording ended within a packet, because it was stopped or cut.
func Read(r io.Reader, opt trace.StreamOptions) (whole bool, err error) {
	segments, err := newReader(r)
	if err != nil {
		return false, err
	}
	var last uint64
	number := func() uint64 { last++; return last }
	streams := newAssembler(func(at time.Time, c trace.TCP) handler { return trace.NewStreams(at, c, number, opt) })
	defer streams.close()
	for n := 0; ; n++ {
		switch s, err := segments.next(); {
		case err == nil:
			streams.add(s)
		case !errors.Is(err, io.EOF):
			return false, err
		case n == 0 && !segments.truncated:
			return false, errors.New("the recording has no TCP packets: look at the filter of tcpdump, and end it before you read")
		default:
			return !segments.truncated, nil
		}
	}
}

// reader reads the TCP segments of a recording.
type reader struct {
	packets interface {
		ReadPacketData() ([]byte, gopacket.CaptureInfo, error)
	}
	link      layers.LinkType // of a pcap
	truncated bool            // it ended within a packet, once next has returned io.EOF
}

// newReader reads the head of a recording.
func newReader(r io.Reader) (*reader, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	magic, err := b.Peek(4)
	if err != nil {
		return nil, damaged(err)
	}
	if binary.LittleEndian.Uint32(magic) == magicNG {
		ng, err := pcapgo.NewNgReader(b, pcapgo.NgReaderOptions{WantMixedLinkType: true, SkipUnknownVersion: true})
		if err != nil {
			return nil, damaged(err)
		}
		return &reader{packets: ng}, nil
	}
	p, err := pcapgo.NewReader(b)
	if err != nil {
		return nil, damaged(err)
	}
	p.SetSnaplen(maxPacket)
	if l := int(p.LinkType()); l >= len(layers.LinkTypeMetadata) || layers.LinkTypeMetadata[l].DecodeWith == nil {
		return nil, fmt.Errorf("%w: link type %d is not known here", errFormat, p.LinkType())
	}
	return &reader{packets: p, link: p.LinkType()}, nil
}

func damaged(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends within its head", errFormat)
	}
	return fmt.Errorf("%w: %w", errFormat, err)
}

// next returns the next TCP segment, io.EOF after the last one. It passes over packets of other
// protocols and links, damaged packets and fragments.
func (r *reader) next() (segment, error) {
	for {
		p, info, err := r.packets.ReadPacketData()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			r.truncated = info.CaptureLength > 0 || errors.Is(err, io.ErrUnexpectedEOF)
			return segment{}, io.EOF
		case err != nil:
			return segment{}, damaged(err)
		case info.Timestamp.Year() < 0, info.Timestamp.Year() > 9999: // which a record, in JSON, cannot have
			return segment{}, damaged(fmt.Errorf("a packet of the year %d", info.Timestamp.Year()))
		}
		link := r.link
		if len(info.AncillaryData) > 0 {
			link, _ = info.AncillaryData[0].(layers.LinkType)
		}
		if s, ok := segmentOf(link, p, info.Length-len(p)); ok {
			s.at = info.Timestamp
			return s, nil
		}
	}
}

// segmentOf finds the TCP segment in a packet. The recording has cut the last bytes of the
// packet, cut in number.
func segmentOf(link layers.LinkType, p []byte, cut int) (s segment, ok bool) {
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
	s = segment{
		src: netip.AddrPortFrom(src, uint16(tcp.SrcPort)), dst: netip.AddrPortFrom(dst, uint16(tcp.DstPort)),
		seq: tcp.Seq, ack: tcp.Ack, syn: tcp.SYN, fin: tcp.FIN, rst: tcp.RST, hasAck: tcp.ACK, payload: tcp.Payload,
		size: len(tcp.Contents) + len(tcp.Payload) + max(cut, 0) - int(tcp.DataOffset)*4,
	}
	return s, src.IsValid() && tcp.DataOffset >= 5 && s.size >= len(s.payload) && s.size <= maxPacket
}

func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
