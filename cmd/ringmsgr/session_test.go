package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

const (
	clientKey = "AQBoZmRlAAAAABAAAQIDBAUGBwgJCgsMDQ4PEA=="
	monKey    = "AQBoZmRlAAAAABAAEQITBBUGFwgZCgsMDQ4PEA=="
)

// A server has both protocols: which one is spoken is up to the address.
// Matrix: V1-12
func TestPingServeAndSendOnEachBackend(t *testing.T) {
	for _, backend := range []string{"auto", "epoll"} {
		t.Run(backend, func(t *testing.T) {
			s := serve(t, "--json", "--name", "osd.3", "--listen", "127.0.0.1:0/9", "--listen", "v2:127.0.0.1:0/9", "--proto", "v1",
				"--cores", "2", "--policy", "stateful-server", "--backend", backend)
			var l listening
			clitest.Must(t, json.Unmarshal([]byte(s.ready), &l))
			v1, v2 := l.Listening.V1().String(), l.Listening.V2().String()
			if l.Name != "osd.3" || l.Policy != "stateful-server" || l.Cores != 2 || l.Listening.String() != "["+v1+","+v2+"]" || l.Listening.Front().Nonce != 9 {
				t.Errorf("serve says %s", s.ready)
			}
			if backend == "epoll" && l.Backend != "epoll" {
				t.Errorf("backend %s", l.Backend)
			}
			_, bare, _ := strings.Cut(v1, ":")
			for _, c := range []struct{ flags, at, protocol string }{
				{"--rev 0", v2, "msgr2.0"}, {"--rev 1 --name mon.b", v2, "msgr2.1"}, {"", v1, "msgr1"}, {"--proto v1", bare, "msgr1"},
			} {
				args := strings.Fields("ping --json --peer osd --count 7 --backend " + backend + " " + c.flags + " " + c.at)
				r := ringmsgr(t, args...).want(t, cli.OK)
				p := decode[pong](t, r)
				if p.Peer.Type != wire.OSD || !p.Peer.Addrs.Contains(l.Listening.Front()) || p.Protocol != c.protocol ||
					p.Auth != "none" || p.Mode != "crc" || p.Compression != "none" || p.Backend != l.Backend || p.Count != 7 {
					t.Errorf("ping says %s", r.stdout)
				}
				if c.protocol != "msgr1" && (p.Peer.GID != 3 || !p.Peer.Addrs.Equal(l.Listening)) {
					t.Errorf("ping says %s", r.stdout)
				}
				if q := p.RTT; p.Handshake <= 0 || q.Min <= 0 || q.Min > q.P50 || q.P50 > q.P99 || q.P99 > q.Max || q.Max > 60e6 {
					t.Errorf("ping measured %s", r.stdout)
				}
			}
			for _, c := range []struct{ n, size, depth, conns, policy, at string }{
				{"1", "0", "1", "1", "lossy-client", v2},
				{"500", "0", "16", "1", "lossless-client", v2},
				{"500", "7", "3", "1", "lossy-client", v2},
				{"2000", "64", "256", "3", "lossless-client", v2},
				{"300", "70000", "8", "2", "lossless-peer", v2},
				{"20", "4MiB", "4", "1", "lossless-peer-reuse", v2},
				{"1", "100", "16", "3", "lossless-client", v2}, // connections without a message
				{"20", "0", "16", "2", "lossless-client", v1},
				{"20", "70000", "16", "2", "lossless-client", v1},
				{"20", "4MiB", "16", "2", "lossless-client", v1},
			} {
				r := ringmsgr(t, "send", "--json", "--peer", "osd", "--messages", c.n, "--size", c.size, "--depth", c.depth,
					"--conns", c.conns, "--policy", c.policy, "--backend", backend, c.at).want(t, cli.OK)
				x := decode[sent](t, r)
				if fmt.Sprint(x.Verified) != c.n || x.Messages != x.Verified || x.Losses+x.Duplicates+x.Corrupt+x.Reconnects != 0 ||
					(x.Protocol == "msgr1") != (c.at == v1) || x.Policy != c.policy || x.Lossy || fmt.Sprint(x.Conns) != c.conns || x.Rate <= 0 ||
					x.Latency.Min <= 0 || x.Latency.P50 > x.Latency.Max || x.Memory < 1<<20 || x.Peak < x.Memory { // no Go program fits into 1 MiB
					t.Errorf("send says %s", r.stdout)
				}
			}
			var end served
			last := s.stop(t)
			clitest.Must(t, json.Unmarshal([]byte(last), &end))
			if end.MessagesIn != 3382 || end.MessagesIn != end.MessagesOut || !end.Drained || end.Accepted == 0 {
				t.Errorf("serve ends with %s", last)
			}
			mustHaveOnly(t, s.errs.String(), nil)
		})
	}
}

func TestAnAddressMayBeAHostName(t *testing.T) {
	s := serve(t, "--listen", "localhost:0")
	_, port, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(s.addr, "v2:"), "/0"), ":")
	for _, host := range []string{"localhost", "v2:localhost", "here.example", "127.0.0.1"} {
		ringmsgr(t, "ping", "--count", "1", host+":"+port).want(t, cli.OK)
		ringmsgr(t, "send", "--messages", "1", host+":"+port+"/0").want(t, cli.OK)
	}
	for _, command := range []string{"ping", "send"} {
		r := ringmsgr(t, command, "--json", "nowhere.example:"+port).want(t, cli.Failed)
		if f := decode[failure](t, r); f.Stage != control.StageConnect || !strings.Contains(f.Error, "look up host nowhere.example: no such host") {
			t.Errorf("%s says %s", command, r.stdout)
		}
	}
}

// For example that of a process that was killed, which the kernel gives back a little later.
func TestServeWaitsForItsAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	clitest.Must(t, err)
	time.AfterFunc(100*time.Millisecond, func() { _ = l.Close() })
	serve(t, "--listen", l.Addr().String())
}

func TestLossyConnectionsShareCores(t *testing.T) {
	s := serve(t)
	r := ringmsgr(t, "send", "--json", "--conns", "6", "--cores", "2", "--messages", "3000", s.addr).want(t, cli.OK)
	if x := decode[sent](t, r); !x.Lossy || x.Conns != 6 || x.Verified != 3000 {
		t.Errorf("send says %s", r.stdout)
	}
	stateful := serve(t, "--policy", "stateful-server")
	r = ringmsgr(t, "send", "--json", "--conns", "6", stateful.addr).want(t, cli.Failed)
	if f := decode[failure](t, r); !strings.Contains(f.Error, "keeps no sessions") {
		t.Errorf("send says %s", r.stdout)
	}
}

func TestReportsForPeople(t *testing.T) {
	s := serve(t, "--cores", "1")
	golden(t, "serve", normal(s.ready)+"\n")
	golden(t, "ping", normal(ringmsgr(t, "ping", s.addr).want(t, cli.OK).stdout))
	golden(t, "ping-json", normal(ringmsgr(t, "ping", "--json", s.addr).want(t, cli.OK).stdout))
	golden(t, "send", normal(ringmsgr(t, "send", "--messages", "10", s.addr).want(t, cli.OK).stdout))
	golden(t, "send-json", normal(ringmsgr(t, "send", "--messages", "10", "--json", s.addr).want(t, cli.OK).stdout))
	golden(t, "serve-end", normal(s.stop(t)))
}

func TestCephxInBothModes(t *testing.T) {
	keyring := keysOf(t, clientKey)
	s := serve(t, "--auth", "cephx", "--keyring", keyring)
	for _, c := range []struct{ flags, mode string }{
		{"--keyring " + keyring, "secure"}, // as mons prefer it
		{"--keyring " + keyring + " --mode crc", "crc"},
		{"--keyring " + keyring + " --mode secure --rev 0", "secure"},
		{"--keyring " + keyring + " --mode secure,crc", "secure"},
		{"--keyring " + keyring + " --mode crc,secure", "crc"},
	} {
		r := ringmsgr(t, append(strings.Fields("ping --json --auth cephx "+c.flags), s.addr)...).want(t, cli.OK)
		if p := decode[pong](t, r); p.Auth != "cephx" || p.Mode != c.mode {
			t.Errorf("%s: %s", c.flags, r.stdout)
		}
	}
	r := ringmsgr(t, "send", "--json", "--auth", "cephx", "--keyring", keyring, "--mode", "secure", "--size", "100KiB", "--messages", "50", s.addr)
	if x := decode[sent](t, r.want(t, cli.OK)); x.Mode != "secure" || x.Verified != 50 {
		t.Errorf("send says %s", r.stdout)
	}
	for _, flags := range []string{"--auth none", "--auth cephx --keyring " + keysOf(t, monKey)} {
		r := ringmsgr(t, append(strings.Fields("ping --json "+flags), s.addr)...).want(t, cli.Failed)
		if f := decode[failure](t, r); f.Stage != control.StageAuth {
			t.Errorf("%s: %s", flags, r.stdout)
		}
	}
	old := serve(t, "--listen", "v1:127.0.0.1:0", "--auth", "cephx", "--keyring", keyring)
	for flags, want := range map[string]string{
		"--auth cephx --keyring " + keyring:              "auth none (no key was sent",
		"--auth cephx --name mon.b --keyring " + keyring: "auth cephx,",
		"--auth none": "auth none,",
	} {
		r := ringmsgr(t, append(strings.Fields("ping "+flags), strings.Fields(old.ready)[1])...).want(t, cli.OK)
		if !strings.Contains(r.stdout, want) {
			t.Errorf("%s: ping says %s", flags, r.stdout)
		}
	}
}

func TestServeEndsWithinDrainBesideAPeerThatDoesNotRead(t *testing.T) {
	s := serve(t, "--json", "--drain", "50ms", "--policy", "stateful-server")
	blocked, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	first := true
	m := started(t, control.Config{Name: wire.EntityName{Type: wire.Client, ID: "slow"}}, &control.Dispatcher{Fast: func(*control.Conn, *control.Message) bool {
		if first {
			first = false
			close(blocked)
			<-release // the core stands still
		}
		return true
	}})
	to, err := wire.ParseAddr(s.addr)
	clitest.Must(t, err)
	c, err := m.Connect(to, wire.Mon, control.WithPolicy(control.LosslessClient()))
	clitest.Must(t, err)
	// More than fits into all buffers between here and there.
	for range 64 {
		clitest.Must(t, c.Send(control.NewMessage(2, nil, make([]byte, 1<<20))))
	}
	<-blocked
	if rest := s.stop(t); !strings.Contains(rest, `"drained":false`) || !strings.Contains(s.errs.String(), "replies were not delivered") {
		t.Errorf("serve ends with %s and logs %s", rest, s.errs)
	}
}

// A block of another message, or from another place of the same, is found.
func TestBytesOfAnotherMessageOrPlaceShow(t *testing.T) {
	const size, block = 4096, 512
	p := newPattern(size)
	right := p.payload(0, 100, size)
	for name, other := range map[string][]byte{
		"the next message": p.payload(0, 101, size), "an earlier message": p.payload(0, 84, size), "another connection": p.payload(1, 100, size),
		"another place": append(bytes.Clone(right[block:]), right[:block]...),
	} {
		for at := 0; at < size; at += block {
			if bytes.Equal(right[at:at+block], other[at:at+block]) {
				t.Errorf("%s does not show at %d", name, at)
			}
		}
	}
}

func TestSendForADuration(t *testing.T) {
	s := serve(t)
	x := decode[sent](t, ringmsgr(t, "send", "--json", "--conns", "2", "--duration", "100ms", s.addr).want(t, cli.OK))
	if x.Verified == 0 || x.Messages != x.Verified || x.Losses != 0 {
		t.Errorf("send says %+v", x)
	}
	x = decode[sent](t, ringmsgr(t, "send", "--json", "--messages", "5", "--duration", "1h", s.addr).want(t, cli.OK))
	if x.Verified != 5 || x.Messages != 5 {
		t.Errorf("send says %+v", x)
	}
}

// road leads connections to a server, but for the first ones, which it closes. came counts all.
func road(t *testing.T, s *running, closes int32) (via string, came *atomic.Int32) {
	came = new(atomic.Int32)
	return clitest.Listen(t, "tcp4", "127.0.0.1:0", func(c net.Conn) {
		if came.Add(1) <= closes {
			return
		}
		to, err := net.Dial("tcp4", strings.TrimSuffix(strings.TrimPrefix(s.addr, "v2:"), "/9"))
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(to, c)
			_ = to.Close()
		}()
		_, _ = io.Copy(c, to)
	}), came
}

func TestVia(t *testing.T) {
	s := serve(t, "--name", "osd.0", "--listen", "v2:127.0.0.1:0/9")
	via, came := road(t, s, 0)
	p := decode[pong](t, ringmsgr(t, "ping", "--json", "--peer", "osd", "--via", via, s.addr).want(t, cli.OK))
	if p.Peer.Addrs.String() != "["+s.addr+"]" || came.Load() != 1 {
		t.Errorf("%+v, %d connections through the proxy", p, came.Load())
	}
	// The address of the proxy is not that of the server.
	f := decode[failure](t, ringmsgr(t, "ping", "--json", "--peer", "osd", "--timeout", "1m", "v2:"+via+"/9").want(t, cli.Failed))
	if f.Stage == control.StageConnect || came.Load() != 2 {
		t.Errorf("%+v, %d connections through the proxy", f, came.Load())
	}
}

// A lossless peer without messages stands by after a failure. A user who wants to send must not
// wait for that.
func TestLosslessSendRepeatsItsFirstAttempt(t *testing.T) {
	s := serve(t, "--name", "osd.0", "--listen", "v2:127.0.0.1:0/9", "--policy", "stateful-server")
	via, _ := road(t, s, 1)
	r := ringmsgr(t, "send", "--json", "--peer", "osd", "--policy", "lossless-peer", "--messages", "10", "--via", via, s.addr)
	if x := decode[sent](t, r.want(t, cli.OK)); x.Verified != 10 {
		t.Errorf("send says %+v", x)
	}
}
