package engine

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/engine/machine"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Monitors are what the engine needs of the monitors: *mon.Client.
type Monitors interface {
	// FollowOSDMap has maps sent from an epoch on. A core may call it.
	FollowOSDMap(epoch uint32) error
	NewestOSDMap(ctx context.Context) (uint32, error)
	Request(ctx context.Context, build func(fsid mon.FSID) *control.Message) (*control.Message, error)
	Prefer(addrs wire.AddrVec) wire.Addr
	Err() error
}

// Defaults of a Config.
const (
	DefaultOperations = 1024
	DefaultBytes      = 100 << 20
)

// Config of an Engine.
type Config struct {
	Monitors   Monitors
	Operations int          // under way at most; 0: 1024
	Bytes      int64        // of their data; 0: 100 MiB
	Logger     *slog.Logger // nil is silent
}

// Engine carries out operations. Give its Dispatcher to the messenger's Start, behind that of the monitors, then call Open.
type Engine struct {
	cfg       Config
	messenger *control.Messenger // set by Open
	published atomic.Pointer[osdmap.Map]
	attempts  sync.Pool                     // of *attempt
	unpost    func(*control.Posting, error) // Done of all postings
	ctx       context.Context
	stop      context.CancelFunc
	closed    chan struct{} // closed by Close
	running   sync.WaitGroup

	// mu guards all that follows. It is never held while callbacks of callers run.
	mu      sync.Mutex
	m       *machine.Machine
	now     time.Time // as of the last tick
	newest  *osdmap.Map
	badMap  error         // why the last map was of no use
	news    chan struct{} // closed, and replaced, with each new map
	gap     uint32        // the epoch after which maps were asked for, to fill a gap
	scratch *osdmap.Scratch
	over    bool
	ops     int   // under way
	bytes   int64 // of their data
	line    line  // waits for room
	ended   line  // to be concluded when the lock is free
	current *control.Message
	answers *Call // that current answers
	links   map[*control.Conn]*link
	doomed  []*control.Conn // to be closed when the lock is free
}

// New makes an engine.
func New(cfg Config) *Engine {
	cfg.Operations = cmp.Or(cfg.Operations, DefaultOperations)
	cfg.Bytes = cmp.Or(cfg.Bytes, DefaultBytes)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	now := time.Now()
	e := &Engine{
		cfg: cfg, closed: make(chan struct{}), m: machine.New(now), now: now, news: make(chan struct{}), scratch: new(osdmap.Scratch),
		links: make(map[*control.Conn]*link),
	}
	e.unpost = e.unposted
	e.attempts.New = func() any { return newAttempt(e) }
	e.ctx, e.stop = context.WithCancel(context.Background())
	return e
}

// tickEvery is how often time passes for the machine.
const tickEvery = time.Second

// Open lets operations begin. The client of the monitors is open by then.
func (e *Engine) Open(m *control.Messenger) {
	e.messenger = m
	e.running.Add(1)
	go func() {
		defer e.running.Done()
		t := time.NewTicker(tickEvery)
		defer t.Stop()
		for {
			select {
			case <-e.closed:
				return
			case now := <-t.C:
				e.tick(now)
			}
		}
	}()
}

// Close ends all operations with ErrClosed, and the connections. It waits for what it has begun, but for a Done.
func (e *Engine) Close() {
	e.mu.Lock()
	if e.over {
		e.mu.Unlock()
		return
	}
	e.over = true
	close(e.closed)
	e.stop()
	for e.line.first != nil {
		e.cancelLocked(e.line.first, ErrClosed)
	}
	e.m.Close(ErrClosed)
	e.unlock()
	e.running.Wait()
}

// tick has time pass, and cancels calls whose contexts have ended.
func (e *Engine) tick(now time.Time) {
	e.mu.Lock()
	defer e.unlock()
	e.now = now
	var late []*Call
	for o := e.m.First(); o != nil; o = o.Next() {
		if c, ok := o.User.(*Call); ok && c.ctx.Err() != nil {
			late = append(late, c)
		}
	}
	for c := e.line.first; c != nil; c = c.next {
		if c.ctx.Err() != nil {
			late = append(late, c)
		}
	}
	for _, c := range late {
		e.cancelLocked(c, context.Cause(c.ctx))
	}
	e.findLostLocked()
	e.m.Tick(now)
}

// onCore says whether the caller is on a core of the messenger.
func (e *Engine) onCore() bool {
	for _, c := range e.messenger.Cores() {
		if c.Current() {
			return true
		}
	}
	return false
}

// unlock carries out what the machine wants, frees the lock, and concludes the calls that are over.
func (e *Engine) unlock() {
	e.actAllLocked()
	first, doomed := e.ended.first, e.doomed
	e.ended, e.doomed = line{}, nil
	e.mu.Unlock()
	for _, c := range doomed {
		c.MarkDown()
	}
	if first != nil {
		e.conclude(first)
	}
}

func (e *Engine) actAllLocked() {
	for actions := e.m.Take(); len(actions) > 0; actions = e.m.Take() {
		for i := range actions {
			e.actLocked(&actions[i])
		}
	}
}

func (e *Engine) actLocked(a *machine.Action) {
	switch a.What {
	case machine.Dial:
		e.dialLocked(a.Session)
	case machine.HangUp:
		e.hangUpLocked(a.Session)
	case machine.Send:
		e.sendLocked(a.Op)
	case machine.Finish:
		c := a.Op.User.(*Call)
		if a.Err != nil {
			c.Err = e.errorLocked(c, a.Err, c == e.answers || errors.Is(a.Err, wire.ErrMalformed))
		}
		if c == e.answers && len(e.current.Data) > 0 {
			c.message = e.current
		}
		e.endLocked(c)
	case machine.Ask:
		_ = e.cfg.Monitors.FollowOSDMap(a.Epoch) // fails only if the messenger has ended
	case machine.Newest:
		e.newestLocked()
	case machine.Tell:
		a.Watch.User.(*Watch).tellLocked(a.Err)
	case machine.Ping, machine.Ack:
		e.tellLocked(a)
	}
}

func joined(errs ...error) error { return errors.Join(errs...) }
