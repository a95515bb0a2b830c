package control_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/handover"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// serveEcho is a bound echo.
func serveEcho(t *testing.T, cfg control.Config) *control.Messenger {
	t.Helper()
	m := startMessenger(t, cfg, echoAll())
	bind(t, m, v2(ownHost(), 0))
	return m
}

// doomed is a successor that ends when it has all sessions.
type doomed struct {
	handover.Successor
	hello handover.Hello
}

func (d doomed) Hello() (handover.Hello, error) { return d.hello, nil }
func (doomed) Start(handover.Offer) error       { return nil }
func (doomed) Listeners(fds []int) error        { handover.CloseFiles(fds); return nil }
func (doomed) Steering(fds []int) error         { handover.CloseFiles(fds); return nil }
func (doomed) Undo() error                      { return nil }
func (doomed) Restore(handover.Offer, []handover.Session, handover.Attempts) error {
	return errors.New("doomed")
}

// failToSucceed has a successor of m end when it has read all sessions.
func failToSucceed(t *testing.T, ctx context.Context, m *control.Messenger) {
	t.Helper()
	a, b := unixPair(t)
	taken := async(func() error {
		return handover.Take(ctx, b, doomed{hello: handover.Hello{Entity: m.Name(), AnyNonce: true}})
	})
	for _, err := range []error{m.HandOver(ctx, a), <-taken} {
		if err == nil || !strings.Contains(err.Error(), "doomed") {
			t.Errorf("hand-over to a successor that ends: %v", err)
		}
	}
}

// Behind a hand-over that failed everything goes on. The next successor gets the address of the last
// Rebind, and can be bound anew itself.
func TestMessengerThatIsHandedOver(t *testing.T) {
	nodetest.CheckLeaks(t)
	ctx := deadline(t)
	m := serveEcho(t, serverConfig(uring.Auto, 1))
	addrs, err := m.Rebind(ctx)
	must(t, err)
	s := newStream(t, uring.Auto, wire.OSD, control.LosslessPeer(), addrs[0])
	s.progress(5)
	failToSucceed(t, ctx, m)
	s.progress(50)
	knock(t, netip.AddrPortFrom(source(1), 0), addrs[0].AddrPort)
	c := m.Lookup(s.m.Addrs()[0])
	posted := make(chan error, 1)
	must(t, c.PostBuffer(&control.Posting{TID: 1 << 40, Buffer: make([]byte, 10), Done: func(_ *control.Posting, err error) { posted <- err }}))
	resets := make(chan struct{}, 1)
	next := succeed(t, ctx, m, serverConfig(uring.Auto, 1), &control.Dispatcher{Reset: func(*control.Conn, bool) { resets <- struct{}{} }}, echoAll())
	defer end(t, next)
	arrives(t, "the end of the connection", c.Closed())
	msg := control.NewMessage(1, nil, nil)
	if err := c.Send(msg); !errors.Is(err, control.ErrHandedOver) || !errors.Is(err, net.ErrClosed) {
		t.Errorf("Send: %v", err)
	}
	if err := c.SendContext(ctx, msg); !errors.Is(err, control.ErrHandedOver) {
		t.Errorf("SendContext: %v", err)
	}
	if err := c.Err(); !errors.Is(err, control.ErrHandedOver) {
		t.Errorf("Err: %v", err)
	}
	if err := <-posted; !errors.Is(err, control.ErrHandedOver) || !errors.Is(err, control.ErrSessionLost) {
		t.Errorf("a posting: %v", err)
	}
	if err := c.PostBuffer(&control.Posting{TID: 1, Buffer: make([]byte, 10)}); !errors.Is(err, control.ErrHandedOver) {
		t.Errorf("PostBuffer: %v", err)
	}
	p := control.LosslessPeer()
	if _, err := m.Connect(s.m.Addrs()[0], wire.OSD, control.WithPolicy(p)); !errors.Is(err, control.ErrHandedOver) {
		t.Errorf("Connect: %v", err)
	}
	a, _ := unixPair(t)
	if err := m.HandOver(ctx, a); !errors.Is(err, control.ErrHandedOver) {
		t.Errorf("second hand-over: %v", err)
	}
	if _, err := m.Rebind(ctx); !errors.Is(err, control.ErrHandedOver) {
		t.Errorf("Rebind: %v", err)
	}
	if got := next.Addrs(); !got.Equal(addrs) {
		t.Errorf("the successor is at %v, want %v", got, addrs)
	}
	if got := next.Lookup(s.m.Addrs()[0]); got == nil || got.State() == control.StateClosing {
		t.Errorf("the successor does not know %v", s.m.Addrs())
	}
	s.progress(20)
	s.end()
	if len(resets) != 0 {
		t.Error("a session was reset")
	}
	now, err := next.Rebind(ctx)
	must(t, err)
	a1, a2 := addrs[0].AddrPort, now[0].AddrPort
	if a1.Addr() != a2.Addr() || a1.Port() == a2.Port() || addrs[0].Nonce == now[0].Nonce {
		t.Fatalf("from %v to %v", addrs, now)
	}
	s = newStream(t, uring.Auto, wire.MDS, control.LosslessClient(), now[0])
	s.progress(5)
	s.end()
}

// A session that stood still for a hand-over that failed says in its SESSION_RECONNECT how much it
// had received. A lower number would have the peer count anew, so that its next messages would
// be taken for duplicates. Nothing is left of the successor.
func TestAfterAFailedHandOverTheSessionResumesBehindWhatItReceived(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		inside, goOn := make(chan struct{}), make(chan struct{})
		s := stageFor(t, ctx, v, "LLC", withChain(&control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
			if m.TID == 103 {
				close(inside)
				<-goOn
			}
			return false
		}}))
		p, _ := s.serve()
		p.Ignore(frame.TagAck)
		for seq := uint64(1); seq <= 3; seq++ {
			p.SendMessage(frame.MessageHeader{Seq: seq, TID: 100 + seq}, nil, nil, nil)
		}
		<-inside
		// The core does not answer in time.
		a, b := unixPair(t)
		patience, end := context.WithCancel(ctx)
		defer end()
		taken := async(func() error {
			return onlyError(control.TakeOver(ctx, control.Config{Name: s.node.Name(), Plane: loop.Config{Cores: 2}}, b))
		})
		given := async(func() error {
			defer a.Close() // as the end of a process does
			return s.node.HandOver(patience, a)
		})
		eventually(t, ctx, "a session that stands still", func() bool { return s.conn.State() == control.StateStandby })
		end()
		for _, ended := range []<-chan error{given, taken} {
			if err := <-ended; !errors.Is(err, control.ErrHandOver) {
				t.Errorf("hand-over: %v", err)
			}
		}
		close(goOn)
		p.ExpectEnd()
		s.must(p)
		again := s.accept()
		if sr := again.ExpectReconnect(); sr.MsgSeq != 3 {
			t.Errorf("SESSION_RECONNECT says %d, received were 3: %v", sr.MsgSeq, again.Err())
		}
		again.SendPayload(frame.TagSessionReconnectOK, wire2.SessionReconnectOK{})
		again.SendMessage(frame.MessageHeader{Seq: 4, TID: 104}, nil, nil, nil)
		awaitTID(t, ctx, s.node, 104)
	})
}
