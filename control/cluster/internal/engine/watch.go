package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/engine/machine"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
)

// Notification is a message of a notifier to all watchers of an object.
type Notification struct {
	ID       uint64
	Notifier uint64 // the global id of the notifier
	Payload  []byte // the handler's
}

// Handler gets the events of a watch. Package rados has the text of its functions.
type Handler struct {
	Notified func(n Notification) (answer []byte)
	Lost     func(err error) // the last event
}

// Bounds of the notifications that wait for the handler of a watch. Beyond them they are dropped: the
// notifier is told that this watch has not answered. A larger one waits alone.
const (
	maxEvents     = 1024
	maxEventBytes = 16 << 20 // of their payloads
)

// defaultTimeout is that of a watch or a notify whose user sets none.
const defaultTimeout = 30 * time.Second

// Watch receives the notifications of an object. It lasts over restarts of OSDs, and is renewed.
type Watch struct {
	e       *Engine
	handler Handler
	timeout time.Duration
	payload []byte // of a notify: a copy, as an OSD that hangs may read it later
	home    atomic.Pointer[shard]

	// Owner: the lock of its home.
	m       machine.Watch
	ops     [1]osdop.Op
	reply   osdop.Reply
	told    chan error     // gets the first event: registered, complete, or an error; nil: it has come
	answers []osdop.Answer // of engage, behind that event

	// mu guards all that follows.
	mu      sync.Mutex
	events  []event
	waiting int  // bytes of their payloads
	busy    bool // the goroutine of the handler runs
}

// lost is the error of a watch that is over for a reason. It wraps ENOTCONN, and the reason.
func lost(why error) error {
	const text = "the watch is lost"
	switch why {
	case syscall.ENOTCONN:
		return fmt.Errorf(text+", as the object was removed, or the OSD has not heard of us for its timeout, or the cluster has blocklisted us: %w", why)
	case syscall.ENOENT:
		return fmt.Errorf(text+", as the pool was removed: %w: %w", why, syscall.ENOTCONN)
	}
	return fmt.Errorf(text+": %w: %w", why, syscall.ENOTCONN)
}

// event is a notification, or the end of the watch.
type event struct {
	n    Notification
	lost error
}

// Watch begins to watch an object that exists, and returns when the OSD has registered that. timeout is how
// long the OSD keeps the watch without hearing of us, in whole seconds and at least 3; 0: 30 s. Any goroutine
// but a core's.
func (e *Engine) Watch(ctx context.Context, o osdop.Object, timeout time.Duration, h Handler) (*Watch, error) {
	w := &Watch{handler: h, timeout: timeout, ops: [1]osdop.Op{{Code: osdop.CodeWatch}}}
	if _, err := e.engage(ctx, o, w); err != nil {
		return nil, err
	}
	return w, nil
}

// Notify sends a payload to all watchers of an object, and returns their answers when all have come, or when
// timeout is over, 0: 30 s. Then the error is ETIMEDOUT, and the missing answers are in the list, too
// (Answer.Missed). Any goroutine but a core's.
func (e *Engine) Notify(
	ctx context.Context, o osdop.Object, payload []byte, timeout time.Duration,
) ([]osdop.Answer, error) {
	w := &Watch{timeout: timeout, payload: bytes.Clone(payload), ops: [1]osdop.Op{{Code: osdop.CodeNotify}}}
	w.m.Notify = true
	return e.engage(ctx, o, w)
}

// engage has the machine take a watch, and waits for its first event.
func (e *Engine) engage(ctx context.Context, o osdop.Object, w *Watch) ([]osdop.Answer, error) {
	told := make(chan error, 1)
	w.e, w.told, w.m.Object, w.m.User = e, told, o, w
	if w.timeout <= 0 {
		w.timeout = defaultTimeout
	}
	w.m.PingEvery = min(machine.PollEvery, w.timeout/3)
	w.home.Store(e.shard(machine.Nobody))
	s := lock(&w.home)
	if e.over.Load() {
		s.mu.Unlock()
		return nil, e.newError(w.ops[0].Code, o, ErrClosed)
	}
	s.m.Watch(&w.m)
	s.unlock()
	var err error
	select {
	case err = <-told:
	case <-ctx.Done():
		w.abandon(context.Cause(ctx))
		err = <-told
	}
	return w.answers, err
}

// abandon has an error be the first event of a watch, unless that has come.
func (w *Watch) abandon(err error) {
	s := lock(&w.home)
	awaited := w.told != nil
	if awaited {
		w.told <- w.errorLocked(s, err, false)
		w.told = nil
		s.m.Forget(&w.m)
	}
	s.unlock()
	e := w.e
	e.moving.Lock() // Close takes it before it waits for what is running
	defer e.moving.Unlock()
	if awaited && !w.m.Notify && !e.over.Load() { // the OSD may have registered it
		e.running.Go(func() {
			ctx, cancel := context.WithTimeout(e.ctx, defaultTimeout)
			defer cancel()
			_ = w.end(ctx)
		})
	}
}

func (w *Watch) errorLocked(s *shard, err error, refused bool) *Error {
	return s.errorLocked(&w.m.Reg, w.ops[0].Code, w.m.Reg.Since, err, refused)
}

// Confirmed says when the OSD was last known to have the watch, to the second. Nothing was missed before.
func (w *Watch) Confirmed() time.Time {
	s := lock(&w.home)
	defer s.mu.Unlock()
	return w.m.Confirmed
}

// Cookie is the number by which the OSD lists the watch.
func (w *Watch) Cookie() uint64 { return w.m.Cookie }

// Close ends the watch, at the OSD too. The handler gets no event that is not there already.
func (w *Watch) Close(ctx context.Context) error {
	s := lock(&w.home)
	s.m.Forget(&w.m)
	s.unlock()
	w.mu.Lock()
	w.events, w.waiting = nil, 0
	w.mu.Unlock()
	return w.end(ctx)
}

// end has the OSD forget the watch.
func (w *Watch) end(ctx context.Context) error {
	return w.do(ctx, osdop.FlagWrite, osdop.Watch(w.m.Cookie, osdop.WatchEnd, 0, 0))
}

func (w *Watch) do(ctx context.Context, flags uint32, op osdop.Op) error {
	flags |= osdop.FullTry // a write that waits where the cluster is full does not hold it up
	_, err := w.e.Do(ctx, osdop.Request{Target: w.m.Object, Flags: flags, MTime: time.Now()}, []osdop.Op{op}, nil)
	return err
}

// requestLocked is the request of an operation for the watch.
func (w *Watch) requestLocked(o *machine.Op) osdop.Request {
	_, kind, gen := o.Serves()
	seconds := uint32(min(max(w.timeout/time.Second, 1), 1<<20))
	if w.m.Notify {
		w.m.NotifyID = 0
		w.ops[0] = osdop.Notify(w.m.Cookie, seconds, w.payload)
	} else {
		w.ops[0] = osdop.Watch(w.m.Cookie, kind, gen, max(seconds, 3)) // pings come once a second at most
	}
	return osdop.Request{Target: w.m.Object, Ops: w.ops[:], MTime: time.Now()}
}

// answeredLocked takes the answer to an operation for the watch.
func (w *Watch) answeredLocked(s *shard, o *machine.Op, msg *control.Message) {
	err := osdop.DecodeReply(msg.Front, msg.Data, &w.reply, w.ops[:])
	if err == nil && w.m.Notify && w.reply.Result >= 0 {
		w.m.NotifyID, err = osdop.NotifyOutput(w.ops[0].Out)
	}
	w.ops[0].Out = nil
	if err != nil {
		w.reply = osdop.Reply{Result: -int32(syscall.EBADMSG), Attempt: -1}
	}
	s.m.Reply(o, &w.reply)
}

// tellLocked takes an event of the machine: the watch is registered, the notify is complete, or it is over. s
// is its home.
func (w *Watch) tellLocked(s *shard, err error) {
	switch {
	case w.told == nil && err != nil && !w.m.Notify:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.happenLocked(event{lost: w.errorLocked(s, lost(err), true)})
	case w.told != nil:
		if err != nil {
			err = w.errorLocked(s, err, verdict(err))
		}
		w.told <- err
		w.told = nil
	}
}

// happenLocked has the handler called.
func (w *Watch) happenLocked(ev event) {
	w.events = append(w.events, ev)
	if !w.busy {
		w.busy = true
		w.e.running.Go(w.handle)
	}
}

func (w *Watch) handle() {
	for {
		w.mu.Lock()
		if len(w.events) == 0 {
			w.busy, w.events = false, nil
			w.mu.Unlock()
			return
		}
		ev := w.events[0]
		w.events = w.events[1:]
		w.waiting -= len(ev.n.Payload)
		w.mu.Unlock()
		switch {
		case ev.lost == nil:
			w.answer(ev.n)
		case w.handler.Lost != nil:
			w.handler.Lost(ev.lost)
		}
	}
}

// answer has the handler answer a notification.
func (w *Watch) answer(n Notification) {
	var answer []byte
	if w.handler.Notified != nil {
		answer = w.handler.Notified(n)
	}
	ctx, cancel := context.WithTimeout(w.e.ctx, defaultTimeout)
	defer cancel()
	err := w.do(ctx, osdop.FlagRead, osdop.NotifyAck(n.ID, w.m.Cookie, answer))
	if err != nil && !errors.Is(err, ErrClosed) {
		w.e.cfg.Logger.Warn("answer to a notification", "err", err)
	}
}

// watchEvent takes MWatchNotify of an OSD, on the core of its connection.
func (e *Engine) watchEvent(conn *control.Conn, msg *control.Message) {
	ev, err := osdop.DecodeWatchNotify(msg.Front)
	var answers []osdop.Answer
	if err == nil && ev.What == osdop.EventComplete {
		answers, err = osdop.DecodeAnswers(msg.Data)
	}
	if err != nil {
		e.cfg.Logger.Warn("event of a watch", "err", err)
		return
	}
	l := e.lock(conn)
	if l == nil {
		return
	}
	s := l.shard
	defer s.unlock()
	m := s.m.Lookup(l.session, ev.Cookie, ev.What == osdop.EventComplete)
	if m == nil {
		return
	}
	w := m.User.(*Watch)
	switch ev.What {
	case osdop.EventNotify:
		w.mu.Lock()
		if len(w.events) < maxEvents && (w.waiting == 0 || w.waiting+len(ev.Payload) <= maxEventBytes) {
			w.waiting += len(ev.Payload)
			w.happenLocked(event{n: Notification{ev.NotifyID, ev.Notifier, bytes.Clone(ev.Payload)}})
		}
		w.mu.Unlock()
	case osdop.EventDisconnect:
		s.m.Lose(m, syscall.ENOTCONN)
	case osdop.EventComplete:
		if m.NotifyID != 0 && m.NotifyID != ev.NotifyID {
			return // of a notify that was sent again
		}
		s.m.Forget(m)
		w.answers = answers
		if err = nil; ev.Result < 0 {
			err = syscall.Errno(-ev.Result)
		}
		w.tellLocked(s, err)
	}
}
