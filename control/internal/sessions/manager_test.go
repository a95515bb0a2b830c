package sessions

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/internal/door"
	"github.com/ringmsgr/ringmsgr/control/internal/handover"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// above is an Owner whose users dispatch nothing: these tests have no messenger.
type above struct{}

func (above) NewUser(bool) User { return &upper{} }

// upper is the upper side of one connection.
type upper struct {
	conn   Conn
	ceased atomic.Bool
	moved  atomic.Bool
}

func (u *upper) Conn() *Conn                                               { return &u.conn }
func (u *upper) Probed() probe.Conn                                        { return nil }
func (u *upper) Cease()                                                    { u.ceased.Store(true) }
func (u *upper) Finish() (waits bool)                                      { u.Cease(); return false }
func (u *upper) Idle() <-chan struct{}                                     { return nil }
func (u *upper) Due() int                                                  { return 0 }
func (u *upper) Closed()                                                   {}
func (u *upper) Lost()                                                     {}
func (u *upper) Dispatch(*dataplane.Handler, *dataplane.Message)           {}
func (u *upper) Faulted(n uint64, err error, snap dataplane.Snapshot)      { u.conn.Faulted(n, err, snap) }
func (u *upper) Queued(n uint64)                                           { u.conn.Queued(n) }
func (u *upper) Moving(*dataplane.Handler, *loop.Core)                     {}
func (u *upper) Moved(*dataplane.Handler, *loop.Core, dataplane.MoveCause) { u.moved.Store(true) }
func (u *upper) Happened(*dataplane.Handler, any)                          {}
func (u *upper) KeepaliveAck(*dataplane.Handler, dataplane.Timestamp)      {}

// losslessPeer is the policy of two that both may dial.
func losslessPeer() *Policy { return &Policy{Name: "lossless-peer", Standby: true, Register: true} }

// losslessClient is that of one that dials.
func losslessClient() *Policy {
	return &Policy{Name: "lossless-client", ResetCheck: true, Register: true}
}

// newManager makes a Manager that has one core, as change says.
func newManager(t *testing.T, change func(*Config)) *Manager {
	t.Helper()
	cfg := Config{
		Name: wire.EntityName{Type: wire.OSD, ID: "1"}, Steering: steering.For(steering.Auto, false, false), Limits: frame.DefaultLimits(),
		Timeout: 10 * time.Second, Backoff: session.Backoff{Initial: time.Minute, Max: time.Minute}, RetryDelay: time.Second,
		Plane: loop.Config{Cores: 1, Driver: uring.Config{Backend: uring.Epoll}},
		Door:  door.Shares(64), InFlight: loop.NewThrottle(0), Clock: MachineClock{}, Rand: rand.Reader, Logger: slog.New(slog.DiscardHandler),
	}
	cfg.AuthClient, cfg.AuthServer = none.NewClient(cfg.Name), none.NewServer(none.ServerConfig{})
	cfg.Default = Policy{Name: "stateless-server", Lossy: true, Server: true}
	if change != nil {
		change(&cfg)
	}
	m, err := New(cfg, above{})
	must(t, err)
	t.Cleanup(func() { m.Close()() })
	return m
}

// must ends the test by an error.
var must = drivertest.Must

// idle is a started Manager whose connections never come about: nobody listens there.
func idle(t *testing.T, change func(*Config)) *Manager {
	t.Helper()
	m := newManager(t, change)
	must(t, m.Start())
	return m
}

// nobody is an address at which nothing listens.
func nobody(nonce uint32) wire.Addr {
	return wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:1"), Nonce: nonce}
}

// A successor hands a session over as it got it: nothing is lost on either side.
func TestASessionComesBackFromAHandOverAsItWas(t *testing.T) {
	at, at1 := nobody(7), nobody(8).WithType(wire.AddrLegacy)
	who := wire.EntityName{Type: wire.OSD, ID: "3"}
	for _, want := range []handover.Session{
		{
			Peer:       session.Peer{Target: at, Dialled: true, Type: wire.OSD, Addrs: wire.AddrVec{nobody(9), at}, Entity: who, Number: 3, NumberKnown: true},
			PolicyName: "one", Policy: session.Policy{Standby: true, Register: true, Supported: 1 << 60, Required: 4}, Once: true,
			Record:        session.Record{ClientCookie: 1, ServerCookie: 2, ToldSeq: 5},
			PeerGlobalSeq: 3, ConnectSeq: 4, Features: 6,
		},
		{
			Peer:       session.Peer{Target: at1, Near: true, Type: wire.OSD, Addrs: wire.AddrVec{at1}, Entity: who, Proven: true, Anonymous: true},
			PolicyName: "two", Policy: session.Policy{Server: true, ResetCheck: true},
			Record:        session.Record{ToldSeq: 9, Told: []uint32{9, 8}, Opened: 9},
			PeerGlobalSeq: 3, ConnectSeq: 4,
		},
	} {
		m := newManager(t, func(c *Config) { c.Number = -1 })
		s, last := m.Succeed(nil), handover.Attempts{Msgr2: 100, Msgr1: 200}
		beside := want // of another peer, which has claimed the address
		beside.Peer.Type, beside.Peer.Dialled, beside.Peer.Proven = wire.MDS, false, false
		must(t, s.Restore(handover.Offer{Number: 5}, []handover.Session{want, beside}, last))
		c := s.conns[0]
		m.lock()
		got, attempts := recordLocked(c, dataplane.HandlerState{}), m.attemptsLocked()
		m.unlock()
		slices.Sort(got.Record.Told)
		slices.Sort(want.Record.Told)
		if !reflect.DeepEqual(got, want) || attempts != last || m.number != 5 {
			t.Errorf("%+v, want %+v; attempts %+v, number %d", got, want, attempts, m.number)
		}
		if found := m.Lookup(want.Peer.Target); (found == c) == want.Peer.Anonymous {
			t.Errorf("anonymous %v: found %v", want.Peer.Anonymous, found == c)
		}
	}
}

// Close has closed all connections, whose users hear of nothing from there on, and the handshakes under
// way end once the caller waits: none of them makes another connection.
func TestNoConnectionIsMadeBehindClose(t *testing.T) {
	m := idle(t, nil)
	addrs, err := m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{Name: wire.EntityName{Type: wire.Client, ID: "2"}, Addr: nobody(2)}, addrs[0])
	defer p.Close()
	p.Handshake()
	c, err := m.Connect(nobody(1), wire.OSD, &ConnectOptions{Policy: losslessPeer()})
	must(t, err)
	wait := m.Close()
	if !c.user.(*upper).ceased.Load() {
		t.Error("the connection has events")
	}
	p.SendPayload(frame.TagClientIdent, p.ClientIdent(7, 1))
	p.ExpectEnd()
	must(t, p.Err())
	wait()
}

// A handshake may have read its last frame before its core ended: no core would dispatch its events.
func TestNoConnectionIsMadeOnACoreThatIsGone(t *testing.T) {
	m := newManager(t, nil)
	_, link, err := socketOf(t, hinted(t, m, listenTCP(t, "127.0.0.1:0"), steering.Owner{}))
	must(t, err)
	must(t, m.plane.Close())
	a := &accepting{m: m, link: link, speaks: msgr2{}, att: &attempt{talk: &talk2{}, peer: &handshake.Peer{Auth: nobody1()}}}
	a.s = m.newSessionOf(a.speaks, losslessClient(), session.Peer{})
	m.lock()
	defer m.unlock()
	if ev, _ := a.requestLocked(nil); !errors.Is(ev.Refuse, loop.ErrStopped) {
		t.Errorf("refused: %v", ev.Refuse)
	}
}

// queueing is a talk that may not wait.
type queueing struct {
	*talk2
	yes bool
}

func (q queueing) queues() bool     { return q.yes }
func (q queueing) protocol() string { return "" }

// Its core may end when the connection is made, and before its handler is to move: the user hears of the connection before its end.
func TestAConnectionThatIsMadeIsAcceptedAlthoughItsCoreEnds(t *testing.T) {
	m := newManager(t, nil)
	_, link, err := socketOf(t, hinted(t, m, listenTCP(t, "127.0.0.1:0"), steering.Owner{}))
	must(t, err)
	must(t, m.plane.Close())
	for _, queues := range []bool{false, true} {
		a := &accepting{m: m, link: link, speaks: msgr2{}, att: m.newAttempt(), policy: losslessClient()}
		a.att.link, a.att.accepted, a.att.peer = link, a, &handshake.Peer{Auth: nobody1()}
		a.att.talk = queueing{new(talk2), queues}
		a.s = m.newSessionOf(a.speaks, losslessClient(), session.Peer{})
		m.lock()
		a.makeLocked([]session.Action{session.MoveHandler{Accepted: true}})
		m.unlock()
		if queues {
			a.conn.out.LetGo()
		}
		if err := <-a.att.moved; err != nil || !a.conn.user.(*upper).moved.Load() {
			t.Errorf("queues %v: %v, and the user has heard of it: %v", queues, err, a.conn.user.(*upper).moved.Load())
		}
	}
}

// A session does not follow a socket to a core that has ended: its user would hear of that on no core.
func TestASessionDoesNotFollowASocketToACoreThatHasEnded(t *testing.T) {
	m := newManager(t, nil)
	_, link, err := socketOf(t, hinted(t, m, listenTCP(t, "127.0.0.1:0"), steering.Owner{}))
	must(t, err)
	a := &accepting{m: m, link: link, speaks: msgr2{}, att: m.newAttempt(), takingOver: true}
	a.att.link, a.att.accepted, a.att.peer, a.att.talk = link, a, &handshake.Peer{Auth: nobody1()}, queueing{new(talk2), false}
	m.lock()
	c := m.newConnLocked(m.pickCore(), losslessClient(), m.newSessionOf(a.speaks, losslessClient(), session.Peer{}), false)
	m.unlock()
	must(t, m.plane.Close())
	m.lock()
	c.s.prepareMoveLocked(a.att, dataplane.MoveCause{Accepted: true})
	m.unlock()
	if err := <-a.att.moved; !errors.Is(err, loop.ErrStopped) || c.user.(*upper).moved.Load() {
		t.Errorf("%v, and the user has heard of it: %v", err, c.user.(*upper).moved.Load())
	}
}

// A socket is believed, whatever its numbers are, once no older handshake can be under way. A clock that is set back makes
// no old socket a younger one. There is no probe, as in most messengers.
func TestOnlyALaterSocketFindsSettledNumbers(t *testing.T) {
	m := newManager(t, nil)
	now := time.Now().Round(0) // without the monotonic clock, which is never set back
	socket := func(at time.Duration) *accepting {
		a := &accepting{m: m, att: m.newAttempt()}
		a.att.begin(m, now.Add(at))
		return a
	}
	old := socket(0)
	brought := socket(-time.Hour) // the clock was set back
	e := new(Conn)
	e.s.numbered, e.s.numberedBy = brought.att.begun, brought.att.serial
	long := m.cfg.Timeout - time.Hour + 1
	got := [...]bool{old.settledLocked(e), socket(long - 1).settledLocked(e), socket(long).settledLocked(e)}
	if got != [...]bool{false, false, true} {
		t.Errorf("sockets that began before, soon after and long after: settled %v", got)
	}
	m.lock()
	defer m.unlock()
	c := m.claimsLocked("1", false)
	c.s.State = session.Ready
	c.s.stepLocked(session.Replace{Frame: wire2.SessionReconnect{GlobalSeq: 9}})
	c.s.att = old.att
	if c.s.stepLocked(session.HandlerMoved{Attempt: c.s.Attempt}); c.s.numbered != old.att.begun || c.s.numberedBy != old.att.serial {
		t.Errorf("the numbers are those of socket %d, begun %v", c.s.numberedBy, c.s.numbered)
	}
}

func TestEachCountOfTheMachineIsTheFigureOfItsName(t *testing.T) {
	ones := regexp.MustCompile(`\w+":1\b`)
	for what := range session.PartialResetsSent + 1 {
		var m Manager
		var n stats.ConnCounters
		m.countLocked(&n, what)
		text, err := json.Marshal([]any{n, m.counters})
		want := strings.ReplaceAll(what.String(), " ", "_") + `":1`
		if got := ones.FindAllString(string(text), -1); err != nil || !slices.Equal(got, []string{want}) {
			t.Errorf("%v counts as %q, %v", what, got, err)
		}
	}
}
