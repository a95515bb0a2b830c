package stats

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control/internal/door"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake2"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

var updateGolden = flag.Bool("update", false, "write the golden files anew")

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *updateGolden {
		drivertest.Must(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	drivertest.Must(t, err)
	if got != string(want) {
		t.Errorf("%s differs; run with -update if that is meant\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

// latenciesOf has some samples.
func latenciesOf(n int) (l dataplane.Latencies) {
	for i := range n {
		l.Queue.Add(time.Duration(i) * time.Microsecond)
		l.Dispatch.Add(700 * time.Nanosecond)
	}
	l.Ack.Add(3 * time.Second)
	return l
}

func exampleStats() Stats {
	return Stats{
		Name: "osd.0", Addrs: "[v2:127.0.0.1:6800/0]", Backend: "io_uring", Open: 12, HalfOpen: 1, InFlight: 4096, InFlightLimit: 100 << 20, Waiting: 3,
		Counters: Counters{
			Conns: 20, Closed: 8, Accepted: 31, AcceptFailures: 36, Refused: 6,
			Failures:  FailureCounters{Banner: 1, Timeout: 2, WrongPeer: 3, Stale: 4, Auth: 5, Limits: 6, Evicted: 7, Other: 8},
			Door:      door.Counters{OverAll: 1, Source: 2, Prefix: 3, Rate: 4, Waited: 5, Evicted: 7, Lined: 8, Late: 9},
			Hints:     steering.HintCounts{Given: 12, Dialled: 3, Busy: 2, Gone: 1, Refused: 4, Translated: 5, Confirmed: 6, Contradicted: 7},
			Placement: PlacementCounters{Intended: 28, NoHint: 2, Missed: 1},
		},
		Steering: steering.Stats{
			Mode: steering.Auto, Active: true, Rules: []string{"table_addrport", "table_addr", "hint"}, HintPorts: "61000-65535", Migration: true,
			Groups: []steering.GroupStats{{Addr: "127.0.0.1:6800", Counters: bpf.Counters{
				Cores: []bpf.CoreCounters{{Hint: bpf.RuleCounters{Selected: 9}}, {Hint: bpf.RuleCounters{Selected: 10, Missed: 1}}}, Hash: 12,
			}}},
		},
		Cores: []dataplane.CoreStats{
			{
				CoreStats: loop.CoreStats{
					Core: 0, Load: 7, Sockets: 8, Accepts: 15, BytesIn: 98765432, BytesOut: 1024,
					Turns: 100000, Rearms: 3, Receiving: 6, Paused: 1, CPU: 61 * time.Second, Driver: uring.Stats{Syscalls: 100400, InFlight: 17},
				},
				Counts: dataplane.Counts{MessagesIn: 123456, MessagesOut: 123450, Latency: latenciesOf(1000)},
			},
			{
				CoreStats: loop.CoreStats{Core: 1, Load: 5, Turns: 42, Stalls: 2, Stalled: true, Driver: uring.Stats{Overflows: 6, NoBuffers: 5}},
				Counts:    dataplane.Counts{MovedHere: 4, MovedAway: 1},
			},
		},
	}
}

// Matrix: OB-03
func TestStatsAsText(t *testing.T) { golden(t, "stats.golden", exampleStats().String()) }

func TestStatsOfAnUnsteeredMessengerAsText(t *testing.T) {
	st := exampleStats()
	st.Backend, st.Fallback = "epoll", "io_uring_setup: operation not permitted"
	st.Steering = steering.Stats{Mode: steering.Auto, Why: "operation not permitted", Missing: "CAP_BPF", Remedy: "run as root, or grant it"}
	golden(t, "stats-unsteered.golden", st.String())
}

// Matrix: OB-01
func TestConnectionStatsAsText(t *testing.T) {
	st := ConnStats{
		ID: 7, Peer: "v2:127.0.0.1:6800/1", PeerType: "osd", State: "ready", Policy: "lossless-peer",
		Protocol: "msgr2.1", Auth: "cephx", Mode: "secure", ConnectSeq: 2, GlobalSeq: 9,
		Placement: Placement{Core: 1, Intended: 3, By: "session", Reason: steering.NoHint},
		Counters:  ConnCounters{Attempts: 3, Hinted: 1, Ready: 2, Faults: 1, Replaced: 1, RemoteResets: 1},
		IO: dataplane.HandlerStats{
			MessagesIn: 10, MessagesOut: 11, BytesIn: 1000, BytesOut: 1100, Requeued: 2, InSeq: 10, OutSeq: 11, Queued: 3, Sent: 4, AckLag: 1,
			QueueFull: 5, Writing: true, Throttled: true, Unfinished: 33, Reserved: 5000, Quiet: 1234567 * time.Microsecond,
			Receive: loop.ReceiveBuffers, ReceiveWhy: "small frames",
		},
		HeldBytes: 70000,
		Throttles: []ThrottleStats{{Of: "messages", Used: 90, Limit: 100, Waiting: 2}, {Of: "dispatch", Used: 4096, Limit: 100 << 20}},
	}
	text := st.String()
	st.Placement = Placement{Core: 1, Intended: 1, By: ByLoad}
	st.State, st.Error, st.Protocol, st.Lossy = "wait", "connection refused", "", true
	st.IO.Receive, st.IO.ReceiveWhy = "", ""
	st.IO.Writing, st.IO.Throttled, st.IO.QueueFull, st.Throttles = false, false, 0, nil
	golden(t, "connstats.golden", text+"\n"+st.String())
}

// Matrix: OB-03
func TestASnapshotAsText(t *testing.T) {
	st := exampleStats()
	st.InFlightLimit = 0
	s := Snapshot{Time: time.Date(2026, 5, 4, 13, 14, 15, 0, time.UTC), PID: 4711, Messenger: st, Conns: []ConnStats{
		{
			ID: 7, Peer: "v2:127.0.0.1:6800/1", State: "ready", Policy: "lossless-peer", Protocol: "msgr2.1", Mode: "secure", HeldBytes: 70000,
			Placement: Placement{Core: 1, Intended: 3, By: "session", Reason: steering.NoHint},
			IO: dataplane.HandlerStats{
				MessagesIn: 10, MessagesOut: 11, BytesIn: 1000, BytesOut: 1100, InSeq: 10, OutSeq: 11, Queued: 3, Sent: 4, AckLag: 1, Throttled: true,
			},
		},
		{ID: 8, Peer: "v2:127.0.0.1:6801/2", State: "wait", Policy: "lossless-peer", Placement: Placement{By: ByLoad}, Error: "connection refused"},
	}}
	golden(t, "snapshot.golden", s.String())
}

// Matrix: OB-02
func TestAFailedHandshakeIsCountedByItsCauseOnce(t *testing.T) {
	at := func(stage handshake.Stage, err error) error { return &handshake.Error{Stage: stage, Err: err} }
	for _, c := range []struct {
		err  error
		want FailureCounters
	}{
		{at(handshake.StageBanner, &wire2.BannerError{Speech: wire2.SpeechHTTP}), FailureCounters{Banner: 1}},
		{at(handshake.StageBanner, &wire2.BannerError{Speech: wire2.SpeechMsgr1}), FailureCounters{Banner: 1}},
		{at(handshake.StageBanner, handshake.ErrFeatures), FailureCounters{Banner: 1}},
		{at(handshake.StageBanner, wire.ErrTruncated), FailureCounters{Banner: 1}},
		{at(handshake.StageBanner, io.EOF), FailureCounters{Other: 1}},
		{at(handshake.StageHello, wire.ErrTruncated), FailureCounters{Other: 1}},
		{at(handshake.StageAuth, fmt.Errorf("%w (canceled)", os.ErrDeadlineExceeded)), FailureCounters{Timeout: 1}},
		{at(handshake.StageAuth, frame.ErrTooLarge), FailureCounters{Limits: 1}},
		{at(handshake.StageAuth, handshake2.ErrTooLong), FailureCounters{Limits: 1}},
		{at(handshake.StageAuth, handshake.ErrTooManyRounds), FailureCounters{Limits: 1}},
		{fmt.Errorf("read: %w", handshake.ErrAuth), FailureCounters{Auth: 1}},
		{fmt.Errorf("%w: it is another", session.ErrWrongPeer), FailureCounters{WrongPeer: 1}},
		{fmt.Errorf("%w: old", session.ErrStale), FailureCounters{Stale: 1}},
		{at(handshake.StageHello, fmt.Errorf("%w (canceled)", door.ErrEvicted)), FailureCounters{Evicted: 1}},
		{net.ErrClosed, FailureCounters{Other: 1}},
		{errors.New("unheard of"), FailureCounters{Other: 1}},
	} {
		var n FailureCounters
		if *n.of(c.err)++; n != c.want {
			t.Errorf("%v: %+v", c.err, n)
		}
	}
}

// Whoever reads the statistics knows the counters by these names.
// Matrix: OB-02
func TestTheNamesOfTheDoorAndFailureCountersStay(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{
		{FailureCounters{1, 2, 3, 4, 5, 6, 7, 8}, `{"banner":1,"timeout":2,"wrong_peer":3,"stale":4,"auth":5,"limits":6,"evicted":7,"other":8}`},
		{door.Counters{OverAll: 1, Source: 2, Prefix: 3, Evicted: 4, Memory: 5, Rate: 6, Waited: 7, Lined: 8, Late: 9}, `{"over_all":1,"source":2,"prefix":3,"evicted":4,"memory":5,"rate":6,"waited":7,"lined":8,"late":9}`},
	} {
		if got, err := json.Marshal(c.v); err != nil || string(got) != c.want {
			t.Errorf("%s (%v), want %s", got, err, c.want)
		}
	}
}

func TestAPeerThatSpeaksAnotherProtocolIsNamed(t *testing.T) {
	for speech, want := range map[wire2.Speech]string{
		wire2.SpeechMsgr2: "this is the v2 address of a daemon, want its v1 one", wire2.SpeechMsgr1: "this is the v1 address of a daemon, want its v2 one",
		wire2.SpeechHTTP: "this is a web server", wire2.SpeechSSH: "this is an SSH server", wire2.SpeechTLS: "this is a TLS server", wire2.SpeechOther: "this is no Ceph daemon",
	} {
		err := &Error{Stage: StageBanner, Err: &handshake.Error{Stage: handshake.StageBanner, Err: &wire2.BannerError{Speech: speech}}}
		if got := err.Advice(); got != want {
			t.Errorf("%s: %q, want %q", speech, got, want)
		}
	}
}

// Matrix: XC-05
func TestEveryPlacementIsCountedOnce(t *testing.T) {
	for reason, want := range map[string]PlacementCounters{
		"":                 {Intended: 1},
		steering.Unsteered: {Unsteered: 1},
		steering.NoHint:    {NoHint: 1},
		steering.OtherHint: {OtherHint: 1},
		steering.Missed:    {Missed: 1},
	} {
		var n PlacementCounters
		if CountPlacement(&n, Placement{Reason: reason}); n != want {
			t.Errorf("%q: counted %+v", reason, n)
		}
	}
}
