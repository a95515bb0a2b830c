package main

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
)

// process is the program in a process of its own, which writes JSON.
type process struct {
	*clitest.Process
	t     testing.TB
	name  string
	lines *json.Decoder
}

func spawn(t testing.TB, args ...string) *process {
	t.Helper()
	p := clitest.Start(t, args...)
	return &process{Process: p, t: t, name: args[0], lines: json.NewDecoder(p.Stdout)}
}

// decode waits for the next line of JSON and returns it as well.
func (p *process) decode(v any) string {
	p.t.Helper()
	var line json.RawMessage
	if err := p.lines.Decode(&line); err != nil {
		p.t.Fatalf("%s says nothing: %v: %s", p.name, err, p.Stderr())
	}
	if err := json.Unmarshal(line, v); err != nil {
		p.t.Fatalf("%s says %s: %v", p.name, line, err)
	}
	return string(line)
}

func TestVia(t *testing.T) {
	s := serve(t, "--name", "osd.0", "--listen", "v2:127.0.0.1:0/9")
	road := msgrtest.NewHostileProxy(t, msgrtest.HostileConfig{})
	road.Calm()
	addr := strings.TrimPrefix(s.addr, "v2:")
	road.Lead(netip.MustParseAddrPort(strings.TrimSuffix(addr, "/9")))
	via := road.Addr().String()
	p := decode[pong](t, ringmsgr(t, "ping", "--json", "--peer", "osd", "--via", via, s.addr).want(t, cli.OK))
	if p.Peer.Addrs.String() != "["+s.addr+"]" || road.Carried() != 1 {
		t.Errorf("%+v, %d connections through the proxy", p, road.Carried())
	}
	// The address of the proxy is not that of the server.
	f := decode[failure](t, ringmsgr(t, "ping", "--json", "--peer", "osd", "--timeout", "2s", "v2:"+via+"/9").want(t, cli.Failed))
	if f.Stage == control.StageConnect || road.Carried() != 2 {
		t.Errorf("%+v, %d connections through the proxy", f, road.Carried())
	}
}

// A lossless peer without messages stands by after a failure. A user who wants to send must not
// wait for that.
func TestLosslessSendRepeatsItsFirstAttempt(t *testing.T) {
	s := serve(t, "--name", "osd.0", "--listen", "v2:127.0.0.1:0/9", "--policy", "stateful-server")
	road := msgrtest.NewHostileProxy(t, msgrtest.HostileConfig{})
	road.Calm()
	go func() {
		<-road.Refused()
		road.Lead(netip.MustParseAddrPort(strings.TrimSuffix(strings.TrimPrefix(s.addr, "v2:"), "/9")))
	}()
	r := ringmsgr(t, "send", "--json", "--peer", "osd", "--policy", "lossless-peer", "--messages", "10", "--via", road.Addr().String(), s.addr)
	if x := decode[sent](t, r.want(t, cli.OK)); x.Verified != 10 {
		t.Errorf("send says %+v", x)
	}
}
