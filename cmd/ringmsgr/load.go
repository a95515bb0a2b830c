package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
	"github.com/ringmsgr/ringmsgr/cmd/shared/perf"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// load is one run of send: its messengers, connections and lanes. Connection i
// carries lane i.
type load struct {
	s          *sender
	e          env
	to         wire.Addr
	pattern    pattern
	policy     control.Policy
	messengers []*control.Messenger
	conns      []*control.Conn
	lanes      []*lane
	running    atomic.Int64  // lanes that have not ended
	stopped    atomic.Bool   // finished is closed
	finished   chan struct{} // closed when all lanes are done, or one has failed
	elapsed    time.Duration
}

// errStalled ends a run without echoes.
var errStalled = errors.New("no echo came")

// messengersFor is the number of messengers for the connections: the address of its messenger
// identifies a lossless session, so each needs its own.
func (l *load) messengersFor(cfg *control.Config) int {
	if cfg.Default.Lossy {
		return 1
	}
	return l.s.conns
}

func (l *load) open(cfg control.Config) error {
	l.policy = *cfg.Default
	for range l.messengersFor(&cfg) {
		m, err := l.s.open(cfg, &control.Dispatcher{
			Fast: func(c *control.Conn, m *control.Message) bool {
				if lane, ok := c.UserData().(*lane); ok {
					lane.echo(m)
				}
				return true
			},
			Reset:       func(c *control.Conn, _ bool) { lost(c, c.Err()) },
			RemoteReset: func(c *control.Conn) { lost(c, errForgotten) },
		})
		if err != nil {
			return err
		}
		l.messengers = append(l.messengers, m)
	}
	return nil
}

// errForgotten ends a run whose lossless session the peer has lost.
var errForgotten = errors.New("the peer has lost the session")

func lost(c *control.Conn, err error) {
	if lane, ok := c.UserData().(*lane); ok {
		lane.fail(err)
	}
}

// connect waits for all connections. Lossy ones share a messenger, so that they
// cannot be found by their address, and do not repeat an attempt.
func (l *load) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.s.Timeout)
	defer cancel()
	var opts []control.ConnectOption
	if l.policy.Lossy {
		opts = append(opts, control.Anonymous(), control.Once())
	}
	for i := range l.s.conns {
		c, err := l.messengers[i%len(l.messengers)].Connect(l.to, l.s.peer, opts...)
		if err != nil {
			return err
		}
		if !l.policy.Lossy {
			// A session without messages to send stands by after a failed attempt.
			c.Keepalive()
		}
		l.conns = append(l.conns, c)
	}
	for _, c := range l.conns {
		if err := waitReady(ctx, c, l.policy.Lossy); err != nil {
			return err
		}
	}
	return nil
}

func (l *load) transfer(ctx context.Context) error {
	s := l.s
	l.running.Store(int64(s.conns))
	for i := range l.conns {
		total := s.messages / uint64(s.conns)
		if uint64(i) < s.messages%uint64(s.conns) {
			total++
		}
		l.lanes = append(l.lanes, newLane(l, i, total))
	}
	begin := l.e.now()
	for i, lane := range l.lanes {
		lane.start(l.conns[i])
		// The reset of a connection that ended before this line found no lane.
		if l.conns[i].State() == control.StateClosing {
			lane.fail(l.conns[i].Err())
		}
	}
	err := l.watch(ctx, begin)
	l.elapsed = l.e.now().Sub(begin)
	for _, lane := range l.lanes {
		lane.fail(err) // ends the running lanes; nil: none runs
		if err == nil {
			err = lane.err
		}
	}
	return err
}

// laneEndedLocked ends the run with its last lane, or with the first that fails. Caller holds lane.mu.
func (l *load) laneEndedLocked(lane *lane) {
	if (lane.err != nil || l.running.Add(-1) == 0) && !l.stopped.Swap(true) {
		close(l.finished)
	}
}

// watch waits for the end, and notices when no echo comes.
func (l *load) watch(ctx context.Context, begin time.Time) error {
	tick := time.NewTicker(min(time.Second, l.s.Timeout))
	defer tick.Stop()
	var enough <-chan time.Time
	if l.s.duration > 0 {
		timer := time.NewTimer(l.s.duration)
		defer timer.Stop()
		enough = timer.C
	}
	seen, moved := uint64(0), begin
	for {
		select {
		case <-l.finished:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-enough:
			for _, lane := range l.lanes {
				lane.stop()
			}
			continue
		case <-tick.C:
		}
		switch now, got := l.e.now(), l.verified(); {
		case got > seen:
			seen, moved = got, now
		case now.Sub(moved) >= l.s.Timeout:
			return l.stalled()
		}
	}
}

// stalled is the error of a run without echoes, with the error of a connection if there is one.
func (l *load) stalled() error {
	err := fmt.Errorf("%w for %v", errStalled, l.s.Timeout)
	for _, c := range l.conns {
		if e := c.Err(); e != nil {
			return fmt.Errorf("%w: %w", err, e)
		}
	}
	return err
}

func (l *load) verified() (n uint64) {
	for _, lane := range l.lanes {
		n += lane.progress()
	}
	return n
}

// report is the result. All lanes have ended.
func (l *load) report(failed error) *sent {
	info := l.conns[0].Info()
	r := &sent{
		negotiated: negotiatedBy(l.messengers[0], info), Policy: l.policy.Name, Lossy: info.Lossy,
		Conns: l.s.conns, Depth: l.s.depth, Size: int(l.s.size), Seconds: round(l.elapsed.Seconds(), 6),
	}
	if l.s.duration == 0 {
		r.Messages = l.s.messages
	}
	times := perf.NewHistogram()
	for i, lane := range l.lanes {
		lane.mu.Lock()
		if l.s.duration > 0 {
			r.Messages += lane.next // the run asked for as many as were sent
		}
		r.Verified += lane.got
		r.Duplicates += lane.duplicates
		r.Losses += lane.losses
		r.Corrupt += lane.corrupt
		times.Add(lane.times)
		lane.mu.Unlock()
		if st, err := l.conns[i].Stats(); err == nil && st.Counters.Ready > 0 {
			r.Reconnects += st.Counters.Ready - 1
		}
	}
	r.Rate = round(float64(r.Verified)/l.elapsed.Seconds(), 1)
	r.Bandwidth = round(float64(r.Verified)*float64(l.s.size)/1e6/l.elapsed.Seconds(), 3)
	if times.Count() > 0 {
		summary := times.Summary()
		r.Latency = &summary
	}
	if memory, err := perf.ReadMemory(0); err == nil {
		r.Memory, r.Peak = memory.Resident, memory.Peak
	}
	if failed != nil {
		f := l.failure(failed)
		r.Error, r.Stage = f.Error, f.Stage
	}
	return r
}

// acknowledgeTime bounds the wait for the peer to hang up at the end.
const acknowledgeTime = 2 * time.Second

// part ends the connections in good order after a run without a failure: the peer of a session
// gets the acknowledgement of its last echoes, and keeps none of them for us.
func (l *load) part() {
	ctx, cancel := context.WithTimeout(context.Background(), acknowledgeTime)
	defer cancel()
	var all sync.WaitGroup
	for _, m := range l.messengers {
		all.Go(func() { _ = m.Drain(ctx) }) // every echo has come: a peer that does not hang up does no harm
	}
	all.Wait()
}

// close ends all messengers at once, as each takes its time.
func (l *load) close() error {
	errs := make(chan error)
	for _, m := range l.messengers {
		go func() { errs <- scope.Close(m) }()
	}
	var all []error
	for range l.messengers {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// lane is one connection of send: it keeps depth messages under way and checks
// the echoes. Message n lives in slot n modulo depth; a slot is used again when
// its echo has come and the messenger has released the message.
type lane struct {
	load *load
	id   int

	mu    sync.Mutex
	conn  *control.Conn
	slots []slot
	total uint64 // messages to send
	next  uint64 // number of the next one
	got   uint64 // echoes, which come in order
	full  bool   // the sending queue had no room: a goroutine waits for it
	over  bool
	err   error
	times *perf.Histogram

	duplicates, losses, corrupt uint64
}

type slot struct {
	msg  control.Message
	used bool // the messenger has it
	sent time.Time
	head [headSize]byte
}

// headSize is the front of every message: number of the lane, of the message.
const headSize = 16

// The errors of a wrong echo.
var (
	errCorrupt   = errors.New("an echo differs from what was sent")
	errDuplicate = errors.New("an echo came twice")
	errLost      = errors.New("an echo is missing")
)

func newLane(of *load, id int, total uint64) *lane {
	l := &lane{load: of, id: id, total: total, slots: make([]slot, of.s.depth), times: perf.NewHistogram()}
	for i := range l.slots {
		s := &l.slots[i]
		s.msg.Type, s.msg.Front, s.msg.Context = ping, s.head[:], s
		s.msg.Free = l.freed
	}
	return l
}

func (l *lane) payload(n uint64) []byte {
	return l.load.pattern.payload(uint64(l.id), n, int(l.load.s.size))
}

func (l *lane) start(c *control.Conn) {
	c.SetUserData(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = c
	l.pumpLocked(l.load.e.now())
	if l.total == 0 {
		l.endLocked(nil)
	}
}

// pumpLocked sends as much as the depth allows. Caller holds mu.
func (l *lane) pumpLocked(now time.Time) {
	depth := uint64(len(l.slots))
	for !l.over && !l.full && l.next < l.total && l.next-l.got < depth {
		s := &l.slots[l.next%depth]
		if s.used {
			return // freed goes on
		}
		s.used, s.sent = true, now
		binary.LittleEndian.PutUint64(s.head[:], uint64(l.id))
		binary.LittleEndian.PutUint64(s.head[8:], l.next)
		s.msg.Data = l.payload(l.next)
		s.msg.TID = l.next
		err := l.conn.Send(&s.msg)
		if errors.Is(err, control.ErrQueueFull) {
			room := l.conn.Room()
			if err = l.conn.Send(&s.msg); errors.Is(err, control.ErrQueueFull) {
				s.used, l.full = false, true
				go l.resume(room)
				return
			}
		}
		if err != nil {
			l.endLocked(err)
			return
		}
		l.next++
	}
}

func (l *lane) resume(room <-chan struct{}) {
	<-room
	l.mu.Lock()
	defer l.mu.Unlock()
	l.full = false
	l.pumpLocked(l.load.e.now())
}

// stop sends no more messages: the lane ends with the echoes that are due.
func (l *lane) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total = l.next
	if l.got == l.total {
		l.endLocked(nil)
	}
}

// freed gets a message back from the messenger.
func (l *lane) freed(m *control.Message) {
	s, _ := m.Context.(*slot)
	l.mu.Lock()
	defer l.mu.Unlock()
	s.used = false
	// Usually the echo is still under way, and no message can be sent before it comes.
	if l.next-l.got < uint64(len(l.slots)) {
		l.pumpLocked(l.load.e.now())
	}
}

// echo takes an echo, on the core of the connection.
func (l *lane) echo(m *control.Message) {
	now := l.load.e.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || m.Type != ping {
		return
	}
	switch {
	case m.TID < l.got:
		l.duplicates++
		l.endLocked(fmt.Errorf("%w: number %d, expected %d", errDuplicate, m.TID, l.got))
		return
	case m.TID > l.got:
		l.losses += m.TID - l.got
		l.endLocked(fmt.Errorf("%w: number %d came, expected %d", errLost, m.TID, l.got))
		return
	case !l.intact(m):
		l.corrupt++
		l.endLocked(fmt.Errorf("%w: number %d of %d bytes", errCorrupt, m.TID, m.Size()))
		return
	}
	l.times.Record(now.Sub(l.slots[l.got%uint64(len(l.slots))].sent))
	l.got++
	if l.got == l.total {
		l.endLocked(nil)
		return
	}
	l.pumpLocked(now)
}

// intact checks every byte of the echo that is due.
func (l *lane) intact(m *control.Message) bool {
	return len(m.Front) == headSize && len(m.Middle) == 0 &&
		binary.LittleEndian.Uint64(m.Front) == uint64(l.id) && binary.LittleEndian.Uint64(m.Front[8:]) == l.got &&
		bytes.Equal(m.Data, l.payload(l.got))
}

// fail ends the lane from outside.
func (l *lane) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(err)
}

// endLocked ends the lane, once. Caller holds mu.
func (l *lane) endLocked(err error) {
	if l.over {
		return
	}
	l.over, l.err = true, err
	if err != nil && l.losses == 0 {
		l.losses = l.next - l.got - min(l.corrupt, l.next-l.got)
	}
	l.load.laneEndedLocked(l)
}

func (l *lane) progress() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.got
}

// pattern is random bytes, which are read-only. A payload is a part of them, at an offset
// made of the numbers of its connection and message. So changed bytes, and bytes of another
// message or offset, are found.
type pattern []byte

// starts is the number of offsets: a prime, so that no period of messages has only one.
const starts = 4093

// newPattern has room for payloads up to a size.
func newPattern(size int) pattern {
	p := make(pattern, size+starts)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(p) // never fails
	return p
}

// payload is that of message n on a connection.
func (p pattern) payload(conn, n uint64, size int) []byte {
	at := int((conn%starts*61 + n) % starts)
	return p[at : at+size : at+size]
}
