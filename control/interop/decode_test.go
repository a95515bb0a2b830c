package interop_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/trace"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// "ringmsgr decode" reads a tcpdump recording of real daemons that talk to each other:
// an OSD with its monitor, and OSDs with each other, which copy a large object.
// Matrix: OB-10
func TestDecodeReadsALiveRecordingOfRealDaemons(t *testing.T) {
	enabled(t)
	t.Parallel()
	c := startCluster(t, clusterConfig{auth: "cephx", mode: "crc", osds: 1, later: 1})
	c.decodeOSDs(t, "msgr2", c.clusterAddr)
}

// decodeOSDs records the messages of another OSD that copies objects, and has them decoded.
func (c *cluster) decodeOSDs(t *testing.T, protocol string, addr func(osd int) wire.Addr) {
	if _, err := exec.LookPath("tcpdump"); err != nil {
		t.Fatalf("a program is missing: %v (Debian: apt-get install tcpdump)", err)
	}
	program := buildProgram(t, "ringmsgr")
	r := c.record(t)
	c.startOSD(1) // all that it says is in the recording
	c.awaitUp(2)
	c.ceph("osd", "pool", "set", "data", "size", "2")
	c.settle(2 * 8)
	const size = 3 << 20
	in := filepath.Join(t.TempDir(), "in")
	check(t, os.WriteFile(in, make([]byte, size), 0o600))
	for i := range 4 { // in several placement groups, each with a primary
		c.rados("put", fmt.Sprint("object", i), in)
	}
	c.wantSessions(t, program, r.file, protocol, addr(1), 4*size)
	check(t, r.cmd.Process.Signal(syscall.SIGINT))
	<-r.gone
}

// recording is a tcpdump that runs.
type recording struct {
	file string
	cmd  *exec.Cmd
	gone chan struct{}
}

// record begins to record the loopback, the ports of this cluster alone: others move more
// than any buffer holds.
func (c *cluster) record(t *testing.T) *recording {
	t.Helper()
	r := &recording{file: c.file("live.pcap"), gone: make(chan struct{})}
	filter := fmt.Sprintf("tcp portrange %d-%d", c.ports.first, c.ports.last)
	for _, a := range c.monAddr {
		filter += fmt.Sprintf(" or tcp port %d", a.AddrPort.Port())
	}
	// The buffer has room for all that is recorded, however slow tcpdump is. A packet is in
	// the file a second after it is captured.
	r.cmd = exec.Command("tcpdump", "-Z", "root", "-i", "lo", "-U", "-s", "0", "-B", "262144", "-w", r.file, filter)
	check(t, startTied(r.cmd, func() { close(r.gone) }))
	t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	if !await(patience, func() bool { // it records once it has written the head of the file
		info, err := os.Stat(r.file)
		return err == nil && info.Size() >= 24
	}) {
		t.Fatal("tcpdump does not begin to record")
	}
	return r
}

// wantSessions freezes osd.1 when decode reads the objects in the recording, waits until it reads as many messages of osd.1 as osd.0
// says that it has dispatched, and checks that every session is there from its banner on, and nothing is wrong.
func (c *cluster) wantSessions(t *testing.T, program, file, protocol string, peer wire.Addr, size int) {
	t.Helper()
	log := fmt.Sprintf(" <== osd.1 %v ", peer)
	var seen recorded
	dispatched := 0
	if !await(2*patience, func() bool {
		if info, err := os.Stat(file); err != nil || info.Size() < int64(size) {
			return false
		}
		lines, err := tryTool(t, program, "decode", "--json", "--cut", "0", file)
		if err != nil {
			return false // half a packet is in the file
		}
		seen = c.recorded(t, lines, peer)
		if seen.data >= size {
			c.osds[1].freeze(t)
		}
		text, err := os.ReadFile(c.osds[0].logFile())
		check(t, err)
		dispatched = strings.Count(string(text), log)
		return dispatched > 0 && dispatched == seen.messages && seen.data >= size
	}) {
		t.Errorf("decode has %d messages of osd.1 to osd.0, which has dispatched %d; %d bytes of %d", seen.messages, dispatched, seen.data, size)
	}
	c.osds[1].thaw(t)
	if seen.toMon == 0 || seen.between == 0 {
		t.Errorf("%d sessions with the monitor, %d between OSDs", seen.toMon, seen.between)
	}
	for _, s := range seen.all {
		for _, trouble := range s.trouble {
			t.Errorf("%s: %s", s.open, trouble)
		}
		if !s.banner || !strings.HasPrefix(s.protocol, protocol) {
			t.Errorf("%s: speaks %s; banner: %v", s.open, s.protocol, s.banner)
		}
	}
}

// recorded are the sessions of osd.1 in a recording: with the monitor, and lossless ones with osd.0.
type recorded struct {
	all            []*decoded
	toMon, between int
	messages, data int // of the latter, from osd.1, and bytes in both directions
}

func (c *cluster) recorded(t *testing.T, lines []byte, peer wire.Addr) (seen recorded) {
	t.Helper()
	for _, s := range decode(t, lines) {
		switch from := s.sideOf(peer); {
		case from != "":
			seen.between++
			seen.messages += s.messages[from]
			seen.data += s.data
		case strings.Contains(s.open, "session of osd") && s.acceptor == c.monAddr[0].AddrPort.String():
			seen.toMon++
		default:
			continue // of somebody else, or it was never open
		}
		seen.all = append(seen.all, s)
	}
	return seen
}

// sideOf is the side that has the address in a lossless session, empty: neither.
func (s *decoded) sideOf(addr wire.Addr) trace.Side {
	connector, acceptor, _ := strings.Cut(s.open, " with ")
	switch {
	case !strings.Contains(s.open, "lossless"):
		return ""
	case strings.Contains(connector, addr.String()):
		return trace.Connector
	case strings.Contains(acceptor, addr.String()):
		return trace.Acceptor
	}
	return ""
}

// decoded is the output of decode about one TCP connection.
type decoded struct {
	acceptor, open, protocol string
	banner                   bool
	messages                 map[trace.Side]int
	data                     int // bytes of messages
	trouble                  []string
}

func decode(t *testing.T, lines []byte) map[uint64]*decoded {
	t.Helper()
	sessions := make(map[uint64]*decoded)
	for line := range strings.Lines(string(lines)) {
		var r trace.Record
		check(t, json.Unmarshal([]byte(line), &r))
		s := sessions[r.Socket]
		if s == nil {
			s = &decoded{messages: make(map[trace.Side]int)}
			sessions[r.Socket] = s
		}
		switch r.Event {
		case trace.Open:
			s.acceptor = r.Acceptor
		case trace.Banner:
			s.banner = true
		case trace.State:
			if strings.HasPrefix(r.Text, "open: ") {
				s.open = r.Text
			}
		case trace.Bad, trace.Lost, trace.Wrong:
			s.trouble = append(s.trouble, strings.TrimSpace(line))
		case trace.Frame:
			s.protocol = r.Protocol
			if r.Fields == nil || r.Tag != "MESSAGE" && r.Tag != "MSG" {
				continue
			}
			s.messages[r.From]++
			for _, n := range r.Segments[1:] {
				s.data += n
			}
		}
	}
	return sessions
}
