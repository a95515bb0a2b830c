package handover

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// fakeOffer is the successor's link with a predecessor that does everything right.
type fakeOffer struct {
	*journal
	offer Offer
}

func (l *fakeOffer) SameUser() error         { return l.call("same user") }
func (l *fakeOffer) SendHello(h Hello) error { return l.call("send hello", h.Entity) }
func (l *fakeOffer) ReadOffer() (Offer, error) {
	return l.offer, l.call("read offer")
}
func (l *fakeOffer) ReadListeners(n int) ([]int, error) {
	return make([]int, n), l.call("read listeners", n)
}
func (l *fakeOffer) ReadSteering(n int) ([]int, error) {
	return make([]int, n), l.call("read steering", n)
}
func (l *fakeOffer) SendReady() error { return l.call("send ready") }
func (l *fakeOffer) ReadSessions() ([]Session, Done, error) {
	return make([]Session, 4), Done{GlobalSeq: 1000}, l.call("read sessions")
}
func (l *fakeOffer) Commit() error { return l.call("commit") }
func (l *fakeOffer) Refuse(error)  { _ = l.call("refuse") }

// fakeSuccessor can do everything.
type fakeSuccessor struct {
	*journal
	hello  Hello
	undone error
}

func (s *fakeSuccessor) Hello() (Hello, error)     { return s.hello, s.call("hello") }
func (s *fakeSuccessor) Start(o Offer) error       { return s.call("start", o.Entity, o.Nonce) }
func (s *fakeSuccessor) Listeners(fds []int) error { return s.call("listeners", len(fds)) }
func (s *fakeSuccessor) Steering(fds []int) error  { return s.call("steering", len(fds)) }
func (s *fakeSuccessor) Restore(_ Offer, list []Session, last Attempts) error {
	return s.call("restore", len(list), "from", last.Msgr2)
}
func (s *fakeSuccessor) Begin()      { _ = s.call("begin") }
func (s *fakeSuccessor) Undo() error { _ = s.call("undo"); return s.undone }

func taking(fail int) (*fakeSuccessor, *fakeOffer) {
	j := &journal{fail: fail}
	return &fakeSuccessor{journal: j, hello: Hello{Entity: who, AnyNonce: true}},
		&fakeOffer{journal: j, offer: Offer{Entity: who, Nonce: 9, Listeners: 3, Steering: 2}}
}

func TestTheSuccessorTakesItsStepsInTheirOrder(t *testing.T) {
	s, l := taking(0)
	must(t, take(t.Context(), l, s))
	want := []string{
		"hello", "same user", "send hello osd.3", "read offer", "start osd.3 9",
		"read listeners 3", "listeners 3", "read steering 2", "steering 2", "send ready",
		"read sessions", "restore 4 from 66536", "commit", "begin",
	}
	if !slices.Equal(s.calls, want) {
		t.Errorf("%q", s.calls)
	}
}

func TestWhateverFailsAtTheSuccessorIsUndoneAndSaidAndNothingBegins(t *testing.T) {
	s, l := taking(0)
	must(t, take(t.Context(), l, s))
	for i, call := range s.calls {
		if call == "begin" {
			continue
		}
		s, l := taking(i + 1)
		s.undone = errors.New("cannot be undone")
		err := take(t.Context(), l, s)
		if !errors.Is(err, errPlanned) || !errors.Is(err, s.undone) {
			t.Errorf("%s fails: %v", call, err)
		}
		if got := s.calls[i+1:]; !slices.Equal(got, []string{"refuse", "undo"}) {
			t.Errorf("%s fails, then come %q", call, got)
		}
	}
}

func TestTheErrorOfATakeOverSaysWhyItsContextEnded(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errPlanned)
	s, l := taking(0)
	l.offer.Nonce = 8
	s.hello = Hello{Entity: who, Nonce: 7}
	err := take(ctx, l, s)
	if !errors.Is(err, errPlanned) || !errors.Is(err, ErrHandOver) || !strings.Contains(err.Error(), "osd.3") || s.count("start") != 0 {
		t.Errorf("%v, %q", err, s.calls)
	}
	l.offer = Offer{Entity: wire.EntityName{Type: wire.OSD, ID: "4"}, Nonce: 7}
	if err := take(t.Context(), l, s); !errors.Is(err, ErrHandOver) || s.count("start") != 0 {
		t.Errorf("another entity: %v", err)
	}
}
