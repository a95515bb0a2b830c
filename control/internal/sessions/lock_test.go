package sessions

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	crand "crypto/rand"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// Matrix: SH-04
func TestMarkDownDoesNotWaitForTheLock(t *testing.T) {
	m := idle(t, nil)
	local, err := m.Loopback()
	must(t, err)
	local.MarkDown()
	select {
	case <-local.Closed():
	case <-time.After(time.Minute):
		t.Fatal("nobody else takes the lock, and so the connection does not end")
	}
	c, err := m.Connect(nobody(1), wire.OSD, &ConnectOptions{Policy: losslessPeer()})
	must(t, err)
	m.lock()
	c.MarkDown() // on this goroutine: it would wait for ever
	if c.State() != session.Closing || c.Err() != ErrMarkedDown || c.h.Send(dataplane.NewMessage(1, nil, nil)) == nil || !c.user.(*upper).ceased.Load() {
		t.Errorf("state %v, error %v", c.State(), c.Err())
	}
	if c.s.State == session.Closing {
		t.Error("the session has changed under somebody else's lock")
	}
	m.unlock()
	if m.Lookup(nobody(1)) != nil || len(m.Conns()) != 0 {
		t.Error("who has the lock next finds it")
	}
	again, err := m.Connect(nobody(1), wire.OSD, &ConnectOptions{Policy: losslessPeer()})
	if err != nil || again == c {
		t.Errorf("the connection that was marked down is in the way: %v", err)
	}
	<-c.Closed()
}

func TestLookingForAConnectionDoesNotWaitForTheLock(t *testing.T) {
	m := idle(t, nil)
	named := wire.EntityName{Type: wire.OSD, ID: "7"}
	c, err := m.Connect(nobody(1), wire.OSD, &ConnectOptions{Policy: losslessPeer(), Entity: named})
	must(t, err)
	m.lock() // on this goroutine: who waits for it waits for ever
	if m.Lookup(nobody(1)) != c || m.Lookup(nobody(2)) != nil {
		t.Error("Lookup finds another one")
	}
	for _, opts := range []ConnectOptions{{}, {Entity: named}} {
		if got, err := m.Connect(nobody(1), wire.OSD, &opts); got != c || err != nil {
			t.Errorf("Connect returns %v, %v", got, err)
		}
	}
	if _, err := m.Connect(nobody(1), wire.Mon, &ConnectOptions{}); !errors.Is(err, session.ErrWrongPeer) {
		t.Errorf("Connect for a monitor: %v", err)
	}
	c.MarkDown()
	if m.Lookup(nobody(1)) != nil {
		t.Error("Lookup finds what was marked down")
	}
	m.unlock()
	if again, err := m.Connect(nobody(1), wire.Mon, &ConnectOptions{Policy: losslessPeer()}); err != nil || again == c {
		t.Errorf("behind it Connect returns %v, %v", again, err)
	}
}

// claimsLocked is a connection to a peer that says it is an OSD at nobody(1).
func (m *Manager) claimsLocked(id string, proven bool) *Conn {
	p, peer := losslessPeer(), session.Peer{Target: nobody(1), Type: wire.OSD, Entity: wire.EntityName{Type: wire.OSD, ID: id}, Proven: proven}
	c := m.newConnLocked(m.pickCore(), p, m.newSession(p, peer), false)
	m.names.addLocked(nobody(1), c)
	return c
}

// Who a peer is may turn out later, and decides whom Lookup leads there.
func TestLookupFollowsWhatIsKnownOfAPeer(t *testing.T) {
	m := idle(t, nil)
	m.lock()
	first, second := m.claimsLocked("1", false), m.claimsLocked("2", false)
	if m.Lookup(nobody(1)) != second {
		t.Error("the latest of two claims does not count")
	}
	for _, want := range []*Conn{first, second} {
		if c, claimed, err := m.names.to(nobody(1), wire.OSD, want.s.Peer.Entity); c != want || !claimed || err != nil {
			t.Errorf("the claim of %v does not count for a caller who wants that name: %v, %v", want.s.Peer.Entity, claimed, err)
		}
	}
	before := first.s.Peer
	first.s.Peer.Proven = true
	m.names.showPeerLocked(first, &before)
	if m.Lookup(nobody(1)) != first {
		t.Error("a name that is proven does not count")
	}
	m.names.removeLocked(nobody(1), first)
	if m.Lookup(nobody(1)) != second {
		t.Error("it is found after it was removed")
	}
	m.unlock()
}

// A connection goes by its target, and by the present addresses of its peer: no other one is kept, nor any behind its end,
// nor the memory of many that were there at once.
func TestTheNamesOfAConnectionFollowItsPeer(t *testing.T) {
	m := idle(t, nil)
	m.lock()
	defer m.unlock()
	c := m.claimsLocked("1", false)
	count := func() (n int) {
		m.names.shown.Range(func(any, any) bool { n++; return true })
		return n
	}
	for i := range uint32(3) {
		old, v := c.s.Peer.Addrs.Front(), wire.AddrVec{nobody(10 + i), nobody(20 + i).WithType(wire.AddrLegacy)}
		c.s.Peer.Addrs = v
		m.names.renamedLocked(c, session.Renamed{From: old, To: v[0], Also: true})
		for _, a := range append(v, nobody(1)) {
			if !slices.Contains(m.names.at(a).conns, c) || count() != 3 {
				t.Errorf("change %d: it goes by %v: %v", i, a, m.names.at(a).conns)
			}
		}
	}
	c.s.State = session.Standby
	c.s.closeLocked(false, nil)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, change := range []func(wire.Addr, *Conn){m.names.addLocked, m.names.removeLocked} {
		for i := range uint32(1 << 14) {
			change(nobody(i), c)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if n, kept := count(), int64(after.HeapAlloc)-int64(before.HeapAlloc); n != 0 || kept > 1<<18 {
		t.Errorf("%d are left, and %d bytes of those that were there at once", n, kept)
	}
}

// A step of a session is told whether another peer has a better right to its address.
func TestAStepIsToldOfThoseWhoClaimItsAddress(t *testing.T) {
	m := idle(t, nil)
	m.lock()
	defer m.unlock()
	first := m.claimsLocked("1", true)
	contested := func() bool { return m.envLocked(&first.s.machine, first, numbers{}).Contested() }
	if contested() {
		t.Error("contested by nobody")
	}
	if m.claimsLocked("2", true); !contested() {
		t.Error("another proven name does not count")
	}
}

// callsBack is user code that asks the messenger, whose lock must be free then.
type callsBack struct {
	m     atomic.Pointer[Manager]
	calls atomic.Int64
}

func (b *callsBack) ask() {
	if m := b.m.Load(); m != nil {
		b.calls.Add(1)
		m.Conns()
	}
}

type loggerThatCallsBack struct{ *callsBack }

func (l loggerThatCallsBack) Enabled(context.Context, slog.Level) bool { l.ask(); return true }
func (l loggerThatCallsBack) Handle(context.Context, slog.Record) error {
	l.ask()
	return nil
}
func (l loggerThatCallsBack) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l loggerThatCallsBack) WithGroup(string) slog.Handler      { return l }

type clockThatCallsBack struct {
	*callsBack
	MachineClock
}

func (c clockThatCallsBack) Now() time.Time { c.ask(); return c.MachineClock.Now() }
func (c clockThatCallsBack) AfterFunc(d time.Duration, f func()) func() bool {
	c.ask()
	stop := c.MachineClock.AfterFunc(d, f)
	return func() bool { c.ask(); return stop() }
}

type randThatCallsBack struct{ *callsBack }

func (r randThatCallsBack) Read(p []byte) (int, error) { r.ask(); return io.ReadFull(crand.Reader, p) }

// Matrix: SH-05
func TestUserCodeMayCallTheMessengerBack(t *testing.T) {
	for name, use := range map[string]func(*Config, *callsBack){
		"log handler":      func(c *Config, b *callsBack) { c.Logger = slog.New(loggerThatCallsBack{b}) },
		"clock":            func(c *Config, b *callsBack) { c.Clock = clockThatCallsBack{callsBack: b} },
		"source of random": func(c *Config, b *callsBack) { c.Rand = randThatCallsBack{b} },
	} {
		t.Run(name, func(t *testing.T) {
			b := new(callsBack)
			m := idle(t, func(c *Config) { use(c, b) })
			b.m.Store(m)
			if _, err := m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}); err != nil {
				t.Fatal(err)
			}
			c, err := m.Connect(nobody(1), wire.OSD, &ConnectOptions{Policy: losslessClient()})
			must(t, err)
			for c.State() == session.Connecting {
				m.lock()
				changed := c.shown.changeLocked()
				m.unlock()
				if c.State() != session.Connecting {
					break
				}
				<-changed
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := m.Rebind(ctx); err != nil {
				t.Error(err)
			}
			if b.calls.Load() == 0 {
				t.Error("it was never called")
			}
		})
	}
}

// A session that is closed while a hand-over reads it lets go of its messages, which
// calls their user.
func TestMessagesOfAHandOverAreReleasedWithoutTheLock(t *testing.T) {
	m := idle(t, nil)
	c, err := m.Connect(nobody(1), wire.OSD, &ConnectOptions{Policy: losslessPeer()})
	must(t, err)
	c.MarkDown()
	<-c.Closed() // by itself, with nobody asking
	released := false
	msg := dataplane.NewMessage(1, nil, nil)
	msg.Free = func(*dataplane.Message) {
		m.Conns()
		released = true
	}
	if _, ok := (&frozen{c: c}).Record(dataplane.HandlerState{Sent: []*dataplane.Message{msg}}); ok || !released {
		t.Errorf("passed on: %v, released: %v", ok, released)
	}
}
