package sessions

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control/internal/binding"
	"github.com/ringmsgr/ringmsgr/control/internal/handover"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/session1"
	"github.com/ringmsgr/ringmsgr/control/internal/session2"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

func TestAnAttemptIsCancelledUntilItEndsAndHoldsNoContextBehindThat(t *testing.T) {
	m, _ := hintMessenger(t, bpf.PortRange{})
	a, cause := m.newAttempt(), errors.New("the cause")
	ctx := a.ctx
	a.cancel(cause)
	if got := context.Cause(ctx); !errors.Is(got, cause) {
		t.Errorf("cause %v", got)
	}
	a.release()
	a.cancel(errors.New("too late")) // by who takes the connection over
	if a.ctx != nil || a.cancelCtx.Load() != nil || !errors.Is(context.Cause(ctx), cause) {
		t.Errorf("context %v, cause %v", a.ctx, context.Cause(ctx))
	}
}

// A Shutdown that comes when the ports are chosen already is the reason, not
// the cores that have stopped. Without an address that is the reason.
func TestListeningInVainSaysWhy(t *testing.T) {
	m := newManager(t, func(c *Config) { c.Plane.Cores = 2 })
	if _, err := m.Bind(); !errors.Is(err, ErrConfig) {
		t.Errorf("bound to nothing: %v", err)
	}
	_, err := m.listenAll(t.Context(), []wire.Addr{addrOf(t, "v2:127.0.0.1:0/0")}, func(wire.Addr) binding.Ports {
		m.Close()()
		return binding.Ports{}
	})
	if !errors.Is(err, ErrShutdown) {
		t.Errorf("got %v", err)
	}
	if _, _, err = m.swap(&endpoints{}, m.listeners.Taken(), 1); !errors.Is(err, ErrShutdown) {
		t.Errorf("a rebind that sees the listeners taken: %v", err)
	}
}

// RL-01: there are as many of these as connections; it fits a size of the allocator.
func TestWhatAConnectionShowsKeepsItsSize(t *testing.T) {
	if got := reflect.TypeFor[published]().Size(); got > 80 {
		t.Errorf("%d bytes, want at most 80", got)
	}
}

// A session on which nothing moves is of use if it lives for as long as the
// longest pause: it is dialled at once, as often as that. One that lives for less
// is dialled at once the first time only, and always from its core.
func TestASessionThatLivesLongIsOfUse(t *testing.T) {
	m := newManager(t, func(c *Config) { c.Plane.Cores = 2 })
	m.lock()
	defer m.unlock()
	p := losslessClient()
	c := m.newConnLocked(m.pickCore(), p, m.newSession(p, session.Peer{Target: wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("192.0.2.1:6800")}}), false)
	c.silence.Store(&silence{since: time.Unix(1000, 0), stop: func() bool { return true }}) // the outbox waits for the lock
	for i, one := range []struct {
		lived time.Duration
		want  session.State
	}{
		{time.Minute, session.Connecting}, {time.Minute, session.Connecting}, {0, session.Connecting}, {time.Minute, session.Connecting},
		{time.Minute - 1, session.Connecting}, {time.Minute - 1, session.Wait},
	} {
		c.s.State, c.s.opened = session.Ready, time.Unix(1000, 0)
		c.shown.publishLocked(&c.s.machine)
		if since := c.Info().Unanswered; !since.IsZero() {
			t.Errorf("it is ready, and unanswered since %v", since)
		}
		n := uint64(i + 1)
		c.s.notifiedLocked(notification{
			conn: c, n: n, lost: true, err: errors.New("broken"), at: c.s.opened.Add(one.lived), snapshot: dataplane.Snapshot{Notifications: n},
		})
		if at := m.dialCoreLocked(c); at != c.h.Core() {
			t.Errorf("it is dialled from core %d, not from its own", at.ID())
		}
		if c.s.State != one.want {
			t.Errorf("loss %d, lived for %v: state %v, want %v", n, one.lived, c.s.State, one.want)
		}
	}
}

// lateClock keeps what its timers do: each fires when the test says so, though it was stopped.
type lateClock struct {
	handClock
	timers  []func()
	stopped int
}

func (c *lateClock) AfterFunc(_ time.Duration, f func()) (stop func() bool) {
	c.timers = append(c.timers, f)
	return func() bool { c.stopped++; return true }
}

// A session of another process has the times of our policy.
func TestTheTimerOfAnEarlierWaitEndsNoSession(t *testing.T) {
	clock := new(lateClock)
	m := newManager(t, func(c *Config) { c.Clock, c.Default.StandbyAge = clock, time.Hour })
	m.lock()
	c, err := m.restoreLocked(&handover.Session{Peer: session.Peer{Target: nobody(1)}})
	must(t, err)
	c.s.Frozen = false
	c.beginStandbyLocked(0)
	m.unlock()
	m.lock()
	c.endStandbyLocked()
	c.beginStandbyLocked(0)
	m.unlock()
	if clock.stopped != 1 {
		t.Errorf("%d timers were stopped, want 1", clock.stopped)
	}
	for i, want := range []uint64{0, 1} {
		if clock.timers[i](); m.counters.Expired != want {
			t.Errorf("timer %d: %d sessions have ended, want %d", i+1, m.counters.Expired, want)
		}
	}
	clock.stopped = 0
	c.beginSilence()
	if c.endSilence(); clock.stopped != 1 || m.silent.Load() != 0 {
		t.Errorf("an answer has stopped %d timers, and %d peers are silent", clock.stopped, m.silent.Load())
	}
}

// A hand-over closes all sockets at once: peers have the time to come back before their sessions are too many.
func TestSessionsOfAHandOverAreNotTooManyAtOnce(t *testing.T) {
	clock := new(lateClock)
	m := newManager(t, func(c *Config) { c.MaxStandby, c.Clock = 1, clock })
	var list []handover.Session
	for nonce := range uint32(4) {
		list = append(list, handover.Session{Peer: session.Peer{Target: nobody(nonce)}, Policy: session.Policy{Server: true, Standby: true}})
	}
	s := m.Succeed(nil)
	must(t, s.Restore(handover.Offer{}, list, handover.Attempts{}))
	s.Begin()
	var before, after stats.Stats
	must(t, m.Stats(&before))
	for _, over := range clock.timers {
		over()
	}
	must(t, m.Stats(&after))
	if before.Open != 4 || before.Standby != 4 || after.Open != 1 || after.Standby != 1 || m.Lookup(nobody(3)) == nil {
		t.Errorf("%d sessions at once and %d later, of which %d and %d wait, want 4 and 1 for both", before.Open, after.Open, before.Standby, after.Standby)
	}
}

// A fault of an earlier socket can be heard of when the session has the next one
// already: it is no fault of that, and what was received since is not forgotten.
func TestAFaultOfAnEarlierSocketIsNone(t *testing.T) {
	m := newManager(t, nil)
	m.lock()
	defer m.unlock()
	c := m.claimsLocked("1", false)
	c.s.State = session.Connecting
	c.s.stepLocked(session.Authenticated{IO: session.Snapshot{InSeq: 10, Notifications: 3}}) // its handler has told three times
	c.s.State = session.Ready
	for n := uint64(1); n <= 3; n++ {
		c.s.notifiedLocked(notification{conn: c, n: n, lost: true, err: errors.New("broken"), snapshot: dataplane.Snapshot{InSeq: 5, Notifications: n}})
	}
	if c.s.State != session.Ready || c.s.IO.InSeq != 10 {
		t.Errorf("state %v, received up to %d", c.s.State, c.s.IO.InSeq)
	}
	c.s.notifiedLocked(notification{conn: c, n: 4, lost: true, err: errors.New("broken"), snapshot: dataplane.Snapshot{InSeq: 12, Notifications: 4}})
	if c.s.State == session.Ready || c.s.IO.InSeq != 12 {
		t.Errorf("behind its own fault: state %v, received up to %d", c.s.State, c.s.IO.InSeq)
	}
}

func addrOf(t *testing.T, s string) wire.Addr {
	t.Helper()
	a, err := wire.ParseAddr(s)
	must(t, err)
	return a
}

// Matrix: HS-12
func TestOnlyTheIPOfAnAddressIsLearned(t *testing.T) {
	for _, one := range []struct {
		name    string
		have    []string
		local   string // our end of the socket
		seen    string
		want    string
		changed bool
	}{
		{"a client knows none", nil, "10.0.0.3:45678", "v2:10.0.0.2:45678/7", "any:10.0.0.2:0/99", false},
		{"nothing to learn", nil, "10.0.0.3:45678", "v2:0.0.0.0:45678/7", "", false},
		{"bound to all addresses", []string{"v2:0.0.0.0:6800/99"}, "10.0.0.2:6800", "v2:6.6.6.6:6800/99", "v2:10.0.0.2:6800/99", true},
		{"of all families", []string{"v2:0.0.0.0:6800/99"}, "[::ffff:10.0.0.2]:6800", "v2:6.6.6.6:6800/99", "v2:10.0.0.2:6800/99", true},
		{"of a zone", []string{"v2:[::]:6800/99"}, "[fe80::2%eth0]:6800", "v2:6.6.6.6:6800/99", "v2:[fe80::2]:6800/99", true},
		{"the kernel does not know", []string{"v2:0.0.0.0:6800/99"}, "", "v2:10.0.0.2:45678/7", "v2:10.0.0.2:6800/99", true},
		{"of another family", []string{"v2:0.0.0.0:6800/99"}, "[2001:db8::2]:6800", "v2:[2001:db8::2]:45678/7", "v2:0.0.0.0:6800/99", false},
		{"known", []string{"v2:10.0.0.1:6800/99"}, "10.0.0.2:6800", "v2:10.0.0.2:45678/7", "v2:10.0.0.1:6800/99", false},
	} {
		id := identity{nonce: 99}
		for _, a := range one.have {
			id.addrs = append(id.addrs, addrOf(t, a))
		}
		before := id.addrs
		told := slices.Clone(before)
		local, _ := netip.ParseAddrPort(one.local)
		changed := id.learn(local, addrOf(t, one.seen))
		got := ""
		if len(id.addrs) > 0 {
			got = id.addrs[0].String()
		}
		if got != one.want || changed != one.changed {
			t.Errorf("%s: %s, changed %v", one.name, got, changed)
		}
		if !slices.Equal(before, told) {
			t.Errorf("%s: what peers were told has changed under their hands: %v", one.name, before)
		}
	}
}

func TestAnotherPlaceIsTheSameIPWithAnotherPort(t *testing.T) {
	var id identity
	if at, _ := id.elsewhere(bpf.PortRange{}, nil); at != nil {
		t.Errorf("not bound, and %v", at)
	}
	id.nonce = 5
	id.settle(wire.AddrVec{addrOf(t, "v2:0.0.0.0:6800/0")})
	id.learn(netip.MustParseAddrPort("10.0.0.2:6800"), wire.Addr{})
	from := bpf.PortRange{First: 6800, Last: 6900}
	at, ports := id.elsewhere(from, []uint16{6801})
	if len(at) != 1 || at[0].AddrPort != netip.MustParseAddrPort("0.0.0.0:0") || ports.From != from || !ports.Avoid[6800] || !ports.Avoid[6801] || len(ports.Avoid) != 2 {
		t.Errorf("%v, %+v", at, ports)
	}
	// What was learned stays, at the new port and under the new nonce.
	id.renew(5)
	id.settle(wire.AddrVec{addrOf(t, "v2:0.0.0.0:6802/0")})
	if got := id.addrs.String(); got != "v2:10.0.0.2:6802/6" && got != "[v2:10.0.0.2:6802/6]" {
		t.Errorf("now %s", got)
	}
	// Behind a hand-over without listeners only the addresses are known.
	id.places = nil
	if at, _ := id.elsewhere(from, nil); len(at) != 1 || at[0].AddrPort != netip.MustParseAddrPort("10.0.0.2:0") {
		t.Errorf("%v", at)
	}
}

// Matrix: HS-19
func TestAnAddressIsOursByWhatWeToldByTheSocketOrByPortAndNonceOfAWildcard(t *testing.T) {
	for _, one := range []struct {
		name   string
		bound  string
		target string
		local  string // our end of the socket
		want   bool
	}{
		{"told", "v2:10.0.0.1:6800/99", "v2:10.0.0.1:6800/99", "", true},
		{"another IP", "v2:10.0.0.1:6800/99", "v2:10.0.0.2:6800/99", "10.0.0.1:6800", false},
		{"another IP, which is that of the socket", "v2:10.0.0.1:6800/99", "v2:10.0.0.2:6800/99", "10.0.0.2:6800", true},
		{"translated", "v2:0.0.0.0:6800/99", "v2:10.0.0.2:6800/99", "10.0.0.1:6800", true},
		{"another nonce", "v2:0.0.0.0:6800/99", "v2:10.0.0.2:6800/98", "10.0.0.2:6800", false},
		{"another port", "v2:0.0.0.0:6800/99", "v2:10.0.0.2:6801/99", "10.0.0.2:6800", false},
		{"another type", "v2:0.0.0.0:6800/99", "v1:10.0.0.2:6800/99", "10.0.0.2:6800", false},
		{"no IP", "v2:0.0.0.0:6800/99", "v2:0.0.0.0:6800/99", "10.0.0.2:6800", false},
		{"a nonce that others have, too", "v2:0.0.0.0:6800/0", "v2:10.0.0.2:6800/0", "10.0.0.3:6800", false},
		{"such a nonce, and the socket", "v2:0.0.0.0:6800/0", "v2:10.0.0.2:6800/0", "[::ffff:10.0.0.2]:6800", true},
		{"of a zone", "v2:[::]:6800/0", "v2:[fe80::2]:6800/0", "[fe80::2%eth0]:6800", true},
	} {
		bound := addrOf(t, one.bound)
		id := identity{nonce: bound.Nonce}
		id.settle(wire.AddrVec{bound})
		id.learn(netip.MustParseAddrPort("10.9.9.9:6800"), wire.Addr{}) // from somebody else
		local, _ := netip.ParseAddrPort(one.local)
		if got := id.ours(addrOf(t, one.target), local); got != one.want {
			t.Errorf("%s: %v", one.name, got)
		}
	}
}

// The policy of the connection that a socket takes over may not refuse what that of the socket refuses.
func TestAnAuthorizerThatNobodyHasVerifiedIsNotGood(t *testing.T) {
	a := acceptor1{a: &accepting{m: newManager(t, nil), att: &attempt{peer: new(handshake.Peer)}, speaks: msgr1{}}}
	f, err := a.asked(t.Context(), wire1.Connect{HostType: wire.Client}) // of an unknown version
	must(t, err)
	if got := f.(session1.Asked).Authorizer; got != session1.AuthorizerBad {
		t.Errorf("verdict %d", got)
	}
}

// Several peers may say that they are at one address: the cookie says which of their sessions a
// frame is about.
func TestAFrameMeansTheSessionOfItsCookieAmongThoseOfItsAddress(t *testing.T) {
	m := newManager(t, nil)
	m.lock()
	defer m.unlock()
	p, peer := losslessPeer(), session.Peer{Target: nobody(1), Type: wire.OSD, Entity: wire.EntityName{Type: wire.OSD, ID: "3"}}
	var conns []*Conn
	for cookie := range uint64(3) {
		c := m.newConnLocked(m.pickCore(), p, m.newSession(p, peer), false)
		c.s.rules.(*session2.Session).ClientCookie = cookie + 1
		m.names.addLocked(peer.Target, c)
		conns = append(conns, c)
	}
	for i, c := range conns {
		from := session.Sender{Addrs: wire.AddrVec{peer.Target}, Cookie: uint64(i) + 1}
		if got := m.names.meantLocked(from, msgr2{}, &peer); got != c {
			t.Errorf("cookie %d means connection %d, not %d", from.Cookie, got.id, c.id)
		}
	}
}

// A frozen session is about to be another process's: it is not given up before the hand-over fails. That answers no peer:
// the silence goes on if the session dials on, and is over if it stands by. A warning about an earlier dial ends none.
func TestASessionThatIsBeingHandedOverIsGivenUpIfItComesBack(t *testing.T) {
	for _, one := range []struct {
		state session.State
		dials bool
	}{{session.Connecting, true}, {session.Wait, true}, {session.Connecting, false}} {
		clock := new(lateClock)
		m := newManager(t, func(c *Config) { c.Clock = clock })
		m.work.Close() // no attempt runs
		p := losslessClient()
		p.Server, p.GiveUpAfter = !one.dials, time.Hour
		m.lock()
		c := m.newConnLocked(m.pickCore(), p, m.newSession(p, session.Peer{Target: nobody(1)}), false)
		c.s.State = session.Replacing
		m.unlock()
		c.beginSilence()
		s, h := c.silence.Load(), &predecessor{m: m}
		clock.now = clock.now.Add(p.GiveUpAfter)
		if clock.timers[0](); c.State() == session.Closing || len(clock.timers) != 2 {
			t.Errorf("a peer comes: state %v, and %d warnings are due", c.State(), len(clock.timers)-1)
		}
		m.lock()
		c.s.State = one.state
		m.unlock()
		h.Freeze()
		warnings := len(clock.timers)
		if clock.timers[0](); c.State() == session.Closing || len(clock.timers) == warnings {
			t.Errorf("%+v: state %v, and no warning follows the one that came meanwhile", one, c.State())
		}
		h.Undo()
		if kept := c.silence.Load() == s; kept != one.dials {
			t.Errorf("%+v: its silence is kept: %v", one, kept)
		}
		if c.unanswered(&silence{since: s.since}); c.State() == session.Closing {
			t.Errorf("%+v: an earlier warning ends it", one)
		}
		if c.unanswered(s); (c.State() == session.Closing) != one.dials {
			t.Errorf("%+v: state %v", one, c.State())
		}
	}
}

// The attempt of a frozen session may still have a socket, and its successor waits for the end of that.
func TestAHandOverWaitsForTheAttemptThatItInterrupts(t *testing.T) {
	m := idle(t, nil)
	c, err := m.Connect(nobody(1), wire.OSD, &ConnectOptions{Policy: losslessClient()})
	must(t, err)
	m.lock()
	at := c.s.att
	m.unlock()
	h := &predecessor{m: m}
	frozen := h.Freeze()
	if len(frozen) != 1 || frozen[0].Attempt() == nil || frozen[0].Attempt() != (<-chan struct{})(at.done) {
		t.Errorf("%d sessions are frozen, and nobody waits for the attempt", len(frozen))
	}
	c.MarkDown()
	_, _, _ = h.Settle(nil)
	if h.Finish(); c.HandedOver() {
		t.Error("a connection that was marked down before was handed over")
	}
}

// A connection that is boarding stays where it is when its core is removed. A hand-over ends its attempt, and fails.
// One that comes too late, and is closed by then, ends there.
func TestAConnectionLeavesItsRemovedCoreAfterAFailedHandOver(t *testing.T) {
	m := idle(t, func(c *Config) { c.Plane.Cores = 2 })
	p, core := losslessPeer(), m.plane.Core(0)
	p.Server = true
	m.lock()
	c := m.newConnLocked(core, p, m.newSession(p, session.Peer{Target: nobody(1)}), false)
	c.s.State = session.Establishing
	m.unlock()
	must(t, m.plane.Drain(core))
	resizing{m}.Evacuate(core)
	h := &predecessor{m: m}
	h.Freeze()
	h.Undo()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, m.plane.AwaitDrained(ctx, core))
	m.lock()
	m.lingering[c], c.s.State = Reset{}, session.Closing
	m.unlock()
	c.arrived(core)
	<-c.Closed()
}

func TestConnectRefusesWhatCannotBe(t *testing.T) {
	m, other := newManager(t, nil), 7
	for i, one := range []struct {
		to wire.Addr
		o  ConnectOptions
	}{
		{nobody(1), ConnectOptions{}}, // before Start
		{nobody(1).WithPort(0), ConnectOptions{}},
		{nobody(1).WithType(wire.AddrAny), ConnectOptions{}},
		{wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("0.0.0.0:1")}, ConnectOptions{}},
		{nobody(1), ConnectOptions{Entity: wire.EntityName{Type: wire.Mon, ID: "a"}}},
		{nobody(1), ConnectOptions{Core: &other}},
		{nobody(1), ConnectOptions{Policy: losslessPeer(), Anonymous: true}},
	} {
		one.o.Policy = cmp.Or(one.o.Policy, losslessClient())
		if c, err := m.Connect(one.to, wire.OSD, &one.o); !errors.Is(err, ErrConfig) || c != nil {
			t.Errorf("row %d: %v", i, err)
		}
		m.started, m.bound = true, true
	}
}
