package engine

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/engine/machine"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Monitors are the calls of *mon.Client that the engine needs.
type Monitors interface {
	// FollowOSDMap has maps sent from an epoch on. A core may call it.
	FollowOSDMap(epoch uint32) error
	NewestOSDMap(ctx context.Context) (uint32, error)
	Prefer(addrs wire.AddrVec) wire.Addr
	Err() error
}

// Options of an Engine.
type Options struct {
	Operations int          // that are under way at a time; 0: 1024. Others wait in line.
	Bytes      int64        // of their data; 0: 100 MiB
	Logger     *slog.Logger // nil is silent
	Location   []string     // of the client in the CRUSH hierarchy, such as "host=a"
}

// Engine carries out operations. Give its Dispatcher to the messenger's Start, behind that of the monitors,
// then call Open.
type Engine struct {
	cfg       Options
	monitors  Monitors
	messenger *control.Messenger // set by Open
	room      room
	ids       machine.IDs
	attempts  sync.Pool                     // of *attempt
	doings    sync.Pool                     // of *doing
	scratches sync.Pool                     // of *osdmap.Scratch
	unpost    func(*control.Posting, error) // Done of all postings
	ctx       context.Context               // ends with Close
	stop      context.CancelFunc
	over      atomic.Bool
	running   sync.WaitGroup
	links     sync.Map                                // of *control.Conn to *link
	newest    atomic.Pointer[osdmap.Map]              // nil: none has come
	badMap    atomic.Pointer[error]                   // why the last map was of no use
	view      atomic.Pointer[view]                    // of newest, by which operations are placed; or changing
	changing  *view                                   // the view while a map is being taken
	slots     atomic.Pointer[[]atomic.Pointer[shard]] // by OSD + 1
	asked     atomic.Uint64                           // the epoch + 1 that maps were asked from since the last tick
	ticked    atomic.Pointer[time.Time]

	// moving is held while anything goes from one shard to another, as by a new map, and guards all that
	// follows.
	moving sync.Mutex
	shards []*shard
	whole  bool          // all shards are locked
	cur    *view         // the map that they have; nil: none
	news   chan struct{} // closed, and replaced, with each new map
}

// New makes an engine.
func New(monitors Monitors, cfg Options) *Engine {
	cfg.Operations = cmp.Or(cfg.Operations, 1024)
	cfg.Bytes = cmp.Or(cfg.Bytes, 100<<20)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	now := time.Now()
	e := &Engine{monitors: monitors, cfg: cfg, changing: new(view)}
	e.news = make(chan struct{})
	e.room.operations, e.room.bytes = min(cfg.Operations, 1<<22), min(cfg.Bytes, 1<<(opsAt-1))
	e.ticked.Store(&now)
	e.slots.Store(new([]atomic.Pointer[shard]))
	e.unpost = func(p *control.Posting, _ error) { p.Context.(*Call).let() }
	e.attempts.New = func() any { return newAttempt(e) }
	e.doings.New = newDoing
	e.scratches.New = func() any { return new(osdmap.Scratch) }
	e.ctx, e.stop = context.WithCancel(context.Background())
	return e
}

// now is the time of the last tick.
func (e *Engine) now() time.Time { return *e.ticked.Load() }

// Open lets operations begin. The client of the monitors is open by then.
func (e *Engine) Open(m *control.Messenger) {
	e.messenger = m
	e.running.Go(func() {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-e.ctx.Done():
				return
			case now := <-t.C:
				e.tick(now)
			}
		}
	})
}

// Close ends all operations with ErrClosed, and the connections. It waits for what it has begun, but for a
// Done.
func (e *Engine) Close() {
	if e.over.Swap(true) {
		return
	}
	e.stop()
	e.clear(func(*Call) error { return ErrClosed })
	e.moving.Lock()
	r := e.togetherLocked(func() {
		for _, s := range e.shards {
			s.m.Close(ErrClosed)
		}
	})
	e.moving.Unlock()
	e.finish(&r)
	e.running.Wait()
}

// tick has time pass, and cancels calls whose contexts have ended.
func (e *Engine) tick(now time.Time) {
	e.ticked.Store(&now)
	e.asked.Store(0)
	e.clear(func(c *Call) error { return context.Cause(c.ctx) })
	var late []*Call
	for _, s := range e.all() {
		s.mu.Lock()
		s.takeLocked()
		for o := s.m.First(); o != nil; o = o.Next() {
			if c, ok := o.User.(*Call); ok && c.ctx.Err() != nil {
				late = append(late, c)
			}
		}
		for _, c := range late {
			s.cancelLocked(c, context.Cause(c.ctx))
		}
		late = late[:0]
		if s.link != nil {
			s.lookLocked()
		}
		s.m.Tick(now)
		s.unlock()
	}
}

// onCore says whether the caller is on a core of the messenger.
func (e *Engine) onCore() bool {
	return slices.ContainsFunc(e.messenger.Cores(), (*loop.Core).Current)
}
