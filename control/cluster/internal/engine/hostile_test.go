package engine

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/captured"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// liar is an OSD that answers anything.
type liar struct {
	*cluster
	*rand.Rand
	maps  bool // it sends maps, after which little goes on
	mu    sync.Mutex
	epoch uint32
}

func (l *liar) lie(conn *control.Conn, m *control.Message) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	send := func(typ uint16, front, data []byte) {
		r := control.NewMessage(typ, front, data)
		r.TID, r.Version, r.CompatVersion = m.TID, 8, 2
		_ = conn.Send(r)
	}
	what := l.IntN(11)
	if what <= 6 && !bytes.Contains(m.Front, object) {
		return false // a request of no operation has no answer
	}
	switch what {
	case 0, 1:
		_ = conn.Send(reply(m, 0, make([]byte, 64)))
	case 2: // nothing
	case 3, 4: // an answer with other bytes here and there: results, sizes, attempts, redirects
		send(osdop.TypeOpReply, l.spoil(reply(m, 0, nil).Front), make([]byte, l.IntN(100)))
	case 5: // it comes again, for ever
		_ = conn.Send(reply(m, -int32(syscall.EAGAIN), nil))
	case 6: // half an answer, or to somebody else
		r := reply(m, 0, nil)
		r.TID += uint64(l.IntN(3))
		r.Front = r.Front[:l.IntN(len(r.Front)+1)]
		_ = conn.Send(r)
	case 7: // many ranges at once
		for i := range uint64(5) {
			b := osdop.Backoff{PG: osdmap.PG{Pool: l.pool, Seed: l.Uint32N(8)}, Shard: -1, What: osdop.Block, ID: i, Begin: osdop.Min(), End: osdop.HObject{Max: true}}
			b.End.Name = string(make([]byte, l.IntN(100)/99*20_000))
			send(osdop.TypeBackoff, b.AppendTo(nil), nil)
			b.What = osdop.Unblock
			send(osdop.TypeBackoff, b.AppendTo(nil), nil)
		}
	case 8: // notifications, and ends of watches
		for range 5 {
			w := captured.WatchNotify(uint8(l.IntN(4)), uint64(l.IntN(4)), uint64(l.IntN(3)), make([]byte, l.IntN(1<<12)), 0, 0)
			send(osdop.TypeWatchNotify, w, l.spoil(make([]byte, l.IntN(60))))
		}
	case 9: // a map of a later epoch that is right but for some bytes
		if !l.maps {
			break
		}
		l.epoch += l.Uint32N(3)
		whole := bytes.Clone(l.whole)
		le.PutUint32(whole[28:], l.epoch)
		part := whole[32:min(len(whole)-4, 32+l.IntN(len(whole)))]
		copy(part, l.spoil(part))
		le.PutUint32(whole[len(whole)-4:], ^crc32.Checksum(whole[:len(whole)-4], crc32.MakeTable(crc32.Castagnoli)))
		send(typeOSDMap, captured.OSDMaps(l.whole[12:28], l.epoch, nil, whole), nil)
	case 10:
		if l.IntN(20) == 0 {
			conn.MarkDown()
		}
	}
	return false
}

// spoil changes a few bytes.
func (l *liar) spoil(p []byte) []byte {
	p = bytes.Clone(p)
	for range l.IntN(4) {
		if len(p) > 0 {
			p[l.IntN(len(p))] = byte(l.Uint32())
		}
	}
	return p
}

// An OSD that sends anything costs the operations that it has, and no more: each ends with its context at the latest, with an
// error that says the outcome, and memory does not grow.
func TestAnOSDThatLiesCostsNoMoreThanItsOperations(t *testing.T) {
	seed, before := uint64(time.Now().UnixNano()), heap()
	t.Logf("seed %d", seed)
	for round := range 4 {
		t.Run("", func(t *testing.T) {
			c := startWithMap(t, Options{})
			l := &liar{cluster: c, Rand: rand.New(rand.NewPCG(seed, uint64(round))), maps: round%2 == 1, epoch: 120}
			c.do(l.lie)
			l.endure(t)
		})
		if now := heap(); now > before+16<<20 {
			t.Errorf("%d MiB of heap, %d before", now>>20, before>>20)
		}
	}
}

// endure has callers use the OSD.
func (l *liar) endure(t *testing.T) {
	c := l.cluster
	var ended, good atomic.Int64
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for n := range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				var err error
				switch r := c.read(64); (n + i) % 8 {
				case 0:
					_, err = c.e.Notify(ctx, r.Target, []byte("it"), time.Second)
				case 1:
					_, err = c.e.Watch(ctx, r.Target, time.Second, Handler{})
				case 2:
					_, err = c.e.Do(ctx, r, r.Ops, make([]byte, 1<<15))
				default:
					var p osdop.Reply
					p, err = c.e.Do(ctx, r, r.Ops, nil)
					p.Release()
				}
				cancel()
				var failed *Error
				switch {
				case err == nil:
					good.Add(1)
				case !errors.As(err, &failed) || !errors.Is(err, ErrNotSent) && !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrRefused):
					t.Errorf("%v: no outcome", err)
				}
				ended.Add(1)
			}
		})
	}
	callers.Wait()
	t.Logf("%d operations, %d of which succeeded; %d requests came", ended.Load(), good.Load(), c.came.Load())
	if c.came.Load() == 0 {
		t.Error("the OSD was never asked")
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Notifications that nobody takes are bounded in number and bytes. Those that wait when the watch is closed are for nobody.
func TestNotificationsThatWaitAreBounded(t *testing.T) {
	for size, most := range map[int]int{10: maxEvents, 1 << 20: maxEventBytes >> 20, 11: 0, maxEventBytes + 1: 1} {
		c := startWithMap(t, Options{}, func(cfg *control.Config, _ *control.Dispatcher) {
			cfg.Receiving.Limits = frame.Limits{Control: 1 << 20, Front: 2 * maxEventBytes}
		})
		var osd atomic.Pointer[control.Conn]
		var acks atomic.Int64
		c.do(func(conn *control.Conn, m *control.Message) bool {
			osd.Store(conn)
			if m.Type == osdop.TypeOp && captured.ReadRequest(m.Version, m.Front, m.Data).Steps[0].Code == osdop.CodeNotifyAck {
				acks.Add(1)
			}
			_ = conn.Send(reply(m, 0, nil))
			return false
		})
		busy, goOn, heard := make(chan struct{}), make(chan struct{}), 0
		w, err := c.e.Watch(t.Context(), c.read(1).Target, time.Minute, Handler{Notified: func(Notification) []byte {
			if heard++; heard == 1 {
				close(busy)
				<-goOn
			}
			return nil
		}})
		check(t, err)
		send := func(n int) {
			for range n {
				ev := captured.WatchNotify(osdop.EventNotify, w.Cookie(), 0, make([]byte, size), 0, 0)
				_ = osd.Load().SendContext(t.Context(), control.NewMessage(osdop.TypeWatchNotify, ev, nil))
			}
		}
		send(1)
		<-busy
		send(most + 5)
		// What comes behind them on the connection has been handled behind them.
		check(t, c.once())
		if most == 0 {
			check(t, w.Close(t.Context()))
		}
		close(goOn)
		until(t, func() bool { return acks.Load() >= int64(1+most) })
		check(t, w.Close(t.Context()))
		c.e.Close()
		if heard != 1+most {
			t.Errorf("%d notifications of %d bytes, want %d", heard, size, 1+most)
		}
	}
}

// A monitor that answers with nonsense is asked again once in a second, not as fast as it answers.
func TestAMonitorThatAnswersWithNonsenseIsNotAskedAtOnce(t *testing.T) {
	c := start(t, Options{})
	c.wrong.Store(true)
	c.publish()
	r, n, begun := c.read(1), int64(0), time.Now()
	r.Target.Pool = 1 << 30                                                    // no map has it
	for long := 300 * time.Millisecond; n == 0 && long < patience; long *= 4 { // it may end before anybody is asked
		ctx, cancel := context.WithTimeout(t.Context(), long)
		if _, err := c.e.Do(ctx, r, r.Ops, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		cancel()
		n = c.asked.Load()
	}
	if most := 9 + int64(time.Since(begun)/time.Second); n == 0 || n > most {
		t.Errorf("asked %d times, want %d at most", n, most)
	}
}

// Maps come from daemons that we have dialled, not from a peer that has dialled us. (The policies of the messenger let no daemon in.)
func TestAPeerThatComesToUsBringsNoMaps(t *testing.T) {
	const last = 100 // a message behind the maps
	came := make(chan bool)
	c := start(t, Options{}, func(_ *control.Config, d *control.Dispatcher) {
		d.ByType[last] = func(*control.Conn, *control.Message) { close(came) }
	})
	maps := control.NewMessage(typeOSDMap, captured.OSDMaps(c.whole[12:28], 120, nil, c.whole), nil)
	conn, err := messenger(t, wire.Client, 1, &control.Dispatcher{}).Connect(bind(t, c.e.messenger), wire.Client)
	if err == nil {
		err = errors.Join(conn.Send(maps), conn.Send(control.NewMessage(last, nil, nil)))
	}
	check(t, err)
	if <-came; c.e.Map() != nil {
		t.Error("it brought a map")
	}
}

// Where a map gives one address to two OSDs the first to be dialled has it. The other one is not served, and says why.
func TestTwoOSDsWithOneAddressDoNotShareAConnection(t *testing.T) {
	c := startWithMap(t, Options{}) // which has one for all
	two := [2]osdop.Request{c.read(1), c.read(1)}
	for i := 0; two[1].Target.Name == "obj"; i++ {
		pg, _ := c.m.Locate(c.pool, "", strconv.Itoa(i))
		if c.m.Place(new(osdmap.Scratch), pg).Primary != c.primary() {
			two[1].Target.Name = strconv.Itoa(i)
		}
	}
	read := func(i int, long time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		_, err := c.e.Do(ctx, two[i], two[i].Ops, nil)
		return err
	}
	check(t, read(0, patience))
	err := error(nil)
	for long := time.Second / 2; !errors.Is(err, errShared) && long < patience; long *= 4 { // it may end before it has dialled
		err = read(1, long)
	}
	if !errors.Is(err, errShared) || !errors.Is(err, ErrNotSent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	check(t, read(0, patience))
	s := c.e.shard(c.primary())
	s.mu.Lock()
	s.m.Close(ErrClosed)
	s.unlock()
	check(t, read(1, patience))
}
