package session1

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Two machines with a simple handler each, over sockets that are cut at random, in a
// random order of everything that may come in any order. Messages of a session that no
// end forgets must all arrive, once and in order.

// message and ack are what travels behind the handshake.
type (
	message struct{ seq, id uint64 }
	ack     struct{ seq uint64 }
)

// half is one end of a socket.
type half struct {
	in     []any // what the other end has sent, in order
	peer   *half
	cut    bool     // by the network, or by an end
	told   bool     // and the owner knows
	want   bool     // the owner reads
	node   *node    // whose it is
	socket *Session // an accepted socket until it is decided whose it is
	owner  uint64   // attempt of the connection; 0: of none
}

// node is a messenger with one connection.
type node struct {
	w      *world
	name   string
	env    session.Env
	seq    session.GlobalSeq
	policy session.Policy
	conn   *Session
	events []func() // in any order
	half   *half    // of the attempt that owns the connection's socket
	data   *half    // in the data phase
	timer  bool

	queue, sent   []message // unsent, and not acknowledged
	inSeq, outSeq uint64
	notes         uint64
	notify        bool

	next      uint64   // id of the next message
	delivered []uint64 // ids
	forgot    int      // times that the session was forgotten
}

type world struct {
	t      *testing.T
	rng    *rand.Rand
	nodes  [2]*node
	cuts   int // that are left
	more   int // messages that are left to be queued
	halves []*half
	log    []string
}

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func newWorld(t *testing.T, seed uint64, p session.Policy) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), cuts: 12, more: 30}
	for i, name := range []string{"low", "high"} {
		n := &node{w: w, name: name, policy: p}
		n.env = session.Env{Addrs: vec(name), Seq: &n.seq}
		w.nodes[i] = n
	}
	return w
}

func (n *node) other() *node {
	if n.w.nodes[0] == n {
		return n.w.nodes[1]
	}
	return n.w.nodes[0]
}

func (n *node) fresh(dialled bool) *Session {
	s := New(wire.OSD, n.policy, session.Peer{Type: wire.OSD, Target: addr(n.other().name), Dialled: dialled}, session.Backoff{Initial: time.Second, Max: time.Minute})
	return &s
}

func (n *node) snapshot() session.Snapshot {
	return session.Snapshot{InSeq: n.inSeq, OutSeq: n.outSeq, Queued: len(n.queue) > 0, Sent: len(n.sent) > 0, Notifications: n.notes}
}

func (n *node) later(f func()) { n.events = append(n.events, f) }

// step plays an event of the connection.
func (n *node) step(ev session.Event) {
	n.env.Unsent = len(n.queue)+len(n.sent) > 0
	next, actions := session.Step(*n.conn, ev, n.env)
	n.w.note("%s: %T: %v -> %v: %v", n.name, ev, n.conn.State, next.State, actions)
	*n.conn = next
	n.perform(actions)
}

func (n *node) perform(actions []session.Action) {
	for _, a := range actions {
		switch a := a.(type) {
		case session.Illegal:
			n.w.t.Fatalf("%s: %v\n%s", n.name, a, strings.Join(n.w.log, "\n"))
		case session.Suspend:
			n.suspend(a)
		case session.Requeue:
			n.requeue()
		case session.RequeueUpTo:
			if len(n.sent)+len(n.queue) == 0 {
				n.outSeq = max(n.outSeq, a.Seq)
				break
			}
			n.acked(a.Seq)
			n.requeue()
		case session.ResetPeer:
			n.requeue()
			n.inSeq, n.outSeq = 0, 0
		case session.ResetIO:
			n.inSeq = 0
			if a.Full {
				// As with MSG_AUTH the numbers begin anywhere, often below those that were there.
				n.queue, n.sent, n.outSeq = nil, nil, uint64(n.w.rng.IntN(8))
			}
		case session.TellRemoteReset:
			n.forgot++
		case session.StartTimer:
			n.timer = true
		case session.StopTimer:
			n.timer = false
		case session.Faulted:
			if n.half != nil && n.half != n.data {
				n.half.close()
			}
		case session.Cancel:
			if n.half != nil {
				n.half.close()
			}
		case session.Dial:
			n.dial(a.Attempt)
		case session.MoveHandler:
			n.later(func() { n.step(session.HandlerMoved{Attempt: a.Attempt}) })
		case session.Send:
			n.sendFrame(n.half, a.Frame)
		case session.Open:
			n.data, n.half.want = n.half, true
		}
	}
}

// suspend closes the socket of the data phase. The snapshot goes to the attempt that asks.
func (n *node) suspend(a session.Suspend) {
	if n.data != nil {
		n.data.close()
		n.data = nil
	}
	n.notify = a.Notify
	if a.ReplyTo != 0 && n.conn.State == session.Replacing {
		n.later(func() { n.step(session.Suspended{Attempt: a.ReplyTo, IO: n.snapshot()}) })
	}
}

func (n *node) requeue() {
	n.outSeq -= uint64(len(n.sent))
	n.queue = append(slices.Clone(n.sent), n.queue...)
	n.sent = nil
}

func (n *node) acked(seq uint64) {
	for len(n.sent) > 0 && n.sent[0].seq <= seq {
		n.sent = n.sent[1:]
	}
}

func (h *half) close() {
	h.cut, h.told = true, true
	h.peer.cut = true
}

func (n *node) dial(attempt uint64) {
	m := n.other()
	ours, theirs := &half{node: n, owner: attempt}, &half{node: m}
	ours.peer, theirs.peer = theirs, ours
	n.half = ours
	n.w.halves = append(n.w.halves, ours, theirs)
	s := m.fresh(false)
	*s, _ = session.Step(*s, session.Accept{}, m.env)
	theirs.socket, theirs.want = s, true
	n.later(func() {
		if ours.cut {
			ours.told = true
			n.step(session.Failed{Attempt: attempt, Err: fmt.Errorf("cut")})
			return
		}
		n.step(session.Authenticated{Attempt: attempt, IO: n.snapshot()})
	})
}

// sendFrame sends a frame of the handshake for whoever owns the socket.
func (n *node) sendFrame(h *half, f session.Frame) {
	if !h.cut {
		h.peer.in = append(h.peer.in, f)
	}
	last := false
	switch f := f.(type) {
	case Answer:
		last = f.Tag == wire1.TagReady
	case wire1.Seq:
		last = true
	}
	if !last {
		h.want = true
		return
	}
	attempt := h.owner
	n.later(func() { n.step(session.Sent{Attempt: attempt}) })
}

// read takes one frame of a socket.
func (h *half) read() {
	f, n := h.in[0], h.node
	h.in = h.in[1:]
	switch {
	case h == n.data:
		n.receive(f)
	case h.socket != nil:
		h.want = false
		n.asked(h, f.(wire1.Connect))
	case h == n.half:
		h.want = false
		if c, ok := f.(wire1.Connect); ok {
			f = Asked{Connect: c}
		}
		n.step(session.Answer{Attempt: h.owner, Frame: f})
	}
}

// asked is a connect message of an accepted socket.
func (n *node) asked(h *half, c wire1.Connect) {
	e := n.conn
	if e != nil && e.State == session.Closing {
		e = nil
	}
	q := Asked{Connect: c}
	ev := session.Request{Frame: q, From: addr(n.other().name), Ours: true}
	if e != nil {
		ev.Existing = e
	}
	next, actions := session.Step(*h.socket, ev, n.env)
	n.w.note("%s: socket: %v: %v -> %v: %v", n.name, c, h.socket.State, next.State, actions)
	*h.socket = next
	for i, a := range actions {
		switch a := a.(type) {
		case session.NewConn:
			n.conn, n.half, h.owner, h.socket = h.socket, h, 1, nil
			n.perform(actions[i+1:])
			return
		case session.TakeOver:
			h.socket = nil
			n.step(session.Replace{Frame: q, Reset: a.Reset})
			n.half, h.owner = h, n.conn.Attempt
		case session.Send:
			n.sendFrame(h, a.Frame)
			h.want = true
		case session.Hangup:
			h.close()
		case session.Illegal:
			n.w.t.Fatal(a)
		}
	}
}

// receive takes a frame of the data phase.
func (n *node) receive(f any) {
	switch f := f.(type) {
	case message:
		if f.seq <= n.inSeq {
			return
		}
		n.inSeq = f.seq
		n.delivered = append(n.delivered, f.id)
		if !n.data.cut {
			n.data.peer.in = append(n.data.peer.in, ack{f.seq})
		}
	case ack:
		n.acked(f.seq)
	default:
		n.w.t.Fatalf("%s: %T in the data phase\n%s", n.name, f, strings.Join(n.w.log, "\n"))
	}
}

// ended tells the owner of a socket that it was cut.
func (h *half) ended() {
	h.told = true
	n := h.node
	err := fmt.Errorf("cut")
	switch {
	case h == n.data:
		n.data = nil
		n.notes++
		n.step(session.Lost{Notification: n.notes, IO: n.snapshot(), Err: err, Useful: true})
	case h.socket != nil:
		*h.socket, _ = session.Step(*h.socket, session.SocketEnded{Err: err}, n.env)
	case h == n.half:
		n.step(session.Failed{Attempt: h.owner, Err: err})
	}
}

// submit queues a message of the user.
func (n *node) submit() {
	n.next++
	n.queue = append(n.queue, message{id: n.next})
	if n.conn == nil {
		n.conn = n.fresh(true)
		n.step(session.Connect{})
		return
	}
	if n.notify {
		n.notify = false
		n.step(session.Queued{})
	}
}

// transmit puts the first of the queue on the wire.
func (n *node) transmit() {
	m := n.queue[0]
	n.queue = n.queue[1:]
	n.outSeq++
	m.seq = n.outSeq
	n.sent = append(n.sent, m)
	if !n.data.cut {
		n.data.peer.in = append(n.data.peer.in, m)
	}
}

// moves are all that can happen now.
func (w *world) moves() (list []func()) {
	for _, n := range w.nodes {
		for i, f := range n.events {
			list = append(list, func() { n.events = slices.Delete(n.events, i, i+1); f() })
		}
		if n.timer {
			list = append(list, func() { n.timer = false; n.step(session.TimerFired{Run: n.conn.Timer}) })
		}
		if n.data != nil && len(n.queue) > 0 {
			list = append(list, n.transmit)
		}
		if w.more > 0 {
			list = append(list, func() { w.more--; n.submit() })
		}
	}
	live := w.halves[:0]
	for _, h := range w.halves {
		switch {
		case h.want && len(h.in) > 0 && !(h.cut && h.told):
			list = append(list, h.read)
		case h.cut && !h.told:
			list = append(list, h.ended)
		}
		if !h.cut && w.cuts > 0 {
			list = append(list, func() { w.cuts--; h.cut, h.peer.cut = true, true })
		}
		if !(h.cut && h.told) {
			live = append(live, h)
		}
	}
	w.halves = live
	return list
}

func (w *world) run() {
	for step := 0; ; step++ {
		list := w.moves()
		if len(list) == 0 {
			return
		}
		if step == 20000 {
			w.t.Fatalf("no end\n%s", strings.Join(w.log[len(w.log)-60:], "\n"))
		}
		list[w.rng.IntN(len(list))]()
	}
}

// Matrix: V1-04, V1-11
func TestTwoMachinesLoseNothing(t *testing.T) {
	seeds := uint64(500)
	if testing.Short() {
		seeds = 100
	}
	for _, name := range []string{"lossless-peer", "peer-reuse"} {
		forgot := 0
		for seed := range seeds {
			p := policies[name]
			p.Supported, p.Required = features, wire.FeatureMsgAddr2
			w := newWorld(t, seed, p)
			w.run()
			for _, n := range w.nodes {
				from := n.other()
				forgot += n.forgot
				got := n.delivered
				if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
					t.Fatalf("%s seed %d: %s got %v\n%s", name, seed, n.name, got, strings.Join(w.log, "\n"))
				}
				if n.forgot+from.forgot == 0 && uint64(len(got)) != from.next {
					t.Fatalf("%s seed %d: %s got %v of %d, state %v and %v\n%s",
						name, seed, n.name, got, from.next, n.conn.State, from.conn.State, strings.Join(w.log, "\n"))
				}
			}
		}
		if (forgot > 0) != (name == "peer-reuse") {
			t.Errorf("%s: sessions were forgotten %d times", name, forgot)
		}
	}
}
