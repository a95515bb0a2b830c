package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// pretender is a TCP server that calls f for each connection, and its address.
func pretender(t *testing.T, f func(c net.Conn)) string {
	t.Helper()
	return "v2:" + clitest.Listen(t, "tcp", "127.0.0.1:0", f)
}

// says answers with text, and waits for the end.
func says(text string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = io.WriteString(c, text)
		_, _ = io.Copy(io.Discard, c)
	}
}

const (
	v2Banner = "ceph v2\n\x10\x00" + "\x01\x00\x00\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\x00\x00"
	v1Banner = "ceph v027" + "\x01\x01\x01\x1c\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"
)

// failsInTime runs a command with --timeout, which must fail, and asks ok. If it is not, the time may
// have been over too early: it runs again with more. The last result is returned if none was ok.
func failsInTime(t *testing.T, ok func(r result, limit string) bool, args ...string) (r result, was bool) {
	t.Helper()
	was = clitest.InTime(func(limit time.Duration) bool {
		r = ringmsgr(t, slices.Concat(args[:1], []string{"--timeout", limit.String()}, args[1:])...).want(t, cli.Failed)
		return ok(r, limit.String())
	})
	return r, was
}

// failedAt asks whether JSON tells of this stage and reason, in which LIMIT is --timeout.
func failedAt(t *testing.T, stage control.Stage, reason string) func(r result, limit string) bool {
	return func(r result, limit string) bool {
		t.Helper()
		f := decode[failure](t, r)
		return f.Stage == stage && strings.Contains(f.Error, strings.ReplaceAll(reason, "LIMIT", limit))
	}
}

func TestPingNamesTheStageAndTheReason(t *testing.T) {
	s := serve(t)
	for _, c := range []struct {
		name, addr, flag string
		stage            control.Stage
		says             string
	}{
		{"a peer of another type", s.addr, "--peer=osd", control.StageHello, "wrong peer type: mon, want osd"},
		{"another nonce", strings.TrimSuffix(s.addr, "/0") + "/5", "", control.StageIdent, "nonce"},
		{"a v1 port", pretender(t, says(v1Banner)), "", control.StageBanner, "v1 address"},
		{"a web server", pretender(t, says("HTTP/1.1 400 Bad Request\r\n\r\n")), "", control.StageBanner, "web server"},
		{"silence", pretender(t, says("")), "", control.StageBanner, "no answer within LIMIT"},
		{"half a banner", pretender(t, says(v2Banner[:9])), "", control.StageBanner, "no answer within LIMIT"},
		{"a banner and no more", pretender(t, says(v2Banner)), "", control.StageHello, "no answer within LIMIT"},
		{"half a HELLO", pretender(t, says(v2Banner+"\x01\x01\x10")), "", control.StageHello, "no answer within LIMIT"},
		{"a broken HELLO", pretender(t, says(v2Banner+strings.Repeat("\xff", 100))), "", control.StageHello, "crc"},
		{"answers beyond the time", s.addr, "--count=1000000000", control.StageKeepalive, " of 1000000000 round trips within LIMIT"},
		{"the end at once", pretender(t, func(net.Conn) {}), "", control.StageBanner, "hung up"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, ok := failsInTime(t, failedAt(t, c.stage, c.says), append(strings.Fields("ping --json "+c.flag), c.addr)...)
			if !ok {
				t.Errorf("got %s; want stage %s, saying %q", r.stdout, c.stage, c.says)
			}
			if clitest.WithoutStalls(r.stderr) != "" {
				t.Errorf("stderr: %s", r.stderr)
			}
		})
	}
	t.Run("nobody", func(t *testing.T) {
		refused := "v2:" + msgrtest.ReservePort(t).String()
		r := ringmsgr(t, "ping", refused).want(t, cli.Failed)
		if r.stdout != "" || !strings.HasPrefix(clitest.WithoutStalls(r.stderr), "ringmsgr ping: connect: "+refused+"/0: ") || !strings.Contains(r.stderr, "nothing listens there") {
			t.Errorf("stdout %q, stderr %q", r.stdout, r.stderr)
		}
		x := ringmsgr(t, "send", "--json", refused).want(t, cli.Failed)
		if f := decode[failure](t, x); f.Stage != control.StageConnect {
			t.Errorf("send says %s", x.stdout)
		}
		silent := pretender(t, says(v2Banner))
		for _, policy := range []string{"lossy-client", "lossless-client"} {
			if x, ok := failsInTime(t, failedAt(t, control.StageHello, "no answer within"), "send", "--json", "--policy", policy, silent); !ok {
				t.Errorf("send with policy %s says %s", policy, x.stdout)
			}
		}
		// A lossless connection dials until the time is over, and then tells why.
		dialled := failedAt(t, control.StageConnect, "nothing listens there")
		if x, ok := failsInTime(t, dialled, "send", "--json", "--policy", "lossless-client", refused); !ok {
			t.Errorf("send says %s", x.stdout)
		}
	})
}

// frameFault says at which frames a connection breaks.
type frameFault func(tag frame.Tag, write bool) bool

// At implements probe.Probe.
func (f frameFault) At(_ context.Context, e probe.Event) error {
	if e.When == probe.Data && f(e.Tag, e.Step == probe.FrameWrite) {
		return errors.New("injected")
	}
	return nil
}

func TestPingNamesTheStageOfALostKeepalive(t *testing.T) {
	addr := messenger(t, control.Config{Diagnostics: control.Diagnostics{Probe: frameFault(func(tag frame.Tag, _ bool) bool {
		return tag == frame.TagKeepalive2
	})}}, &control.Dispatcher{})
	r := ringmsgr(t, "ping", "--json", addr).want(t, cli.Failed)
	if f := decode[failure](t, r); f.Stage != control.StageKeepalive || !strings.Contains(f.Error, "hung up") {
		t.Errorf("got %s", r.stdout)
	}
}

func TestSendFailsWhenALossyConnectionBreaks(t *testing.T) {
	var frames atomic.Int64
	addr := messenger(t, control.Config{Diagnostics: control.Diagnostics{Probe: frameFault(func(tag frame.Tag, write bool) bool {
		return tag == frame.TagMessage && !write && frames.Add(1) == 100
	})}}, &control.Dispatcher{Fast: echo})
	r := ringmsgr(t, "send", "--json", "--messages", "1000", "--policy", "lossless-client", addr).want(t, cli.Failed)
	x := decode[sent](t, r)
	if !x.Lossy || x.Verified >= 100 || x.Losses == 0 || x.Losses > 16 || x.Stage != control.StageSession || !strings.Contains(x.Error, "hung up") {
		t.Errorf("send says %s", r.stdout)
	}
	if !strings.Contains(r.stderr, "makes the connection lossy") {
		t.Errorf("no warning: %q", r.stderr)
	}
}

func TestSendFailsWhenTheSessionIsForgotten(t *testing.T) {
	server := control.StatefulServer()
	var conns atomic.Int64
	addr := messenger(t, control.Config{Default: &server}, &control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
		if m.TID == 50 && conns.Add(1) == 1 {
			c.MarkDown() // as a server that was started anew
			return true
		}
		return echo(c, m)
	}})
	r := ringmsgr(t, "send", "--json", "--messages", "1000", "--policy", "lossless-client", addr).want(t, cli.Failed)
	if x := decode[sent](t, r); x.Verified > 50 || x.Losses == 0 || !strings.Contains(x.Error, "lost the session") {
		t.Errorf("send says %s", r.stdout)
	}
}

// Matrix: INV-12
func TestSendNoticesWrongEchoes(t *testing.T) {
	corrupt := func(s *sent) uint64 { return s.Corrupt }
	duplicates := func(s *sent) uint64 { return s.Duplicates }
	losses := func(s *sent) uint64 { return s.Losses }
	for _, c := range []struct {
		name   string
		copies int                      // of message 20 that come back
		change func(r *control.Message) // each of them
		count  func(*sent) uint64
		says   string
	}{
		{"a changed byte", 1, func(r *control.Message) { r.Data[777] ^= 4 }, corrupt, "differs"},
		{"a middle that was not sent", 1, func(r *control.Message) { r.Middle = []byte("more") }, corrupt, "differs"},
		{"another front", 1, func(r *control.Message) { r.Front[3] ^= 1 }, corrupt, "differs"},
		{"less payload", 1, func(r *control.Message) { r.Data = r.Data[:len(r.Data)-1] }, corrupt, "differs"},
		{"twice", 2, func(*control.Message) {}, duplicates, "twice"},
		{"left out", 0, nil, losses, "missing"},
		{"the payload of another", 1, func(r *control.Message) { r.TID++ }, losses, "missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr := messenger(t, control.Config{}, &control.Dispatcher{Fast: func(conn *control.Conn, m *control.Message) bool {
				if m.TID != 20 {
					return echo(conn, m)
				}
				for range c.copies {
					r := control.NewMessage(m.Type, bytes.Clone(m.Front), bytes.Clone(m.Data))
					r.TID = m.TID
					c.change(r)
					_ = conn.Send(r)
				}
				return true
			}})
			r := ringmsgr(t, "send", "--json", "--messages", "100", "--size", "1000", addr).want(t, cli.Failed)
			if x := decode[sent](t, r); c.count(&x) == 0 || !strings.Contains(x.Error, c.says) || x.Stage != control.StageSession {
				t.Errorf("send says %s", r.stdout)
			}
		})
	}
}

func TestEchoesThatWaitForRoomKeepTheirOrder(t *testing.T) {
	server := control.StatefulServer()
	bound := control.Config{Default: &server, Sending: control.Sending{QueueMessages: 2}}
	addr := messenger(t, bound, &control.Dispatcher{Fast: echo, Queued: echoLater})
	r := ringmsgr(t, "send", "--json", "--messages", "2000", "--depth", "64", "--policy", "lossless-client", addr).want(t, cli.OK)
	if x := decode[sent](t, r); x.Verified != 2000 {
		t.Errorf("send says %s", r.stdout)
	}
}

// The messages under way may be more than the usual bound of a sending queue, 256 MiB.
func TestTheDepthAloneBoundsWhatSendHasUnderWay(t *testing.T) {
	s := serve(t, "--policy", "stateful-server")
	r := ringmsgr(t, "send", "--json", "--messages", "66", "--depth", "66", "--size", "4MiB", "--policy", "lossless-client", s.addr)
	if x := decode[sent](t, r.want(t, cli.OK)); x.Verified != 66 {
		t.Errorf("send says %s", r.stdout)
	}
}

func TestSendNoticesThatNothingComesBack(t *testing.T) {
	addr := messenger(t, control.Config{}, &control.Dispatcher{})
	noEcho := func(r result, limit string) bool { return strings.Contains(r.stdout, "no echo came for "+limit) }
	r, ok := failsInTime(t, noEcho, "send", "--json", addr)
	if x := decode[sent](t, r); x.Verified != 0 || x.Losses != 16 || !ok {
		t.Errorf("send says %s", r.stdout)
	}
	// A missing measurement is not 0.
	if !strings.Contains(r.stdout, `"latency_us":null`) {
		t.Errorf("send says %s", r.stdout)
	}
	r, ok = failsInTime(t, func(r result, _ string) bool { return strings.Contains(r.stdout, "no echo came") }, "send", addr)
	if !ok || strings.Contains(r.stdout, "min 0") {
		t.Errorf("send says %s", r.stdout)
	}
}

// In the handshake, and while they measure: the error has the signal that ended them, and the messages under way count as no losses.
func TestPingAndSendEndWithTheirContext(t *testing.T) {
	for _, c := range []struct{ args, at, says string }{{"ping --count 1000000000", "connect", ""}, {"ping --count 1000000000", "accept", ""}, {"send", "message", ", 0 losses"}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		end := func(at string) bool {
			if at == c.at {
				cancel(errors.New("interrupt signal received"))
			}
			return true
		}
		addr := messenger(t, control.Config{}, &control.Dispatcher{
			Accept: func(_ *control.Conn, _ int, _ bool) { end("accept") }, Fast: func(*control.Conn, *control.Message) bool { return end("message") },
		})
		if c.at == "connect" {
			addr = pretender(t, func(conn net.Conn) { end("connect"); says("")(conn) })
		}
		clitest.Check(t, func(stdin io.Reader, stdout, stderr io.Writer, args []string) int {
			return run(ctx, env{stdin, stdout, stderr, nil}, args)
		}, "", c.args+" --timeout 1m "+addr, cli.Failed, c.says, "interrupt signal received")
	}
}
