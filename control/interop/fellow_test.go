package interop_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// fellowConfig has the name of a fellow and the way to its peer.
type fellowConfig struct {
	Name    string // osd.7, mon.7
	Number  int64
	Nonce   uint32
	Policy  control.Policy
	Backend uring.Backend
	Public  netip.AddrPort // that it says it has; a proxy leads from there
	Behind  netip.AddrPort // to here, where it listens
	Peer    wire.Addr
	Via     netip.AddrPort // a proxy that leads to the peer
	FSID    string
	Auth    control.Auth
}

// fellowReport is how a fellow fares.
type fellowReport struct {
	State    string
	Sent     uint64 // requests
	Answers  uint64 // that came in their order
	Wrong    string // about the first answer that did not, or was not the right one
	Strange  int    // answers to nothing that it has asked
	Resets   int
	Remote   int // remote resets
	Counters stats.ConnCounters
}

// fellowPatience is how long a fellow waits for a handshake, or for a daemon that says nothing.
const fellowPatience = 2 * time.Second

// fellow is a messenger of ours that is a lossless peer of a real daemon, as its colleague.
type fellow struct {
	cfg  fellowConfig
	m    *control.Messenger
	conn *control.Conn
	gate chan struct{} // empty: all of its cores stand still

	mu   sync.Mutex
	said fellowReport
	want map[uint64][]byte // the data of answers to come, by tid
	last uint64            // tid of the last answer
	jump bool              // the next answer may be to any later request
}

func startFellow(t *testing.T, cfg fellowConfig) *fellow {
	t.Helper()
	f := &fellow{cfg: cfg, gate: make(chan struct{}, 1), want: map[uint64][]byte{}}
	f.gate <- struct{}{}
	name, err := wire.ParseEntityName(cfg.Name)
	check(t, err)
	f.m, err = control.New(control.Config{
		Name: name, Auth: cfg.Auth, Number: cfg.Number, Nonce: &cfg.Nonce, Default: &cfg.Policy, Steer: control.SteerNone,
		Plane: loop.Config{Cores: 2, Open: func(int) (uring.Driver, error) {
			d, err := uring.Open(uring.Config{Backend: cfg.Backend})
			return &detour{Driver: d, fellow: f}, err
		}},
		// A busy daemon answers late. Who ends a connection for that meets another trouble than the one that the test makes.
		Timeouts: control.Timeouts{Handshake: fellowPatience, InitialBackoff: 100 * time.Millisecond, MaxBackoff: 500 * time.Millisecond, KeepaliveEvery: 300 * time.Millisecond, Keepalive: fellowPatience},
	})
	check(t, err)
	count := func(n *int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		*n++
		f.jump = true
	}
	check(t, f.m.Start(&control.Dispatcher{
		Fast:        func(_ *control.Conn, m *control.Message) bool { f.receive(m); return true },
		Reset:       func(*control.Conn, bool) { count(&f.said.Resets) },
		RemoteReset: func(*control.Conn) { count(&f.said.Remote) },
	}))
	_, err = f.m.Bind(wire.Addr{Type: cfg.Peer.Type, AddrPort: cfg.Public})
	check(t, errors.Join(err, f.meet(cfg.Peer)))
	return f
}

// peerType is also the type of the fellow.
func (f *fellow) peerType() wire.EntityType { return f.m.Name().Type }

// meet has it connect to an address.
func (f *fellow) meet(a wire.Addr) (err error) {
	f.mu.Lock()
	f.jump = true
	f.mu.Unlock()
	f.conn, err = f.m.Connect(a, f.peerType())
	return err
}

func (f *fellow) report() (fellowReport, error) {
	st, err := f.conn.Stats()
	if st.State == control.StateClosing.String() {
		err = nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said.State, f.said.Counters = st.State, st.Counters
	return f.said, err
}

// ask queues a request with data. It numbers requests by their tid, which the answer has as well. The answer has to have the data want;
// nil: any.
func (f *fellow) ask(t *testing.T, args map[string]string, data, want []byte) {
	t.Helper()
	f.mu.Lock()
	f.said.Sent++
	tid := f.said.Sent
	f.want[tid] = want
	f.mu.Unlock()
	typ := uint16(msgCommand)
	if f.peerType() == wire.Mon {
		typ = msgMonCommand
	}
	m, err := command(typ, f.cfg.FSID, args, data, tid)
	check(t, err)
	check(t, f.conn.Send(m))
}

// receive checks that answers come once each, in order and whole.
func (f *fellow) receive(m *control.Message) {
	if m.Type != msgMonCommandAck && m.Type != msgCommandReply {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.TID > f.said.Sent {
		f.said.Strange++
		return
	}
	var err error
	want := f.want[m.TID]
	if m.Type == msgMonCommandAck {
		err = monCommandResult(m.Front)
	}
	switch {
	case m.TID != f.last+1 && (!f.jump || m.TID <= f.last):
		err = fmt.Errorf("answer %d, after %d", m.TID, f.last)
	case err == nil && want != nil && !bytes.Equal(m.Data, want):
		err = fmt.Errorf("answer %d has %d bytes that are not the %d that it should have", m.TID, len(m.Data), len(want))
	}
	if err != nil {
		f.said.Wrong = cmp.Or(f.said.Wrong, err.Error())
		return
	}
	delete(f.want, m.TID)
	f.last, f.jump = m.TID, false
	f.said.Answers++
}

// detour is a driver in front of whose connections there are proxies.
type detour struct {
	uring.Driver
	*fellow
}

func (d *detour) Wait(timeout time.Duration) ([]uring.Completion, error) {
	found, err := d.Driver.Wait(timeout)
	d.gate <- <-d.gate // a core that stands still does so here
	return found, err
}

func (d *detour) Connect(local, _ netip.AddrPort, opt uring.SocketOptions, user uint64) (uring.Socket, uring.Op, error) {
	return d.Driver.Connect(local, d.cfg.Via, opt, user)
}

func (d *detour) Listen(_ netip.AddrPort, opt uring.ListenOptions) (uring.Socket, error) {
	return d.Driver.Listen(d.cfg.Behind, opt)
}

// LocalAddr of a listener, and of an accepted socket, is the address that peers dial.
func (d *detour) LocalAddr(s uring.Socket) netip.AddrPort {
	if a := d.Driver.LocalAddr(s); a != d.cfg.Behind {
		return a
	}
	return d.cfg.Public
}
