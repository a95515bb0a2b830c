package main

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// holder stops the first handshake of a client at one of its steps.
type holder struct {
	at      probe.Point
	after   bool
	once    sync.Once
	reached chan struct{}
	release chan struct{}
}

// At implements probe.Probe.
func (h *holder) At(ctx context.Context, e probe.Event) error {
	if e.Point != h.at || e.When == probe.Data || (e.When == probe.After) != h.after {
		return nil
	}
	h.once.Do(func() {
		close(h.reached)
		select {
		case <-h.release:
		case <-ctx.Done():
		}
	})
	return nil
}

func (h *holder) String() string {
	if h.after {
		return "after " + h.at.String()
	}
	return "before " + h.at.String()
}

// fresh is a client whose handshake is under way while the server hands over.
type fresh struct {
	*holder
	c     *control.Conn
	echos chan uint64
}

func newFresh(t *testing.T, i int, h *holder, policy control.Policy, to wire.Addr) *fresh {
	t.Helper()
	f := &fresh{holder: h, echos: make(chan uint64, 1)}
	m := started(t, control.Config{
		Name: wire.EntityName{Type: wire.Client, ID: fmt.Sprint(i)}, Default: &policy, Diagnostics: control.Diagnostics{Probe: h},
		Timeouts: control.Timeouts{Handshake: time.Hour}, // a wait for that fails the test
	}, &control.Dispatcher{Fast: func(_ *control.Conn, msg *control.Message) bool {
		f.echos <- msg.TID
		return true
	}})
	var err error
	f.c, err = m.Connect(to, wire.OSD)
	clitest.Must(t, err)
	return f
}

// held waits until the handshake stands still.
func (f *fresh) held(t *testing.T) {
	t.Helper()
	select {
	case <-f.reached:
	case <-time.After(2 * time.Minute):
		t.Fatalf("%v: not reached, %v: %v", f.holder, f.c.State(), f.c.Err())
	}
}

// works lets the handshakes go on, and sends a message on each connection when
// it is ready.
func works(t *testing.T, all []*fresh, attempts uint64) {
	t.Helper()
	for _, f := range all {
		close(f.release)
	}
	for _, f := range all {
		f.works(t, attempts)
	}
}

func (f *fresh) works(t *testing.T, attempts uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := f.c.WaitReady(ctx); err != nil {
		t.Errorf("%v: not ready, %v: %v", f.holder, err, f.c.Err())
		return
	}
	msg := control.NewMessage(2, []byte("fresh"), nil)
	msg.TID = 7
	if err := f.c.Send(msg); err != nil {
		t.Errorf("%v: %v", f.holder, err)
		return
	}
	select {
	case <-f.echos:
	case <-ctx.Done():
		t.Errorf("%v: no echo, %v: %v", f.holder, f.c.State(), f.c.Err())
	}
	st, err := f.c.Stats()
	if err != nil || st.Counters.Attempts > attempts {
		t.Errorf("%v: %d attempts, %v", f.holder, st.Counters.Attempts, err)
	}
}

// open is the number of connections of the present process.
func (d *serverChain) open() int {
	d.t.Helper()
	return d.snapshot().Messenger.Open
}

// A handshake that is under way at the moment of a hand-over, at whatever step
// and for however long, ends in a connection that works: that of a session is
// closed by the predecessor and begins anew, at once, with the successor; that of
// a lossy connection goes on with the predecessor.
func TestAHandshakeUnderWaySurvivesAHandOver(t *testing.T) {
	read, write := probe.FrameRead, probe.FrameWrite
	points := []probe.Point{
		{Step: probe.SocketConnecting}, {Step: probe.BannerWrite}, {Step: probe.BannerRead}, {Step: probe.BannerPayloadRead},
		{Step: write, Tag: frame.TagHello}, {Step: read, Tag: frame.TagHello},
		{Step: write, Tag: frame.TagAuthRequest}, {Step: read, Tag: frame.TagAuthDone},
		{Step: write, Tag: frame.TagAuthSignature}, {Step: read, Tag: frame.TagAuthSignature},
		{Step: write, Tag: frame.TagClientIdent}, {Step: read, Tag: frame.TagServerIdent},
	}
	for _, c := range []struct {
		server   string
		client   control.Policy
		attempts uint64
	}{
		{"stateful-server", control.LosslessClient(), 2},
		{"stateless-server", control.LossyClient(), 1},
	} {
		t.Run(c.server, func(t *testing.T) {
			d := startChain(t, "--name", "osd.0", "--cores", "2", "--policy", c.server, "--timeout", "1h")
			to, err := wire.ParseAddr(d.addr)
			clitest.Must(t, err)
			var all []*fresh
			for i, p := range points {
				for _, after := range []bool{false, true} {
					if p.Step == read && !after || p.Step == probe.SocketConnecting && after {
						continue // before a read the tag is not known, and a dial has no end
					}
					h := &holder{at: p, after: after, reached: make(chan struct{}), release: make(chan struct{})}
					all = append(all, newFresh(t, i, h, c.client, to))
				}
			}
			for _, f := range all {
				f.held(t)
			}
			d.handOver()
			works(t, all, c.attempts)
			if open := d.open(); c.attempts > 1 && open != len(all) {
				t.Errorf("the successor has %d of %d sessions", open, len(all))
			}
			for _, f := range all {
				f.c.MarkDown()
			}
			d.end()
		})
	}
}

// The same for one that resumes a session, which the hand-over before it made
// necessary.
func TestAReconnectUnderWaySurvivesAHandOver(t *testing.T) {
	d := startChain(t, "--name", "osd.0", "--cores", "2", "--policy", "stateful-server", "--timeout", "1h")
	to, err := wire.ParseAddr(d.addr)
	clitest.Must(t, err)
	var all []*fresh
	for i, h := range []*holder{
		{at: probe.Point{Step: probe.FrameWrite, Tag: frame.TagSessionReconnect}},
		{at: probe.Point{Step: probe.FrameWrite, Tag: frame.TagSessionReconnect}, after: true},
		{at: probe.Point{Step: probe.FrameRead, Tag: frame.TagSessionReconnectOK}, after: true},
	} {
		h.reached, h.release = make(chan struct{}), make(chan struct{})
		f := newFresh(t, i, h, control.LosslessClient(), to)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		clitest.Must(t, f.c.WaitReady(ctx))
		cancel()
		all = append(all, f)
	}
	d.handOver()
	for _, f := range all {
		f.held(t)
	}
	d.handOver()
	works(t, all, 3)
	for _, f := range all {
		if st, err := f.c.Stats(); err != nil || st.Counters.RemoteResets != 0 {
			t.Errorf("%v: %d sessions lost, %v", f.holder, st.Counters.RemoteResets, err)
		}
		f.c.MarkDown()
	}
	d.end()
}
