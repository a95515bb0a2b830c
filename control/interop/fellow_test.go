package interop_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// asFellow has the test binary be a fellow: a process of ours that is a lossless
// peer of a real daemon, so that it can be frozen and killed. Its value is the
// fellowConfig in JSON.
const asFellow = "RINGMSGR_TEST_AS_FELLOW"

// atATime is how many tests run together.
const atATime = "4"

func TestMain(m *testing.M) {
	if config := os.Getenv(asFellow); config != "" {
		if err := beFellow(config, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		// Most of the time they wait for daemons.
		if err := flag.Set("test.parallel", atATime); err != nil {
			panic(err)
		}
	}
	var err error
	if programs, err = os.MkdirTemp("", "ringmsgr-programs-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(programs) // in the directory for such
	os.Exit(code)
}

// fellowConfig has the name of the fellow and the way to its peer.
type fellowConfig struct {
	Name    string // osd.7, mon.7
	Number  int64
	Nonce   uint32
	Policy  string
	Backend uring.Backend
	Public  netip.AddrPort // that it says it has; a proxy leads from there
	Behind  netip.AddrPort // to here, where it listens
	Peer    wire.Addr
	Via     netip.AddrPort // a proxy that leads to the peer
	FSID    string
}

// fellowReport is the answer of the fellow to "report".
type fellowReport struct {
	State    string
	Sent     uint64 // requests
	Answers  uint64 // that came in their order
	Wrong    string // the first answer that did not
	Strange  int    // answers to nothing that this process asked
	Resets   int
	Remote   int // remote resets
	Counters stats.ConnCounters
}

// fellow is the state in its process.
type fellow struct {
	cfg  fellowConfig
	m    *control.Messenger
	conn *control.Conn

	mu     sync.Mutex
	report fellowReport
	last   uint64 // tid of the last answer
	jump   bool   // the next answer may be to any later request
}

// beFellow obeys the lines of in until it ends:
//
//	send N   queue N requests
//	meet A   forget the peer, and connect to address A
//	report   write a fellowReport
func beFellow(config string, in io.Reader, out io.Writer) error {
	f := &fellow{}
	if err := json.Unmarshal([]byte(config), &f.cfg); err != nil {
		return err
	}
	if err := f.start(); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		word, arg, _ := strings.Cut(lines.Text(), " ")
		if err := f.obey(word, arg, out); err != nil {
			return fmt.Errorf("%s: %w", lines.Text(), err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return f.m.Shutdown(ctx)
}

func (f *fellow) start() error {
	name, err := wire.ParseEntityName(f.cfg.Name)
	if err != nil {
		return err
	}
	policy, err := control.ParsePolicy(f.cfg.Policy)
	if err != nil {
		return err
	}
	f.m, err = control.New(control.Config{
		Name: name, Number: f.cfg.Number, Nonce: &f.cfg.Nonce, Default: &policy, Steer: control.SteerNone,
		Plane: loop.Config{Cores: 2, Open: func(int) (uring.Driver, error) {
			d, err := uring.Open(uring.Config{Backend: f.cfg.Backend})
			return &detour{Driver: d, cfg: &f.cfg}, err
		}},
		Timeouts: control.Timeouts{Handshake: time.Second, InitialBackoff: 100 * time.Millisecond, MaxBackoff: 500 * time.Millisecond, KeepaliveEvery: 300 * time.Millisecond, Keepalive: 900 * time.Millisecond},
	})
	if err != nil {
		return err
	}
	count := func(n *int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		*n++
		f.jump = true
	}
	err = f.m.Start(&control.Dispatcher{
		Fast:        func(_ *control.Conn, m *control.Message) bool { f.receive(m); return true },
		Reset:       func(*control.Conn, bool) { count(&f.report.Resets) },
		RemoteReset: func(*control.Conn) { count(&f.report.Remote) },
	})
	if err != nil {
		return err
	}
	if _, err = f.m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: f.cfg.Public}); err != nil {
		return err
	}
	return f.meet(f.cfg.Peer)
}

// peerType is also the type of the fellow.
func (f *fellow) peerType() wire.EntityType { return f.m.Name().Type }

func (f *fellow) meet(a wire.Addr) (err error) {
	f.mu.Lock()
	f.jump = true
	f.mu.Unlock()
	f.conn, err = f.m.Connect(a, f.peerType())
	return err
}

func (f *fellow) obey(word, arg string, out io.Writer) error {
	switch word {
	case "send":
		var n int
		if _, err := fmt.Sscan(arg, &n); err != nil {
			return err
		}
		for range n {
			if err := f.send(); err != nil {
				return err
			}
		}
		return nil
	case "meet":
		a, err := wire.ParseAddr(arg)
		if err != nil {
			return err
		}
		f.conn.MarkDown()
		<-f.conn.Closed()
		return f.meet(a)
	case "report":
		st, err := f.conn.Stats()
		if err != nil && st.State != control.StateClosing.String() {
			return err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.report.State, f.report.Counters = st.State, st.Counters
		return json.NewEncoder(out).Encode(&f.report)
	}
	return fmt.Errorf("unknown command")
}

// send queues a request that costs the peer little: it numbers them by their
// tid, which its answer has as well.
func (f *fellow) send() error {
	f.mu.Lock()
	f.report.Sent++
	tid := f.report.Sent
	f.mu.Unlock()
	typ, prefix := uint16(msgCommand), "version"
	if f.peerType() == wire.Mon {
		typ, prefix = msgMonCommand, "fsid"
	}
	m, err := command(typ, f.cfg.FSID, map[string]string{"prefix": prefix, "format": "json"}, nil, tid)
	if err != nil {
		return err
	}
	return f.conn.Send(m)
}

// receive checks that answers come once each and in order.
func (f *fellow) receive(m *control.Message) {
	if m.Type != msgMonCommandAck && m.Type != msgCommandReply {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.TID > f.report.Sent {
		f.report.Strange++
		return
	}
	if m.TID != f.last+1 && (!f.jump || m.TID <= f.last) {
		if f.report.Wrong == "" {
			f.report.Wrong = fmt.Sprintf("answer %d, after %d", m.TID, f.last)
		}
		return
	}
	f.last, f.jump = m.TID, false
	f.report.Answers++
}

// detour is a driver in front of whose connections there are proxies.
type detour struct {
	uring.Driver
	cfg       *fellowConfig
	listeners []uring.Socket
}

func (d *detour) Connect(local, _ netip.AddrPort, opt uring.SocketOptions, user uint64) (uring.Socket, uring.Op, error) {
	return d.Driver.Connect(local, d.cfg.Via, opt, user)
}

func (d *detour) Listen(_ netip.AddrPort, opt uring.ListenOptions) (uring.Socket, error) {
	s, err := d.Driver.Listen(d.cfg.Behind, opt)
	if err == nil {
		d.listeners = append(d.listeners, s)
	}
	return s, err
}

// LocalAddr of a listener is the address that peers dial.
func (d *detour) LocalAddr(s uring.Socket) netip.AddrPort {
	for _, l := range d.listeners {
		if l == s {
			return d.cfg.Public
		}
	}
	return d.Driver.LocalAddr(s)
}
