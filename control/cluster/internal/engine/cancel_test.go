package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/captured"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/engine/machine"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// errLate is the cause of a context as a server has it: its own client is gone. Its errno is not the cluster's.
var errLate = fmt.Errorf("late: %w", syscall.ECONNRESET)

// points are the places at which an operation may be when it is canceled.
var points = map[string]struct {
	cfg     Options
	outcome error
	text    string // it waits for
	nth     int    // of three operations is canceled
	behind  error  // of the others
	// hold keeps operations at the point, until the function that it returns is called.
	hold func(c *cluster) (letGo func())
}{
	"in line":          {Options{Operations: 1}, ErrNotSent, "too many operations", 0, nil, (*cluster).fill},
	"in line of bytes": {Options{Bytes: 1 << 15}, ErrNotSent, "too many operations", 1, ErrClosed, func(c *cluster) func() { c.fill(); return c.e.Close }},
	"without a map":    {Options{}, ErrNotSent, "no monitor has sent an osdmap", 0, nil, func(c *cluster) func() { return c.publish }},
	"without a pool": {Options{}, ErrNotSent, "no map has the pool", 0, syscall.ENOENT, func(c *cluster) func() {
		c.publish()
		c.pool, c.newest = 99, make(chan struct{})
		return func() { close(c.newest) }
	}},
	"without an OSD": {Options{}, ErrNotSent, "no OSD that is up serves", 0, ErrClosed, func(c *cluster) func() {
		c.down.Store(true)
		c.publish()
		return c.e.Close
	}},
	"without a connection": {Options{}, ErrNotSent, "is not reached", 0, ErrClosed, func(c *cluster) func() {
		c.addr.AddrPort = netip.MustParseAddrPort("127.0.0.1:1")
		c.publish()
		return c.e.Close
	}},
	"held back by the OSD":    {Options{}, ErrUnknown, "hold the object back", 0, nil, (*cluster).block},
	"behind a held operation": {Options{}, ErrUnknown, "an earlier operation on the object waited", 1, nil, (*cluster).block},
	"at the OSD":              {Options{}, ErrUnknown, "did not answer", 1, nil, func(c *cluster) func() { c.publish(); return c.mute() }},
}

// fill has the OSD be busy with one operation, behind which there is no room.
func (c *cluster) fill() (letGo func()) {
	c.publish()
	letGo = c.mute()
	check(c.t, c.e.Start(c.t.Context(), &Call{Request: c.read(1), Done: func(*Call) {}}))
	return letGo
}

// mute has the OSD not answer. In the end it drops its connections, and has everything sent again.
func (c *cluster) mute() (letGo func()) {
	var last atomic.Pointer[control.Conn]
	c.do(func(conn *control.Conn, _ *control.Message) bool { last.Store(conn); return false })
	return func() {
		until(c.t, func() bool { return last.Load() != nil })
		c.serve.Store(nil)
		last.Load().MarkDown()
	}
}

// block has the OSD hold back the object of all operations, once they have been sent.
func (c *cluster) block() (letGo func()) {
	c.publish()
	var at atomic.Pointer[control.Conn]
	c.do(func(conn *control.Conn, m *control.Message) bool {
		if m.Type == osdop.TypeOp && c.came.Load() == 3 {
			_ = conn.Send(c.backoff(osdop.Block))
			at.Store(conn)
		}
		return false
	})
	return func() {
		c.do(func(_ *control.Conn, m *control.Message) bool { return m.Type == osdop.TypeOp })
		_ = at.Load().Send(c.backoff(osdop.Unblock))
	}
}

// backoff is the message by which the OSD holds the object back, or admits it again.
func (c *cluster) backoff(what uint8) *control.Message {
	pg, _ := c.e.Map().Locate(c.pool, "", "obj")
	b := osdop.Backoff{PG: pg, Shard: -1, What: what, ID: 1, Begin: osdop.Min(), End: osdop.HObject{Max: true}}
	return control.NewMessage(osdop.TypeBackoff, b.AppendTo(nil), nil)
}

// An operation can be canceled wherever it is, by its user or as its context has ended. The error says what it waited for and whether an
// OSD may have seen it, whatever the cause is. Nothing of it is left, and the others go on in their order.
func TestACanceledOperationSaysWhatIsKnownAndLeavesNothing(t *testing.T) {
	for name, p := range points {
		for _, tick := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, by the tick %v", name, tick), func(t *testing.T) {
				t.Parallel()
				c := start(t, p.cfg)
				letGo := p.hold(c)
				ended := make(chan *Call, 3)
				var calls [3]Call
				ctx, cancel := context.WithCancelCause(t.Context())
				for i := range calls { // the first has no memory for its answer
					calls[i].Request, calls[i].Into, calls[i].Done = c.read(1<<15), make([]byte, min(i, 1)<<15), func(k *Call) { ended <- k }
					calls[i].home.Store(new(shard)) // of its last use, which does not guard it in line
					mine := t.Context()
					if i == p.nth {
						mine = ctx
					}
					if _, err := c.e.start(mine, &calls[i], false); err != nil {
						t.Fatal(err)
					}
				}
				until(t, func() bool {
					return strings.Contains(calls[p.nth].waits(), p.text) && (p.outcome == ErrNotSent || c.came.Load() >= 3)
				})
				if p.cfg.Operations+int(p.cfg.Bytes) > 0 && c.came.Load() > 1 {
					t.Error("more is under way than there is room for")
				}
				if cancel(errLate); tick {
					c.e.tick(time.Now())
				} else {
					calls[p.nth].Cancel(errLate)
				}
				k := <-ended
				k.Cancel(ErrInUse) // it is over
				if k != &calls[p.nth] || !errors.Is(k.Err, errLate) || !errors.Is(k.Err, p.outcome) || !strings.Contains(k.Err.Error(), p.text) {
					t.Errorf("%v, want %v, %q", k.Err, p.outcome, p.text)
				}
				letGo()
				for i := range calls {
					if i == p.nth {
						continue
					}
					if k := <-ended; k != &calls[i] || !errors.Is(k.Err, p.behind) {
						t.Errorf("%v in place of operation %d, want %v", k.Err, i, p.behind)
					}
				}
				until(t, func() bool { return c.e.room.used.Load() == 0 })
				if err := c.once(); p.behind == ErrClosed && (!errors.Is(err, ErrClosed) || !errors.Is(err, ErrNotSent)) {
					t.Errorf("behind the end of the engine: %v", err)
				}
				for _, s := range c.e.all() {
					s.mu.Lock()
					if s.m.First() != nil || s.m.Moves() || s.in.Load() != nil {
						t.Error("an operation is left")
					}
					s.mu.Unlock()
				}
			})
		}
	}
}

// waits says what a call waits for.
func (c *Call) waits() (text string) {
	c.e.room.mu.Lock()
	inLine := c.inLine
	c.e.room.mu.Unlock()
	s := lock(&c.home)
	if s == nil {
		return map[bool]string{true: "too many operations"}[inLine]
	}
	defer s.mu.Unlock()
	_, text, _ = c.op.Status()
	return text
}

// A call that is canceled before its shard has taken it is never sent.
func TestACallThatIsCanceledOnItsWayToTheShardIsNotSent(t *testing.T) {
	c := startWithMap(t, Options{})
	check(t, c.once()) // which has the session up
	ended := make(chan error, 1)
	call := &Call{Request: c.read(1), Done: func(k *Call) { ended <- k.Err }}
	s := c.e.shard(c.primary())
	s.mu.Lock()
	s.told.Store(true) // somebody is about to take it
	check(t, c.e.Start(t.Context(), call))
	go call.Cancel(errLate)
	until(t, func() bool { return call.cause.Load() != nil })
	s.mu.Unlock()
	if err := <-ended; !errors.Is(err, errLate) || !errors.Is(err, ErrNotSent) || c.came.Load() != 1 {
		t.Errorf("%v, %d requests came", err, c.came.Load())
	}
}

// A call that has found the engine open, and comes to its shard when that is closed, ends: also if somebody was about to take the
// operations of the shard, and cannot any more.
func TestACallThatComesBehindTheEndIsOver(t *testing.T) {
	c := startWithMap(t, Options{})
	c.e.Close()
	ended := make(chan error, 1)
	call := &Call{Request: c.read(1), Done: func(k *Call) { ended <- k.Err }, e: c.e, ctx: t.Context()}
	call.op.Object, call.op.User = call.Request.Target, call
	call.holds.Store(1)
	c.e.shard(c.primary()).told.Store(true)
	c.e.submit(call)
	if err := <-ended; !errors.Is(err, ErrClosed) || !errors.Is(err, ErrNotSent) {
		t.Error(err)
	}
}

// primary is the OSD that serves the object.
func (c *cluster) primary() int32 {
	pg, _ := c.e.Map().Locate(c.pool, "", "obj")
	return c.e.Map().Place(new(osdmap.Scratch), pg).Primary
}

// A watch and a notify that are given up say whether an OSD may know of them, by an earlier registration, too; and the OSD is
// told that the watch is over. The end of a context behind the registration means nothing.
func TestAWatchThatIsGivenUpSaysWhetherTheOSDMayHaveIt(t *testing.T) {
	c := startWithMap(t, Options{})
	var kinds [8]atomic.Int64 // of WATCH that came; 1: NOTIFY
	var osd atomic.Pointer[control.Conn]
	c.do(func(conn *control.Conn, m *control.Message) bool {
		kind, op := uint8(1), captured.ReadRequest(m.Version, m.Front, m.Data).Steps[0]
		if op.Code == osdop.CodeWatch {
			kind = op.Args[16]
		}
		kinds[kind].Add(1)
		osd.Store(conn)
		return false
	})
	for kind, begin := range map[uint8]func(ctx context.Context) error{
		osdop.WatchBegin: func(ctx context.Context) error { _, err := c.e.Watch(ctx, c.read(1).Target, 0, Handler{}); return err },
		1:                func(ctx context.Context) error { _, err := c.e.Notify(ctx, c.read(1).Target, nil, 0); return err },
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- begin(ctx) }()
		until(t, func() bool { return kinds[kind].Load() > 0 })
		s := c.e.shard(c.primary())
		s.mu.Lock()
		s.lostLocked(s.link) // a new registration waits for the next connection
		s.unlock()
		cancel(errLate)
		if err := <-done; !errors.Is(err, ErrUnknown) || !errors.Is(err, errLate) {
			t.Errorf("kind %d: %v, want ErrUnknown", kind, err)
		}
	}
	until(t, func() bool { return kinds[osdop.WatchEnd].Load() > 0 })

	c.do(func(conn *control.Conn, m *control.Message) bool {
		osd.Store(conn)
		_ = conn.Send(reply(m, 0, nil))
		return false
	})
	heard := make(chan Notification, 1)
	w, err := c.e.Watch(t.Context(), c.read(1).Target, 0, Handler{Notified: func(n Notification) []byte { heard <- n; return nil }})
	check(t, err)
	w.abandon(errLate)
	ev := captured.WatchNotify(osdop.EventNotify, w.Cookie(), 7, nil, 0, 0)
	_ = osd.Load().Send(control.NewMessage(osdop.TypeWatchNotify, ev, nil))
	if n := <-heard; n.ID != 7 {
		t.Errorf("%+v", n)
	}
}

// A notify that was sent again is ended by its own completion, not by that of the time before; one that overtakes the answer counts.
func TestANotifyEndsByItsOwnCompletion(t *testing.T) {
	c := startWithMap(t, Options{})
	for _, overtakes := range []bool{false, true} {
		c.do(func(conn *control.Conn, m *control.Message) bool {
			cookie := le.Uint64(captured.ReadRequest(m.Version, m.Front, m.Data).Steps[0].Args)
			answer := func() { _ = conn.Send(reply(m, 0, le.AppendUint64(nil, 7))) }
			complete := func(id uint64) {
				data := wire.AppendBlob(le.AppendUint64(le.AppendUint64(le.AppendUint32(nil, 1), id), 0), nil)
				_ = conn.Send(control.NewMessage(osdop.TypeWatchNotify, captured.WatchNotify(osdop.EventComplete, cookie, id, nil, 0, 0), append(data, 0, 0, 0, 0)))
			}
			if overtakes {
				complete(7)
				answer()
			} else {
				answer()
				complete(6)
				complete(7)
			}
			return false
		})
		answers, err := c.e.Notify(t.Context(), c.read(1).Target, nil, 0)
		if err != nil || len(answers) != 1 || answers[0].Client != 7 {
			t.Errorf("overtakes %v: %+v, %v", overtakes, answers, err)
		}
	}
	w := &Watch{m: machine.Watch{Notify: true, NotifyID: 6}}
	if w.requestLocked(new(machine.Op)); w.m.NotifyID != 0 {
		t.Error("a notify that is sent again waits for the completion of the time before")
	}
}
