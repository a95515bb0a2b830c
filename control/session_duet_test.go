package control_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
)

// duet is a connector that sends and an acceptor that echoes, over whatever
// happens to their connection. What was sent is compared with what arrived at
// the end.
type duet struct {
	t                   *testing.T
	ctx                 context.Context
	lossy               bool
	forgets             bool // the acceptor is told that the connector has forgotten the session
	mayForget           bool // or it is not
	v                   variant
	size                int // of the front of every message
	connector, acceptor *nodetest.Node
	conn                *control.Conn
	sent                []uint64 // transaction ids, in order
	next                uint64
}

func (w *duet) side(r nodetest.Role) *nodetest.Node {
	if r == nodetest.Acceptor {
		return w.acceptor
	}
	return w.connector
}

// dial begins, with a message that waits for the session.
func (w *duet) dial() {
	w.conn = w.connector.Dial(w.acceptor)
	w.say(1)
	w.conn.Keepalive()
}

// say sends a message. Those below 1000 are echoed.
func (w *duet) say(tid uint64) bool {
	m := control.NewMessage(1, w.front(tid), nil)
	m.TID = tid
	if err := w.conn.Send(m); err != nil {
		m.Release()
		if !w.lossy || !errors.Is(err, control.ErrClosed) {
			w.t.Fatalf("send: %v", err)
		}
		return false
	}
	w.sent = append(w.sent, tid)
	return true
}

// talkUntil sends messages of both kinds, one at a time, until the break is
// reached: with pauses, so that acknowledgements travel alone as well.
func (w *duet) talkUntil(b *nodetest.Break) {
	w.next = 2
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-b.Hit():
			return
		case <-w.ctx.Done():
			w.t.Fatalf("%v: not reached\nconnector:\n%s\nacceptor:\n%s", b, w.connector.Probe.Trace(), w.acceptor.Probe.Trace())
		case <-tick.C:
		}
		// A session in standby waits for something to send.
		if s := w.conn.State(); s != control.StateReady && s != control.StateStandby || w.next > 990 {
			continue
		}
		// Most rounds get no answer but an acknowledgement.
		if w.next%4 == 0 {
			w.say(w.next)
			w.conn.Keepalive()
		}
		w.say(w.next + 5000)
		w.next++
	}
}

// await waits until the connections of a side are as they must be, or as they may be. A session
// that lives is ready, or in standby, from where the last message of finish
// wakes it.
func (w *duet) await(r nodetest.Role, want outlook, or ...outlook) {
	w.t.Helper()
	n := w.side(r)
	var have []nodetest.Object
	forgotten := 0
	if w.forgets && r == nodetest.Acceptor {
		forgotten = 1
	}
	ok := func() bool {
		have = n.Probe.Objects()
		var got outlook
		for _, o := range have {
			switch {
			case o.Conn == nil || o.End == nodetest.Replaced:
				if o.End != nodetest.Closed && o.End != nodetest.Replaced || o.Accept.Events+o.Connect.Events+o.Resets+o.RemoteResets > 0 {
					return false
				}
			case o.End == nodetest.Closed && o.Resets == 1 && o.RemoteResets == 0:
				got = append(got, true)
			case (o.End == nodetest.Established || o.End == nodetest.Standby) && o.Resets == 0 && (o.RemoteResets == forgotten || w.mayForget && o.RemoteResets <= forgotten):
				got = append(got, false)
			default:
				return false
			}
		}
		return slices.Equal(got, want) || slices.ContainsFunc(or, func(o outlook) bool { return slices.Equal(got, o) })
	}
	if err := msgrtest.Until(w.ctx, ok); err != nil {
		w.t.Fatalf("%v: %v, want (over) %v, have %v\n%s", r, err, want, have, n.Probe.Trace())
	}
}

// intact compares what arrived byte for byte with what was sent (INV-12).
func (w *duet) intact() {
	w.t.Helper()
	for _, m := range w.acceptor.Inbox.Messages() {
		if m.Front != string(w.front(m.TID)) {
			w.t.Errorf("message %d arrived with %d other bytes", m.TID, len(m.Front))
		}
	}
}

// front is what a message carries.
func (w *duet) front(tid uint64) []byte { return bytes.Repeat([]byte{byte(tid)}, w.size) }

// finish compares what was sent with what arrived.
func (w *duet) finish() {
	w.t.Helper()
	defer w.intact()
	if w.conn.State() == control.StateClosing {
		w.atMostOnce(w.acceptor.Inbox.TIDs(), w.sent)
		w.atMostOnce(w.connector.Inbox.TIDs(), echoes(w.sent))
		return
	}
	w.say(999)
	w.exactly(w.acceptor, w.sent)
	w.exactly(w.connector, echoes(w.sent))
	for _, n := range []*nodetest.Node{w.connector, w.acceptor} {
		conns := n.Conns()
		live := conns[len(conns)-1]
		if err := live.WaitReady(w.ctx); err != nil {
			w.t.Fatalf("%s: %v", n.Name(), err)
		}
		settled(w.t, w.ctx, live)
		w.v.check(w.t, live)
		if len(conns) != 1 {
			w.t.Errorf("%s has %d connections, want 1", n.Name(), len(conns))
		}
	}
}

func (w *duet) exactly(n *nodetest.Node, want []uint64) {
	w.t.Helper()
	if err := n.Inbox.Await(w.ctx, want...); err != nil {
		w.t.Fatalf("%s: %v\nconnector:\n%s\nacceptor:\n%s", n.Name(), err, w.connector.Probe.Trace(), w.acceptor.Probe.Trace())
	}
}

// atMostOnce: what arrived is a beginning of what was sent (INV-02).
func (w *duet) atMostOnce(got, sent []uint64) {
	w.t.Helper()
	if len(got) > len(sent) || !slices.Equal(got, sent[:len(got)]) {
		w.t.Errorf("received %v of %v, want a beginning of it", got, sent)
	}
}

func echoes(sent []uint64) []uint64 {
	var out []uint64
	for _, tid := range sent {
		if tid < 1000 {
			out = append(out, tid+1000)
		}
	}
	return out
}
