package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// load is one run of send: its messengers, connections and lanes. Connection i
// carries lane i.
type load struct {
	s          *sender
	to         wire.Addr
	pattern    pattern
	policy     control.Policy
	messengers []*control.Messenger
	conns      []*control.Conn
	lanes      []*lane
	stop       context.CancelCauseFunc // ends the run with the first error
	elapsed    time.Duration
}

// open makes the messengers: the address of its messenger identifies a lossless session, so each
// needs its own.
func (l *load) open(cfg control.Config) error {
	l.policy = *cfg.Default
	n := l.s.conns
	if l.policy.Lossy {
		n = 1
	}
	cli.GrowProcs(n * cfg.Plane.Cores)
	// --depth bounds the queues, and all messages share the memory of one payload.
	cfg.Sending = control.Sending{QueueBytes: -1, QueueMessages: -1, Bytes: -1}
	for range n {
		m, err := l.s.open(cfg, &control.Dispatcher{
			Fast: func(c *control.Conn, m *control.Message) bool {
				if lane, ok := c.UserData().(*lane); ok {
					lane.echo(m)
				}
				return true
			},
			Reset:       func(c *control.Conn, _ bool) { lost(c, c.Err()) },
			RemoteReset: func(c *control.Conn) { lost(c, errors.New("the peer has lost the session")) },
		})
		if err != nil {
			return err
		}
		l.messengers = append(l.messengers, m)
	}
	return nil
}

// lost ends the run, unless the connection has nothing under way: then its next message fails.
func lost(c *control.Conn, err error) {
	if lane, ok := c.UserData().(*lane); ok {
		if sent, got := lane.progress(); got < sent {
			lane.fail(err)
		}
	}
}

// connect waits for all connections. Lossy ones share a messenger, so that they
// cannot be found by their address, and do not repeat an attempt.
func (l *load) connect(ctx context.Context) error {
	limit := l.s.Timeout
	var opts []control.ConnectOption
	if l.policy.Lossy {
		limit += attemptGrace
		opts = append(opts, control.Anonymous(), control.Once())
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
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
		if err := c.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (l *load) transfer(ctx context.Context) (err error) {
	s := l.s
	ctx, l.stop = context.WithCancelCause(ctx)
	defer l.stop(nil)
	for i, c := range l.conns {
		lane := &lane{load: l, id: uint64(i), conn: c, answered: make([]func(string, error), s.depth)}
		l.lanes = append(l.lanes, lane)
		c.SetUserData(lane)
	}
	context.AfterFunc(ctx, func() {
		for _, lane := range l.lanes {
			lane.fail(context.Cause(ctx))
		}
	})
	go l.watch(ctx)
	var all sync.WaitGroup
	for _, lane := range l.lanes {
		total := s.messages / uint64(s.conns)
		if lane.id < s.messages%uint64(s.conns) {
			total++
		}
		all.Go(func() { lane.calls, lane.err = cli.Loop(s.depth, total, s.duration, lane.begin) })
	}
	all.Wait()
	for _, lane := range l.lanes {
		l.elapsed, err = max(l.elapsed, lane.calls.Took), cmp.Or(err, lane.err)
	}
	return err
}

// watch ends the run when no echo comes.
func (l *load) watch(ctx context.Context) {
	tick := time.NewTicker(min(time.Second, l.s.Timeout))
	defer tick.Stop()
	seen, moved := uint64(0), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		got := uint64(0)
		for _, lane := range l.lanes {
			_, verified := lane.progress()
			got += verified
		}
		switch {
		case got > seen:
			seen, moved = got, time.Now()
		case time.Since(moved) >= l.s.Timeout:
			l.stop(l.stalled())
		}
	}
}

// stalled is the error of a run without echoes, with the error of a connection if there is one.
func (l *load) stalled() error {
	err := fmt.Errorf("no echo came for %v", l.s.Timeout)
	for _, c := range l.conns {
		if e := c.Err(); e != nil {
			return fmt.Errorf("%w: %w", err, e)
		}
	}
	return err
}

// report is the result. All lanes have ended. The messages under way of one that ctx has ended are no losses.
func (l *load) report(ctx context.Context, failed error) *sent {
	info := l.conns[0].Info()
	r := &sent{
		negotiated: l.s.negotiatedBy(l.messengers[0], info), Policy: l.policy.Name, Lossy: info.Lossy,
		Conns: l.s.conns, Depth: l.s.depth, Size: int(l.s.size), Seconds: round(l.elapsed.Seconds(), 6),
	}
	if l.s.duration == 0 {
		r.Messages = l.s.messages
	}
	times := cli.NewHistogram()
	for i, lane := range l.lanes {
		lane.mu.Lock()
		if l.s.duration > 0 {
			r.Messages += lane.next // the run asked for as many as were sent
		}
		r.Verified += lane.got
		r.Duplicates += lane.duplicates
		if !errors.Is(lane.failed, context.Cause(ctx)) {
			r.Losses += lane.losses
		}
		r.Corrupt += lane.corrupt
		times.Add(lane.calls.Of(echoed))
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
	if memory, err := cli.ReadMemory(0); err == nil {
		r.Memory, r.Peak = memory.Resident, memory.Peak
	}
	if failed != nil {
		f := l.s.explain(failed, l.to)
		if r.Error, r.Stage = f.Error, f.Stage; !errors.As(failed, new(*control.Error)) {
			r.Stage = control.StageSession
		}
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
	_ = l.each(func(m *control.Messenger) error { return m.Drain(ctx) }) // every echo has come: a peer that does not hang up does no harm
}

func (l *load) close() error { return l.each(scope.Close) }

// each calls f with all messengers at once, as each takes its time.
func (l *load) each(f func(m *control.Messenger) error) error {
	errs := make([]error, len(l.messengers))
	var all sync.WaitGroup
	for i, m := range l.messengers {
		all.Go(func() { errs[i] = f(m) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// lane is one connection of send: it sends messages, depth of them under way (cli.Loop), and
// checks the echoes.
type lane struct {
	load  *load
	id    uint64
	conn  *control.Conn
	calls cli.Calls // once it has ended, as err
	err   error

	mu       sync.Mutex
	spare    []*slot
	next     uint64                // number of the next message
	got      uint64                // echoes, which come in order
	answered []func(string, error) // of the messages under way, by number modulo depth
	failed   error

	duplicates, losses, corrupt uint64
}

// echoed is the kind of the messages that have come back.
const echoed = "echo"

// slot is a message that is used again when the messenger has released it.
type slot struct {
	msg  control.Message
	head [headSize]byte
}

// headSize is the front of every message: number of the lane, of the message.
const headSize = 16

func (l *lane) payload(n uint64) []byte { return l.load.pattern.payload(l.id, n, int(l.load.s.size)) }

// begin sends a message (cli.Loop). answered is called once with its fate.
func (l *lane) begin(_ int, answered func(string, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		answered("", l.failed)
		return
	}
	if len(l.spare) == 0 {
		s := &slot{}
		s.msg.Type, s.msg.Front, s.msg.Context, s.msg.Free = ping, s.head[:], s, l.freed
		l.spare = append(l.spare, s)
	}
	last := len(l.spare) - 1
	s := l.spare[last]
	binary.LittleEndian.PutUint64(s.head[:], l.id)
	binary.LittleEndian.PutUint64(s.head[8:], l.next)
	s.msg.Data, s.msg.TID = l.payload(l.next), l.next
	if err := l.conn.Send(&s.msg); err != nil {
		answered("", err)
		l.load.stop(err)
		return
	}
	l.spare = l.spare[:last]
	l.answered[l.next%uint64(len(l.answered))] = answered
	l.next++
}

// freed gets a message back from the messenger.
func (l *lane) freed(m *control.Message) {
	s, _ := m.Context.(*slot)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spare = append(l.spare, s)
}

// echo takes an echo, on the core of the connection.
func (l *lane) echo(m *control.Message) {
	if m.Type != ping {
		return
	}
	l.mu.Lock()
	answered, err := l.checkLocked(m)
	l.mu.Unlock()
	switch {
	case err != nil:
		l.fail(err)
	case answered != nil:
		answered(echoed, nil)
	}
}

// checkLocked returns the function of the message that has come back. It is nil after a failure.
func (l *lane) checkLocked(m *control.Message) (answered func(string, error), err error) {
	switch {
	case l.failed != nil:
		return nil, nil
	case m.TID < l.got:
		l.duplicates++
		return nil, fmt.Errorf("an echo came twice: number %d, expected %d", m.TID, l.got)
	case m.TID > l.got || l.got == l.next:
		l.losses += m.TID - l.got
		return nil, fmt.Errorf("an echo is missing: number %d came, expected %d", m.TID, l.got)
	case !l.intact(m):
		l.corrupt++
		return nil, fmt.Errorf("an echo differs from what was sent: number %d of %d bytes", m.TID, m.Size())
	}
	answered = l.answered[l.got%uint64(len(l.answered))]
	l.got++
	return answered, nil
}

// intact checks every byte of the echo that is due.
func (l *lane) intact(m *control.Message) bool {
	return len(m.Front) == headSize && len(m.Middle) == 0 &&
		binary.LittleEndian.Uint64(m.Front) == l.id && binary.LittleEndian.Uint64(m.Front[8:]) == l.got &&
		bytes.Equal(m.Data, l.payload(l.got))
}

// fail ends the messages that are under way, and then the run.
func (l *lane) fail(err error) {
	defer l.load.stop(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return
	}
	if l.failed = err; l.losses == 0 {
		l.losses = l.next - l.got - min(l.corrupt, l.next-l.got)
	}
	for n := l.got; n < l.next; n++ {
		l.answered[n%uint64(len(l.answered))]("", err)
	}
}

func (l *lane) progress() (sent, got uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next, l.got
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
