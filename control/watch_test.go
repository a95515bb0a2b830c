package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/keylog"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/trace"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/uring"
)

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
	m := control.NewMessage(7, []byte("front"), bytes.Repeat([]byte("data"), 5000))
	m.TID = 1
	must(t, conn.Send(m))
	return server, client, conn, dir, logs
}

func TestATracerSeesEveryFrameOfBothSides(t *testing.T) {
	everyMode(t, func(t *testing.T, ctx context.Context, v variant) {
		server, client, _, dir, logs := bothTraced(t, v)
		receives(t, ctx, client, 1001)
		for _, n := range []*nodetest.Node{client, server} {
			must(t, n.Shutdown(ctx))
		}
		for _, l := range logs {
			must(t, l.Close())
		}
		for name, want := range map[string]trace.Side{"client": trace.Connector, "server": trace.Acceptor} {
			recorder, tags, all := tracedIn(t, filepath.Join(dir, name))
			if recorder != want {
				t.Errorf("%s: recorded by %q", name, recorder)
			}
			for side, ends := range map[trace.Side]string{trace.Connector: "CLIENT_IDENT", trace.Acceptor: "SERVER_IDENT"} {
				got := tags[side]
				if len(got) < 6 || got[0] != "banner" || got[1] != "HELLO" || !slices.Contains(got, ends) || !slices.Contains(got, "MESSAGE") ||
					slices.Index(got, ends) > slices.Index(got, "MESSAGE") {
					t.Errorf("%s: the %s sent %v", name, side, got)
				}
			}
			message := slices.IndexFunc(all, func(r trace.Record) bool { return r.Tag == "MESSAGE" && r.From == trace.Connector })
			r := all[message]
			if f, ok := r.Fields.(*trace.Message); !ok || f.Seq != 1 || f.TID != 1 || f.Type != 7 || !slices.Equal(r.Segments, []int{41, 5, 0, 20000}) ||
				!slices.Equal(r.Payload, []string{"66726f6e", "", "64617461"}) {
				t.Errorf("%s: %+v %+v", name, r, r.Fields)
			}
			if last := all[len(all)-1]; last.Event != trace.End || last.Error == "" {
				t.Errorf("%s: it ends with %+v", name, last)
			}
		}
	})
}

// TestMsgr1ATracerSeesEverythingOfBothSides is the same for msgr1, with a session that is
// resumed, and keepalives.
// Matrix: V1-12
func TestMsgr1ATracerSeesEverythingOfBothSides(t *testing.T) {
	everyMsgr1(t, func(t *testing.T, ctx context.Context, v variant) {
		server, client, conn, dir, logs := bothTraced(t, v)
		receives(t, ctx, client, 1001)
		cut := server.Probe.ArmNext(nodetest.Read(frame.TagMessage), nodetest.Fault())
		send(t, conn, 2)
		server.Hit(ctx, cut)
		receives(t, ctx, client, 1001, 1002)
		conn.Keepalive()
		eventually(t, ctx, "an answer to the keepalive", func() bool { return !conn.LastKeepaliveAck().IsZero() })
		for _, n := range []*nodetest.Node{client, server} {
			must(t, n.Shutdown(ctx))
		}
		for _, l := range logs {
			must(t, l.Close())
		}
		for name, want := range map[string]trace.Side{"client": trace.Connector, "server": trace.Acceptor} {
			recorder, tags, all := tracedIn(t, filepath.Join(dir, name))
			if recorder != want {
				t.Errorf("%s: recorded by %q", name, recorder)
			}
			for side, must := range map[trace.Side][]string{
				trace.Connector: {"banner", "connect", "seq", "MSG", "banner", "connect", "connect", "seq", "MSG", "KEEPALIVE2"},
				trace.Acceptor:  {"banner", "reply SEQ", "seq", "MSG", "banner", "reply RETRY_GLOBAL", "reply SEQ", "seq", "MSG", "KEEPALIVE2_ACK"},
			} {
				rest := tags[side]
				for _, tag := range must {
					i := slices.Index(rest, tag)
					if i < 0 {
						t.Errorf("%s: the %s sent %v, and no %s where one is due", name, side, tags[side], tag)
						break
					}
					rest = rest[i+1:]
				}
				if !slices.Contains(tags[side], "ACK") {
					t.Errorf("%s: the %s sent %v, and no ACK", name, side, tags[side])
				}
			}
			message := slices.IndexFunc(all, func(r trace.Record) bool { return r.Tag == "MSG" && r.From == trace.Connector })
			r := all[message]
			if f, ok := r.Fields.(*trace.Message); !ok || f.Seq != 1 || f.TID != 1 || f.Type != 7 || f.Source != "client.2" || r.Protocol != trace.Msgr1 ||
				!slices.Equal(r.Segments, []int{53, 5, 0, 20000}) || !slices.Equal(r.Payload, []string{"66726f6e", "", "64617461"}) {
				t.Errorf("%s: %+v %+v", name, r, r.Fields)
			}
			for _, r := range all {
				if r.Event == trace.Frame && (r.Error != "" || r.Protocol != trace.Msgr1) || r.Event == trace.Banner && r.Fields.(*trace.Addresses).Own.Type != wire.AddrLegacy {
					t.Errorf("%s: %+v", name, r)
				}
			}
			if last := all[len(all)-1]; last.Event != trace.End || last.Error == "" {
				t.Errorf("%s: it ends with %+v", name, last)
			}
		}
	})
}

// logBuffer is what was logged.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestKeysAreLoggedOnDemandAloneWithAWarning(t *testing.T) {
	for _, secure := range []bool{true, false} {
		var keys, lines [2]logBuffer
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
