package main

import (
	"errors"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

func TestListenTakesAddressesAndARangeOfPorts(t *testing.T) {
	daemon := bpf.PortRange{First: 6800, Last: 7568}
	for _, one := range []struct {
		args  []string
		addrs string
		ports bpf.PortRange
		err   string // of the last argument
	}{
		{args: []string{"v2:127.0.0.1:6800"}, addrs: "[v2:127.0.0.1:6800/0]"},
		{args: []string{"v2:127.0.0.1:6800-7568"}, addrs: "[v2:127.0.0.1:0/0]", ports: daemon},
		{args: []string{"v2:127.0.0.1:6800-7568/9"}, addrs: "[v2:127.0.0.1:0/9]", ports: daemon},
		{args: []string{"v2:[::1]:6800-7568", "127.0.0.1:3300", "v2:127.0.0.1:6800-7568"}, addrs: "[v2:[::1]:0/0,v2:127.0.0.1:3300/0,v2:127.0.0.1:0/0]", ports: daemon},
		{args: []string{"v2:127.0.0.1:6800-7568", "v2:127.0.0.2:6800-6801"}, err: "all ranges"},
		{args: []string{"v2:127.0.0.1:6801-6800"}, err: "FIRST-LAST"},
		{args: []string{"v2:127.0.0.1:0-6800"}, err: "FIRST-LAST"},
		{args: []string{"v2:127.0.0.1:6800-65536"}, err: "FIRST-LAST"},
		{args: []string{"v2:127.0.0.1:6800-"}, err: "FIRST-LAST"},
		{args: []string{"v2:127.0.0.1:-6800"}, err: "FIRST-LAST"},
		{args: []string{"6800-6900"}, err: "address"},
		{args: []string{"v2:0.0.0.0:6800-6900"}, err: "peers dial"},
		{args: []string{"v1:127.0.0.1:6800-7568"}, addrs: "[v1:127.0.0.1:0/0]", ports: daemon},
		{args: []string{"any:127.0.0.1:6800-6900"}, err: "only v2"},
	} {
		var l listenFlag
		var err error
		for _, a := range one.args {
			err = errors.Join(err, l.Set(a))
		}
		err = errors.Join(err, l.read(""))
		switch {
		case one.err != "":
			if err == nil || !strings.Contains(err.Error(), one.err) {
				t.Errorf("%v: error %v, want %q", one.args, err, one.err)
			}
		case err != nil:
			t.Errorf("%v: %v", one.args, err)
		case l.addrs.String() != one.addrs || l.ports != one.ports:
			t.Errorf("%v: %v, ports %v; want %s, %v", one.args, l.addrs, l.ports, one.addrs, one.ports)
		}
	}
}

// Two servers with the same range get different ports of it; a third one finds
// none.
func TestServersShareARangeOfPorts(t *testing.T) {
	host := ownHost().String()
	at := "v2:" + host + ":6890-6891"
	ports := regexp.MustCompile(`v2:` + regexp.QuoteMeta(host) + `:(\d+)/`)
	for i, want := range []string{"6890", "6891"} {
		s := serve(t, "--listen", at, "--cores", "2")
		if got := ports.FindStringSubmatch(s.ready); got == nil || got[1] != want {
			t.Errorf("server %d says %q, want port %s", i, s.ready, want)
		}
		if _, err := netip.ParseAddrPort(strings.TrimSuffix(strings.TrimPrefix(s.addr, "v2:"), "/0")); err != nil {
			t.Error(err)
		}
		ringmsgr(t, "ping", "--count", "1", s.addr).want(t, cli.OK)
	}
	r := ringmsgr(t, "serve", "--listen", at).want(t, cli.Failed)
	if !strings.Contains(r.stderr, "no free port: 6890-6891") {
		t.Errorf("the third one says %q", r.stderr)
	}
	ringmsgr(t, "serve", "--listen", "v2:"+host+":2-1").want(t, cli.Usage)
}

// ownHost is an address of this process alone: another one may run the same
// tests.
func ownHost() netip.Addr {
	pid := os.Getpid()
	return netip.AddrFrom4([4]byte{127, byte(2 + pid>>16%250), byte(pid >> 8), byte(pid)})
}
