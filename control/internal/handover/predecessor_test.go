package handover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

var errPlanned = errors.New("planned")

// journal is what was called, in its order. The call at position fail fails, unless
// it is 0.
type journal struct {
	calls []string
	fail  int
}

func (j *journal) call(name string, args ...any) error {
	j.calls = append(j.calls, strings.TrimSpace(name+" "+fmt.Sprintln(args...)))
	if len(j.calls) == j.fail {
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

// fakeLink is the predecessor's link with a successor that does everything right.
type fakeLink struct {
	*journal
	hello  Hello
	done   Done
	frozen []string // Target of the sessions
}

func (l *fakeLink) SameUser() error           { return l.call("same user") }
func (l *fakeLink) ReadHello() (Hello, error) { return l.hello, l.call("read hello") }
func (l *fakeLink) SendOffer(o Offer) error {
	return l.call("send offer", o.Listeners, "listeners", o.Steering, "steering")
}
func (l *fakeLink) SendListeners(fds []int) error { return l.call("send listeners", fds) }
func (l *fakeLink) SendSteering(fds []int) error  { return l.call("send steering", fds) }
func (l *fakeLink) AwaitReady() error             { return l.call("await ready") }
func (l *fakeLink) SendSession(s *Session) (uint64, error) {
	l.frozen = append(l.frozen, s.PolicyName)
	return uint64(len(s.IO.Sent)), l.call("send session", s.PolicyName)
}
func (l *fakeLink) SendDone(d Done) error { l.done = d; return l.call("send done") }
func (l *fakeLink) AwaitCommitted() error { return l.call("await committed") }
func (l *fakeLink) Refuse(error)          { _ = l.call("refuse") }

// fakeSession stands still. What is nil or false behaves.
type fakeSession struct {
	j                       *journal
	name                    string
	free                    func(*dataplane.Message)
	running                 bool // an attempt that does not end
	open                    bool // its socket is not closed
	busy                    bool // its dispatcher does not return
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
	return Session{PolicyName: s.name, IO: st}, true
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

func (p *fakePredecessor) descriptors(fds ...int) Descriptors {
	p.open += len(fds)
	return Descriptors{FDs: fds, Close: func() { p.open -= len(fds) }}
}

func (p *fakePredecessor) Listeners() (Descriptors, error) {
	if err := p.call("listeners"); err != nil {
		return Descriptors{}, err
	}
	return p.descriptors(50, 51, 52), nil
}

func (p *fakePredecessor) Steering(addrs int) (Descriptors, error) {
	if err := p.call("steering of", addrs); err != nil {
		return Descriptors{}, err
	}
	return p.descriptors(60, 61), nil
}

func (p *fakePredecessor) Pause() error { return p.call("pause") }
func (p *fakePredecessor) HalfOpen() int {
	if p.halfOpen > 0 {
		p.halfOpen--
		return 1
	}
	return -p.halfOpen
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

// passing is a hand-over of two sessions that goes well, unless call number fail
// fails.
func passing(fail int) (*fakePredecessor, *fakeLink) {
	j := &journal{fail: fail}
	p := &fakePredecessor{journal: j, sessions: []Frozen{&fakeSession{j: j, name: "one"}, &fakeSession{j: j, name: "two"}}}
	return p, &fakeLink{journal: j, hello: Hello{Entity: who, AnyNonce: true}}
}

func TestThePredecessorTakesItsStepsInTheirOrder(t *testing.T) {
	p, l := passing(0)
	must(t, pass(t.Context(), l, p))
	want := []string{
		"same user", "read hello", "offer", "listeners", "steering of 2", "send offer 3 listeners 2 steering",
		"send listeners [50 51 52]", "send steering [60 61]", "await ready",
		"pause", "freeze", "dispatched one", "dispatched two",
		"export one", "record one", "send session one", "export two", "record two", "send session two",
		"settle 2", "send done", "await committed", "finish",
	}
	if !slices.Equal(p.calls, want) {
		t.Errorf("%q", p.calls)
	}
	if l.done != (Done{Last: Attempts{77, 78}, Sessions: 2, Messages: 2}) {
		t.Errorf("%+v", l.done)
	}
}

// fallible are the calls that return an error.
func fallible(call string) bool {
	for _, none := range []string{"offer", "freeze", "dispatched", "export", "record", "finish"} {
		if call == none || strings.HasPrefix(call, none+" ") {
			return false
		}
	}
	return true
}

func TestWhateverFailsAtThePredecessorIsUndoneOnceAndSaid(t *testing.T) {
	p, l := passing(0)
	must(t, pass(t.Context(), l, p))
	for i, call := range p.calls {
		if !fallible(call) {
			continue
		}
		p, l := passing(i + 1)
		err := pass(t.Context(), l, p)
		if !errors.Is(err, errPlanned) {
			t.Errorf("%s fails: %v", call, err)
		}
		if got := p.calls[i+1:]; !slices.Equal(got, []string{"undo", "refuse"}) {
			t.Errorf("%s fails, then come %q", call, got)
		}
		if p.ended != 0 || p.open != 0 {
			t.Errorf("%s fails: finished %d times, %d descriptors are open", call, p.ended, p.open)
		}
	}
}

func TestOnlyTheSameEntityMaySucceed(t *testing.T) {
	for _, h := range []Hello{
		{Entity: wire.EntityName{Type: wire.OSD, ID: "4"}, AnyNonce: true}, {Entity: who, Nonce: 8},
	} {
		p, l := passing(0)
		l.hello = h
		if err := pass(t.Context(), l, p); !errors.Is(err, ErrHandOver) || p.count("listeners") != 0 || p.undone != 1 {
			t.Errorf("%+v: %v, %q", h, err, p.calls)
		}
	}
}

func TestTheMessagesOfASessionAreReleasedOnceItIsSentOrNot(t *testing.T) {
	for _, fail := range []int{0, 16} {
		p, l := passing(fail)
		released := 0
		p.sessions[0].(*fakeSession).free = func(*dataplane.Message) { released++ }
		err := pass(t.Context(), l, p)
		if released != 1 || (err != nil) != (fail != 0) || fail != 0 && p.calls[fail-1] != "send session one" {
			t.Errorf("released %d times, %v, %q", released, err, p.calls)
		}
	}
}

func TestASessionThatIsClosedMeanwhileIsLeftOut(t *testing.T) {
	p, l := passing(0)
	p.sessions[0].(*fakeSession).closed = true
	p.sessions = append(p.sessions, &fakeSession{j: p.journal, name: "three", closedInRecords: true})
	if err := pass(t.Context(), l, p); err != nil || !slices.Equal(l.frozen, []string{"two"}) || l.done.Sessions != 1 {
		t.Errorf("%v, sent %q, %+v", err, l.frozen, l.done)
	}
}

func TestASessionThatIsClosedBehindItsRecordEndsTheHandOver(t *testing.T) {
	p, l := passing(0)
	p.closed = 1
	if err := pass(t.Context(), l, p); !errors.Is(err, ErrHandOver) || p.undone != 1 || p.count("send done") != 0 {
		t.Errorf("%v, %q", err, p.calls)
	}
}

func TestHandshakesUnderWayGetTimeToEndBeforeSessionsFreeze(t *testing.T) {
	for _, c := range []struct {
		halfOpen int
		want     time.Duration
	}{{0, 0}, {20, 20 * halfOpenPoll}, {-1, halfOpenTime}} {
		synctest.Test(t, func(t *testing.T) {
			p, l := passing(0)
			p.halfOpen = c.halfOpen
			begun := time.Now()
			must(t, pass(t.Context(), l, p))
			if took := time.Since(begun); took != c.want {
				t.Errorf("%d half-open: %v, want %v", c.halfOpen, took, c.want)
			}
		})
	}
}

// Whatever does not come to rest, the end of the context ends the hand-over, and
// nothing is sent any more.
func TestAHandOverThatDoesNotComeToRestEndsWithItsContext(t *testing.T) {
	for name, hinder := range map[string]func(*fakePredecessor, *fakeSession){
		"a handshake":  func(p *fakePredecessor, _ *fakeSession) { p.halfOpen = 1 << 30 },
		"an attempt":   func(_ *fakePredecessor, s *fakeSession) { s.running = true },
		"a socket":     func(_ *fakePredecessor, s *fakeSession) { s.open = true },
		"a dispatcher": func(_ *fakePredecessor, s *fakeSession) { s.busy = true },
		"a core":       func(_ *fakePredecessor, s *fakeSession) { s.silent = make(chan dataplane.HandlerState) },
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), halfOpenTime/2, errPlanned)
			defer cancel()
			p, l := passing(0)
			s := p.sessions[1].(*fakeSession)
			hinder(p, s)
			begun := time.Now()
			err := pass(ctx, l, p)
			if !errors.Is(err, errPlanned) || !errors.Is(err, ErrHandOver) || time.Since(begun) != halfOpenTime/2 {
				t.Errorf("%s: %v behind %v", name, err, time.Since(begun))
			}
			if p.undone != 1 || p.ended != 0 || p.count("refuse") != 1 || p.count("send done") != 0 || p.open != 0 {
				t.Errorf("%s: %q", name, p.calls)
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
