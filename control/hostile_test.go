package control_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/uring"
)

// detour is a driver whose connections go to another address than the one that
// was dialled, as a network that redirects them would have it.
type detour struct {
	uring.Driver
	via func(to netip.AddrPort) netip.AddrPort
}

func (d detour) Connect(local, to netip.AddrPort, opt uring.SocketOptions, user uint64) (uring.Socket, uring.Op, error) {
	return d.Driver.Connect(local, d.via(to), opt, user)
}

// traveller is one end of the test: it sends numbered messages, and checks
// those of the other end.
type traveller struct {
	m        *control.Messenger
	addr     wire.Addr
	sent     atomic.Uint64
	received atomic.Uint64
	news     chan struct{} // something was received
	wrong    chan error
}

// travelBody is what message n carries.
func travelBody(n uint64) []byte {
	size := int(n*2654435761) % 3000
	if n%50 == 0 {
		size = int(n*40503) % (300 << 10)
	}
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(n) + byte(i>>3)
	}
	return b
}

func newTraveller(t *testing.T, id, cores int, backend uring.Backend, typ wire.AddrType, via func(netip.AddrPort) netip.AddrPort) *traveller {
	t.Helper()
	policy := control.LosslessPeer()
	m, err := control.New(control.Config{
		Name: wire.EntityName{Type: wire.OSD, ID: fmt.Sprint(id)}, Number: int64(id), Default: &policy,
		Plane: dataplane.Config{Cores: cores, Open: func(int) (uring.Driver, error) {
			d, err := uring.Open(uring.Config{Backend: backend})
			return detour{d, via}, err
		}},
		HandshakeTimeout: 2 * time.Second, InitialBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond,
		KeepaliveEvery: 200 * time.Millisecond, KeepaliveTimeout: time.Second,
		QueueMessages: 500,
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &traveller{m: m, news: make(chan struct{}, 1), wrong: make(chan error, 1)}
	report := func(format string, args ...any) {
		select {
		case p.wrong <- fmt.Errorf(format, args...):
		default:
		}
	}
	err = m.Start(&control.Dispatcher{
		Fast: func(_ *control.Conn, m *control.Message) bool {
			n := binary.LittleEndian.Uint64(m.Front)
			if want := p.received.Load() + 1; n != want {
				report("message %d where %d was due", n, want)
			} else if !bytes.Equal(m.Data, travelBody(n)) {
				report("message %d is not what was sent", n)
			}
			p.received.Store(n)
			select {
			case p.news <- struct{}{}:
			default:
			}
			return true
		},
		Reset:       func(c *control.Conn, _ bool) { report("reset of a lossless session: %v", c.Err()) },
		RemoteReset: func(*control.Conn) { report("remote reset of a lossless session") },
	})
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := m.Bind(wire.Addr{Type: typ, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	p.addr = addrs[0]
	return p
}

// travel sends until ctx ends.
func (p *traveller) travel(ctx context.Context, c *control.Conn) error {
	for {
		n := p.sent.Load() + 1
		m := control.NewMessage(9, binary.LittleEndian.AppendUint64(nil, n), travelBody(n))
		if err := c.SendContext(ctx, m); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		p.sent.Store(n)
	}
}

// arrive waits until the other end has everything.
func (p *traveller) arrive(ctx context.Context, from *traveller) error {
	for p.received.Load() < from.sent.Load() {
		select {
		case <-p.news:
		case err := <-p.wrong:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%d messages arrived of %d: %w", p.received.Load(), from.sent.Load(), ctx.Err())
		}
	}
	select {
	case err := <-p.wrong:
		return err
	default:
		return nil
	}
}

// longTest is how long tests run that get better with time: RINGMSGR_LONG, or
// short.
func longTest(t *testing.T, short time.Duration) time.Duration {
	t.Helper()
	s := os.Getenv("RINGMSGR_LONG")
	if s == "" {
		return short
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("RINGMSGR_LONG: %v", err)
	}
	return d
}

func TestLosslessSessionSurvivesAHostileNetwork(t *testing.T) {
	span := longTest(t, 2*time.Second)
	for i, backend := range engines {
		for _, cores := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s,cores=%d", backend, cores), func(t *testing.T) {
				t.Parallel()
				hostile(t, uint64(i*10+cores), cores, backend, wire.AddrMsgr2, span)
			})
		}
		t.Run(fmt.Sprintf("%s,msgr1", backend), func(t *testing.T) {
			t.Parallel()
			hostile(t, uint64(100+i), 2, backend, wire.AddrLegacy, span)
		})
	}
}

func hostile(t *testing.T, seed uint64, cores int, backend uring.Backend, typ wire.AddrType, span time.Duration) {
	var ends [2]*traveller
	var roads [2]*msgrtest.HostileProxy // to each end
	for i := range ends {
		roads[i] = msgrtest.NewHostileProxy(t, msgrtest.HostileConfig{Seed: seed*2 + uint64(i), Reach: 2 << 20})
	}
	for i := range ends {
		ends[i] = newTraveller(t, i, cores, backend, typ, func(netip.AddrPort) netip.AddrPort { return roads[1-i].Addr() })
		roads[i].Lead(ends[i].addr.AddrPort)
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := ends[i].m.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		}()
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var senders sync.WaitGroup
	var conns [2]*control.Conn
	for i, p := range ends {
		c, err := p.m.Connect(ends[1-i].addr, wire.OSD)
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = c
		senders.Go(func() {
			if err := p.travel(ctx, c); err != nil {
				t.Error(err)
			}
		})
	}
	// Where the machine is slow little comes so far that the network disturbs it.
	enough, end := context.WithTimeout(t.Context(), span)
	defer end()
	<-enough.Done()
	late, end := context.WithTimeout(t.Context(), 30*time.Second)
	defer end()
	_ = msgrtest.Until(late, func() bool { return roads[0].Troubles().Add(roads[1].Troubles()) != msgrtest.Troubles{} }) // judged below
	cancel()
	senders.Wait()
	for _, r := range roads {
		r.Calm()
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var total msgrtest.Troubles
	for i, p := range ends {
		err := p.arrive(ctx, ends[1-i])
		st, e := conns[1-i].Stats()
		if err != nil {
			t.Errorf("end %d (seed %d): %v; the sender: %+v %v", i, seed, err, st, e)
		}
		t.Logf("end %d: sent %d, received %d, %+v", i, p.sent.Load(), p.received.Load(), st.Counters)
		total = total.Add(roads[i].Troubles())
	}
	t.Log(total)
	if total == (msgrtest.Troubles{}) {
		t.Error("nothing disturbed the connections")
	}
}
