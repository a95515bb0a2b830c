package probe

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// link counts what is done to it.
type link struct{ resets, halves int }

func (l *link) PeerAddr() netip.AddrPort { return netip.MustParseAddrPort("192.0.2.1:6800") }
func (l *link) Reset()                   { l.resets++ }
func (l *link) HalfClose()               { l.halves++ }

type conn struct{}

func (conn) ID() uint64 { return 7 }
func (conn) Resume()    {}

// answers is a probe that gives one answer and keeps what it was asked.
type answers struct {
	err   error
	asked []Event
}

func (a *answers) At(_ context.Context, e Event) error {
	a.asked = append(a.asked, e)
	return a.err
}

var hello = Point{Step: FrameWrite, Tag: frame.TagHello}

func TestASocketWithoutAProbeAsksNobody(t *testing.T) {
	s := NewSocket(nil, 1, true, nil)
	if s != nil {
		t.Fatal("a socket for nobody")
	}
	s.Connected(new(link))
	s.Decided(t.Context(), nil, false)
	if err := s.Step(t.Context(), hello, Before); err != nil {
		t.Error(err)
	}
	if err := s.Frame(frame.TagMessage, true); err != nil {
		t.Error(err)
	}
	if n := testing.AllocsPerRun(100, func() { _ = s.Step(t.Context(), hello, Before) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAnAnswerInAHandshakeIsCarriedOut(t *testing.T) {
	own := errors.New("as the test wishes")
	for _, c := range []struct {
		answer, fault error // once there is a link
		want          link
	}{
		{nil, nil, link{}},
		{own, own, link{}},
		{ErrReset, ErrReset, link{resets: 1}},
		{ErrHalfClose, nil, link{halves: 1}},
		{ErrHold, ErrHold, link{}},
	} {
		s := NewSocket(&answers{err: c.answer}, 1, true, nil)
		if err := s.Step(t.Context(), Point{Step: SocketConnecting}, Before); err != c.answer {
			t.Errorf("%v before there is a socket: %v", c.answer, err)
		}
		l := new(link)
		s.Connected(l)
		if err := s.Step(t.Context(), hello, After); err != c.fault || *l != c.want {
			t.Errorf("%v: fault %v, %+v", c.answer, err, *l)
		}
	}
}

// What the data phase does with an answer is for its handler, which has the socket.
func TestAnAnswerInTheDataPhaseIsReturned(t *testing.T) {
	for _, want := range []error{nil, ErrReset, ErrHalfClose, ErrHold} {
		a, l := &answers{err: want}, new(link)
		s := NewSocket(a, 3, false, conn{})
		s.Connected(l)
		if err := s.Frame(frame.TagMessage, false); err != want || *l != (link{}) {
			t.Errorf("%v: %v, %+v", want, err, *l)
		}
		e := Event{Point: Point{Step: FrameRead, Tag: frame.TagMessage}, When: Data, Socket: s, Conn: conn{}}
		if len(a.asked) != 1 || a.asked[0] != e {
			t.Errorf("asked %+v", a.asked)
		}
	}
}

func TestWhatBecomesOfASocketIsToldOnce(t *testing.T) {
	a := &answers{err: ErrReset}
	l := new(link)
	s := NewSocket(a, 3, true, nil)
	s.Connected(l)
	_ = s.Step(t.Context(), Point{Step: SocketAccepted}, Before)
	l.resets = 0
	s.Decided(t.Context(), conn{}, true)
	s.Decided(t.Context(), nil, false)
	_ = s.Frame(frame.TagAck, true)
	if len(a.asked) != 3 || a.asked[0].Conn != nil {
		t.Fatalf("asked %+v", a.asked)
	}
	if e := a.asked[1]; e.Step != SocketDecided || e.When != After || e.Conn != (conn{}) || !e.TookOver || l.resets != 0 {
		t.Errorf("told %+v, %d resets", e, l.resets)
	}
	if e := a.asked[2]; e.Conn != (conn{}) || e.Step != FrameWrite {
		t.Errorf("then %+v", e)
	}
}

func TestASocketIsDisturbedOnceItIsConnected(t *testing.T) {
	s, l := NewSocket(&answers{}, 4, true, nil), new(link)
	s.Reset()
	s.HalfClose()
	if s.Peer().IsValid() || s.ID() != 4 || !s.Accepted() {
		t.Errorf("%v, %d, %v", s.Peer(), s.ID(), s.Accepted())
	}
	s.Connected(l)
	s.Reset()
	s.HalfClose()
	if *l != (link{1, 1}) || s.Peer() != l.PeerAddr() {
		t.Errorf("%+v, %v", *l, s.Peer())
	}
}
