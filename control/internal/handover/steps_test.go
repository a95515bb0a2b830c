package handover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

var errPlanned = errors.New("planned")

// journal is what was called, in its order. The call at position fail fails, and at position
// hang the process ends, unless they are 0.
type journal struct {
	calls      []string
	fail, hang int
	conn       *net.UnixConn
}

func (j *journal) call(name string, args ...any) error {
	j.calls = append(j.calls, strings.TrimSpace(name+" "+fmt.Sprintln(args...)))
	switch len(j.calls) {
	case j.hang:
		_ = j.conn.Close()
	case j.fail:
		return fmt.Errorf("%w: %s", errPlanned, name)
	}
	return nil
}

func (j *journal) count(name string) (n int) {
	for _, c := range j.calls {
		if c == name || strings.HasPrefix(c, name+" ") {
			n++
		}
	}
	return n
}

var who = wire.EntityName{Type: wire.OSD, ID: "3"}

// fakeSession stands still. What is nil or false behaves.
type fakeSession struct {
	j                       *journal
	name                    string
	free                    func(*dataplane.Message)
	running                 bool // an attempt that does not end
	open                    bool // its socket is not closed
	busy                    bool // its dispatcher does not return
	due                     int  // replies; -1: without end
	silent                  chan dataplane.HandlerState
	closed, closedInRecords bool
}

func closedChan[T any](open bool) <-chan T {
	c := make(chan T)
	if !open {
		close(c)
	}
	return c
}

func (s *fakeSession) Attempt() <-chan struct{} {
	if !s.running {
		return nil
	}
	return closedChan[struct{}](true)
}
func (s *fakeSession) Suspended() <-chan dataplane.Snapshot {
	return closedChan[dataplane.Snapshot](s.open)
}
func (s *fakeSession) Dispatched() <-chan struct{} {
	_ = s.j.call("dispatched", s.name)
	return closedChan[struct{}](s.busy)
}
func (s *fakeSession) Due() int  { return left(&s.due) }
func (s *fakeSession) Core() int { return 5 }

func (s *fakeSession) state() dataplane.HandlerState {
	m := dataplane.NewMessage(1, nil, nil)
	m.Free = s.free
	return dataplane.HandlerState{OutSeq: 1, Sent: []*dataplane.Message{m}}
}

func (s *fakeSession) Export() (<-chan dataplane.HandlerState, bool) {
	_ = s.j.call("export", s.name)
	if s.silent != nil {
		return s.silent, true
	}
	c := make(chan dataplane.HandlerState, 1)
	if !s.closed {
		c <- s.state()
	}
	return c, !s.closed
}

func (s *fakeSession) Record(st dataplane.HandlerState) (Session, bool) {
	_ = s.j.call("record", s.name)
	if s.closedInRecords {
		st.Release()
		return Session{}, false
	}
	rec := Session{PolicyName: s.name, IO: st}
	rec.Peer.Target = wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("10.0.0.1:6800")}
	return rec, true
}

// fakePredecessor can do everything.
type fakePredecessor struct {
	*journal
	sessions      []Frozen
	halfOpen      int // -1: without end
	closed        int // sessions, behind their record
	open          int // descriptors
	undone, ended int
}

func (p *fakePredecessor) Offer() Offer {
	_ = p.call("offer")
	return Offer{Entity: who, Nonce: 9, Addrs: make(wire.AddrVec, 2)}
}

// descriptors are those of the standard streams.
func (p *fakePredecessor) descriptors(n int) Descriptors {
	p.open += n
	return Descriptors{FDs: []int{0, 1, 2}[:n], Close: func() { p.open -= n }}
}

func (p *fakePredecessor) Listeners() (Descriptors, error) {
	if err := p.call("listeners"); err != nil {
		return Descriptors{}, err
	}
	return p.descriptors(3), nil
}

func (p *fakePredecessor) Steering(addrs int) (Descriptors, error) {
	if err := p.call("steering of", addrs); err != nil {
		return Descriptors{}, err
	}
	return p.descriptors(2), nil
}

func (p *fakePredecessor) Pause() error  { return p.call("pause") }
func (p *fakePredecessor) HalfOpen() int { return left(&p.halfOpen) }

// left is 1 as often as n says, and for ever if that is -1.
func left(n *int) int {
	if *n > 0 {
		*n--
		return 1
	}
	return -*n
}

func (p *fakePredecessor) Freeze() []Frozen {
	_ = p.call("freeze")
	return p.sessions
}
func (p *fakePredecessor) Settle(passed []Frozen) (Attempts, int, error) {
	return Attempts{Msgr2: 77, Msgr1: 78}, p.closed, p.call("settle", len(passed))
}
func (p *fakePredecessor) Undo()   { p.undone++; _ = p.call("undo") }
func (p *fakePredecessor) Finish() { p.ended++; _ = p.call("finish") }

// fakeSuccessor can do everything.
type fakeSuccessor struct {
	*journal
	hello  Hello
	undone error
	policy []string // of its sessions
}

func (s *fakeSuccessor) Hello() (Hello, error) { return s.hello, s.call("hello") }
func (s *fakeSuccessor) Start(o Offer) error   { return s.call("start", o.Entity, o.Nonce) }
func (s *fakeSuccessor) Listeners(fds []int) error {
	CloseFiles(fds)
	return s.call("listeners", len(fds))
}
func (s *fakeSuccessor) Steering(fds []int) error {
	CloseFiles(fds)
	return s.call("steering", len(fds))
}
func (s *fakeSuccessor) Restore(_ Offer, list []Session, last Attempts) error {
	for _, one := range list {
		s.policy = append(s.policy, one.PolicyName)
	}
	return s.call("restore", len(list), "from", last.Msgr2, last.Msgr1)
}
func (s *fakeSuccessor) Begin()      { _ = s.call("begin") }
func (s *fakeSuccessor) Undo() error { _ = s.call("undo"); return s.undone }

// passing is a hand-over of two sessions.
func passing() (*fakePredecessor, *fakeSuccessor) {
	j := &journal{}
	p := &fakePredecessor{journal: j, sessions: []Frozen{&fakeSession{j: j, name: "one"}, &fakeSession{j: j, name: "two"}}}
	return p, &fakeSuccessor{journal: &journal{}, hello: Hello{Entity: who, AnyNonce: true}}
}

// handOver hands p over to s, which are processes.
func handOver(t *testing.T, p *fakePredecessor, s *fakeSuccessor) (passed, taken error) {
	t.Helper()
	p.conn, s.conn = linktest.UnixPair(t)
	done := make(chan error, 1)
	go func() {
		done <- Take(t.Context(), s.conn, s)
		_ = s.conn.Close()
	}()
	passed = Pass(t.Context(), p.conn, p)
	_ = p.conn.Close()
	return passed, <-done
}

func TestBothSidesTakeTheirStepsInTheirOrder(t *testing.T) {
	p, s := passing()
	passed, taken := handOver(t, p, s)
	must(t, passed, taken)
	want := []string{
		"offer", "listeners", "steering of 2", "pause", "freeze", "dispatched one", "dispatched two",
		"export one", "record one", "export two", "record two", "settle 2", "finish",
	}
	if !slices.Equal(p.calls, want) {
		t.Errorf("%q", p.calls)
	}
	want = []string{"hello", "start osd.3 9", "listeners 3", "steering 2", "restore 2 from 65613 65614", "begin"}
	if !slices.Equal(s.calls, want) {
		t.Errorf("%q", s.calls)
	}
}

// fallible are the calls that return an error.
func fallible(call string) bool {
	name, _, _ := strings.Cut(call, " ")
	return !slices.Contains([]string{"offer", "freeze", "dispatched", "export", "record", "finish", "begin"}, name)
}

func TestWhateverFailsOnOneSideIsUndoneOnBothAndSaid(t *testing.T) {
	p, s := passing()
	passed, taken := handOver(t, p, s)
	must(t, passed, taken)
	for side, calls := range [][]string{p.calls, s.calls} {
		for i, call := range calls {
			for _, dies := range []bool{false, true} {
				p, s := passing()
				at := []*journal{p.journal, s.journal}[side]
				if s.undone = errors.New("cannot be undone"); dies {
					at.hang = i + 1
				} else if at.fail = i + 1; !fallible(call) {
					continue
				}
				passed, taken := handOver(t, p, s)
				if call == "finish" || call == "begin" { // it is decided
					must(t, passed, taken)
					continue
				}
				if !errors.Is(passed, ErrHandOver) && !errors.Is(passed, errPlanned) || !errors.Is(taken, s.undone) {
					t.Errorf("%s fails (%v): %v; %v", call, dies, passed, taken)
				}
				if !dies && !strings.Contains(fmt.Sprint(passed), errPlanned.Error()) || !dies && !strings.Contains(fmt.Sprint(taken), errPlanned.Error()) {
					t.Errorf("%s fails, and one side does not say why: %v; %v", call, passed, taken)
				}
				if p.undone != 1 || p.ended != 0 || p.open != 0 || s.count("undo") != 1 || s.count("begin") != 0 {
					t.Errorf("%s fails (%v): %q, %d descriptors are open; %q", call, dies, p.calls, p.open, s.calls)
				}
			}
		}
	}
}

func TestOnlyTheSameEntityMaySucceed(t *testing.T) {
	for _, h := range []Hello{
		{Entity: wire.EntityName{Type: wire.OSD, ID: "4"}, AnyNonce: true}, {Entity: who, Nonce: 8},
	} {
		p, s := passing()
		s.hello = h
		if passed, taken := handOver(t, p, s); !errors.Is(passed, ErrHandOver) || !errors.Is(taken, ErrHandOver) || p.count("listeners")+s.count("start") != 0 {
			t.Errorf("%+v: %v, %v, %q", h, passed, taken, p.calls)
		}
	}
	if h := (Hello{Entity: who, Nonce: 7}); h.succeeds(&Offer{Entity: who, Nonce: 9}) || !h.succeeds(&Offer{Entity: who, Nonce: 7}) {
		t.Error("the successor takes another nonce than its own")
	}
}

func TestTheErrorOfATakeOverSaysWhyItsContextEnded(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errPlanned)
	_, s := passing()
	_, conn := linktest.UnixPair(t)
	if err := Take(ctx, conn, s); !errors.Is(err, errPlanned) || !errors.Is(err, ErrHandOver) {
		t.Errorf("%v, %q", err, s.calls)
	}
}

func TestTheMessagesOfASessionAreReleasedOnceItIsSentOrNot(t *testing.T) {
	for _, dies := range []bool{false, true} {
		p, s := passing()
		released := 0
		p.sessions[0].(*fakeSession).free = func(*dataplane.Message) { released++ }
		if dies {
			p.hang = 9 // record one
		}
		if passed, _ := handOver(t, p, s); released != 1 || (passed != nil) != dies {
			t.Errorf("released %d times, %v, %q", released, passed, p.calls)
		}
	}
}

func TestASessionThatIsClosedMeanwhileIsLeftOut(t *testing.T) {
	p, s := passing()
	p.sessions[0].(*fakeSession).closed = true
	p.sessions = append(p.sessions, &fakeSession{j: p.journal, name: "three", closedInRecords: true})
	passed, taken := handOver(t, p, s)
	if must(t, passed, taken); !slices.Equal(s.policy, []string{"two"}) {
		t.Errorf("sent %q", s.policy)
	}
}

func TestASessionThatIsClosedBehindItsRecordEndsTheHandOver(t *testing.T) {
	p, s := passing()
	p.closed = 1
	if passed, taken := handOver(t, p, s); !errors.Is(passed, ErrHandOver) || !errors.Is(taken, ErrHandOver) || p.undone != 1 || s.count("restore") != 0 {
		t.Errorf("%v, %v, %q, %q", passed, taken, p.calls, s.calls)
	}
}

func TestHandshakesUnderWayAndRepliesThatAreDueGetTimeToEnd(t *testing.T) {
	for _, c := range []struct {
		halfOpen, due int
		want          time.Duration
	}{{0, 0, 0}, {20, 0, 20 * restPoll}, {-1, 0, halfOpenTime}, {0, 20, 20 * restPoll}, {0, -1, dueTime}} {
		synctest.Test(t, func(t *testing.T) {
			p, _ := passing()
			p.halfOpen, p.sessions[1].(*fakeSession).due = c.halfOpen, c.due
			begun := time.Now()
			must(t, awaitNone(t.Context(), halfOpenTime, p.HalfOpen), awaitRest(t.Context(), p.sessions))
			if took := time.Since(begun); took != c.want {
				t.Errorf("%d half-open, %d due: %v, want %v", c.halfOpen, c.due, took, c.want)
			}
		})
	}
}

func TestAHandOverThatDoesNotComeToRestEndsWithItsContext(t *testing.T) {
	for name, hinder := range map[string]func(*fakePredecessor, *fakeSession){
		"a handshake":  func(p *fakePredecessor, _ *fakeSession) { p.halfOpen = 1 << 30 },
		"an attempt":   func(_ *fakePredecessor, s *fakeSession) { s.running = true },
		"a socket":     func(_ *fakePredecessor, s *fakeSession) { s.open = true },
		"a dispatcher": func(_ *fakePredecessor, s *fakeSession) { s.busy = true },
		"a reply":      func(_ *fakePredecessor, s *fakeSession) { s.due = -1 },
		"a core":       func(_ *fakePredecessor, s *fakeSession) { s.silent = make(chan dataplane.HandlerState) },
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), halfOpenTime/2, errPlanned)
			defer cancel()
			p, _ := passing()
			s := p.sessions[1].(*fakeSession)
			hinder(p, s)
			begun := time.Now()
			err := awaitNone(ctx, halfOpenTime, p.HalfOpen)
			if err == nil {
				err = awaitRest(ctx, p.sessions)
			}
			if err == nil {
				_, _, err = record(ctx, s)
			}
			if !errors.Is(err, errPlanned) || !errors.Is(err, ErrHandOver) || time.Since(begun) != halfOpenTime/2 {
				t.Errorf("%s: %v behind %v", name, err, time.Since(begun))
			}
			if s.silent != nil { // what the core says too late is released
				released := false
				s.free = func(*dataplane.Message) { released = true }
				s.silent <- s.state()
				synctest.Wait()
				if !released {
					t.Error("the late state is kept")
				}
			}
		})
	}
}

func TestAStateHasOneHandOverAndNoneBehindIt(t *testing.T) {
	var s State
	if !s.Idle() || s.Frozen() || s.Done() {
		t.Errorf("before: %+v", s)
	}
	if err := s.Begin(); err != nil || s.Idle() || s.Frozen() {
		t.Errorf("begun: %+v, %v", s, err)
	}
	if err := s.Begin(); !errors.Is(err, ErrHandOver) {
		t.Errorf("twice: %v", err)
	}
	s.Freeze()
	if s.Idle() || !s.Frozen() || s.Done() {
		t.Errorf("frozen: %+v", s)
	}
	if s.Undo(); !s.Idle() || s.Frozen() || s.Begin() != nil {
		t.Errorf("undone: %+v", s)
	}
	s.Freeze()
	if s.Finish(); s.Idle() || !s.Frozen() || !s.Done() || s.Begin() == nil {
		t.Errorf("done: %+v", s)
	}
}
