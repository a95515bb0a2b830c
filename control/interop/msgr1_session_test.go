//go:build !giouring

package interop_test

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
	"github.com/ringmsgr/ringmsgr/uring"
)

// cutter resets sockets of ours.
type cutter struct {
	written atomic.Int64
	every   atomic.Int64 // when so many messages were written on all of them; 0: never
	read    atomic.Bool  // when the next message comes
	alone   atomic.Bool  // those that we dial: the peer has to connect to us
	came    atomic.Int64 // sockets that peers have opened
}

func (c *cutter) At(_ context.Context, e probe.Event) error {
	switch {
	case e.When == probe.Before && e.Step == probe.SocketAccepted:
		c.came.Add(1)
	case e.When == probe.Before && e.Step == probe.SocketConnecting && c.alone.Load():
		return probe.ErrReset
	case e.When != probe.Data || e.Tag != frame.TagMessage:
	case e.Step == probe.FrameRead && c.read.CompareAndSwap(true, false):
		return probe.ErrReset
	case e.Step == probe.FrameWrite:
		if n := c.every.Load(); n > 0 && c.written.Add(1)%n == 0 {
			return probe.ErrReset
		}
	}
	return nil
}

// fellowMon is our messenger as a monitor that the real monitor does not know, with a lossless
// session to it.
type fellowMon struct {
	t       *testing.T
	c       *cluster
	conn    *control.Conn
	cut     cutter
	tid     uint64
	answers chan *control.Message
}

func newFellowMon(t *testing.T, c *cluster, backend uring.Backend, nonce uint32) *fellowMon {
	f := &fellowMon{t: t, c: c, answers: make(chan *control.Message, 1000)}
	policy := control.LosslessPeerReuse()
	cfg := control.Config{
		Name: wire.EntityName{Type: wire.Mon, ID: "z"}, Nonce: &nonce, Default: &policy, Diagnostics: control.Diagnostics{Probe: &f.cut}, Timeouts: control.Timeouts{InitialBackoff: 10 * time.Millisecond},
		Plane: loop.Config{Cores: 2, Driver: uring.Config{Backend: backend}},
	}
	if c.auth == "cephx" {
		cfg.Auth.Client, cfg.Auth.Server = monKeys(t, c)
	}
	m := newMessenger(t, cfg)
	check(t, m.Start(&control.Dispatcher{
		Fast: func(_ *control.Conn, m *control.Message) bool {
			if m.Type == msgPing || m.Type == msgMonCommandAck {
				m.Retain()
				f.answers <- m
			}
			return true
		},
		RemoteReset: func(*control.Conn) { t.Error("the monitor has forgotten the session") },
	}))
	_, err := m.Bind(wire.Addr{Type: wire.AddrLegacy, AddrPort: freePorts(1)[0]})
	check(t, err)
	f.conn, err = m.Connect(c.monAddr.V1(), wire.Mon)
	check(t, err)
	return f
}

// monKeys are both sides of cephx for one more monitor of a cluster: it has the key that
// all monitors share.
func monKeys(t *testing.T, c *cluster) (auth.Client, auth.Server) {
	t.Helper()
	self := wire.EntityName{Type: wire.Mon}
	client, err := cephx.NewClient(cephx.ClientConfig{Name: self, Key: clusterKey(t, c, self)})
	check(t, err)
	authority, err := cephx.NewAuthority(cephx.AuthorityConfig{Entities: c.ring(t)})
	check(t, err)
	server, err := cephx.NewServer(cephx.ServerConfig{Own: wire.Mon, Authority: authority})
	check(t, err)
	return client, server
}

// answer waits for the next message of the monitor.
func (f *fellowMon) answer() *control.Message {
	f.t.Helper()
	select {
	case a := <-f.answers:
		f.t.Cleanup(a.Release)
		return a
	case <-time.After(patience):
		st, err := f.conn.Stats()
		f.t.Fatalf("no answer: %+v, %v", st, err)
		return nil
	}
}

// command has the monitor carry out a command.
func (f *fellowMon) command(args map[string]string, data []byte) []byte {
	f.t.Helper()
	f.tid++
	m, err := command(msgMonCommand, f.c.fsid, args, data, f.tid)
	check(f.t, err)
	check(f.t, f.conn.Send(m))
	a := f.answer()
	if a.Type != msgMonCommandAck || a.TID != f.tid {
		f.t.Fatalf("%v: answered by a message of type %d with tid %d, want %d", args, a.Type, a.TID, f.tid)
	}
	check(f.t, monCommandResult(a.Front))
	return a.Data
}

// TestMsgr1MessengerKeepsASessionWithTheMonitor loses the sockets of a lossless session
// again and again: each ping is answered once, and data of 4 KiB and 4 MiB comes whole, on
// sockets that we open and on those that the monitor opens. With cephx all of it is signed.
// Matrix: V1-06
func TestMsgr1MessengerKeepsASessionWithTheMonitor(t *testing.T) {
	enabled(t)
	for _, method := range []string{"none", "cephx"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, clusterConfig{auth: method, mode: "crc"})
			for i, backend := range backends {
				t.Run(string(backend), func(t *testing.T) {
					f := newFellowMon(t, c, backend, uint32(60010+i))
					f.pings()
					f.data()
				})
			}
		})
	}
}

// pings has every seventh message of ours lost with its socket.
func (f *fellowMon) pings() {
	f.cut.every.Store(7)
	last := uint64(0)
	for n := range 40 {
		check(f.t, f.conn.Send(control.NewMessage(msgPing, nil, nil)))
		a := f.answer()
		if a.Type != msgPing || a.Seq() <= last {
			f.t.Fatalf("answer %d is of type %d and has number %d behind %d", n, a.Type, a.Seq(), last)
		}
		last = a.Seq()
	}
	st, err := f.conn.Stats()
	check(f.t, err)
	if st.Counters.Ready < 4 || st.Counters.Faults < 3 || st.Lossy || st.ConnectSeq < 4 {
		f.t.Errorf("%+v", st)
	}
	if i := f.conn.Info(); i.Protocol != control.Msgr1 || i.Auth.String() != f.c.auth || !i.Features.Has(wire1.FeatureMsgAuth) {
		f.t.Errorf("negotiated %+v", i)
	}
	f.nothingMore()
}

// data gives the monitor values and takes them back, in turn on sockets of either side.
func (f *fellowMon) data() {
	f.cut.every.Store(0)
	for _, theirs := range []bool{false, true} {
		f.cut.alone.Store(theirs)
		for _, size := range []int{4 << 10, 4 << 20} {
			key, value := fmt.Sprint("value", f.tid), noise(size)
			came := f.cut.came.Load()
			// The answer is on its way when the socket breaks, so the monitor connects, too.
			f.cut.read.Store(true)
			f.command(map[string]string{"prefix": "config-key set", "key": key}, value)
			for _, cut := range []bool{false, true} {
				f.cut.read.Store(cut)
				if got := f.command(map[string]string{"prefix": "config-key get", "key": key}, nil); !bytes.Equal(got, value) {
					f.t.Errorf("across a cut %v: %d bytes came back, not the %d that were given", cut, len(got), size)
				}
			}
			if n := f.cut.came.Load() - came; theirs && n < 2 {
				f.t.Errorf("the monitor has opened %d sockets, want one behind each cut", n)
			}
		}
	}
	f.nothingMore()
}

// nothingMore checks that no answer comes twice: the answer to a ping is the next message.
func (f *fellowMon) nothingMore() {
	f.t.Helper()
	check(f.t, f.conn.Send(control.NewMessage(msgPing, nil, nil)))
	if a := f.answer(); a.Type != msgPing || len(f.answers) > 0 {
		f.t.Errorf("one more answer, of type %d, number %d", a.Type, a.Seq())
	}
}
