package main

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/echotest"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
)

// start starts a rival for a test.
func start(t *testing.T, name string, secure bool) child.Server {
	t.Helper()
	s, err := startServer(name, secure, 0)
	clitest.Must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
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
var slice = load.Slice{Warm: time.Millisecond, WarmMax: 20 * time.Second, Window: 20 * time.Millisecond, WindowMax: 20 * time.Second}

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
					if !res.Steady || res.Total < 2*open || res.Latency.Count() < open || res.Latency.Min() <= 0 || res.Bytes == 0 || res.Window < s.Window {
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
