package control

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control/internal/session2"
	"github.com/ringmsgr/ringmsgr/control/internal/sessions"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

var must = drivertest.Must

// Neither a hand-over nor Drain waits for replies that can only fail: of a session that the peer has lost, or of
// a connection that is over.
func TestRepliesThatCannotBeGivenAreNotDue(t *testing.T) {
	u := owner{new(Messenger)}.NewUser(false).(user)
	c, first := u.c, u.c.Later(new(Message))
	look := func(when string, due int) {
		t.Helper()
		if n := u.Due(); n != due || c.queue.rests(c) != (due == 0) {
			t.Errorf("%s: %d replies are due", when, n)
		}
	}
	look("promised", 1)
	c.queue.discard(c)
	look("the session is lost", 0)
	c.Later(new(Message))
	if err := first.Send(new(Message)); !errors.Is(err, ErrSessionLost) {
		t.Errorf("a reply of the lost session: %v", err)
	}
	look("one of each session", 1)
	u.Cease()
	if n := u.Due(); n != 0 {
		t.Errorf("behind the end %d replies are due", n)
	}
}

func TestCallTableFindsLikeAMap(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 5))
		var table callTable
		model := make(map[uint64]*Request)
		for range 3000 {
			r := &Request{tid: rng.Uint64N(400) << rng.IntN(3)}
			switch old := model[r.tid]; {
			case table.get(r.tid) != old:
				t.Fatalf("seed %d: %d is not found, or what is not there is", seed, r.tid)
			case old == nil:
				if !table.add(r) {
					t.Fatalf("seed %d: no room for %d", seed, r.tid)
				}
				model[r.tid] = r
			case table.add(r):
				t.Fatalf("seed %d: %d is there twice", seed, r.tid)
			default:
				table.remove(old)
				delete(model, r.tid)
			}
			if table.n != len(model) {
				t.Fatalf("seed %d: %d calls, want %d", seed, table.n, len(model))
			}
		}
		all := table.all()
		if len(all) != len(model) {
			t.Fatalf("seed %d: %d listed, want %d", seed, len(all), len(model))
		}
		for i, r := range all {
			if model[r.tid] != r || i > 0 && all[i-1].tid >= r.tid {
				t.Fatalf("seed %d: listed wrong", seed)
			}
		}
	}
}

// Ids of one messenger never meet, whatever the number of its connections.
func TestTransactionIDsOfAMessengerDiffer(t *testing.T) {
	m := &Messenger{}
	m.lastTID.Store(^uint64(0) - tidBlock - 1) // 0 comes up, and is no id
	seen := make(map[uint64]bool)
	conns := []*Conn{{m: m}, {m: m}, {m: m}}
	for i := range 5 * tidBlock {
		r := &Request{Message: &Message{}}
		conns[i%len(conns)].calls.name(r, &m.lastTID)
		if r.tid == 0 || seen[r.tid] || r.Message.TID != r.tid {
			t.Fatalf("call %d has id %d, the message %d", i, r.tid, r.Message.TID)
		}
		seen[r.tid] = true
	}
}

// An id that a user has chosen is given to no other request while it is under way.
func TestATransactionIDOfAUserIsGivenToNobodyElse(t *testing.T) {
	c := &Conn{m: &Messenger{}}
	c.calls.table.add(&Request{tid: 2})
	for _, want := range []uint64{1, 3} {
		r := &Request{Message: &Message{}}
		if c.calls.name(r, &c.m.lastTID); r.tid != want {
			t.Errorf("got %d, want %d", r.tid, want)
		}
	}
}

// A peer may guess an id: what comes before the request was written is no reply.
func TestNothingAnswersARequestThatWasNotWritten(t *testing.T) {
	c, replies := &Conn{}, 0
	r := &Request{conn: c, tid: 5, taken: true, Done: func(*Request, *Message, error) { replies++ }}
	c.calls.table.add(r)
	m := &Message{TID: 5}
	if c.calls.answered(m) || replies != 0 {
		t.Errorf("answered before it was written")
	}
	if r.sent = true; !c.calls.answered(m) || replies != 1 {
		t.Errorf("not answered behind that: %d replies", replies)
	}
}

// The rule is the same for a message of a peer and for one of our own.
// Matrix: HI-11
func TestAMessageGoesToTheFirstThatTakesItElseToTheFirstThatQueues(t *testing.T) {
	const taken, mine, none = 1, 2, 3 // message types
	for _, local := range []bool{false, true} {
		t.Run(fmt.Sprint("local ", local), func(t *testing.T) {
			m := Messenger{s: new(sessions.Manager)}
			var c Conn
			got := ""
			fast := func(name string, takes uint16) func(*Conn, *Message) bool {
				return func(_ *Conn, msg *Message) bool {
					got += name
					return msg.Type == takes
				}
			}
			queued := func(name string) func(*Conn, *Message) {
				return func(*Conn, *Message) { got += name }
			}
			m.chain.setSelf()
			m.chain.list = []*Dispatcher{{Fast: fast("a", 0)}, {Fast: fast("b", mine), Queued: queued("B")}, {Fast: fast("c", taken), Queued: queued("C")}, {}}
			give := func(typ uint16) string {
				got = ""
				msg := NewMessage(typ, nil, nil)
				if local {
					c.queue.push(&m, &c, &m.chain.self, msg)
				} else {
					m.dispatch(&c, msg)
					msg.Release()
				}
				<-c.queue.drained()
				return got
			}
			for typ, want := range map[uint16]string{mine: "ab", taken: "abc", none: "abcB"} {
				if got := give(typ); got != want {
					t.Errorf("type %d: %q, want %q", typ, got, want)
				}
			}
			m.chain.list = m.chain.list[:1]
			if give(none); m.chain.dropped.Load() != 1 {
				t.Errorf("%d messages dropped", m.chain.dropped.Load())
			}
		})
	}
}

// What the goroutine of a connection has taken out of the queue is of the ended
// session, too.
// Matrix: INV-03
func TestNothingOfAnEndedSessionIsDispatched(t *testing.T) {
	m, c := &Messenger{s: new(sessions.Manager)}, &Conn{}
	entered, let := make(chan uint64), make(chan struct{})
	freed := make(chan uint64, 10)
	d := &Dispatcher{Queued: func(_ *Conn, msg *Message) { entered <- msg.TID; <-let }}
	push := func(ids ...uint64) {
		for _, id := range ids {
			msg := NewMessage(1, nil, nil)
			msg.TID, msg.Free = id, func(m *Message) { freed <- m.TID }
			c.queue.push(m, c, d, msg)
		}
	}
	dispatched := func(want uint64) {
		t.Helper()
		select {
		case id := <-entered:
			if id != want {
				t.Fatalf("message %d is dispatched, want %d", id, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("message %d is not dispatched", want)
		}
	}
	push(0)
	dispatched(0)
	push(1, 2, 3)
	let <- struct{}{}
	dispatched(1) // and 2 and 3 are in the same batch
	push(4)
	c.queue.discard(c)
	push(5)
	let <- struct{}{}
	dispatched(5)
	let <- struct{}{}
	<-c.queue.drained()
	if len(freed) != 6 {
		t.Errorf("%d of 6 messages are freed", len(freed))
	}
}

// steady is a driver that reads one byte each time.
type steady struct{ uring.Driver }

func (steady) Info() uring.Info                                    { return uring.Info{} }
func (steady) Recv(uring.Socket, []byte, []byte) (int, unix.Errno) { return 1, 0 }

func TestOneOperationInSoManyFailsBySeedAndCore(t *testing.T) {
	failed := func(seed uint64, core int) (list []int) {
		i := injector{Inject: probe.Inject{Seed: seed, SocketFailures: 10}}
		d, err := i.failing(func(int) (uring.Driver, error) { return steady{}, nil })(core)
		must(t, err)
		for n := range 1000 {
			if _, errno := d.Recv(uring.Socket{}, nil, nil); errno != 0 {
				list = append(list, n)
			}
		}
		return list
	}
	one, again, other, neighbour := failed(1, 0), failed(1, 0), failed(2, 0), failed(1, 1)
	if len(one) < 60 || len(one) > 140 {
		t.Errorf("%d of 1000 operations failed, want about 100", len(one))
	}
	if !slices.Equal(one, again) || slices.Equal(one, other) || slices.Equal(one, neighbour) {
		t.Errorf("failed %v, then %v, with another seed %v, on another core %v", one, again, other, neighbour)
	}
}

// A connection may leave its core while a posting is on the way there: only the core that
// owns the connection may arm the posting.
func TestAPostingFollowsAConnectionThatHasLeftItsCore(t *testing.T) {
	name, err := wire.ParseEntityName("client.1")
	must(t, err)
	m, err := New(Config{Name: name, Number: 1, Plane: loop.Config{Cores: 2}, Timeouts: Timeouts{Handshake: time.Hour}})
	must(t, err)
	defer func() { _ = m.Shutdown(context.Background()) }()
	must(t, m.Start())
	to := wire.Addr{Type: wire.AddrMsgr2, Nonce: 1, AddrPort: drivertest.FullListener(t, t.Cleanup)}
	c, err := m.Connect(to, wire.OSD)
	must(t, err)
	// The session waits for its socket and takes no step: the test alone tells the handler.
	h, busy := c.s.Handler(), make(chan struct{})
	from := h.Core()
	must(t, from.Do(func(*loop.Core) { <-busy }))
	came := make(chan bool, 1)
	p := &Posting{TID: 1, Buffer: make([]byte, 10), Done: func(*Posting, error) {}}
	p.task.Run = func(at *loop.Core) {
		p.arrive(at)
		came <- at != from && at == h.Core() && !p.pending
	}
	h.Move(m.Core(1-from.ID()), dataplane.MoveCause{}, func() {})
	must(t, c.PostBuffer(p))
	close(busy)
	if !<-came {
		t.Error("a core that does not own the connection armed the posting")
	}
}

// bound is the bound of that name.
func bound(t *testing.T, cfg Config, name string) Bound {
	t.Helper()
	list := cfg.Bounds()
	i := slices.IndexFunc(list, func(b Bound) bool { return b.Name == name })
	if i < 0 {
		t.Fatalf("no bound %q", name)
	}
	return list[i]
}

func TestEveryBoundIsTheDefaultOfItsFieldAndFollowsIt(t *testing.T) {
	filled := Config{}.withDefaults()
	for _, b := range (Config{}).Bounds() {
		if b.Name[0] >= 'a' || strings.HasPrefix(b.Name, "Default.") {
			continue // a constant of a package, or of a policy
		}
		field, part, share := strings.Cut(b.Name, " ")
		of := func(c *Config) reflect.Value {
			v := reflect.ValueOf(c).Elem()
			for name := range strings.SplitSeq(field, ".") {
				if v = v.FieldByName(name); !v.IsValid() {
					t.Fatalf("%s is no field of Config", b.Name)
				}
			}
			return v
		}
		get := func(v reflect.Value) int64 {
			if v.CanUint() {
				return int64(v.Uint())
			}
			return v.Int()
		}
		if v := get(of(&filled)); !share && v != 0 && v != b.Value {
			t.Errorf("%s is %d, and the messenger takes %d", b.Name, b.Value, v)
		}
		// Below every default: a share is a part of its field only there.
		var changed Config
		if v := of(&changed); v.CanUint() {
			v.SetUint(640)
		} else {
			v.SetInt(640)
		}
		want := int64(640)
		if share {
			want = map[string]int64{"(share)": 10, "(source)": 40, "(prefix)": 160, "(reserve)": 160}[part]
		}
		if got := bound(t, changed, b.Name).Value; got != want {
			t.Errorf("%s of a configuration with 640 is %d, want %d", b.Name, got, want)
		}
		if !slices.Contains([]string{"messenger", "source", "prefix", "attempt", "frame", "message", "connection", "address", "core"}, b.Per) || b.Of == "" || b.Unit == "" {
			t.Errorf("%+v", b)
		}
	}
}

func TestABoundThatIsSwitchedOffIsNone(t *testing.T) {
	cfg := Config{Sending: Sending{QueueBytes: -1, QueueMessages: -1, Bytes: -1}, Receiving: Receiving{Bytes: -1, LeastRate: -1}, Door: Door{Bytes: -1, FailureRate: -1}, Timeouts: Timeouts{Idle: -1}, Policies: map[wire.EntityType]Policy{wire.OSD: LosslessPeer()}}
	for _, name := range []string{
		"Sending.QueueBytes", "Sending.QueueMessages", "Sending.Bytes", "Receiving.Bytes", "Door.Bytes", "Receiving.LeastRate", "Timeouts.Idle",
		"Door.FailureRate", "Door.FailureBurst", "Timeouts.Keepalive", "Default.Messages", "Default.Bytes", "Default.StandbyAge", "Policies[osd].StandbyAge",
	} {
		if b := bound(t, cfg, name); b.Value != 0 {
			t.Errorf("%+v", b)
		}
	}
}

func TestTheDataPlaneGetsTheBoundsTheirDefaultsAndThatThereIsNone(t *testing.T) {
	of := func(c Config) (dataplane.HandlerConfig, dataplane.OpenOptions) {
		c = c.withDefaults()
		below := c.sessions(nil, nil)
		if below.MaxStandby != c.MaxStandby {
			t.Errorf("as many sessions may wait: %d, want %d", below.MaxStandby, c.MaxStandby)
		}
		return below.Handler, below.Open
	}
	all := func(n int64) Config {
		return Config{
			Sending:  Sending{QueueBytes: n, QueueMessages: n},
			Timeouts: Timeouts{Idle: time.Duration(n)}, Receiving: Receiving{LeastRate: n},
		}
	}
	h, o := of(all(-1))
	if h.QueueBytes >= 0 || h.QueueMessages >= 0 || o.IdleAfter >= 0 || o.LeastRate >= 0 {
		t.Errorf("the data plane bounds what has no bound: %+v %+v", h, o)
	}
	h, o = of(Config{})
	if h.QueueBytes != dataplane.DefaultQueueBytes || h.QueueMessages != dataplane.DefaultQueueMessages ||
		o.IdleAfter != dataplane.DefaultIdleAfter || o.LeastRate != dataplane.DefaultLeastRate || o.MessageGrace != dataplane.DefaultMessageGrace {
		t.Errorf("the data plane does not get the defaults: %+v %+v", h, o)
	}
	if h, o = of(all(9)); h.QueueBytes != 9 || h.QueueMessages != 9 || o.IdleAfter != 9 || o.LeastRate != 9 {
		t.Errorf("%+v %+v", h, o)
	}
}

func TestThrottlesOfPoliciesAreBounds(t *testing.T) {
	policy := StatefulServer()
	policy.Messages, policy.Bytes = loop.NewThrottle(7), loop.NewThrottle(8)
	cfg := Config{Default: &policy, Policies: map[wire.EntityType]Policy{wire.Client: policy, wire.OSD: LosslessPeer()}}
	for name, want := range map[string]int64{
		"Default.Messages": 7, "Default.Bytes": 8, "Policies[client].Messages": 7, "Policies[client].Bytes": 8, "Policies[osd].Bytes": 0,
	} {
		if b := bound(t, cfg, name); b.Value != want || b.Per != "policy" {
			t.Errorf("%+v, want a value of %d", b, want)
		}
	}
}

func TestTheDoorGetsTheFailureRate(t *testing.T) {
	for _, c := range []struct {
		cfg               Config
		rate, burst, kept int
	}{
		{Config{}, 100, 1000, 4096},
		{Config{Door: Door{FailureRate: 3, FailureBurst: 5, HalfOpen: 7}}, 3, 5, 7},
		{Config{Door: Door{FailureRate: -1}}, 0, 0, 4096},
		{Config{Door: Door{FailureBurst: -1}}, 0, 0, 4096},
	} {
		cfg := c.cfg.withDefaults()
		if r := cfg.door().Rate; r.PerSecond != c.rate || r.Burst != c.burst || r.Kept != c.kept || r.Clock == nil || r.Line <= 0 {
			t.Errorf("%+v: %+v", c, r)
		}
	}
}

// There are as many of these as connections. Each fits a size of the
// allocator, which adds 8 bytes to what is larger than 512: one field more costs an idle
// connection up to 128 bytes.
// Matrix: RL-01
func TestWhatAConnectionConsistsOfKeepsItsSize(t *testing.T) {
	for _, one := range []struct {
		of   reflect.Type
		most uintptr
	}{
		{reflect.TypeFor[Conn](), 896 - 8},
		{reflect.TypeFor[dataplane.Handler](), 1024 - 8},
		{reflect.TypeFor[session2.Session](), 384},
		{reflect.TypeFor[loop.Socket](), 512},
		{reflect.TypeFor[struct {
			frame.Encoder
			dec frame.Decoder
		}](), 320},
	} {
		if got := one.of.Size(); got > one.most {
			t.Errorf("%v: %d bytes, want at most %d", one.of, got, one.most)
		}
	}
}
