package traffic

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control/trace"
)

var (
	v4 = [2]netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:50000"), netip.MustParseAddrPort("10.0.0.2:3300")}
	v6 = [2]netip.AddrPort{netip.MustParseAddrPort("[fd00::1]:50000"), netip.MustParseAddrPort("[fd00::2]:3300")}
)

// packetOf is a packet of a link with a TCP segment at sequence number 9.
func packetOf(t *testing.T, link layers.LinkType, addrs [2]netip.AddrPort, payload string) []byte {
	t.Helper()
	tcp := &layers.TCP{SrcPort: layers.TCPPort(addrs[0].Port()), DstPort: layers.TCPPort(addrs[1].Port()), Seq: 9, ACK: true}
	var ip gopacket.SerializableLayer
	typ := layers.EthernetTypeIPv4
	if src, dst := addrs[0].Addr(), addrs[1].Addr(); src.Is4() {
		ip = &layers.IPv4{Version: 4, Protocol: layers.IPProtocolTCP, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	} else {
		typ = layers.EthernetTypeIPv6
		ip = &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolTCP, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	}
	b := gopacket.NewSerializeBuffer()
	clitest.Must(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true}, ip, tcp, gopacket.Payload(payload)))
	be := binary.BigEndian
	head := map[layers.LinkType][]byte{
		layers.LinkTypeEthernet:  be.AppendUint16(append(make([]byte, 12), 0x81, 0, 0, 5), uint16(typ)), // with a VLAN tag
		layers.LinkTypeLinuxSLL:  be.AppendUint16([]byte{0, 0, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0}, uint16(typ)),
		layers.LinkTypeLinuxSLL2: append(be.AppendUint16(nil, uint16(typ)), make([]byte, 18)...),
		layers.LinkTypeNull:      {byte(layers.ProtocolFamilyIPv4), 0, 0, 0},
		layers.LinkTypeLoop:      {0, 0, 0, byte(layers.ProtocolFamilyIPv4)},
	}[link]
	if len(head) == 4 && typ == layers.EthernetTypeIPv6 {
		head = []byte{byte(layers.ProtocolFamilyIPv6Linux), 0, 0, 0}
	}
	return append(head, b.Bytes()...)
}

// pcapOf writes a recording in the older format. Each packet had more bytes on the wire.
func pcapOf(order binary.AppendByteOrder, link layers.LinkType, more int, packets ...[]byte) []byte {
	p := order.AppendUint32(nil, 0xa1b2c3d4)
	p = order.AppendUint32(append(p, order.AppendUint16(order.AppendUint16(nil, 2), 4)...), 0)
	p = order.AppendUint32(append(p, make([]byte, 8)...), uint32(link))
	for i, packet := range packets {
		for _, n := range []int{100 + i, 7, len(packet), len(packet) + more} {
			p = order.AppendUint32(p, uint32(n))
		}
		p = append(p, packet...)
	}
	return p
}

// pcapngOf writes one in the newer format, with times in nanoseconds.
func pcapngOf(t *testing.T, link layers.LinkType, packets ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := pcapgo.NewNgWriter(&b, link)
	for i, packet := range packets {
		if err == nil {
			err = w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(int64(100+i), 7000), CaptureLength: len(packet), Length: len(packet)}, packet)
		}
	}
	if err == nil {
		err = w.Flush()
	}
	clitest.Must(t, err)
	return b.Bytes()
}

func TestEveryFormatAndLinkTypeIsRead(t *testing.T) {
	for _, link := range []layers.LinkType{
		layers.LinkTypeNull, layers.LinkTypeEthernet, layers.LinkTypeRaw, layers.LinkTypeLoop, layers.LinkTypeLinuxSLL, layers.LinkTypeLinuxSLL2,
	} {
		for _, addrs := range [][2]netip.AddrPort{v4, v6} {
			packet := packetOf(t, link, addrs, "hello")
			for name, file := range map[string][]byte{
				"pcap":             pcapOf(binary.LittleEndian, link, 0, packet, packet),
				"pcap, big endian": pcapOf(binary.BigEndian, link, 0, packet, packet),
				"pcapng":           pcapngOf(t, link, packet, packet),
			} {
				r, err := newReader(bytes.NewReader(file))
				if err != nil || !Is(file) {
					t.Fatalf("%s: %v", name, err)
				}
				for i := range 2 {
					s, err := r.next()
					if err != nil || s.src != addrs[0] || s.dst != addrs[1] || s.seq != 9 || string(s.payload) != "hello" || s.size != 5 ||
						s.at.Unix() != int64(100+i) || s.at.Nanosecond() != 7000 {
						t.Errorf("%s, link type %d: %+v, %v", name, link, s, err)
					}
				}
				if _, err := r.next(); !errors.Is(err, io.EOF) || r.truncated {
					t.Errorf("%s: %v at the end, truncated %t", name, err, r.truncated)
				}
			}
		}
	}
}

// Bytes that the recording has cut off count; the padding of a small Ethernet frame does not.
func TestThePayloadThatWasCutIsCounted(t *testing.T) {
	short := packetOf(t, layers.LinkTypeEthernet, v6, "hello, world")
	const ip = 18 // its header begins there, after the VLAN tag
	long := slices.Insert(bytes.Clone(short), ip+40, byte(layers.IPProtocolTCP), 0, 1, 4, 0, 0, 0, 0)
	long[ip+5] += 8
	long[ip+6] = byte(layers.IPProtocolIPv6HopByHop)
	older := packetOf(t, layers.LinkTypeEthernet, v4, "hello, world")
	offloaded := bytes.Clone(older) // to the network card, which splits it: no length is right
	offloaded[ip+2], offloaded[ip+3] = 0, 0
	for _, whole := range [][]byte{older, offloaded, short, long} {
		for name, c := range map[string]struct {
			packet    []byte
			more      int
			text      string
			onTheWire int
		}{
			"whole":  {whole, 0, "hello, world", 12},
			"cut":    {whole[:len(whole)-7], 7, "hello", 12},
			"padded": {append(bytes.Clone(whole), 0, 0, 0), 9, "hello, world", 12},
		} {
			r, err := newReader(bytes.NewReader(pcapOf(binary.LittleEndian, layers.LinkTypeEthernet, c.more, c.packet)))
			clitest.Must(t, err)
			s, err := r.next()
			if bytes.Equal(whole, offloaded) && name == "padded" {
				continue // the end of its payload is not known
			}
			if err != nil || string(s.payload) != c.text || s.size != c.onTheWire {
				t.Errorf("%s: %q of %d, %v", name, s.payload, s.size, err)
			}
		}
	}
}

// A recording that ends anywhere ends there, and never with more than an error. Where it
// ends within a packet it says so.
func TestARecordingMayEndAnywhere(t *testing.T) {
	packet := packetOf(t, layers.LinkTypeEthernet, v4, "hello")
	for name, file := range map[string][]byte{"pcap": pcapOf(binary.LittleEndian, layers.LinkTypeEthernet, 0, packet), "pcapng": pcapngOf(t, layers.LinkTypeEthernet, packet)} {
		for n := range len(file) {
			r, err := newReader(bytes.NewReader(file[:n]))
			if err != nil {
				if !errors.Is(err, errFormat) {
					t.Errorf("%s, %d bytes: %v", name, n, err)
				}
				continue
			}
			_, err = r.next()
			if whole := name == "pcap" && n == 24; !errors.Is(err, io.EOF) || name == "pcap" && r.truncated == whole {
				t.Errorf("%s, %d bytes: %v, truncated %t", name, n, err, r.truncated)
			}
			if name == "pcapng" && n > len(file)-len(packet) && !r.truncated {
				t.Errorf("%s, %d bytes: not truncated", name, n)
			}
		}
	}
}

func TestWrongLengthsAreRefusedBeforeMemoryIsTaken(t *testing.T) {
	large := binary.LittleEndian.AppendUint32(nil, 0xffffffff)
	pcap := append(pcapOf(binary.LittleEndian, layers.LinkTypeRaw, 0), append(append(make([]byte, 8), large...), large...)...)
	ng := append(pcapngOf(t, layers.LinkTypeRaw), append(append(binary.LittleEndian.AppendUint32(nil, 6), large...), make([]byte, 12)...)...)
	ng = append(append(append(ng, large...), large...), 0, 0, 0, 0)
	late := bytes.Replace(pcapngOf(t, layers.LinkTypeRaw, packetOf(t, layers.LinkTypeRaw, v4, "late")), []byte{9, 0, 1, 0, 9}, []byte{9, 0, 1, 0, 6}, 1)
	late[bytes.LastIndex(late, []byte{6, 0, 0, 0})+15] = 0x7f // of the time of the packet, in microseconds
	for name, file := range map[string][]byte{"pcap": pcap, "pcapng": ng, "the year 291984": late} {
		r, err := newReader(bytes.NewReader(file))
		clitest.Must(t, err)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = r.next()
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > 4<<20 {
			t.Errorf("%s: %v, with %d bytes of memory", name, err, took)
		}
	}
	if _, err := newReader(bytes.NewReader(pcapOf(binary.LittleEndian, 147, 0))); !errors.Is(err, errFormat) {
		t.Errorf("a link type that nobody knows: %v", err)
	}
}

// story collects the calls of an assembler, one line for each.
type story struct{ lines []string }

func (s *story) Data(_ time.Time, from trace.Side, p []byte) {
	s.lines = append(s.lines, fmt.Sprintf("%s %s", from, p))
}
func (s *story) Gap(_ time.Time, from trace.Side, n uint64) {
	s.lines = append(s.lines, fmt.Sprintf("%s gap %d", from, n))
}
func (s *story) End(_ time.Time, why string) { s.lines = append(s.lines, "end "+why) }

const (
	fin = 1
	syn = 2
	rst = 4
	ack = 16
)

// tell assembles segments: "c" is one of the connector, "a" of the acceptor.
func tell(t *testing.T, segs ...segment) (lines []string, whole bool) {
	t.Helper()
	s := &story{}
	a := newAssembler(func(_ time.Time, c trace.TCP) handler {
		whole = c.Whole
		if c.Connector != v4[0] {
			t.Errorf("the connector is %v", c.Connector)
		}
		return s
	})
	for _, seg := range segs {
		a.add(seg)
	}
	a.close()
	return s.lines, whole
}

func part(from trace.Side, flags byte, seq, acked uint32, payload string) segment {
	src, dst := v4[0], v4[1]
	if from == trace.Acceptor {
		src, dst = dst, src
	}
	return segment{
		src: src, dst: dst, seq: seq, ack: acked, payload: []byte(payload), size: len(payload),
		syn: flags&syn != 0, fin: flags&fin != 0, rst: flags&rst != 0, hasAck: flags&ack != 0,
	}
}

func TestStreamsArePutTogether(t *testing.T) {
	const c, a = trace.Connector, trace.Acceptor
	top := ^uint32(0) - 2 // the numbers wrap within the stream
	open := []segment{part(c, syn, top, 0, ""), part(a, syn|ack, 100, top+1, "")}
	for name, test := range map[string]struct {
		segs []segment
		want string
	}{
		"in order":     {[]segment{part(c, ack, top+1, 101, "abc"), part(c, ack, top+4, 101, "def"), part(a, ack, 101, top+7, "x")}, "connector abc|connector def|acceptor x"},
		"out of order": {[]segment{part(c, ack, top+4, 101, "def"), part(c, ack, top+7, 101, "g"), part(c, ack, top+1, 101, "abc")}, "connector abc|connector def|connector g"},
		"again":        {[]segment{part(c, ack, top+1, 101, "abc"), part(c, ack, top+1, 101, "abc"), part(c, ack, top+2, 101, "bcd")}, "connector abc|connector d"},
		"acked":        {[]segment{part(c, ack, top+4, 101, "def"), part(a, ack, 101, top+7, "x"), part(c, ack, top+7, 101, "g")}, "connector gap 3|connector def|acceptor x|connector g"},
		"never":        {[]segment{part(c, ack, top+4, 101, "def")}, "connector gap 3|connector def"},
		"the last":     {[]segment{part(c, ack, top+1, 101, "abc"), part(a, ack, 101, top+7, "")}, "connector abc|connector gap 3"},
		"elsewhere":    {[]segment{part(c, ack, top+1<<31, 101, "far away"), part(c, ack, top+1, 101, "abc")}, "connector abc"},
	} {
		lines, whole := tell(t, append(slices.Clone(open), test.segs...)...)
		if got := strings.Join(lines, "|"); got != test.want+"|end open where the recording ends" || !whole {
			t.Errorf("%s: %s", name, got)
		}
	}
	cut := part(c, ack, top+1, 101, "abcdef")
	cut.size, cut.payload = 100, cut.payload[:2]
	if lines, _ := tell(t, append(slices.Clone(open), cut)...); strings.Join(lines, "|") != "connector ab|connector gap 98|end open where the recording ends" {
		t.Errorf("a segment that was cut: %q", lines)
	}
}

func TestTheEndOfAConnectionIsSeen(t *testing.T) {
	const c, a = trace.Connector, trace.Acceptor
	open := []segment{part(c, syn, 0, 0, ""), part(a, syn|ack, 100, 1, "")}
	for name, test := range map[string]struct {
		segs []segment
		want string
	}{
		"closed":           {[]segment{part(c, fin|ack, 1, 101, "bye"), part(a, fin|ack, 101, 5, ""), part(c, ack, 5, 102, "")}, "connector bye|end closed"},
		"closed, with gap": {[]segment{part(c, fin|ack, 4, 101, ""), part(a, fin|ack, 101, 5, ""), part(c, ack, 5, 102, "")}, "connector gap 3|end closed"},
		"reset":            {[]segment{part(a, rst, 101, 0, ""), part(c, 0, 1, 0, "")}, "end reset by the acceptor"},
		"used again":       {[]segment{part(c, ack, 1, 101, "abc"), part(c, syn, 5000, 0, "")}, "connector abc|end the addresses were used again|end open where the recording ends"},
	} {
		lines, _ := tell(t, append(slices.Clone(open), test.segs...)...)
		if got := strings.Join(lines, "|"); got != test.want {
			t.Errorf("%s: %s", name, got)
		}
	}
	if _, whole := tell(t, part(c, ack, 7, 101, "abc")); whole {
		t.Error("a connection without its beginning is taken for a whole one")
	}
}

// A hostile recording has no end of connections, and of early segments.
func TestAnAssemblerIsBounded(t *testing.T) {
	live, most := 0, 0
	a := newAssembler(func(time.Time, trace.TCP) handler {
		live++
		most = max(most, live)
		return &counted{&live}
	})
	for i := range uint32(3 * maxStreams) {
		s := part(trace.Connector, syn, 1, 0, "")
		s.src = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 5000)
		a.add(s)
	}
	if most > maxStreams+1 {
		t.Errorf("%d connections at a time", most)
	}
	a.close()
	a = newAssembler(func(time.Time, trace.TCP) handler { return &story{} })
	a.add(part(trace.Connector, syn, 0, 0, ""))
	for i := range uint32(5 * maxEarly) {
		a.add(part(trace.Connector, 0, 100+2*i, 0, "x"))
	}
	for _, e := range a.conns {
		if n := len(e.Value.(*stream).dirs[0].early); n > maxEarly {
			t.Errorf("%d early segments", n)
		}
	}
}

// The length of a packet on the wire may be any number, where its own header has none.
func TestALengthThatNoPacketHasDoesNotStopTheAssembler(t *testing.T) {
	at := func(seq uint32, length byte) []byte {
		p := packetOf(t, layers.LinkTypeRaw, v4, "abc")
		p[3] = length // of the IP packet; 0: it was offloaded
		binary.BigEndian.PutUint32(p[24:], seq)
		return p
	}
	file := pcapOf(binary.LittleEndian, layers.LinkTypeRaw, 3<<30, at(9, 43), at(9+1<<30, 43), at(12, 0))
	done := make(chan error, 1)
	go func() {
		whole, err := Read(bytes.NewReader(file), trace.StreamOptions{Emit: func(trace.Record) {}})
		if err == nil && !whole {
			err = io.ErrUnexpectedEOF
		}
		done <- err
	}()
	select {
	case err := <-done:
		clitest.Must(t, err)
	case <-time.After(time.Minute):
		t.Error("the recording is read for ever")
	}
}

type counted struct{ live *int }

func (c *counted) Data(time.Time, trace.Side, []byte) {}
func (c *counted) Gap(time.Time, trace.Side, uint64)  {}
func (c *counted) End(time.Time, string)              { *c.live-- }
