package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/captured"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/engine/machine"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

const patience = time.Minute

// cluster is an OSD of ours that stands in the place of all OSDs of a real map, and the monitors.
type cluster struct {
	t     *testing.T
	e     *Engine
	addr  wire.Addr
	m     *osdmap.Map
	whole []byte      // m
	down  atomic.Bool // no OSD has an address
	// serve answers a request; nil: with success and a copy of its data. It returns false where nothing is to be answered.
	serve atomic.Pointer[func(c *control.Conn, m *control.Message) bool]
	came  atomic.Int64
	pool  int64
	// newest is closed when monitors say which map is the newest; nil: they do at once.
	newest chan struct{}
	asked  atomic.Int64 // how often
	wrong  atomic.Bool  // they answer with nonsense
	// followed is the epoch from which maps were last asked for.
	followed atomic.Uint32
}

func (c *cluster) NewestOSDMap(ctx context.Context) (uint32, error) {
	if c.asked.Add(1); c.wrong.Load() {
		return 0, ErrMessage
	}
	if c.newest != nil {
		select {
		case <-c.newest:
		case <-ctx.Done():
		}
	}
	return 120, ctx.Err()
}
func (c *cluster) FollowOSDMap(epoch uint32) error { c.followed.Store(epoch); return nil }
func (c *cluster) Err() error                      { return nil }
func (c *cluster) Prefer(addrs wire.AddrVec) wire.Addr {
	if c.down.Load() || len(addrs) == 0 {
		return wire.Addr{}
	}
	return c.addr
}

// object is the name in a request.
var object = []byte("\x03\x00\x00\x00obj")

// reply makes MOSDOpReply, in which each operation has the result and the output.
func reply(m *control.Message, result int32, out []byte) *control.Message {
	q := captured.ReadRequest(m.Version, m.Front, m.Data)
	for i := range q.Steps {
		q.Steps[i].Result, q.Steps[i].Out = result, out
	}
	r := control.NewMessage(osdop.TypeOpReply, nil, nil)
	r.Front, r.Data = q.Reply(result, 0)
	r.TID, r.Version, r.CompatVersion = m.TID, 8, 2
	return r
}

func start(t *testing.T, cfg Options, change ...func(*control.Config, *control.Dispatcher)) *cluster {
	t.Helper()
	c := &cluster{t: t, whole: captured.Unzip(t, "../osdmap/testdata/reef-real-e120.osdmap.gz")}
	block := bytes.Repeat([]byte("block"), 1<<14)
	osd := messenger(t, wire.OSD, 1, &control.Dispatcher{Fast: func(conn *control.Conn, m *control.Message) bool {
		c.came.Add(1)
		if f := c.serve.Load(); f != nil && !(*f)(conn, m) || m.Type != osdop.TypeOp { // a ping
			return true
		}
		out := block[:0]
		if s := captured.ReadRequest(m.Version, m.Front, m.Data).Steps[0]; len(m.Data) == 0 {
			out = block[:le.Uint64(s.Args[8:])]
		}
		_ = conn.Send(reply(m, 0, out))
		return true
	}})
	c.addr = bind(t, osd)
	var err error
	c.m, err = osdmap.Decode(c.whole)
	check(t, err)
	c.pool, _ = c.m.PoolID("rep")
	c.e = New(c, cfg)
	c.e.Open(messenger(t, wire.Client, 1, c.e.Dispatcher(), change...))
	t.Cleanup(c.e.Close)
	return c
}

func startWithMap(t *testing.T, cfg Options, change ...func(*control.Config, *control.Dispatcher)) *cluster {
	t.Helper()
	c := start(t, cfg, change...)
	c.publish()
	return c
}

// messenger starts a messenger, which ends with the test.
func messenger(t *testing.T, typ wire.EntityType, cores int, d *control.Dispatcher, change ...func(*control.Config, *control.Dispatcher)) *control.Messenger {
	t.Helper()
	cfg := control.Config{Name: wire.EntityName{Type: typ, ID: "0"}, Nonce: new(uint32), Plane: loop.Config{Cores: cores}}
	for _, f := range change {
		f(&cfg, d)
	}
	m, err := control.New(cfg)
	if err == nil {
		err = m.Start(d)
	}
	check(t, err)
	t.Cleanup(func() { check(t, m.Shutdown(context.Background())) })
	return m
}

// bind has a messenger listen.
func bind(t *testing.T, m *control.Messenger) wire.Addr {
	t.Helper()
	addrs, err := m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	check(t, err)
	return addrs[0]
}

// publish gives the engine the map.
func (c *cluster) publish() {
	c.take(c.m, nil, c.whole)
	if c.e.Map() == nil {
		c.t.Fatal("no map")
	}
}

// take gives the engine the map m, as an incremental or a whole one.
func (c *cluster) take(m *osdmap.Map, inc, whole []byte) {
	c.e.takeMaps(control.NewMessage(typeOSDMap, captured.OSDMaps(m.FSID[:], m.Epoch, inc, whole), nil))
}

func (c *cluster) do(f func(conn *control.Conn, m *control.Message) bool) { c.serve.Store(&f) }

func (c *cluster) read(n int) osdop.Request {
	return osdop.Request{Target: osdop.Object{Pool: c.pool, Name: "obj"}, Flags: osdop.FlagRead, Ops: []osdop.Op{osdop.Extent(osdop.CodeRead, 0, uint64(n), nil)}}
}

// The answers go back to the messenger: their sum is far above its bound for received data.
// An operation that is above the bound of the engine alone goes when no other is under way.
func TestDataGoesToTheMemoryOfTheCaller(t *testing.T) {
	c := startWithMap(t, Options{Bytes: 1}, func(cfg *control.Config, _ *control.Dispatcher) { cfg.Receiving.Bytes = 1 << 20 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, size := range slices.Repeat([]int{5, 4096, 1 << 16}, 40) {
		into := make([]byte, size)
		r := c.read(size)
		p, err := c.e.Do(ctx, r, r.Ops, into)
		if err != nil || len(r.Ops[0].Out) != size || &r.Ops[0].Out[0] != &into[0] || !bytes.HasPrefix(into, []byte("block")) || p.Message != nil {
			t.Errorf("%d bytes: %v, output of %d", size, err, len(r.Ops[0].Out))
		}
		r = c.read(size)
		p, err = c.e.Do(ctx, r, r.Ops, nil)
		if err != nil || len(r.Ops[0].Out) != size || !bytes.Equal(r.Ops[0].Out, into) {
			t.Errorf("%d bytes: %v, output of %d", size, err, len(r.Ops[0].Out))
		} else if &r.Ops[0].Out[0] != &p.Message.(*control.Message).Data[0] {
			t.Errorf("%d bytes: the output is not in the message that the caller has, but where the next one comes to", size)
		}
		p.Release()
		r = c.read(size)
		if _, err = c.e.Do(ctx, r, r.Ops, into[:size-1]); !errors.Is(err, ErrMessage) || r.Ops[0].Out != nil {
			t.Errorf("more than there is room for: %v", err)
		}
	}
}

// An OSD would carry a write out on the present state of the object.
func TestAWriteToASnapshotIsRefused(t *testing.T) {
	c := startWithMap(t, Options{})
	r := osdop.Request{Target: c.read(1).Target, Snap: 7, Flags: osdop.FlagWrite, Ops: []osdop.Op{{Code: osdop.CodeRemove}}}
	k := &Call{Request: r}
	for range 2 { // it is not under way
		if err := c.e.Start(t.Context(), k); !errors.Is(err, syscall.EROFS) || !errors.Is(err, ErrRefused) || c.came.Load() != 0 {
			t.Errorf("%v, and the OSD has %d requests", err, c.came.Load())
		}
	}
}

// Balanced reads choose at random, localized ones the nearest. With a method of a class, which may write, the primary gets them: others
// would drop them without an answer.
func TestReadsChooseTheirReplica(t *testing.T) {
	c := start(t, Options{})
	picks := map[uint32]map[int]bool{osdop.BalanceReads: {}, osdop.LocalizeReads: {}}
	for flag, picked := range picks {
		for range 8 {
			k := &Call{Request: c.read(1), Done: func(*Call) {}}
			k.Request.Flags |= flag
			check(t, c.e.Start(t.Context(), k))
			picked[k.op.Pick] = true
			k.Cancel(errLate)
		}
	}
	if near := picks[osdop.LocalizeReads]; len(picks[osdop.BalanceReads]) < 2 || len(near) != 1 || !near[machine.Nearest] {
		t.Errorf("%v", picks)
	}
	k := &Call{Request: c.read(1), Done: func(*Call) {}}
	k.Request.Flags |= osdop.BalanceReads | osdop.LocalizeReads
	k.Request.Ops = append(k.Request.Ops, osdop.Call("lock", "lock", nil))
	if check(t, c.e.Start(t.Context(), k)); k.op.Flags != osdop.FlagRead {
		t.Errorf("flags %#x of a read with a method", k.op.Flags)
	}
	if k.Cancel(errLate); !errors.Is(k.Err, errLate) {
		t.Errorf("%v, before the tick", k.Err)
	}
}

// A call of a class may write, which its code does not say: the flags do, and the time of modification goes along.
func TestAWriteOfAClassHasItsTime(t *testing.T) {
	c := startWithMap(t, Options{})
	sent := make(chan *captured.Request, 1)
	c.do(func(_ *control.Conn, m *control.Message) bool {
		sent <- captured.ReadRequest(m.Version, m.Front, m.Data)
		return true
	})
	r := c.read(0)
	r.Flags, r.MTime, r.Ops[0] = osdop.FlagWrite, time.Unix(1_000_000, 0), osdop.Call("lock", "lock", []byte("in"))
	p, err := c.e.Do(t.Context(), r, r.Ops, nil)
	p.Release()
	if q := <-sent; err != nil || q.Flags&(osdop.FlagRead|osdop.FlagWrite) != osdop.FlagWrite || q.Seconds != 1_000_000 {
		t.Errorf("%+v, %v", q, err)
	}
}

// once reads once, and waits for the answer.
func (c *cluster) once() error {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	r := c.read(10)
	p, err := c.e.Do(ctx, r, r.Ops, nil)
	p.Release()
	return err
}

var check = drivertest.Must

func until(t *testing.T, f func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	check(t, msgrtest.Until(ctx, f))
}

// A watch that is not registered, or lost, says it as other operations do.
func TestAnErrorNamesOperationObjectPoolAndOSD(t *testing.T) {
	c := startWithMap(t, Options{})
	c.do(func(conn *control.Conn, m *control.Message) bool {
		_ = conn.Send(reply(m, -int32(syscall.EPERM), nil))
		return false
	})
	_, watch := c.e.Watch(t.Context(), c.read(0).Target, 0, Handler{})
	for err, want := range map[error]string{watch: "watch", c.once(): "read"} {
		want += ` object "obj" of pool rep on osd.`
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Count(err.Error(), "obj") != 2 || !strings.HasSuffix(err.Error(), "caps of the key do not allow it)") {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for want, e := range map[string]Error{
		"no such class or method:":  {Code: osdop.CodeCall, Err: syscall.EOPNOTSUPP},
		"(osd_max_object_size is":   {Code: osdop.CodeWrite, Err: syscall.EFBIG},
		"(osd_max_write_size is":    {Code: osdop.CodeWrite, Err: syscall.EMSGSIZE},
		"(a snapshot does not":      {Code: osdop.CodeWrite, Err: syscall.EROFS},
		"allow_ec_overwrites":       {Code: osdop.CodeWrite, Err: fmt.Errorf("step 2: %w", syscall.EOPNOTSUPP)},
		`write object "" of pool p`: {Code: osdop.CodeWrite, Pool: "p", Err: syscall.EINVAL},
		"list pool p":               {Code: osdop.CodeList, Object: osdop.Object{ByHash: true}, Pool: "p", Err: syscall.EINVAL},
		"has not fetched their":     {Err: fmt.Errorf("osd.1 refuses us: %w", &auth.Refused{Errno: auth.EACCES})},
	} {
		if text := e.Error(); !strings.Contains(text, want) {
			t.Errorf("%s does not say %q", text, want)
		}
	}
	gone := &Error{Outcome: ErrUnknown, Err: context.Canceled, Why: &control.Error{Err: loop.ErrPeerClosed}}
	if !errors.Is(gone, loop.ErrPeerClosed) || !errors.As(gone, new(*control.Error)) || errors.Is(gone, io.EOF) {
		t.Errorf("%v is the end of an object to who reads until io.EOF", gone)
	}
	over := &Error{Code: osdop.CodeWatch, OSD: -1, Err: lost(syscall.ENOTCONN)}
	if !errors.Is(over, syscall.ENOTCONN) || !strings.Contains(over.Error(), "the object was removed, or") {
		t.Error(over)
	}
}

// The Connect event of a connection may come before its shard has noted the connection, as where the
// goroutine that dials stands still.
func TestAConnectionIsUsedWhoseConnectEventCameTooEarly(t *testing.T) {
	c := startWithMap(t, Options{}, func(_ *control.Config, d *control.Dispatcher) { d.Connect = func(*control.Conn, int) {} })
	check(t, c.once())
}

// late has no ticket for the first attempts.
type late struct {
	auth.Client
	left atomic.Int64
}

func (l *late) Start(ctx context.Context, peer wire.EntityType) (auth.ClientExchange, error) {
	if l.left.Add(-1) >= 0 {
		return nil, cephx.ErrNoTicket
	}
	return l.Client.Start(ctx, peer)
}

// An OSD that is not reached for want of a ticket has refused nobody: operations wait for the monitor to renew it.
func TestAnOperationWaitsForATicket(t *testing.T) {
	l := &late{Client: none.NewClient(wire.EntityName{Type: wire.Client, ID: "0"})}
	l.left.Store(20)
	c := startWithMap(t, Options{}, func(cfg *control.Config, _ *control.Dispatcher) { cfg.Auth.Client = l })
	done := make(chan error, 1)
	go func() { done <- c.once() }()
	until(t, func() bool { c.e.tick(time.Now()); return l.left.Load() < 0 })
	check(t, <-done)
}

// A connection that is marked down has no reset event: an operation that was sent on it is sent again
// on another one, and so is one that comes later.
func TestAnOperationSurvivesThatItsConnectionIsMarkedDown(t *testing.T) {
	c := startWithMap(t, Options{})
	markDown := func() {
		for _, conn := range c.e.messenger.Conns() {
			conn.MarkDown()
		}
	}
	c.do(func(*control.Conn, *control.Message) bool {
		if c.came.Load() == 1 {
			markDown()
			return false
		}
		return true
	})
	for _, want := range []int64{2, 3} { // requests that the OSD has seen
		if err := c.once(); err != nil || c.came.Load() != want {
			t.Errorf("%v behind %d requests, want %d", err, c.came.Load(), want)
		}
		markDown()
	}
}

// A write that was sent may have been carried out, whatever its last attempt comes to: the OSD looks at caps and at the blocklist before it
// looks whether it knows the request, and the map knows of none.
func TestARefusalOfALaterAttemptSaysNothingAboutTheEarlier(t *testing.T) {
	for _, one := range []struct {
		flags   uint32
		errno   syscall.Errno
		sent    int64 // before the refusal
		outcome error
	}{
		{osdop.FlagWrite, syscall.ESHUTDOWN, 1, ErrUnknown},
		{osdop.FlagWrite, syscall.EPERM, 1, ErrUnknown},
		{osdop.FlagWrite, syscall.EIO, 1, ErrUnknown}, // by the map
		{osdop.FlagWrite, syscall.ESHUTDOWN, 0, ErrRefused},
		{osdop.FlagWrite, syscall.EEXIST, 1, ErrRefused},
		{osdop.FlagRead, syscall.EPERM, 1, ErrRefused},
	} {
		t.Run(fmt.Sprint(one), func(t *testing.T) {
			t.Parallel()
			c := startWithMap(t, Options{})
			c.do(func(conn *control.Conn, m *control.Message) bool {
				switch {
				case m.Type != osdop.TypeOp:
				case c.came.Load() > one.sent:
					_ = conn.Send(reply(m, -int32(one.errno), nil))
				case one.errno == syscall.EIO:
					go c.spoil()
				default:
					conn.MarkDown()
				}
				return false
			})
			r := c.read(10)
			r.Flags = one.flags
			if _, err := c.e.Do(t.Context(), r, r.Ops, nil); !errors.Is(err, one.outcome) || !errors.Is(err, one.errno) {
				t.Errorf("%v, unknown: %v", err, errors.Is(err, ErrUnknown))
			}
		})
	}
}

// spoil gives the engine a map by which the pool has errors.
func (c *cluster) spoil() {
	c.e.moving.Lock()
	r := c.e.togetherLocked(func() {
		m := *c.m
		m.Epoch++
		m.Pool(c.pool).Flags |= osdmap.PoolEIO
		c.e.changeLocked([]step{{m: &m}})
	})
	c.e.moving.Unlock()
	c.e.finish(&r)
}

func TestAnAnswerThatIsNoneEndsTheOperation(t *testing.T) {
	c := startWithMap(t, Options{})
	c.do(func(conn *control.Conn, m *control.Message) bool {
		bad := control.NewMessage(osdop.TypeOpReply, []byte("what"), nil)
		bad.TID = m.TID
		if c.came.Load() == 1 { // that ends the session
			_ = conn.Send(control.NewMessage(osdop.TypeBackoff, []byte("what"), nil))
			return false
		}
		if c.came.Load() == 2 { // no result of it is left
			_ = conn.Send(reply(m, -int32(syscall.EAGAIN), nil))
			return false
		}
		for _, typ := range []uint16{osdop.TypeWatchNotify, typeOSDMap} {
			_ = conn.Send(control.NewMessage(typ, []byte("what"), nil))
		}
		_ = conn.Send(bad)
		return false
	})
	r := c.read(9)
	ops := r.Ops
	r.Ops = nil
	if reply, err := c.e.Do(t.Context(), r, ops, nil); !errors.Is(err, ErrMessage) || !errors.Is(err, ErrUnknown) || ops[0].Result != 0 || reply.Result != 0 {
		t.Errorf("%v, results %d and %d", err, ops[0].Result, reply.Result)
	}
}

// A queue that is full again and again holds operations up for moments: it costs one goroutine for a connection, and no wake-up is lost,
// which a ping would make up for at last.
func TestOperationsGoOnThroughASmallQueue(t *testing.T) {
	c := startWithMap(t, Options{}, func(cfg *control.Config, _ *control.Dispatcher) { cfg.Sending.QueueMessages = 1 })
	c.do(func(_ *control.Conn, m *control.Message) bool {
		if n := runtime.NumGoroutine(); n > 200 || m.Type != osdop.TypeOp {
			t.Errorf("%d goroutines, a message of type %d", n, m.Type)
		}
		return true
	})
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			for range 16 {
				if err := c.once(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
}

// An OSD that asks to hold objects back waits for the answer, for ever. Where the queue has no room for that the session begins again.
func TestABackoffThatFindsTheQueueFullIsNotForgotten(t *testing.T) {
	c := startWithMap(t, Options{}, func(cfg *control.Config, d *control.Dispatcher) {
		cfg.Sending.QueueMessages = 1
		take := d.ByType[osdop.TypeBackoff]
		d.ByType[osdop.TypeBackoff] = func(conn *control.Conn, m *control.Message) {
			_ = conn.Send(control.NewMessage(typePing, nil, nil)) // leaves when the core goes on
			take(conn, m)
		}
	})
	var waits atomic.Pointer[control.Conn]
	c.do(func(conn *control.Conn, m *control.Message) bool {
		if waits.CompareAndSwap(nil, conn) {
			_ = conn.Send(c.backoff(osdop.Block))
		}
		return waits.Load() != conn
	})
	check(t, c.once())
}

// A watch with a short timeout is pinged more often, one that is too short for pings is given a longer one. What concerns a watch
// does not wait where the cluster is full.
func TestAWatchHasTheTimeoutThatItsPingsCanKeep(t *testing.T) {
	for asked, want := range map[time.Duration]struct {
		seconds uint32
		every   time.Duration
	}{0: {30, 5 * time.Second}, time.Minute: {60, 5 * time.Second}, 6 * time.Second: {6, 2 * time.Second}, time.Second: {3, time.Second / 3}} {
		c := startWithMap(t, Options{})
		var seconds atomic.Uint32
		c.do(func(_ *control.Conn, m *control.Message) bool {
			q := captured.ReadRequest(m.Version, m.Front, m.Data)
			seconds.Store(le.Uint32(q.Steps[0].Args[21:]))
			return q.Flags&osdop.FullTry != 0
		})
		w, err := c.e.Watch(t.Context(), c.read(1).Target, asked, Handler{})
		check(t, err)
		if got := seconds.Load(); got != want.seconds || w.m.PingEvery != want.every {
			t.Errorf("%v: %d s, a ping every %v", asked, got, w.m.PingEvery)
		}
		check(t, w.Close(t.Context()))
	}
}
