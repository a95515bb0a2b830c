package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/keylog"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/trace"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

func TestAConfigurationThatCannotBeIsAnErrorThatNamesTheSetting(t *testing.T) {
	for says, change := range map[string]func(*control.Config){
		"entity name":       func(c *control.Config) { c.Name = wire.EntityName{} },
		"without an ID":     func(c *control.Config) { c.Name = wire.EntityName{Type: wire.Client} },
		"handshake timeout": func(c *control.Config) { c.Timeouts.Handshake = -1 },
		"back-off":          func(c *control.Config) { c.Timeouts.InitialBackoff, c.Timeouts.MaxBackoff = 2*time.Second, time.Second },
		"steering":          func(c *control.Config) { c.Steer = "nowhere" },
		"ports to bind":     func(c *control.Config) { c.Binding.Ports = bpf.PortRange{Last: 8} },
		"bind retries":      func(c *control.Config) { c.Binding.Retries = -1 },
		"aligned":           func(c *control.Config) { c.Receiving.AlignFrom = -1 },
		"half-open":         func(c *control.Config) { c.Door.HalfOpen = -1 },
		"compression":       func(c *control.Config) { c.Protocol.Compression.Methods = methods(wire.CompressionMethod(9)) },
		"socket failure":    func(c *control.Config) { c.Diagnostics.Inject.SocketFailures = -1 },
		"probability 1.1":   func(c *control.Config) { c.Diagnostics.Inject.Handshakes.Probability = 1.1 },
		"probability NaN":   func(c *control.Config) { c.Diagnostics.Inject.Handshakes.Probability = math.NaN() },
	} {
		cfg := control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "1"}, Plane: loop.Config{Cores: 1}}
		change(&cfg)
		if _, err := control.New(cfg); !errors.Is(err, control.ErrConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// Real OSDs take a peer for the osd of its number, and its transaction ids for that osd's.
func TestTheNumberOfAnOsdIsTheOneInItsName(t *testing.T) {
	server := newParty(t, control.Config{Name: entity(t, "osd.7")}).bind(t)
	policy := control.LosslessPeer()
	client := newParty(t, control.Config{Name: entity(t, "osd.12"), Default: &policy})
	conn, err := client.dial(t, server, wire.OSD)
	must(t, err)
	if n := conn.Info().PeerNumber; n != 7 {
		t.Errorf("osd.7 says that it is %d", n)
	}
	if n := server.accepted(t).Info().PeerNumber; n != 12 {
		t.Errorf("osd.12 says that it is %d", n)
	}
	for _, cfg := range []control.Config{
		{Name: entity(t, "osd.7"), Number: 8},
		{Name: wire.EntityName{Type: wire.OSD, ID: "a"}},
		{Name: wire.EntityName{Type: wire.OSD, ID: "-1"}},
	} {
		wantError(t, fmt.Sprint(cfg.Name, " with number ", cfg.Number), cfg.Validate(), control.ErrConfig)
	}
	if cfg := (control.Config{Name: entity(t, "osd.7"), Number: 7}); cfg.Validate() != nil {
		t.Errorf("osd.7 with number 7: %v", cfg.Validate())
	}
}

// Where only one side leaves the crcs out, no connection comes about.
func TestOneSideWithoutDataCRCDoesNotConnect(t *testing.T) {
	for _, client := range []bool{true, false} {
		a := newParty(t, control.Config{Name: entity(t, "client.admin"), Protocol: control.Protocol{NoDataCRC: client}})
		b := newParty(t, control.Config{Name: entity(t, "osd.0"), Protocol: control.Protocol{NoDataCRC: !client}}).bind(t)
		conn, err := a.dial(t, b, wire.OSD)
		if err == nil {
			t.Fatalf("connected: %+v", conn.Info())
		}
		if !client && !errors.Is(err, frame.ErrSegmentCRC) {
			t.Errorf("the client that checks says %v", err)
		}
	}
}

// A nonce that was given is that of one process.
// Matrix: HS-18
func TestTheFirstProgramWithAWrongNonceEndsInAnError(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		for _, policy := range []string{"LC", "LLC"} {
			server := nodeOf(t, v, "osd.0", map[string]string{"LC": "SLS", "LLC": "SFS"}[policy], 7)
			client := nodeOf(t, v, "client.1", policy, 2)
			conn := connect(t, client, server.Addr.WithNonce(8), wire.OSD)
			short, cancel := context.WithTimeout(ctx, daemonHandshake)
			err := conn.WaitReady(short)
			cancel()
			var e *control.Error
			if !errors.Is(err, control.ErrStuck) || !errors.As(err, &e) || e.Stage != control.StageIdent || !strings.Contains(e.Advice(), "nonce") {
				t.Errorf("%s: %v", policy, err)
			}
			if !strings.HasSuffix(err.Error(), e.Advice()) {
				t.Errorf("%s: the error does not say what to look at: %v", policy, err)
			}
			if conn.State() == control.StateClosing {
				t.Errorf("%s: the connection has given up", policy)
			}
		}
	})
}

// What may mend is waited for, and the log has a line about it, not one for each
// attempt.
func TestAServerThatComesLaterIsWaitedForAndLogged(t *testing.T) {
	drivertest.LeavesNothing(t)
	ctx := deadline(t)
	at := msgrtest.ReservePort(t) // nobody listens there
	var log logText
	client := nodeOf(t, variants[0], "client.1", "LLC", 2, func(c *nodetest.NodeConfig) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		c.Timeouts.InitialBackoff, c.Timeouts.MaxBackoff = time.Millisecond, 10*time.Millisecond
	})
	conn := connect(t, client, wire.Addr{Type: wire.AddrMsgr2, AddrPort: at}, wire.OSD)
	ready := async(func() error { return conn.WaitReady(ctx) })
	eventually(t, ctx, "some attempts", func() bool { return connStats(t, conn).Counters.Attempts > 8 })
	select {
	case err := <-ready:
		t.Fatalf("not waited for: %v", err)
	default:
	}
	if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "nothing listens there") {
		t.Errorf("logged:\n%s", text)
	}
	p := control.StatefulServer()
	server := startMessenger(t, control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Default: &p})
	must(t, onlyError(server.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: at})))
	check(t, <-ready)
}

// Matrix: OB-01
func TestInfoIsCompleteInTheAcceptAndConnectEvents(t *testing.T) {
	everyMode(t, func(t *testing.T, ctx context.Context, v variant) {
		heard := map[bool]chan control.Info{true: make(chan control.Info, 9), false: make(chan control.Info, 9)} // by accepted
		hear := func(c *control.Conn) {
			if c.Auth() == nil {
				t.Error("an event without Auth")
			}
			heard[c.Info().Accepted] <- c.Info()
		}
		hears := withChain(&control.Dispatcher{
			Accept:  func(c *control.Conn, _ int, _ bool) { hear(c) },
			Connect: func(c *control.Conn, _ int) { hear(c) },
		})
		server, client := nodeOf(t, v, "osd.1", "LP", 1, hears), nodeOf(t, v, "osd.2", "LP", 2, hears)
		// The second event is that of a reconnect.
		client.Probe.Arm(nodetest.Write(frame.TagMessage), 2, nodetest.Fault())
		c := client.Dial(server)
		send(t, c, 1)
		receives(t, ctx, server, 1)
		send(t, c, 2)
		receives(t, ctx, server, 1, 2)
		for conn, peer := range map[*control.Conn]wire.Addr{c: server.Addr, first(t, ctx, server): client.Addr} {
			want := conn.Info()
			if n := len(heard[want.Accepted]); n != 2 {
				t.Errorf("%d events", n)
			}
			for range 2 {
				got := arrives(t, "an event", heard[want.Accepted])
				if len(got.PeerAddrs) != 1 || got.PeerAddrs[0] != peer || got.Handshake <= 0 || got.Local == "" || got.Peer == "" {
					t.Errorf("%+v", got)
				}
				if got.Features != want.Features || got.PeerNumber != want.PeerNumber || got.PeerType != want.PeerType ||
					got.Protocol != want.Protocol || got.Auth != want.Auth || got.Mode != want.Mode || got.Compression != want.Compression ||
					got.Lossy != want.Lossy || got.Placement.By == "" {
					t.Errorf("%+v, later %+v", got, want)
				}
			}
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
		half := half(t, v, frame.MessageHeader{Seq: 2, TID: 2}, make([]byte, size))[:part]
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
		quiet, seen := st.IO.Quiet, time.Now()
		eventually(t, ctx, "silence to last", func() bool { return connStats(t, c).IO.Quiet > quiet+10*time.Millisecond })
		p.WriteRaw(half[:1])
		eventually(t, ctx, "the next byte", func() bool {
			most := time.Since(seen) // as long it has been quiet but for that byte
			st, err := c.Stats()
			return err == nil && st.IO.Unfinished == part+1 && st.IO.Quiet < most
		})
		eventually(t, ctx, "Info to say as Stats does how it receives", func() bool {
			info, io := c.Info(), connStats(t, c).IO
			return info.Receive != "" && info.Receive == io.Receive && info.ReceiveWhy == io.ReceiveWhy
		})
		k.letGo()
		eventually(t, ctx, "less to be reserved", func() bool { return connStats(t, c).IO.Reserved <= part+1 })
	})
}

// sentBy has what each side has sent by the trace in a file, and the side that has recorded it.
func sentBy(t *testing.T, file string) (tags map[trace.Side][]string, recorder trace.Side) {
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
			if r.Error != "" {
				t.Errorf("%s: %+v", file, r)
			}
		}
	}
	return tags, recorder
}

// With a session that is resumed, and keepalives.
// Matrix: V1-12
func TestATracerSeesEverythingOfBothSides(t *testing.T) {
	everyModeAndProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		dir := t.TempDir()
		var logs []*trace.Log
		traced := func(name string) func(*nodetest.NodeConfig) {
			l, err := trace.Create(filepath.Join(dir, name), trace.Options{Cut: 4})
			must(t, err)
			logs = append(logs, l)
			return func(c *nodetest.NodeConfig) { c.Diagnostics.Tracer = l }
		}
		server := nodeOf(t, v, "osd.1", "SFS", 1, traced("server"), withChain(echoer()))
		client := nodeOf(t, v, "client.2", "LLC", 2, traced("client"))
		conn := client.Dial(server)
		must(t, conn.Send(numbered(1, control.NewMessage(7, []byte("front"), bytes.Repeat([]byte("data"), 5000)))))
		receives(t, ctx, client, 1001)
		cut := server.Probe.ArmNext(nodetest.Read(frame.TagMessage), nodetest.Fault())
		send(t, conn, 2)
		server.Hit(ctx, cut)
		receives(t, ctx, client, 1001, 1002)
		conn.Keepalive()
		eventually(t, ctx, "an answer to the keepalive", func() bool { return client.Probe.Seen(nodetest.Read(frame.TagKeepalive2Ack)) > 0 })
		must(t, errors.Join(client.Shutdown(ctx), server.Shutdown(ctx)))
		for _, l := range logs {
			must(t, l.Close())
		}
		order := map[trace.Side][]string{
			trace.Connector: {"banner", "HELLO", "CLIENT_IDENT", "MESSAGE", "banner", "HELLO", "SESSION_RECONNECT", "MESSAGE", "KEEPALIVE2"},
			trace.Acceptor:  {"banner", "HELLO", "SERVER_IDENT", "MESSAGE", "banner", "HELLO", "SESSION_RECONNECT_OK", "MESSAGE", "KEEPALIVE2_ACK"},
		}
		if v.msgr1 {
			order = map[trace.Side][]string{
				trace.Connector: {"banner", "connect", "seq", "MSG", "banner", "connect", "connect", "seq", "MSG", "KEEPALIVE2"},
				trace.Acceptor:  {"banner", "reply SEQ", "seq", "MSG", "banner", "reply RETRY_GLOBAL", "reply SEQ", "seq", "MSG", "KEEPALIVE2_ACK"},
			}
		}
		for name, want := range map[string]trace.Side{"client": trace.Connector, "server": trace.Acceptor} {
			tags, recorder := sentBy(t, filepath.Join(dir, name))
			if recorder != want {
				t.Errorf("%s: recorded by %q", name, recorder)
			}
			for side, due := range order {
				for _, tag := range tags[side] {
					if len(due) > 0 && tag == due[0] {
						due = due[1:]
					}
				}
				if len(due) > 0 {
					t.Errorf("%s: the %s sent %v, and not the rest, %v, where it is due", name, side, tags[side], due)
				}
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
