package mon

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Config of a Client. Only Mons is required.
type Config struct {
	// Mons are addresses of monitors, tried in this order. The newest monmap adds the others.
	// If all are v1 addresses the client speaks msgr1 with every daemon that has it.
	Mons []wire.Addr
	// Auth is the messenger's cephx client, whose tickets and secrets the session renews; nil
	// with method none.
	Auth *cephx.Client
	// None is the messenger's client of method none, which is told the number that a
	// monitor gives us by msgr1; not used with cephx, nil if there is no v1 address.
	None *none.Client
	// Timeout bounds an attempt to reach a monitor, and its answer to a renewal; 0: 10 s. Where there are
	// several monitors, each gets an eighth of it for the first attempt, as it may hang, and then all of it.
	Timeout time.Duration
	// Retry is the least time from one attempt to the next, and after a renewal that failed; 0: 1 s.
	Retry time.Duration
	// Clock is the clock of Auth, for times of expiry; nil: the machine's.
	Clock control.Clock
	// Logger gets lost sessions and renewals; nil is silent.
	Logger *slog.Logger
}

// Client is a session with the monitors of a cluster. All methods may be
// called by any goroutine but a core's.
//
// Give its Dispatcher to the messenger's Start, then call Open.
type Client struct {
	cfg  Config
	m    *control.Messenger // set by Open
	ctx  context.Context    // ends with Close
	stop context.CancelFunc
	done chan struct{} // closed when run has ended
	tid  atomic.Uint64 // of the last command
	vain int           // attempts since the last session; run alone has it

	// mu guards the fields that follow. Cores take it too: it is never held for long.
	mu      sync.Mutex
	opened  bool
	mons    []wire.Addr
	session *session // nil: none now
	lastErr error    // why the last session ended or did not begin
	monmap  MonMap
	refuse  context.CancelCauseFunc // ends Open, as every monitor has refused us; set by Open
	subs    map[string]uint64       // names of maps, and their epochs
	ready   chan struct{}           // closed, and replaced, when a session is ready
}

// Output is the answer to a command.
type Output struct {
	Status string // for a person
	Data   []byte // JSON, or the wanted bytes; the caller's
}

// NewClient makes a client that is not connected.
func NewClient(cfg Config) (*Client, error) {
	if len(cfg.Mons) == 0 {
		return nil, fmt.Errorf("%w: no monitor", ErrConfig)
	}
	if cfg.Timeout < 0 || cfg.Retry < 0 {
		return nil, fmt.Errorf("%w: negative time", ErrConfig)
	}
	cfg.Timeout, cfg.Retry = cmp.Or(cfg.Timeout, 10*time.Second), cmp.Or(cfg.Retry, time.Second)
	if cfg.Clock == nil {
		cfg.Clock = machineClock{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Client{
		cfg: cfg, mons: slices.Clone(cfg.Mons), done: make(chan struct{}),
		subs: map[string]uint64{"monmap": 0, "config": 0}, ready: make(chan struct{}),
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// Open begins the session on m, whose Start had the client's Dispatcher, and
// returns when a monitor has accepted us and sent the monmap. It gives up when
// every monitor has refused our authentication for good, with an error that
// is control.ErrAuth, or when ctx ends; then the client is closed. Once Open has
// succeeded, a client that is refused tries on.
func (c *Client) Open(ctx context.Context, m *control.Messenger) error {
	c.mu.Lock()
	if c.opened {
		c.mu.Unlock()
		return fmt.Errorf("%w: opened twice, or closed", ErrConfig)
	}
	ctx, c.refuse = context.WithCancelCause(ctx)
	defer c.refuse(nil)
	c.m, c.opened = m, true
	c.mu.Unlock()
	go c.run(c.ctx)
	_, err := c.next(ctx, nil)
	if err != nil {
		c.Close()
	}
	return err
}

// silence is the reason why no monitor has accepted us so far.
func (c *Client) silence() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lastErr == nil && c.session != nil {
		return fmt.Errorf("%w: nothing came from %v", ErrNoAnswer, c.session.to)
	}
	return c.lastErr
}

// Close ends the session and fails the commands that are under way. The
// messenger goes on.
func (c *Client) Close() {
	c.stop()
	c.mu.Lock()
	if !c.opened {
		c.opened = true
		close(c.done)
	}
	c.mu.Unlock()
	<-c.done
}

// Err is why there is no session now, nil if there is one.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != nil && c.session.ready {
		return nil
	}
	return c.lastErr
}

// Conn is the connection to the monitor, nil if there is none now.
func (c *Client) Conn() *control.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil || !c.session.ready {
		return nil
	}
	return c.session.conn
}

// MonMap is the newest monmap; the zero MonMap before Open.
func (c *Client) MonMap() MonMap {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.monmap
	m.Mons = slices.Clone(m.Mons)
	return m
}

// FollowOSDMap has the monitors send osdmaps, from an epoch on (0: the newest whole map), and each new
// one as it comes, on later sessions too. Their messages, of type 41, are left to the next dispatcher of the
// chain, for [DecodeOSDMaps]. A core may call it, too.
func (c *Client) FollowOSDMap(epoch uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subs["osdmap"] = uint64(epoch)
	if c.session == nil || !c.session.ready {
		return nil // it goes out with the next session
	}
	return c.sendLocked(map[string]uint64{"osdmap": uint64(epoch)})
}

// sendLocked sends subscriptions on the session. That it is lost is not an error: all are sent again on the
// next one. If the queue of its connection is full, the keeper sends all again.
func (c *Client) sendLocked(subs map[string]uint64) error {
	err := c.session.conn.Send(subscribeMessage(subs))
	switch {
	case errors.Is(err, control.ErrClosed):
		return nil
	case errors.Is(err, control.ErrQueueFull):
		c.session.owed = true
		return nil
	}
	return err
}

// sendOwed sends all subscriptions again if the queue had no room for one.
func (c *Client) sendOwed(s *session) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.owed {
		return nil
	}
	s.owed = false
	return c.sendLocked(c.subs)
}

// Command runs a command of the monitors, for example
//
//	map[string]any{"prefix": "osd out", "ids": []string{"3"}}
//
// Package encoding/json writes the arguments. The description of a command says which of them are numbers or lists.
// After the loss of its session a command is sent again on the next one, as in Ceph. An error
// of the monitor is a *CommandError.
func (c *Client) Command(ctx context.Context, command map[string]any) (Output, error) {
	return c.CommandWith(ctx, command, nil)
}

// CommandWith is Command with data, for example the value of "config-key set". It takes a copy.
func (c *Client) CommandWith(ctx context.Context, command map[string]any, data []byte) (Output, error) {
	prefix, _ := command["prefix"].(string)
	what := fmt.Sprintf("command %q", prefix)
	text, err := json.Marshal(command)
	if err != nil {
		return Output{}, fmt.Errorf("%s: %w", what, err)
	}
	data = bytes.Clone(data) // a connection that is lost, or that ctx has given up, may read it a little longer
	reply, err := c.ask(ctx, what, func(tid uint64) *control.Message {
		return commandMessage(tid, c.MonMap().FSID, text, data)
	})
	if err != nil {
		return Output{}, err
	}
	return commandOutput(prefix, reply)
}

// ask sends a request, which build makes with the same transaction id each time, until a session brings the answer.
func (c *Client) ask(ctx context.Context, what string, build func(tid uint64) *control.Message) (*control.Message, error) {
	var s *session
	var to wire.Addr
	for tid := c.tid.Add(1); ; {
		next, err := c.next(ctx, s)
		var reply *control.Message
		if err == nil {
			s, to = next, next.to
			reply, err = s.conn.Call(ctx, build(tid), control.WithTID(tid))
		}
		switch {
		case err == nil:
			return reply, nil
		case next == nil:
		case errors.Is(err, context.DeadlineExceeded):
			err = fmt.Errorf("%w: %w", ErrNoAnswer, err)
		case errors.Is(err, control.ErrSessionLost) || errors.Is(err, control.ErrNotSent) || errors.Is(err, control.ErrClosed):
			continue
		}
		if !to.IsBlank() {
			what += " to " + to.String()
		}
		return nil, fmt.Errorf("%s: %w", what, err)
	}
}

// NewestOSDMap asks which epoch of the osdmap is the newest one.
func (c *Client) NewestOSDMap(ctx context.Context) (uint32, error) {
	m, err := c.ask(ctx, "question for the newest osdmap", func(tid uint64) *control.Message {
		return message(typeGetVersion, tid, 1, wire.AppendString(le.AppendUint64(nil, tid), "osdmap"))
	})
	if err != nil {
		return 0, err
	}
	defer m.Release()
	r := wire.NewReader(m.Front)
	r.U64()
	newest := r.U64()
	if m.Type != typeVersion || newest > math.MaxUint32 {
		return 0, fmt.Errorf("%w: message of type %d in place of MMonGetVersionReply, epoch %d", errMessage, m.Type, newest)
	}
	return uint32(newest), bad("MMonGetVersionReply", r.Err())
}

// Request has a monitor carry out a request of another package, for example MPoolOp, and
// returns its answer, to be released. build makes the message, with a transaction id, again for
// each session. If it fails the outcome is unknown.
func (c *Client) Request(ctx context.Context, build func(fsid FSID) *control.Message) (*control.Message, error) {
	return c.ask(ctx, "request", func(tid uint64) *control.Message {
		m := build(c.MonMap().FSID)
		m.TID = tid
		return m
	})
}

// next waits for a session after the lost one.
func (c *Client) next(ctx context.Context, lost *session) (*session, error) {
	for {
		c.mu.Lock()
		s, ready := c.session, c.ready
		usable := s != nil && s.ready && s != lost
		c.mu.Unlock()
		if usable {
			return s, nil
		}
		select {
		case <-ready:
		case <-c.ctx.Done():
			return nil, ErrClosed
		case <-ctx.Done():
			err := context.Cause(ctx)
			if why := c.silence(); !errors.Is(err, why) { // else it is said once
				err = errors.Join(err, why)
			}
			return nil, err
		}
	}
}

// commandOutput reads the answer to a command, and releases it.
func commandOutput(prefix string, m *control.Message) (Output, error) {
	defer m.Release()
	if m.Type != typeCommandAck {
		return Output{}, fmt.Errorf("%w: message of type %d in place of MMonCommandAck", errMessage, m.Type)
	}
	result, status, err := decodeCommandAck(m.Front)
	out := Output{Status: status, Data: bytes.Clone(m.Data)}
	if err == nil && result < 0 {
		err = &CommandError{Prefix: prefix, Errno: syscall.Errno(-result), Status: status}
	}
	return out, err
}

// Dispatcher takes the messages of the monitor session; all others it leaves
// to the next in the chain.
func (c *Client) Dispatcher() *control.Dispatcher {
	return &control.Dispatcher{Fast: c.receive}
}

// receive takes a message on a core. Answers of monitors are small and rare, so
// they are decoded here.
func (c *Client) receive(conn *control.Conn, m *control.Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.session
	if s == nil || s.conn != conn {
		return false
	}
	if !s.proven && m.Type != typeAuthReply {
		return true
	}
	var err error
	switch m.Type {
	case typeMonMap:
		err = c.newMonMap(m.Front)
		select {
		case s.monmap <- err:
		default: // it has sent one before
		}
	case typeAuthReply:
		var a authReply
		if a, err = decodeAuthReply(m.Front); err == nil {
			a.payload = bytes.Clone(a.payload)
			select {
			case s.replies <- a:
			default: // more answers than questions
			}
		}
	case typeOSDMap:
		// It is for the next dispatcher. The next session goes on behind it.
		var got OSDMaps
		if got, err = DecodeOSDMaps(m.Front); err == nil {
			if start, ok := c.subs["osdmap"]; ok {
				c.subs["osdmap"] = max(start, uint64(got.Epoch())+1)
			}
			return false
		}
	case typeSubscribeAck, typeConfig, typeMgrMap, typeCommandAck: // the last is too late
	default:
		return false
	}
	if err != nil {
		c.cfg.Logger.Warn("message of a monitor", "type", m.Type, "err", err)
	}
	return true
}

func (c *Client) newMonMap(front []byte) error {
	m, err := decodeMonMap(wire.NewReader(front).Blob())
	if err != nil {
		return err
	}
	if c.monmap.Epoch != 0 && (m.FSID != c.monmap.FSID || m.Epoch < c.monmap.Epoch) {
		return fmt.Errorf("%w: monmap %d of %v, have %d of %v", errMessage, m.Epoch, m.FSID, c.monmap.Epoch, c.monmap.FSID)
	}
	if c.monmap.Epoch != 0 && m.AuthEpoch > c.monmap.AuthEpoch && c.cfg.Auth != nil {
		c.cfg.Auth.RenewAll()
		select {
		case c.session.wiped <- struct{}{}:
		default: // it has not looked yet
		}
	}
	c.monmap = m
	c.subs["monmap"] = uint64(m.Epoch) + 1
	c.mons = candidates(c.cfg.Mons, m.Mons)
	return nil
}

// candidates are the addresses to try: the configured ones, then the others of the newest map.
// Monitors that are not in it any more are forgotten.
func candidates(configured []wire.Addr, mons []Mon) []wire.Addr {
	out := slices.Clone(configured)
	seen := make(map[wire.Addr]bool)
	for _, a := range out {
		seen[a] = true
	}
	for _, mon := range mons {
		a := mon.Addrs.V2()
		if msgr1(configured) {
			a = prefer(configured, mon.Addrs)
		}
		if !a.IsBlank() && !seen[a] {
			seen[a] = true
			out = append(out, a)
		}
	}
	return out
}

// Prefer is the address of a daemon that is to be dialled: its v2 address, or the v1 one
// if it has no other, or if all configured monitors are v1 addresses. Blank: it has
// none. Any goroutine.
func (c *Client) Prefer(addrs wire.AddrVec) wire.Addr { return prefer(c.cfg.Mons, addrs) }

func prefer(mons []wire.Addr, addrs wire.AddrVec) wire.Addr {
	first, second := addrs.V2(), addrs.V1()
	if msgr1(mons) {
		first, second = second, first
	}
	if first.IsBlank() {
		return second
	}
	return first
}

// msgr1 says whether all of them are v1 addresses.
func msgr1(mons []wire.Addr) bool {
	return !slices.ContainsFunc(mons, func(a wire.Addr) bool { return a.Type != wire.AddrLegacy })
}

// resume brings a new session up to date.
func (c *Client) resume(s *session) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.ready, c.vain = true, 0
	if err := c.sendLocked(c.subs); err != nil {
		return err
	}
	close(c.ready)
	c.ready = make(chan struct{})
	return nil
}

var (
	// ErrConfig: a setting is wrong.
	ErrConfig = errors.New("mon: invalid configuration")
	// ErrClosed: the client is closed. It wraps net.ErrClosed.
	ErrClosed = fmt.Errorf("mon: client closed: %w", net.ErrClosed)
	// ErrNoAnswer: a monitor does not answer: an attempt to reach it, a renewal, or a
	// command.
	ErrNoAnswer = errors.New("mon: the monitor does not answer")
	// errMessage: a message cannot be decoded.
	errMessage = errors.New("mon: malformed message")
)

// CommandError is a command that a monitor, or a daemon, did not carry out.
type CommandError struct {
	Prefix string        // of the command
	Errno  syscall.Errno // ENOENT and others
	Status string        // the text of the daemon
}

// Error implements error.
func (e *CommandError) Error() string {
	if e.Status == "" {
		return fmt.Sprintf("command %q: %v", e.Prefix, e.Errno)
	}
	return fmt.Sprintf("command %q: %s (%v)", e.Prefix, e.Status, e.Errno)
}

// Unwrap returns the errno.
func (e *CommandError) Unwrap() error { return e.Errno }
