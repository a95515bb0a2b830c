package interop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// clusters are configurations of real clusters.
var clusters = []clusterConfig{
	{auth: "none", mode: "crc", osds: 1},
	{auth: "cephx", mode: "crc", osds: 1},
	{auth: "cephx", mode: "secure", osds: 1},
}

var protocols = []string{"msgr2.1", "msgr2.0"}

// Matrix: AU-02, IN-01, IN-10, INV-10
func TestWeConnectToRealDaemons(t *testing.T) {
	enabled(t)
	t.Parallel()
	var tb table
	t.Run("clusters", func(t *testing.T) {
		for _, cfg := range clusters {
			t.Run(cfg.String(), func(t *testing.T) {
				t.Parallel()
				weConnect(t, &tb, startCluster(t, cfg))
			})
		}
	})
	tb.log(t)
}

// weConnect connects our messenger to a cluster by each protocol and backend.
func weConnect(t *testing.T, tb *table, c *cluster) {
	cfg := c.clusterConfig
	osd := c.osdAddr(0)
	for _, protocol := range protocols {
		for _, backend := range backends {
			row := combo{"ringmsgr", "ceph-mon", cfg, protocol, backend}
			tb.run(t, row, func(t *testing.T) {
				quiet(t, c)
				useMon(newPeer(t, c, protocol, backend), c, protocol)
			})
			row.server = "ceph-osd"
			tb.run(t, row, func(t *testing.T) {
				quiet(t, c)
				useOSD(newPeer(t, c, protocol, backend), c, protocol, osd)
			})
			if cfg.auth == "none" {
				row = combo{"ringmsgr", "ceph-mon", clusterConfig{auth: "none", mode: "secure"}, protocol, backend}
				tb.impossible(t, row, func(t *testing.T) {
					wantNoSecure(t, c, protocol, backend)
				})
			}
		}
	}
	t.Run("a-mon-that-is-dialled-as-an-osd-is-refused", func(t *testing.T) {
		quiet(t, c)
		wantRefused(newPeer(t, c, "msgr2.1", backends[0]), c.monAddr[0], wire.OSD, control.StageHello)
	})
	t.Run("an-address-with-another-nonce-is-refused", func(t *testing.T) {
		// It also shows that complaints are found where there are some.
		l := c.watchLogs(t)
		wantRefused(newPeer(t, c, "msgr2.1", backends[0]), c.monAddr[0].WithNonce(77), wire.Mon, control.StageIdent)
		waitForComplaint(t, l)
	})
}

// useMon has a whole session with the monitor, loses the link, and has another.
func useMon(p *peer, c *cluster, protocol string) {
	p.t.Helper()
	conn := p.connect(c.monAddr[0], wire.Mon)
	wantInfo(p.t, c, conn, protocol, wire.Mon, c.monAddr)
	p.askMon(conn, c)

	if c.link.cut() == 0 {
		p.t.Fatal("there was no link to cut")
	}
	select {
	case got := <-p.resets:
		if got != conn {
			p.t.Fatalf("reset of connection %d, want %d", got.ID(), conn.ID())
		}
	case <-time.After(patience):
		p.t.Fatal("the link is cut, and no reset event came")
	}
	<-conn.Closed()
	again := p.connect(c.monAddr[0], wire.Mon)
	if again == conn {
		p.t.Fatal("connected to a connection that is over")
	}
	wantInfo(p.t, c, again, protocol, wire.Mon, c.monAddr)
	p.askMon(again, c)
}

// askMon exchanges messages of every shape with the monitor.
func (p *peer) askMon(conn *control.Conn, c *cluster) {
	p.t.Helper()
	front := p.call(conn, control.NewMessage(msgMonGetMap, nil, nil), msgMonMap).front
	fsid, err := monmapFSID(front)
	check(p.t, err)
	want, err := fsidBytes(c.fsid)
	check(p.t, err)
	if !bytes.Equal(fsid, want) {
		p.t.Errorf("the monmap is of cluster %x, want %s", fsid, c.fsid)
	}

	ping := cursor{p: p.call(conn, control.NewMessage(msgPing, nil, nil), msgPing).front}
	if text := ping.blob(); !json.Valid(text) {
		p.t.Errorf("the mon answers a ping with %q, want JSON", text)
	}

	status, err := monCommand(c.fsid, "status", p.nextTID())
	check(p.t, err)
	r := p.call(conn, status, msgMonCommandAck)
	check(p.t, monCommandResult(r.front))
	var answer struct{ FSID string }
	check(p.t, json.Unmarshal(r.data, &answer))
	if answer.FSID != c.fsid {
		p.t.Errorf("the status is of cluster %q, want %s", answer.FSID, c.fsid)
	}
	p.keepalive(conn, 3)
}

// useOSD talks to an OSD. With cephx the ticket for it comes from the mon.
func useOSD(p *peer, c *cluster, protocol string, osd wire.Addr) {
	p.t.Helper()
	if c.auth == "cephx" {
		p.connect(c.monAddr[0], wire.Mon)
	}
	conn := p.connect(osd, wire.OSD)
	i := conn.Info()
	wantInfo(p.t, c, conn, protocol, wire.OSD, i.PeerAddrs)
	if !i.PeerAddrs.Contains(osd) || len(i.PeerAddrs) != 2 {
		p.t.Errorf("the osd's addresses are %v, want %v and a v1 one", i.PeerAddrs, osd)
	}
	p.askOSD(conn, c)

	conn.MarkDown()
	<-conn.Closed()
	again := p.connect(osd, wire.OSD)
	if again == conn {
		p.t.Fatal("connected to a connection that is over")
	}
	wantInfo(p.t, c, again, protocol, wire.OSD, i.PeerAddrs)
	p.askOSD(again, c)
}

// askOSD exchanges messages with an OSD.
func (p *peer) askOSD(conn *control.Conn, c *cluster) {
	p.t.Helper()
	for range 3 {
		m, err := osdCommand(c.fsid, "version", p.nextTID())
		check(p.t, err)
		r := p.call(conn, m, msgCommandReply)
		check(p.t, osdCommandResult(r.front))
		var version struct{ Version string }
		check(p.t, json.Unmarshal(r.data, &version))
		if version.Version == "" {
			p.t.Errorf("no version in %q", r.data)
		}
	}
	p.keepalive(conn, 3)
}

// wantNoSecure requires secure without authentication: there are no keys for it.
func wantNoSecure(t *testing.T, c *cluster, protocol string, backend uring.Backend) {
	t.Helper()
	quiet(t, c)
	m, err := control.New(control.Config{
		Name:     wire.EntityName{Type: wire.Client, ID: "admin"},
		Plane:    loop.Config{Cores: 1, Driver: uring.Config{Backend: backend}},
		Auth:     control.Auth{Modes: []auth.Mode{auth.Secure}},
		Protocol: control.Protocol{Rev0: protocol == "msgr2.0"},
	})
	check(t, err)
	t.Cleanup(func() { shutdown(t, m) })
	check(t, m.Start())
	wantRefused(&peer{t: t, m: m}, c.monAddr[0], wire.Mon, control.StageAuth)
}

// waitForComplaint waits until some daemon's log has a complaint.
func waitForComplaint(t *testing.T, l logs) {
	t.Helper()
	if !await(patience, func() bool { return len(l.complaints(t)) > 0 }) {
		t.Fatal("no daemon's log says that its peer looked for somebody else")
	}
}

// wantRefused dials once and expects it to fail at a stage.
func wantRefused(p *peer, to wire.Addr, typ wire.EntityType, stage control.Stage) {
	p.t.Helper()
	conn, err := p.m.Connect(to, typ, control.Once())
	check(p.t, err)
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	err = conn.WaitReady(ctx)
	if e, ok := errors.AsType[*control.Error](err); !ok || ctx.Err() != nil || e.Stage != stage {
		p.t.Fatalf("dialled %v as %v: %v, want a failure at stage %s", to, typ, err, stage)
	}
}
