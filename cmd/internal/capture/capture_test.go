package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	v4 = [2]netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:50000"), netip.MustParseAddrPort("10.0.0.2:3300")}
	v6 = [2]netip.AddrPort{netip.MustParseAddrPort("[fd00::1]:50000"), netip.MustParseAddrPort("[fd00::2]:3300")}
)

// segment is an IP packet with a TCP segment.
func segment(addrs [2]netip.AddrPort, flags byte, seq uint32, payload string) []byte {
	tcp := make([]byte, 20, 20+len(payload))
	be.PutUint16(tcp, addrs[0].Port())
	be.PutUint16(tcp[2:], addrs[1].Port())
	be.PutUint32(tcp[4:], seq)
	tcp[12], tcp[13] = 5<<4, flags
	tcp = append(tcp, payload...)
	if addrs[0].Addr().Is4() {
		ip := make([]byte, 20, 20+len(tcp))
		ip[0], ip[9] = 0x45, protoTCP
		be.PutUint16(ip[2:], uint16(20+len(tcp)))
		copy(ip[12:], addrs[0].Addr().AsSlice())
		copy(ip[16:], addrs[1].Addr().AsSlice())
		return append(ip, tcp...)
	}
	ip := make([]byte, 40, 48+len(tcp))
	ip[0], ip[6] = 0x60, 0 // an empty header of options follows
	be.PutUint16(ip[4:], uint16(8+len(tcp)))
	copy(ip[8:], addrs[0].Addr().AsSlice())
	copy(ip[24:], addrs[1].Addr().AsSlice())
	return append(append(ip, protoTCP, 0, 0, 0, 0, 0, 0, 0), tcp...)
}

// linked puts the header of a link before an IP packet.
func linked(t LinkType, ip []byte) []byte {
	typ := uint16(etherIPv4)
	if ip[0]>>4 == 6 {
		typ = etherIPv6
	}
	switch t {
	case LinkEthernet: // with a VLAN tag
		return append(be.AppendUint16(append(make([]byte, 12), 0x81, 0, 0, 5), typ), ip...)
	case LinkSLL:
		return append(be.AppendUint16(make([]byte, 14), typ), ip...)
	case LinkSLL2:
		return append(append(be.AppendUint16(nil, typ), make([]byte, 18)...), ip...)
	case LinkNull, LinkLoop:
		return append(make([]byte, 4), ip...)
	}
	return ip
}

// pcapOf writes a recording in the older format.
func pcapOf(order binary.AppendByteOrder, magic uint32, link LinkType, packets ...[]byte) []byte {
	p := order.AppendUint32(nil, magic)
	p = append(p, make([]byte, 16)...)
	p = order.AppendUint32(p, uint32(link))
	for i, packet := range packets {
		for _, n := range []uint32{uint32(100 + i), 7, uint32(len(packet)), uint32(len(packet))} {
			p = order.AppendUint32(p, n)
		}
		p = append(p, packet...)
	}
	return p
}

// pcapngOf writes one in the newer format, with times in nanoseconds.
func pcapngOf(order binary.AppendByteOrder, link LinkType, packets ...[]byte) []byte {
	block := func(p []byte, typ uint32, body []byte) []byte {
		body = append(body, make([]byte, (4-len(body)%4)%4)...)
		size := uint32(12 + len(body))
		p = order.AppendUint32(order.AppendUint32(p, typ), size)
		return order.AppendUint32(append(p, body...), size)
	}
	p := block(nil, blockSection, append(order.AppendUint32(nil, orderMagic), make([]byte, 12)...))
	iface := order.AppendUint32(order.AppendUint16(order.AppendUint16(nil, uint16(link)), 0), 0)
	iface = append(order.AppendUint16(order.AppendUint16(iface, optionTSResol), 1), 9, 0, 0, 0)
	p = block(p, blockInterface, append(iface, 0, 0, 0, 0))
	p = block(p, 5, nil) // statistics
	for i, packet := range packets {
		at := uint64(100+i)*1e9 + 7000
		body := order.AppendUint32(nil, 0)
		for _, n := range []uint32{uint32(at >> 32), uint32(at), uint32(len(packet)), uint32(len(packet))} {
			body = order.AppendUint32(body, n)
		}
		p = block(p, blockPacket, append(body, packet...))
	}
	return p
}

func TestEveryFormatAndLinkTypeIsRead(t *testing.T) {
	for _, link := range []LinkType{LinkNull, LinkEthernet, LinkRaw, LinkLoop, LinkSLL, LinkSLL2} {
		for _, addrs := range [][2]netip.AddrPort{v4, v6} {
			packet := linked(link, segment(addrs, 16, 9, "hello"))
			for name, file := range map[string][]byte{
				"pcap":             pcapOf(binary.LittleEndian, magicMicros, link, packet, packet),
				"pcap, big endian": pcapOf(binary.BigEndian, magicMicros, link, packet, packet),
				"pcapng":           pcapngOf(binary.LittleEndian, link, packet, packet),
				"pcapng, big":      pcapngOf(binary.BigEndian, link, packet, packet),
			} {
				r, err := NewReader(bytes.NewReader(file))
				if err != nil || !Is(file) {
					t.Fatalf("%s: %v", name, err)
				}
				for i := range 2 {
					p, err := r.Next()
					s, ok := p.Segment()
					if err != nil || !ok || s.Src != addrs[0] || s.Dst != addrs[1] || s.Seq != 9 || string(s.Payload) != "hello" || s.Len != 5 ||
						!s.Time.Equal(time.Unix(int64(100+i), 7000)) {
						t.Errorf("%s, link type %d: %+v, %v", name, link, s, err)
					}
				}
				if _, err := r.Next(); !errors.Is(err, io.EOF) {
					t.Errorf("%s: %v at the end", name, err)
				}
			}
		}
	}
}

// A recording that ends anywhere ends there, and never with more than an error.
func TestARecordingMayEndAnywhere(t *testing.T) {
	packet := linked(LinkEthernet, segment(v4, 16, 9, "hello"))
	for _, file := range [][]byte{pcapOf(binary.LittleEndian, magicNanos, LinkEthernet, packet), pcapngOf(binary.LittleEndian, LinkEthernet, packet)} {
		for n := range len(file) {
			r, err := NewReader(bytes.NewReader(file[:n]))
			if err != nil {
				if !errors.Is(err, ErrFormat) {
					t.Errorf("%d bytes: %v", n, err)
				}
				continue
			}
			if _, err := r.Next(); !errors.Is(err, io.EOF) {
				t.Errorf("%d bytes: %v", n, err)
			}
		}
	}
}

func TestWrongLengthsAreRefusedBeforeMemoryIsTaken(t *testing.T) {
	large := binary.LittleEndian.AppendUint32(nil, 0xffffffff)
	pcap := append(pcapOf(binary.LittleEndian, magicMicros, LinkRaw), append(append(make([]byte, 8), large...), large...)...)
	ng := append(pcapngOf(binary.LittleEndian, LinkRaw), append(append(binary.LittleEndian.AppendUint32(nil, blockPacket), large...), 0, 0, 0, 0)...)
	for _, file := range [][]byte{pcap, ng} {
		r, err := NewReader(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Next(); !errors.Is(err, ErrFormat) {
			t.Errorf("%v", err)
		}
	}
	if _, err := NewReader(bytes.NewReader(pcapOf(binary.LittleEndian, magicMicros, 147))); !errors.Is(err, ErrFormat) {
		t.Errorf("a link type that nobody knows: %v", err)
	}
}

// story collects what an assembler gives, one line for each call.
type story struct{ lines []string }

func (s *story) Data(_ time.Time, from Side, p []byte) {
	s.lines = append(s.lines, fmt.Sprintf("%s %s", sideNames[from], p))
}
func (s *story) Gap(_ time.Time, from Side, n uint64) {
	s.lines = append(s.lines, fmt.Sprintf("%s gap %d", sideNames[from], n))
}
func (s *story) End(_ time.Time, why string) { s.lines = append(s.lines, "end "+why) }

const (
	fin = 1
	syn = 2
	rst = 4
	ack = 16
)

// tell assembles segments: "c" is one of the connector, "a" of the acceptor.
func tell(t *testing.T, segs ...Segment) (lines []string, whole bool) {
	t.Helper()
	s := &story{}
	a := NewAssembler(func(_ time.Time, c Conn) Handler {
		whole = c.Whole
		if c.Connector != v4[0] {
			t.Errorf("the connector is %v", c.Connector)
		}
		return s
	})
	for _, seg := range segs {
		a.Add(seg)
	}
	a.Close()
	return s.lines, whole
}

func part(from Side, flags byte, seq, acked uint32, payload string) Segment {
	return Segment{
		Src: v4[from], Dst: v4[from.Other()], Seq: seq, Ack: acked, Payload: []byte(payload), Len: len(payload),
		SYN: flags&syn != 0, FIN: flags&fin != 0, RST: flags&rst != 0, HasAck: flags&ack != 0,
	}
}

func TestStreamsArePutTogether(t *testing.T) {
	const c, a = Connector, Acceptor
	top := ^uint32(0) - 2 // the numbers wrap within the stream
	open := []Segment{part(c, syn, top, 0, ""), part(a, syn|ack, 100, top+1, "")}
	for name, test := range map[string]struct {
		segs []Segment
		want string
	}{
		"in order":     {[]Segment{part(c, ack, top+1, 101, "abc"), part(c, ack, top+4, 101, "def"), part(a, ack, 101, top+7, "x")}, "connector abc|connector def|acceptor x"},
		"out of order": {[]Segment{part(c, ack, top+4, 101, "def"), part(c, ack, top+7, 101, "g"), part(c, ack, top+1, 101, "abc")}, "connector abc|connector def|connector g"},
		"again":        {[]Segment{part(c, ack, top+1, 101, "abc"), part(c, ack, top+1, 101, "abc"), part(c, ack, top+2, 101, "bcd")}, "connector abc|connector d"},
		"acked":        {[]Segment{part(c, ack, top+4, 101, "def"), part(a, ack, 101, top+7, "x"), part(c, ack, top+7, 101, "g")}, "connector gap 3|connector def|acceptor x|connector g"},
		"never":        {[]Segment{part(c, ack, top+4, 101, "def")}, "connector gap 3|connector def"},
		"the last":     {[]Segment{part(c, ack, top+1, 101, "abc"), part(a, ack, 101, top+7, "")}, "connector abc|connector gap 3"},
		"elsewhere":    {[]Segment{part(c, ack, top+1<<31, 101, "far away"), part(c, ack, top+1, 101, "abc")}, "connector abc"},
	} {
		lines, whole := tell(t, append(slices.Clone(open), test.segs...)...)
		if got := strings.Join(lines, "|"); got != test.want+"|end open where the recording ends" || !whole {
			t.Errorf("%s: %s", name, got)
		}
	}
	cut := part(c, ack, top+1, 101, "abcdef")
	cut.Len, cut.Payload = 100, cut.Payload[:2]
	if lines, _ := tell(t, append(slices.Clone(open), cut)...); strings.Join(lines, "|") != "connector ab|connector gap 98|end open where the recording ends" {
		t.Errorf("a segment that was cut: %q", lines)
	}
}

func TestTheEndOfAConnectionIsSeen(t *testing.T) {
	const c, a = Connector, Acceptor
	open := []Segment{part(c, syn, 0, 0, ""), part(a, syn|ack, 100, 1, "")}
	for name, test := range map[string]struct {
		segs []Segment
		want string
	}{
		"closed":           {[]Segment{part(c, fin|ack, 1, 101, "bye"), part(a, fin|ack, 101, 5, ""), part(c, ack, 5, 102, "")}, "connector bye|end closed"},
		"closed, with gap": {[]Segment{part(c, fin|ack, 4, 101, ""), part(a, fin|ack, 101, 5, ""), part(c, ack, 5, 102, "")}, "connector gap 3|end closed"},
		"reset":            {[]Segment{part(a, rst, 101, 0, ""), part(c, 0, 1, 0, "")}, "end reset by the acceptor"},
		"used again":       {[]Segment{part(c, ack, 1, 101, "abc"), part(c, syn, 5000, 0, "")}, "connector abc|end the addresses were used again|end open where the recording ends"},
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
	a := NewAssembler(func(time.Time, Conn) Handler {
		live++
		most = max(most, live)
		return &counted{&live}
	})
	for i := range uint32(3 * maxConns) {
		s := part(Connector, syn, 1, 0, "")
		s.Src = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 5000)
		a.Add(s)
	}
	if most > maxConns+1 {
		t.Errorf("%d connections at a time", most)
	}
	a.Close()
	a = NewAssembler(func(time.Time, Conn) Handler { return &story{} })
	a.Add(part(Connector, syn, 0, 0, ""))
	for i := range uint32(5 * maxEarly) {
		a.Add(part(Connector, 0, 100+2*i, 0, "x"))
	}
	for _, st := range a.conns {
		if n := len(st.dirs[Connector].early); n > maxEarly {
			t.Errorf("%d early segments", n)
		}
	}
}

type counted struct{ live *int }

func (c *counted) Data(time.Time, Side, []byte) {}
func (c *counted) Gap(time.Time, Side, uint64)  {}
func (c *counted) End(time.Time, string)        { *c.live-- }
