package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/echotest"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
)

// start starts a rival for a test.
func start(t *testing.T, name string, secure bool) child.Server {
	t.Helper()
	s, err := startServer(name, secure, 0)
	clitest.Must(t, err)
	t.Cleanup(func() { clitest.Must(t, s.Close()) })
	return s
}

// connect opens a load on a rival, by its own client or by that of the benchmark.
func connect(t *testing.T, r child.Rival, o load.Options) child.Load {
	t.Helper()
	var l child.Load
	var err error
	if r.OwnClient {
		l, err = openClient(t.Context(), r.Name, o)
	} else {
		l, err = load.Open(t.Context(), o)
	}
	if err != nil {
		t.Fatalf("%s, %+v: %v", r.Name, o, err)
	}
	t.Cleanup(l.Close)
	return l
}

// slice is short and ends when all open requests were answered.
var slice = load.Slice{Warm: time.Millisecond, WarmMax: time.Minute, Window: 20 * time.Millisecond, WindowMax: time.Minute}

// The client checks every reply, so what is counted here is verified.
// Matrix: BE-01
func TestEveryRivalEchoesWhatItIsSent(t *testing.T) {
	for _, r := range child.Rivals() {
		for _, secure := range []bool{false, true} {
			if secure && r.OwnClient {
				continue // it has no such mode
			}
			s := start(t, r.Name, secure)
			if d, ok := s.(child.Describer); !ok || d.Settings()["GOMAXPROCS"] == "" {
				t.Errorf("%s does not say how it is set", r.Name)
			}
			for _, o := range []load.Options{
				{Conns: 1, Depth: 1, Size: 1},
				{Conns: 5, Depth: 7, Size: 4096},
				{Conns: 9, Depth: 3, Size: 300000},
				{Conns: 2, Depth: 2, Size: 5 << 20},
			} {
				o.Addr, o.Secure = s.Addr().String(), secure
				l := connect(t, r, o)
				for _, active := range []int{0, 1, 0} { // slices follow each other on the same connections
					open, s := uint64(o.Conns*o.Depth), slice
					if s.Active = active; active > 0 {
						open = uint64(active * o.Depth)
					}
					res, err := l.Run(s)
					if err != nil {
						t.Fatalf("%s, %+v: %v", r.Name, o, err)
					}
					if !res.Steady || res.Total < 2*open || res.Latency.Count() < open || res.Latency.Summary().Min <= 0 || res.Bytes == 0 || res.Window < s.Window {
						t.Errorf("%s, %+v: %+v, %d latencies", r.Name, o, res, res.Latency.Count())
					}
					// The window begins and ends in the middle of replies.
					if whole := res.Bytes / uint64(res.PerReply); max(whole, res.Latency.Count())-min(whole, res.Latency.Count()) > open+res.Latency.Count()/5 {
						t.Errorf("%s, %+v: bytes of %d replies, %d latencies", r.Name, o, whole, res.Latency.Count())
					}
				}
			}
		}
	}
}

// Matrix: BE-03
func TestAClientReportsARivalThatEnds(t *testing.T) {
	for _, r := range child.Rivals() {
		if !r.OwnClient {
			continue
		}
		s, err := startServer(r.Name, false, 0)
		clitest.Must(t, err)
		l := connect(t, r, load.Options{Addr: s.Addr().String(), Conns: 2, Depth: 2, Size: 64})
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := l.Run(slice); err == nil {
			t.Errorf("%s: no error", r.Name)
		}
	}
}

// Matrix: BE-03
func TestAClientReportsThatNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	clitest.Must(t, err)
	addr := l.Addr().String()
	l.Close()
	if _, err := openClient(t.Context(), "grpc", load.Options{Addr: addr, Conns: 1, Depth: 1, Size: 1}); !errors.Is(err, errNotConnected) {
		t.Errorf("error %v", err)
	}
}

// In crc mode and encrypted, small segments and gathered ones.
// Matrix: BE-01
func TestTheNetpollServerAnswersKeepalivesAndKeepsEverySegment(t *testing.T) {
	for _, secure := range []bool{false, true} {
		echotest.AnswersAndKeeps(t, start(t, "netpoll", secure).Addr(), secure)
	}
}

// Matrix: BE-02
func TestWhatIsNoChildOrNoRivalIsRefused(t *testing.T) {
	for args, want := range map[string]string{
		"":                         "go run ./bench --rivals",
		"--help":                   "go run ./bench --rivals",
		"child":                    "unexpected end",
		`child {"name":"nothing"}`: errNoSuch.Error(),
		`child {"cores":"two"}`:    "cannot unmarshal",
	} {
		var stdout, stderr bytes.Buffer
		if status := run(strings.Fields(args), nil, &stdout, &stderr); status == 0 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%q: status %d, %q", args, status, stderr.String())
		}
	}
	if _, err := openClient(t.Context(), "netpoll", load.Options{}); !errors.Is(err, errNoSuch) {
		t.Errorf("a client of netpoll: %v", err)
	}
}

// A reply is wrong if a byte of its header is, and in the sample if any byte is.
// Matrix: BE-01
func TestAWrongReplyIsFound(t *testing.T) {
	payload, other := load.Payload(1000), newNumbers(4)
	flat := func(m message) []byte { return m.data.Materialize() }
	for name, c := range map[string]struct {
		skip  int // replies before it
		spoil func(p []byte) []byte
		wrong bool
	}{
		"the reply":              {0, func(p []byte) []byte { return p }, false},
		"a byte too few":         {0, func(p []byte) []byte { return p[1:] }, true},
		"a byte too many":        {0, func(p []byte) []byte { return append(p, 0) }, true},
		"another transaction id": {0, func([]byte) []byte { return flat(other.request(payload)) }, true},
		"another size":           {0, func(p []byte) []byte { p[8] ^= 1; return p }, true},
		"another crc":            {0, func(p []byte) []byte { p[headerSum] ^= 1; return p }, true},
		"a payload of no sample": {0, func(p []byte) []byte { p[500] ^= 1; return p }, false},
		"a payload of a sample":  {load.SampleMask, func(p []byte) []byte { p[500] ^= 1; return p }, true},
		"its last byte":          {load.SampleMask, func(p []byte) []byte { p[len(p)-1] ^= 1; return p }, true},
	} {
		n := newNumbers(3)
		var request message
		for range c.skip + 1 {
			request = n.request(payload)
		}
		n.want += uint64(c.skip)
		p := c.spoil(flat(request))
		reply := message{mem.BufferSlice{mem.SliceBuffer(p[:7]), mem.SliceBuffer(p[7:300]), mem.SliceBuffer(p[300:])}}
		if err := n.check(&reply, payload); (err != nil) != c.wrong || err != nil && !errors.Is(err, load.ErrReply) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The benchmark, as a user runs it, builds this module, and compares its servers with another one.
// Matrix: BE-02
func TestTheBenchmarkComparesTheRivals(t *testing.T) {
	servers := "net"
	for _, r := range child.Rivals() {
		servers += "," + r.Name
	}
	dir := t.TempDir()
	program, results := filepath.Join(dir, "bench"), filepath.Join(dir, "results.json")
	library := filepath.Join("..", "..")
	clitest.Run(t, library, "go", "build", "-o", program, "./bench")
	clitest.Run(t, library, program, "--servers", servers, "--sizes", "64,64KiB", "--loads", "1x1,4x4", "--rounds", "2", "--slice", "10ms",
		"--json", results)
	p, err := os.ReadFile(results)
	clitest.Must(t, err)
	var f report.File
	clitest.Must(t, json.Unmarshal(p, &f))
	if len(f.Servers) != 1+len(child.Rivals()) || len(f.Cells) != 4 {
		t.Fatalf("%d servers, %d cells", len(f.Servers), len(f.Cells))
	}
	for _, c := range f.Cells {
		for _, r := range c.Results {
			if len(r.Samples) != 2 || r.Latency == nil || r.Latency.Count() == 0 ||
				r.Median.ServerCPUUS <= 0 || r.Median.ClientCPUUS <= 0 {
				t.Errorf("%v %s: %+v, %+v", c.Load, r.Server, r.Median, r.Syscalls)
			}
		}
	}
	for _, s := range f.Servers[1:] {
		if len(s.Settings) == 0 || s.About == "" {
			t.Errorf("%+v", s)
		}
	}
}
