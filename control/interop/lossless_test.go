package interop_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/uring"
)

// messagePing has no content, and a daemon that gets one does nothing but
// acknowledge it.
const messagePing = 2

// detour is a driver whose connections go to another address than the one that
// was dialled: to the proxy in front of it.
type detour struct {
	uring.Driver
	via netip.AddrPort
}

func (d detour) Connect(local, _ netip.AddrPort, opt uring.SocketOptions, user uint64) (uring.Socket, uring.Op, error) {
	return d.Driver.Connect(local, d.via, opt, user)
}

// fellow is our side: osd.7, a lossless peer of a real OSD.
type fellow struct {
	t      *testing.T
	m      *control.Messenger
	conn   *control.Conn
	link   *proxy // every byte to the OSD passes through it
	log    *os.File
	acked  atomic.Int64
	sent   int64
	news   chan struct{}
	resets atomic.Int64
}

// newFellow connects to the address where the OSD expects other OSDs. A zero
// port of at lets the kernel choose one.
func newFellow(t *testing.T, c *cluster, backend uring.Backend, at netip.AddrPort, nonce uint32) *fellow {
	t.Helper()
	to := c.clusterAddr(0)
	front := freePorts(t, 1)[0]
	f := &fellow{t: t, link: startProxy(t, front.String(), to.AddrPort.String()), news: make(chan struct{}, 1)}
	policy := control.LosslessPeer()
	m, err := control.New(control.Config{
		Name: wire.EntityName{Type: wire.OSD, ID: "7"}, Number: 7, Nonce: &nonce, Default: &policy,
		Plane: dataplane.Config{Cores: 2, Open: func(int) (uring.Driver, error) {
			d, err := uring.Open(uring.Config{Backend: backend})
			return detour{d, front}, err
		}},
		HandshakeTimeout: 2 * time.Second, MaxBackoff: time.Second,
	})
	check(t, err)
	f.m = m
	check(t, m.Start(&control.Dispatcher{
		Fast:        func(*control.Conn, *control.Message) bool { return true },
		Reset:       func(*control.Conn, bool) { f.resets.Add(1) },
		RemoteReset: func(*control.Conn) { f.resets.Add(1) },
	}))
	_, err = m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: at})
	check(t, err)
	f.log, err = os.Open(c.osds[0].logFile())
	check(t, err)
	t.Cleanup(func() { _ = f.log.Close() })
	f.said()
	f.conn, err = m.Connect(to, wire.OSD)
	check(t, err)
	return f
}

// clusterAddr is the v2 address of an OSD for other OSDs.
func (c *cluster) clusterAddr(id int) wire.Addr {
	c.t.Helper()
	var dump struct {
		OSDs []struct {
			OSD   int
			Addrs struct {
				Vec []struct {
					Type, Addr string
					Nonce      uint32
				} `json:"addrvec"`
			} `json:"cluster_addrs"`
		}
	}
	check(c.t, json.Unmarshal(c.ceph("osd", "dump", "--format", "json"), &dump))
	for _, o := range dump.OSDs {
		for _, a := range o.Addrs.Vec {
			if o.OSD == id && a.Type == "v2" {
				addr, err := wire.ParseAddr(fmt.Sprintf("v2:%s/%d", a.Addr, a.Nonce))
				check(c.t, err)
				return addr
			}
		}
	}
	c.t.Fatalf("osd.%d has no v2 address for its peers: %+v", id, dump)
	return wire.Addr{}
}

// send queues pings. The OSD has one when its message is released: that is when
// it was acknowledged.
func (f *fellow) send(n int) {
	f.t.Helper()
	for range n {
		m := control.NewMessage(messagePing, nil, nil)
		m.Free = func(*control.Message) {
			f.acked.Add(1)
			select {
			case f.news <- struct{}{}:
			default:
			}
		}
		check(f.t, f.conn.Send(m))
		f.sent++
	}
}

// arrive waits until the OSD has acknowledged everything.
func (f *fellow) arrive() {
	f.t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for f.acked.Load() < f.sent {
		select {
		case <-f.news:
		case <-timeout.C:
			st, err := f.conn.Stats()
			f.t.Fatalf("the OSD acknowledged %d of %d messages; %+v, %v\nits log:\n%s", f.acked.Load(), f.sent, st, err, f.said())
		}
	}
	if n := f.resets.Load(); n != 0 {
		f.t.Errorf("%d resets of a session that goes on", n)
	}
}

// said is what the OSD's log has about us since the last call.
func (f *fellow) said() string {
	f.t.Helper()
	b, err := io.ReadAll(f.log)
	check(f.t, err)
	var about strings.Builder
	for line := range strings.Lines(string(b)) {
		if a := f.m.Addrs(); len(a) > 0 && strings.Contains(line, a.Front().AddrPort.String()) {
			about.WriteString(line)
		}
	}
	return about.String()
}

func (f *fellow) counters() control.ConnCounters {
	f.t.Helper()
	st, err := f.conn.Stats()
	check(f.t, err)
	return st.Counters
}

// says checks that the OSD's log has each of the words since the last call.
func (f *fellow) says(words ...string) {
	f.t.Helper()
	log := f.said()
	for _, w := range words {
		if !strings.Contains(log, w) {
			f.t.Errorf("the OSD's log does not have %q:\n%s", w, log)
		}
	}
}

func (f *fellow) shutdown() { shutdown(f.t, f.m) }

// signal freezes or thaws a daemon.
func (d *daemon) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	check(t, d.cmd.Process.Signal(s))
}

func TestARealOSDKeepsItsSessionWithUs(t *testing.T) {
	enabled(t)
	c := startCluster(t, clusterConfig{auth: "none", mode: "crc", osds: 1})
	osd := c.osds[0]
	for i, backend := range backends {
		t.Run(string(backend), func(t *testing.T) {
			nonce := uint32(7000 + i)
			f := newFellow(t, c, backend, loopbackPort().AddrPort, nonce)
			f.send(100)
			f.arrive()
			if got := f.counters(); got.Idents != 1 || got.Reconnects != 0 || got.Ready != 1 {
				t.Fatalf("first connection: %+v", got)
			}
			f.says("handle_client_ident", "send_server_ident")

			// The link is cut: the session goes on.
			before := f.counters()
			f.link.cut()
			f.send(100)
			f.arrive()
			got := f.counters()
			if got.Idents != before.Idents || got.Reconnects == 0 || got.Ready != before.Ready+1 {
				t.Fatalf("after the cut: %+v, before it %+v", got, before)
			}
			f.says("handle_reconnect", "send_reconnect_ok")

			// The OSD stands still for a while: nothing happens at all.
			before = got
			osd.signal(t, syscall.SIGSTOP)
			f.send(50)
			osd.signal(t, syscall.SIGCONT)
			f.arrive()
			if got = f.counters(); got != before {
				t.Fatalf("after a pause: %+v, before it %+v", got, before)
			}

			// The link is cut while it stands still: our attempts time out until
			// it goes on, and then one of them resumes the session.
			osd.signal(t, syscall.SIGSTOP)
			f.send(50)
			f.link.cut()
			for f.counters().Attempts < before.Attempts+3 {
				waitState(t, f.conn, control.StateWait)
				waitState(t, f.conn, control.StateConnecting)
			}
			osd.signal(t, syscall.SIGCONT)
			f.send(50)
			f.arrive()
			if got = f.counters(); got.Idents != before.Idents || got.Ready == before.Ready {
				t.Fatalf("after a cut in a pause: %+v, before it %+v", got, before)
			}
			f.says("handle_reconnect", "send_reconnect_ok")

			// We end, and come back at the same address without the session. The
			// OSD takes our first attempts for old ones, as their global_seq is
			// below that of our predecessor, and then begins a new session with us.
			at := f.m.Addrs()[0].AddrPort
			f.shutdown()
			f = newFellow(t, c, backend, at, nonce)
			f.send(100)
			f.arrive()
			if got := f.counters(); got.Idents == 0 || got.Reconnects != 0 || got.Ready != 1 {
				t.Fatalf("after our restart: %+v", got)
			}
			f.says("handle_client_ident", "send_server_ident")
			f.shutdown()
		})
	}
}

// waitState waits until a connection is in a state.
func waitState(t *testing.T, c *control.Conn, want control.State) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for c.State() != want {
		select {
		case <-tick.C:
		case <-timeout.C:
			t.Fatalf("the connection is in state %v, not %v", c.State(), want)
		}
	}
}
