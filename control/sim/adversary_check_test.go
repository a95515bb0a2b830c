//go:build !race

package sim_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// has reports whether a connection of n is the adversary's: by the address that n has dialled,
// or by the name of the peer that came. That never changes.
func (a *adversary) has(n *node, c *control.Conn) bool {
	if a == nil {
		return false
	}
	mine, known := a.known[c]
	by := c.Auth()
	switch accepted := c.Info().Accepted; {
	case by == nil || !accepted: // n has dialled the adversary, or an honest node
		return mine
	case !known:
		mine = foeName(by.Entity)
		a.known[c] = mine
	case mine != foeName(by.Entity):
		a.w.fail("node %d: conn %d is taken over by %v (the adversary's before: %v)", n.id, c.ID(), by.Entity, mine)
	}
	return mine
}

// use has users of honest nodes connect to the adversary, and send to it.
func (a *adversary) use() {
	w := a.w
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	if n.m == nil || n.ending {
		return
	}
	w.woken = true
	var conns []*control.Conn
	for _, c := range n.m.Conns() {
		if a.has(n, c) && c.State() != control.StateClosing {
			conns = append(conns, c)
		}
	}
	dials := !n.server() || w.plan.kind.both
	switch k := w.rng.IntN(6); {
	case len(conns) == 0 && !dials:
	case dials && (k < 2 || len(conns) == 0):
		typ := wire.OSD
		if w.rng.IntN(8) == 0 {
			typ = wire.Mon
		}
		c, err := n.m.Connect(a.dialled[w.rng.IntN(len(a.dialled))], typ)
		if err != nil {
			if !errors.Is(err, control.ErrWrongPeer) {
				w.fail("node %d: connect to the adversary: %v", n.id, err)
			}
			return
		}
		a.known[c] = true
		a.did("be dialled")
		a.sendTo(n, c, 1+w.rng.IntN(3))
	case k < 5:
		a.sendTo(n, conns[w.rng.IntN(len(conns))], 1+w.rng.IntN(20))
	default:
		n.markDown(conns[w.rng.IntN(len(conns))])
	}
}

// sendTo sends messages of which nothing is known but that they are released once.
func (a *adversary) sendTo(n *node, c *control.Conn, count int) {
	w := a.w
	for range count {
		process, freed, refused := n.process, false, false
		m := &control.Message{Type: 5, Front: a.bytes(1 + w.rng.IntN(200)), Data: a.bytes(w.rng.IntN(w.plan.large))}
		m.Free = func(*dataplane.Message) {
			if freed || refused || process != n.process {
				w.fail("node %d: a message to the adversary was released: before %v, refused %v, process %d of %d", n.id, freed, refused, process, n.process)
			}
			freed = true
			n.freed++
		}
		switch err := c.Send(m); {
		case err == nil:
			n.accepted++
		case errors.Is(err, control.ErrQueueFull):
			w.cover.QueueFull++
			refused = true
		case errors.Is(err, control.ErrClosed):
			refused = true
		default:
			w.fail("node %d: send to the adversary: %v", n.id, err)
		}
	}
}

// message takes a message if it is the adversary's: the user may keep it for a
// while, or answer.
func (a *adversary) message(n *node, c *control.Conn, m *control.Message) bool {
	if a == nil || !a.has(n, c) {
		return false
	}
	w := a.w
	a.acts["be heard"]++
	n.throttled(m)
	switch {
	case n.ending:
	case w.rng.IntN(4) == 0 && !w.quiet:
		n.keep(m, w.span(2*time.Second))
	case w.rng.IntN(4) == 0:
		a.sendTo(n, c, 1)
	}
	return true
}

// watch checks, after every step, the memory that can be read without a turn of a core.
func (a *adversary) watch() {
	if a == nil {
		return
	}
	a.look()
	for _, n := range a.w.nodes {
		if n.m == nil || n.lowered {
			continue
		}
		if used, most := n.m.DispatchThrottle().Used(), a.heldMost(len(n.conns)); used > most {
			a.w.fail("node %d: %d bytes of messages are held, the bound is %d", n.id, used, most)
		}
		if t := n.policy.Bytes; t != nil && t.Used() > t.Limit()+a.plan.messageMost() {
			a.w.fail("node %d: the policy's messages hold %d bytes of %d", n.id, t.Used(), t.Limit())
		}
		if t := n.policy.Messages; t != nil && t.Used() > t.Limit() {
			a.w.fail("node %d: %d messages are held of %d", n.id, t.Used(), t.Limit())
		}
	}
}

// frameSlack is the size that a connection may hold of an unfinished control frame, in bytes:
// the payload of its tag, and the bytes around it. The bytes of messages are counted
// (Throttles.Shared).
const frameSlack = 4 << 10

// checkStats compares the statistics of the messengers with their bounds; with each, also the
// statistics of each connection.
func (a *adversary) checkStats(each bool) {
	w := a.w
	for _, n := range w.nodes {
		if n.m == nil || w.failed || n.resizing {
			continue
		}
		st := n.stats()
		if most := 2 * a.plan.halfOpen; st.HalfOpen > most {
			w.fail("node %d: %d connections are half-open, the bound is %d", n.id, st.HalfOpen, most)
		}
		largest := max(a.plan.messageMost(), w.largest)
		if most := a.plan.sendBytes + int64(st.Open)*share(a.plan.sendBytes, 1<<20) + largest; a.plan.sendBytes > 0 && st.Sending > most {
			w.fail("node %d: %d bytes are to be sent, the bound is %d", n.id, st.Sending, most)
		}
		a.seeStats(&st)
		if each {
			a.checkConns(n)
		}
		a.checkLog(n)
	}
}

// checkConns compares the memory of each connection with its bounds.
func (a *adversary) checkConns(n *node) {
	w := a.w
	conns := n.m.Conns()
	list := make([]control.ConnStats, 0, len(conns))
	w.wait("stats", func() {
		for _, c := range conns {
			if st, err := c.Stats(); err == nil {
				list = append(list, st)
			}
		}
	})
	for _, st := range list {
		if io := &st.IO; io.Unfinished > io.Reserved+frameSlack {
			w.fail("node %d conn %d: %d bytes of a frame that is not complete, of which %d are counted", n.id, st.ID, io.Unfinished, io.Reserved)
		}
		if most := w.plan.queueBytes + a.plan.messageMost(); st.HeldBytes > most {
			w.fail("node %d conn %d: %d bytes are to be sent, the bound is %d", n.id, st.ID, st.HeldBytes, most)
		}
	}
}

// seeStats counts the measures of the product against the adversary.
func (a *adversary) seeStats(st *control.Stats) {
	seen := func(what string, n uint64) {
		if n > 0 {
			a.acts["seen: "+what]++
		}
	}
	for _, c := range st.Cores {
		seen("a message came too slowly", c.TooSlow)
		seen("a reader was stopped", c.Paused)
		seen("an aborted frame", c.Aborted)
	}
	f := &st.Counters.Failures
	seen("no banner", f.Banner)
	seen("a handshake took too long", f.Timeout)
	seen("a wrong peer", f.WrongPeer)
	seen("a frame was too long", f.Limits)
	seen("no more places for the half-open", f.Evicted+st.Counters.Refused)
	if a.plan.proven {
		seen("a proof was wrong", f.Auth)
	}
}

// atWork says that there is one which acts.
func (a *adversary) atWork() bool { return a != nil && !a.over }

// calm says that there is one, and that nothing else disturbs the honest.
func (a *adversary) calm() bool { return a != nil && a.plan.calm }

// forget has the honest users end their connections with the adversary.
func (a *adversary) forget() {
	for _, n := range a.w.nodes {
		if n.m == nil {
			continue
		}
		for _, c := range n.m.Conns() {
			if a.has(n, c) {
				n.markDown(c)
			}
		}
	}
}

// calmReset fails for a reset event of an honest connection where nothing but the
// adversary can be its cause.
func (a *adversary) calmReset(n *node, c *control.Conn, what string) {
	if a.calm() && !n.ending && !a.has(n, c) {
		a.w.fail("node %d: conn %d of honest nodes: %s, and nobody but the adversary disturbs: %v", n.id, c.ID(), what, c.Err())
	}
}

// keepaliveAck fails for an answer from the future.
func (a *adversary) keepaliveAck(n *node, c *control.Conn, stamp time.Time) {
	if a != nil && stamp.After(simClock{n}.Now().Add(3*time.Hour)) {
		a.w.fail("node %d: conn %d answers a keepalive of %v", n.id, c.ID(), stamp)
	}
}

// checkLeft fails for a socket of the adversary that is still open when all
// messengers have ended.
func (a *adversary) checkLeft() {
	w := a.w
	if w.failed || w.plan.silent {
		return
	}
	w.run(5 * time.Second)
	var b [16 << 10]byte
	for _, s := range a.sockets {
		if !s.up {
			continue
		}
		for {
			n, errno := s.on.drv.Recv(s.s, b[:], nil)
			if n > 0 {
				continue
			}
			if errno == again {
				w.fail("adversary: %v is still open", s)
			}
			break
		}
	}
}

// lineCount is a handler that counts the lines of a log by cause.
type lineCount struct {
	slog.Handler
	mu    *sync.Mutex
	lines map[string]int
	since time.Duration // virtual time
	skews int           // changes of the node's clock, each of which may begin a minute
	skew  time.Duration
}

func (a *adversary) logger(n *node) *slog.Logger {
	next := slog.Handler(slog.DiscardHandler)
	if *simTrace {
		next = n.traced()
	}
	h := &lineCount{Handler: next, mu: new(sync.Mutex), lines: make(map[string]int), since: a.w.net.Now(), skew: n.skew}
	a.logs[n] = h
	return slog.New(h)
}

func (h *lineCount) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.Handler.Enabled(ctx, level)
}

func (h *lineCount) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		h.mu.Lock()
		h.lines[r.Message]++
		h.mu.Unlock()
	}
	if h.Handler.Enabled(ctx, r.Level) {
		return h.Handler.Handle(ctx, r)
	}
	return nil
}

// WithAttrs and WithGroup leave the cause as it is.
func (h *lineCount) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h *lineCount) WithGroup(string) slog.Handler      { return h }

// linesAMinute is the documented bound for one cause.
const linesAMinute = 10

// checkLog fails for a cause that has more lines than its minutes allow.
func (a *adversary) checkLog(n *node) {
	h := a.logs[n]
	if n.skew != h.skew {
		h.skew = n.skew
		h.skews++
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	minutes := 1 + int((a.w.net.Now()-h.since)/time.Minute) + h.skews
	for cause, lines := range h.lines {
		if lines > minutes*linesAMinute {
			a.w.fail("node %d: %d lines in the log in %d minutes: %s", n.id, lines, minutes, cause)
		}
		if lines >= linesAMinute {
			a.acts["seen: ten lines of a cause"]++
		}
	}
}

// foeOther are the acts and effects besides those of the tables.
var foeOther = []string{
	"accept", "dial", "flood", "reset", "send byte by byte", "never read", "say nothing", "hello of any type", "claim another name", "open a session",
	"abandon a session", "leave a message unacknowledged", "acknowledge anything in a message", "answer with wait",
	"answer with missing features", "answer with retry", "answer with retry global", "answer with reset", "claim an address that it saw",
	"v1: hello of any address", "v1: connect with any features", "v1: connect as any type", "v1: claim another name", "v1: open a session",
	"v1: answer with WAIT", "v1: answer with RETRY_SESSION", "v1: answer with RETRY_GLOBAL", "v1: answer with RESETSESSION",
	"v1: answer with FEATURES", "v1: answer with BADAUTHORIZER", "v1: answer with BADPROTOVER", "v1: answer with READY", "v1: answer with SEQ",
	"claim the address of a node", "leave with the address of a node", "be dialled", "be heard",
	"seen: a message came too slowly", "seen: a reader was stopped", "seen: an aborted frame", "seen: no banner", "seen: a handshake took too long",
	"seen: a wrong peer", "seen: a frame was too long", "seen: no more places for the half-open", "seen: a proof was wrong",
	"seen: ten lines of a cause",
}

// actsOnly is the protocol in whose worlds an act must happen. Effects that both have must
// in those of msgr2, of which there are more.
func actsOnly(name string) simProtocol {
	if strings.HasPrefix(name, foeV1) {
		return simMsgr1
	}
	return simMsgr2
}

// checkActs fails if something never happened.
func checkActs(t *testing.T, c *simCover) {
	t.Helper()
	want := make(map[string]bool)
	for protocol, acts := range map[string][]foeAct{"": slices.Concat(foeActs, foeDataActs), foeV1: slices.Concat(foeActs1, foeDataActs1)} {
		for _, act := range acts {
			want[protocol+act.name] = true
		}
	}
	for _, name := range foeOther {
		want[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(c.Acts)) {
		if !want[name] {
			t.Errorf("%q is on no list", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		t.Logf("%-40s %d", name, c.Acts[name])
		if only := actsOnly(name); *simOneProtocol != "" && only != simProtocol(*simOneProtocol) {
			continue
		}
		if c.Acts[name] == 0 {
			t.Errorf("%q never happened in %d seeds", name, c.Seeds)
		}
	}
	t.Logf("%d steps, %d messages between honest nodes, %d resets of the network", c.Steps, c.Messages, c.NetResets)
}
