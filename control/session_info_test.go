package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/keylog"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/trace"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// heard keeps what Info and Auth say within the Accept and Connect events.
type heard struct {
	mu   sync.Mutex
	info []control.Info
	auth int
}

func (h *heard) hear(c *control.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.info = append(h.info, c.Info())
	if c.Auth() != nil {
		h.auth++
	}
}

func (h *heard) dispatcher() *control.Dispatcher {
	return &control.Dispatcher{
		Accept:  func(c *control.Conn, _ int, _ bool) { h.hear(c) },
		Connect: func(c *control.Conn, _ int) { h.hear(c) },
	}
}

// Matrix: OB-01
func TestInfoIsCompleteInTheAcceptAndConnectEvents(t *testing.T) {
	everyMode(t, func(t *testing.T, ctx context.Context, v variant) {
		var ours, theirs heard
		server := nodeOf(t, v, "osd.1", "LP", 1, withChain(theirs.dispatcher()))
		client := nodeOf(t, v, "osd.2", "LP", 2, withChain(ours.dispatcher()))
		// The second event is that of a reconnect.
		client.Probe.Arm(nodetest.Write(frame.TagMessage), 2, nodetest.Fault())
		c := client.Dial(server)
		send(t, c, 1)
		receives(t, ctx, server, 1)
		send(t, c, 2)
		receives(t, ctx, server, 1, 2)
		for _, one := range []struct {
			who  *heard
			conn *control.Conn
			peer wire.Addr
		}{{&ours, c, server.Addr}, {&theirs, first(t, ctx, server), client.Addr}} {
			want := one.conn.Info()
			one.who.mu.Lock()
			if len(one.who.info) != 2 || one.who.auth != 2 {
				t.Errorf("%d events, %d with Auth", len(one.who.info), one.who.auth)
			}
			for i, got := range one.who.info {
				if len(got.PeerAddrs) != 1 || got.PeerAddrs[0] != one.peer || got.Handshake <= 0 || got.Local == "" || got.Peer == "" {
					t.Errorf("event %d: %+v", i, got)
				}
				if got.Features != want.Features || got.PeerNumber != want.PeerNumber || got.PeerType != want.PeerType ||
					got.Protocol != want.Protocol || got.Auth != want.Auth || got.Mode != want.Mode || got.Compression != want.Compression ||
					got.Lossy != want.Lossy || got.Accepted != want.Accepted || got.Placement.By == "" {
					t.Errorf("event %d: %+v, later %+v", i, got, want)
				}
			}
			one.who.mu.Unlock()
		}
	})
}

// Matrix: KA-02, RL-07, OB-01
func TestStatsTellWhatAConnectionHoldsAndWhenItWasHeard(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		const size, part = 5000, 700
		var k keepsake
		server := nodeOf(t, v, "osd.1", "SFS", 1, withChain(k.dispatcher()))
		p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{Name: wire.EntityName{Type: wire.OSD, ID: "2"}, Number: 2, Addr: v2(loopback(1).Addr(), 1).WithNonce(2), Rev0: v.rev0}, server.Addr)
		defer p.Close()
		p.Establish(7, 1)
		p.SendMessage(frame.MessageHeader{Seq: 1, TID: 1}, make([]byte, size), nil, nil)
		half := half(t, p, frame.MessageHeader{Seq: 2, TID: 2}, make([]byte, size))[:part]
		p.WriteRaw(half)
		must(t, p.Err())
		c := first(t, ctx, server)
		var st control.ConnStats
		eventually(t, ctx, "the part of a message", func() bool {
			var err error
			st, err = c.Stats()
			return err == nil && st.IO.MessagesIn == 1 && st.IO.Unfinished == part
		})
		// The kept one, and what is there of the other behind its head.
		if st.IO.Reserved < size || st.IO.Reserved > size+part {
			t.Errorf("%d bytes reserved", st.IO.Reserved)
		}
		if st.Lossy {
			t.Error("a lossless connection is called lossy")
		}
		quiet := st.IO.Quiet
		eventually(t, ctx, "silence to last", func() bool { return connStats(t, c).IO.Quiet > quiet+10*time.Millisecond })
		p.WriteRaw(half[:1])
		eventually(t, ctx, "the next byte", func() bool {
			st, err := c.Stats()
			return err == nil && st.IO.Unfinished == part+1 && st.IO.Quiet < 5*time.Second
		})
		k.letGo()
		eventually(t, ctx, "less to be reserved", func() bool { return connStats(t, c).IO.Reserved <= part+1 })
	})
}

// Matrix: OB-01
func TestInfoSaysHowAConnectionReceivesAndWhy(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		server := nodeOf(t, v, "osd.1", "SFS", 1)
		c := nodeOf(t, v, "client.2", "LLC", 2).Dial(server)
		must(t, c.WaitReady(ctx))
		theirs := first(t, ctx, server)
		st := statsOf(t, server)
		mode, why := loop.ReceiveBuffers, loop.WhySmall // of one that chooses, behind small messages
		if of := st.Cores[0]; of.Receive != string(loop.ReceiveAuto) {
			mode, why = loop.ReceiveMode(of.Receive), loop.Why(of.ReceiveWhy)
		}
		var tid uint64
		eventually(t, ctx, "it to receive as it should", func() bool {
			tid++
			send(t, c, tid)
			info := theirs.Info()
			return info.Receive == mode && info.ReceiveWhy == why
		})
		if one, err := theirs.Stats(); err != nil || one.IO.Receive != mode || one.IO.ReceiveWhy != why {
			t.Errorf("the statistics say %q, %q, %v", one.IO.Receive, one.IO.ReceiveWhy, err)
		}
		c.MarkDown()
		for _, gone := range []*control.Conn{c, theirs} {
			eventually(t, ctx, "nothing without a TCP connection", func() bool {
				info := gone.Info()
				return info.Receive == "" && info.ReceiveWhy == ""
			})
		}
	})
}

// Matrix: OB-02
func TestFailedHandshakesAreCountedByCause(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		var clock pressedClock
		server := nodeOf(t, v, "osd.1", "SLS", 1, patient, clock.of)
		silence(t, ctx, "127.0.0.1", server.Addr.AddrPort, 1) // ends by the timeout
		for _, s := range silence(t, ctx, "127.0.0.1", server.Addr.AddrPort, 2) {
			if _, err := s.Write([]byte("GET / HTTP/1.1\r\n")); err != nil {
				t.Fatal(err)
			}
		}
		p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{Name: wire.EntityName{Type: wire.Client, ID: "2"}, Addr: wire.Addr{Nonce: 2, AddrPort: loopback(1)}, Rev0: v.rev0}, server.Addr)
		defer p.Close()
		p.Handshake()
		ci := p.ClientIdent(0, 1)
		ci.TargetAddr = ci.TargetAddr.WithNonce(999)
		p.SendPayload(frame.TagClientIdent, ci)
		want := stats.FailureCounters{Timeout: 1, Banner: 2, WrongPeer: 1}
		var n control.Counters
		failures := func(count uint64) func() bool {
			return func() bool {
				st, err := server.Stats()
				n = st.Counters
				return err == nil && n.AcceptFailures == count
			}
		}
		eventually(t, ctx, "those that end at once", failures(3))
		eventually(t, ctx, "the limit of the silent one", func() bool { return clock.press(isHandshake) == 1 })
		eventually(t, ctx, "all failures", failures(4))
		if n.Failures != want || n.BadBanners.HTTP != 2 {
			t.Errorf("%+v, %+v, want %+v", n.Failures, n.BadBanners, want)
		}
	})
}

// Matrix: OB-01
func TestStatisticsAreServed(t *testing.T) {
	nodetest.CheckLeaks(t)
	m, addr := handoverServer(t, uring.Auto, 2)
	s := newStream(t, uring.Auto, wire.MDS, control.LosslessClient(), addr)
	s.progress(10)
	for _, path := range []string{filepath.Join(t.TempDir(), "stats"), control.StatsSocket(os.Getpid())} {
		srv, err := m.ServeStats(path)
		must(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		snap, err := control.ReadStats(ctx, path)
		cancel()
		must(t, err)
		if snap.PID != os.Getpid() || snap.Messenger.Name != "osd.0" || len(snap.Messenger.Cores) != 2 || len(snap.Conns) != 1 ||
			snap.Conns[0].State != "ready" || snap.Conns[0].IO.MessagesIn < 10 || time.Since(snap.Time) > time.Minute {
			t.Errorf("%+v", snap)
		}
		// Who says nothing gets JSON as well.
		c, err := net.Dial("unix", path)
		must(t, err)
		var first [1]byte
		if _, err := c.Read(first[:]); err != nil || first[0] != '{' {
			t.Errorf("%q, %v", first, err)
		}
		// It is open when the server ends.
		check(t, srv.Close())
		_ = c.Close()
		if _, err := control.ReadStats(context.Background(), path); !errors.Is(err, control.ErrStats) {
			t.Errorf("after the end: %v", err)
		}
		var text bytes.Buffer
		if err := snap.WriteText(&text); err != nil || !strings.Contains(text.String(), addr.AddrPort.String()) || !strings.Contains(text.String(), "lossless") && !strings.Contains(text.String(), "stateful-server") {
			t.Errorf("%v: %s", err, text.String())
		}
	}
	s.end()
}

// tracedIn are the records of a file, by the side that has sent them.
func tracedIn(t *testing.T, file string) (recorder trace.Side, tags map[trace.Side][]string, all []trace.Record) {
	t.Helper()
	p, err := os.ReadFile(file)
	must(t, err)
	tags = make(map[trace.Side][]string)
	for line := range bytes.Lines(p) {
		var r trace.Record
		must(t, json.Unmarshal(line, &r))
		switch r.Event {
		case trace.Open:
			recorder = r.Recorder
		case trace.Banner:
			tags[r.From] = append(tags[r.From], "banner")
		case trace.Frame:
			tags[r.From] = append(tags[r.From], r.Tag)
		}
		all = append(all, r)
	}
	return recorder, tags, all
}

// bothTraced are a server and a client that each trace into a file of their name in dir, with
// a message on its way between them.
func bothTraced(t *testing.T, v variant) (server, client *nodetest.Node, conn *control.Conn, dir string, logs []*trace.Log) {
	t.Helper()
	dir = t.TempDir()
	withTrace := func(name string) func(*nodetest.NodeConfig) {
		l, err := trace.Create(filepath.Join(dir, name), trace.Options{Cut: 4})
		must(t, err)
		logs = append(logs, l)
		return func(c *nodetest.NodeConfig) { c.Diagnostics.Tracer = l }
	}
	server = nodeOf(t, v, "osd.1", "SFS", 1, withTrace("server"), withChain(echoer()))
	client = nodeOf(t, v, "client.2", "LLC", 2, withTrace("client"))
	conn = client.Dial(server)
	m := numbered(1, control.NewMessage(7, []byte("front"), bytes.Repeat([]byte("data"), 5000)))
	must(t, conn.Send(m))
	return server, client, conn, dir, logs
}

// With a session that is resumed, and keepalives.
// Matrix: V1-12
func TestATracerSeesEverythingOfBothSides(t *testing.T) {
	everyModeAndProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		server, client, conn, dir, logs := bothTraced(t, v)
		receives(t, ctx, client, 1001)
		cut := server.Probe.ArmNext(nodetest.Read(frame.TagMessage), nodetest.Fault())
		send(t, conn, 2)
		server.Hit(ctx, cut)
		receives(t, ctx, client, 1001, 1002)
		conn.Keepalive()
		eventually(t, ctx, "an answer to the keepalive", func() bool { return client.Probe.Seen(nodetest.Read(frame.TagKeepalive2Ack)) > 0 })
		for _, n := range []*nodetest.Node{client, server} {
			must(t, n.Shutdown(ctx))
		}
		for _, l := range logs {
			must(t, l.Close())
		}
		order, message, header, source := map[trace.Side][]string{
			trace.Connector: {"banner", "HELLO", "CLIENT_IDENT", "MESSAGE", "banner", "HELLO", "SESSION_RECONNECT", "MESSAGE", "KEEPALIVE2"},
			trace.Acceptor:  {"banner", "HELLO", "SERVER_IDENT", "MESSAGE", "banner", "HELLO", "SESSION_RECONNECT_OK", "MESSAGE", "KEEPALIVE2_ACK"},
		}, "MESSAGE", 41, ""
		if v.msgr1 {
			order, message, header, source = map[trace.Side][]string{
				trace.Connector: {"banner", "connect", "seq", "MSG", "banner", "connect", "connect", "seq", "MSG", "KEEPALIVE2"},
				trace.Acceptor:  {"banner", "reply SEQ", "seq", "MSG", "banner", "reply RETRY_GLOBAL", "reply SEQ", "seq", "MSG", "KEEPALIVE2_ACK"},
			}, "MSG", 53, "client.2"
		}
		for name, want := range map[string]trace.Side{"client": trace.Connector, "server": trace.Acceptor} {
			recorder, tags, all := tracedIn(t, filepath.Join(dir, name))
			if recorder != want {
				t.Errorf("%s: recorded by %q", name, recorder)
			}
			for side, must := range order {
				rest := tags[side]
				for _, tag := range must {
					i := slices.Index(rest, tag)
					if i < 0 {
						t.Errorf("%s: the %s sent %v, and no %s where one is due", name, side, tags[side], tag)
						break
					}
					rest = rest[i+1:]
				}
				if v.msgr1 && !slices.Contains(tags[side], "ACK") {
					t.Errorf("%s: the %s sent %v, and no ACK", name, side, tags[side])
				}
			}
			r := all[slices.IndexFunc(all, func(r trace.Record) bool { return r.Tag == message && r.From == trace.Connector })]
			if f, ok := r.Fields.(*trace.Message); !ok || f.Seq != 1 || f.TID != 1 || f.Type != 7 || f.Source != source ||
				!slices.Equal(r.Segments, []int{header, 5, 0, 20000}) || !slices.Equal(r.Payload, []string{"66726f6e", "", "64617461"}) {
				t.Errorf("%s: %+v %+v", name, r, r.Fields)
			}
			for _, r := range all {
				if r.Event == trace.Frame && (r.Error != "" || (r.Protocol == trace.Msgr1) != v.msgr1) ||
					r.Event == trace.Banner && v.msgr1 && r.Fields.(*trace.Addresses).Own.Type != wire.AddrLegacy {
					t.Errorf("%s: %+v", name, r)
				}
			}
			if last := all[len(all)-1]; last.Event != trace.End || last.Error == "" {
				t.Errorf("%s: it ends with %+v", name, last)
			}
		}
	})
}

func TestKeysAreLoggedOnDemandAloneWithAWarning(t *testing.T) {
	for _, secure := range []bool{true, false} {
		var keys, lines [2]logText
		ctx := deadline(t)
		v := variant{backend: uring.Auto, secure: secure}
		with := func(i int) func(*nodetest.NodeConfig) {
			return func(c *nodetest.NodeConfig) {
				c.Diagnostics.KeyLog, c.Logger = &keys[i], slog.New(slog.NewTextHandler(&lines[i], nil))
			}
		}
		server := nodeOf(t, v, "osd.1", "SFS", 1, with(0))
		client := nodeOf(t, v, "client.2", "LLC", 2, with(1))
		must(t, client.Dial(server).WaitReady(ctx))
		for i := range keys {
			k, err := keylog.Read(strings.NewReader(keys[i].String()))
			must(t, err)
			if want := map[bool]int{true: 1, false: 0}[secure]; k.Len() != want {
				t.Errorf("secure %t: %d keys, want %d", secure, k.Len(), want)
			}
			if !strings.Contains(lines[i].String(), "level=WARN") || !strings.Contains(lines[i].String(), "are logged") {
				t.Errorf("no warning in %q", lines[i].String())
			}
		}
		if keys[0].String() != keys[1].String() {
			t.Errorf("the sides log different keys:\n%s%s", keys[0].String(), keys[1].String())
		}
	}
}
