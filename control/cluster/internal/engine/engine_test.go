package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/captured"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

const patience = time.Minute

// cluster is an OSD of ours that stands in the place of all OSDs of a real map, and the monitors.
type cluster struct {
	t     *testing.T
	e     *Engine
	addr  wire.Addr
	whole []byte
	down  atomic.Bool // no OSD has an address
	// serve answers a request; nil: with success and a copy of its data. It returns false where nothing is to be answered.
	serve atomic.Pointer[func(c *control.Conn, m *control.Message) bool]
	came  atomic.Int64
	pool  int64
}

func (*cluster) NewestOSDMap(context.Context) (uint32, error) { return 120, nil }
func (*cluster) Request(context.Context, func(mon.FSID) *control.Message) (*control.Message, error) {
	return nil, errors.ErrUnsupported
}
func (c *cluster) FollowOSDMap(uint32) error { return nil }
func (c *cluster) Err() error                { return nil }
func (c *cluster) Prefer(addrs wire.AddrVec) wire.Addr {
	if c.down.Load() || len(addrs) == 0 {
		return wire.Addr{}
	}
	return c.addr
}

// object is the name in a request.
var object = []byte("\x03\x00\x00\x00obj")

// reply makes MOSDOpReply for a request with one operation.
func reply(m *control.Message, result int32, out []byte) *control.Message {
	le := binary.LittleEndian
	b := wire.AppendString(make([]byte, 0, 512), "x")
	b = append(b, make([]byte, 17+8)...)
	b = le.AppendUint32(b, uint32(result))
	b = append(b, make([]byte, 12+4)...)
	b = le.AppendUint32(b, 1)
	name := object
	if len(m.Data) > 16 { // of a world
		name = append([]byte("\x03\x00\x00\x00"), m.Data[16:]...)
	}
	ops := bytes.Index(m.Front, name) + len(name) + 2
	b = append(b, m.Front[ops:ops+34]...)
	b = le.AppendUint32(b, uint32(len(out)))
	b = le.AppendUint32(b, le.Uint32(m.Front[len(m.Front)-12:])) // attempt
	b = le.AppendUint32(b, uint32(result))
	b = append(b, make([]byte, 12+8+1+24)...)
	r := control.NewMessage(osdop.TypeOpReply, b, out)
	r.TID, r.Version, r.CompatVersion = m.TID, 8, 2
	return r
}

func start(t *testing.T, cfg Config) *cluster {
	t.Helper()
	c := &cluster{t: t, whole: captured.Unzip(t, "../osdmap/testdata/reef-real-e120.osdmap.gz")}
	block := bytes.Repeat([]byte("block"), 1<<14)
	osd, err := control.New(control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Nonce: new(uint32), Plane: loop.Config{Cores: 1}})
	if err != nil {
		t.Fatal(err)
	}
	err = osd.Start(&control.Dispatcher{Fast: func(conn *control.Conn, m *control.Message) bool {
		c.came.Add(1)
		if f := c.serve.Load(); f != nil {
			if !(*f)(conn, m) {
				return true
			}
		}
		out := block[:0]
		if len(m.Data) == 0 {
			ops := bytes.Index(m.Front, object) + len(object) + 2
			out = block[:binary.LittleEndian.Uint64(m.Front[ops+6+8:])]
		}
		_ = conn.Send(reply(m, 0, out))
		return true
	}})
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := osd.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	c.addr = addrs[0]
	client, err := control.New(control.Config{Name: wire.EntityName{Type: wire.Client, ID: "admin"}, Plane: loop.Config{Cores: 1}})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Monitors = c
	c.e = New(cfg)
	if err := client.Start(c.e.Dispatcher()); err != nil {
		t.Fatal(err)
	}
	c.e.Open(client)
	t.Cleanup(func() {
		c.e.Close()
		for _, m := range []*control.Messenger{client, osd} {
			if err := m.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	return c
}

// publish gives the engine the map.
func (c *cluster) publish() {
	le := binary.LittleEndian
	b := append(make([]byte, 0, 1<<16), c.whole[28-16:28]...) // fsid
	b = le.AppendUint32(le.AppendUint32(le.AppendUint32(b, 0), 1), 120)
	b = wire.AppendBlob(b, c.whole)
	b = append(le.AppendUint32(le.AppendUint32(b, 1), 120), 0, 0, 0, 0)
	c.e.takeMaps(control.NewMessage(typeOSDMap, b, nil))
	if c.e.Map() == nil {
		c.t.Fatal("no map")
	}
	c.pool, _ = c.e.Map().PoolID("rep")
}

func (c *cluster) do(f func(conn *control.Conn, m *control.Message) bool) { c.serve.Store(&f) }

func (c *cluster) read(n int) osdop.Request {
	return osdop.Request{Target: osdop.Object{Pool: c.pool, Name: "obj"}, Ops: []osdop.Op{osdop.Read(0, uint64(n))}}
}

func TestDataGoesToTheMemoryOfTheCaller(t *testing.T) {
	c := start(t, Config{})
	c.publish()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, size := range []int{5, 4096, 1 << 16} {
		into := make([]byte, size)
		r := c.read(size)
		p, err := c.e.DoInto(ctx, &r, into)
		if err != nil || len(r.Ops[0].Out) != size || &r.Ops[0].Out[0] != &into[0] || !bytes.HasPrefix(into, []byte("block")) || p.Message != nil {
			t.Errorf("%d bytes: %v, output of %d", size, err, len(r.Ops[0].Out))
		}
		r = c.read(size)
		p, err = c.e.Do(ctx, &r)
		if err != nil || len(r.Ops[0].Out) != size || !bytes.Equal(r.Ops[0].Out, into) {
			t.Errorf("%d bytes: %v, output of %d", size, err, len(r.Ops[0].Out))
		} else if &r.Ops[0].Out[0] != &p.Message.(*control.Message).Data[0] {
			t.Errorf("%d bytes: the output is not in the message that the caller has, but where the next one comes to", size)
		}
		p.Release()
		r = c.read(size)
		if _, err = c.e.DoInto(ctx, &r, into[:size-1]); !errors.Is(err, ErrMessage) || r.Ops[0].Out != nil {
			t.Errorf("more than there is room for: %v", err)
		}
	}
}

// An OSD would carry a write out on the present state of the object.
func TestAWriteToASnapshotIsRefused(t *testing.T) {
	c := start(t, Config{})
	c.publish()
	r := osdop.Request{Target: c.read(1).Target, Snap: 7, Flags: osdop.FlagWrite, Ops: []osdop.Op{osdop.Remove()}}
	_, err := c.e.Do(t.Context(), &r)
	if !errors.Is(err, syscall.EROFS) || !errors.Is(err, ErrRefused) || c.came.Load() != 0 {
		t.Errorf("%v, and the OSD has %d requests", err, c.came.Load())
	}
}

// A call of a class may write, which its code does not say: the flags do, and the time of modification goes along.
func TestAWriteOfAClassHasItsTime(t *testing.T) {
	c := start(t, Config{})
	c.publish()
	le := binary.LittleEndian
	sent := make(chan []byte, 1)
	c.do(func(conn *control.Conn, m *control.Message) bool {
		sent <- bytes.Clone(m.Front)
		_ = conn.Send(reply(m, 0, nil))
		return false
	})
	r := osdop.Request{
		Target: c.read(1).Target, Flags: osdop.FlagWrite, MTime: time.Unix(1_000_000, 0), Ops: []osdop.Op{osdop.Call("lock", "lock", []byte("in"))},
	}
	p, err := c.e.Do(t.Context(), &r)
	p.Release()
	if err != nil {
		t.Fatal(err)
	}
	front := <-sent // pg, hash, epoch, then flags
	flags := le.Uint32(front[6+18+4+4:])
	if at := 6 + 18 + 4 + 4 + 4 + 6 + 21 + 24 + 4; flags&(osdop.FlagRead|osdop.FlagWrite) != osdop.FlagWrite || le.Uint32(front[at:]) != 1_000_000 {
		t.Errorf("flags %#x, time %d", flags, le.Uint32(front[at:]))
	}
}

// The end of a context says whether an OSD may have seen the operation, and what it waited for.
func TestTheEndOfAContextSaysWhatIsKnown(t *testing.T) {
	c := start(t, Config{})
	late := errors.New("late")
	check := func(outcome error, text string, ready func() bool) {
		t.Helper()
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			r := c.read(10)
			_, err := c.e.Do(ctx, &r)
			done <- err
		}()
		until(t, ready)
		cancel(late)
		if err := <-done; !errors.Is(err, late) || !errors.Is(err, outcome) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %v and %q", err, outcome, text)
		}
	}
	underWay := func() bool { return c.e.room.used.Load()>>opsAt == 1 }
	check(ErrNotSent, "no monitor has sent an osdmap", underWay)
	c.down.Store(true)
	c.publish()
	check(ErrNotSent, "no OSD that is up serves", underWay)
}

func TestAnOperationThatWasSentHasAnUnknownOutcome(t *testing.T) {
	c := start(t, Config{})
	c.publish()
	c.do(func(*control.Conn, *control.Message) bool { return false })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		r := c.read(1 << 16)
		_, err := c.e.DoInto(ctx, &r, make([]byte, 1<<16))
		done <- err
	}()
	until(t, func() bool { return c.came.Load() == 1 })
	cancel()
	if err := <-done; !errors.Is(err, ErrUnknown) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "did not answer") {
		t.Error(err)
	}
	canceled, end := context.WithCancel(t.Context())
	end()
	r := c.read(1)
	if _, err := c.e.Do(canceled, &r); !errors.Is(err, ErrNotSent) {
		t.Error(err)
	}
}

func until(t *testing.T, f func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := msgrtest.Until(ctx, f); err != nil {
		t.Fatal(err)
	}
}

// A watch that is not registered, or lost, says it as other operations do.
func TestAnErrorNamesOperationObjectPoolAndOSD(t *testing.T) {
	c := start(t, Config{})
	c.publish()
	c.do(func(conn *control.Conn, m *control.Message) bool {
		_ = conn.Send(reply(m, -int32(syscall.EPERM), nil))
		return false
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, watch := c.e.Watch(ctx, c.read(0).Target, 0, Handler{})
	r := c.read(1)
	_, read := c.e.Do(ctx, &r)
	for err, want := range map[error]string{watch: "watch", read: "read"} {
		want += ` object "obj" of pool rep on osd.`
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Count(err.Error(), "obj") != 2 || !strings.HasSuffix(err.Error(), "caps of the key do not allow it)") {
			t.Errorf("%v, want %s", err, want)
		}
	}
	over := &Error{Code: osdop.CodeWatch, OSD: -1, Err: &lost{syscall.ENOTCONN}}
	if !errors.Is(over, syscall.ENOTCONN) || !strings.Contains(over.Error(), "the object was removed, or") {
		t.Error(over)
	}
}

// At the bounds callers wait in the order in which they came; who is canceled leaves the line.
func TestCallersWaitInLineAtTheBounds(t *testing.T) {
	for _, cfg := range []Config{{Operations: 1}, {Bytes: 100}} {
		c := start(t, cfg)
		c.publish()
		var mu sync.Mutex
		var held []func()
		c.do(func(conn *control.Conn, m *control.Message) bool {
			m.Retain()
			mu.Lock()
			defer mu.Unlock()
			held = append(held, func() { _ = conn.Send(reply(m, -int32(syscall.ENOENT), nil)); m.Release() })
			return false
		})
		order := make(chan int, 4)
		var calls [4]Call
		line := func() (n int) {
			c.e.room.mu.Lock()
			defer c.e.room.mu.Unlock()
			for k := c.e.room.line.first; k != nil; k = k.next {
				n++
			}
			return n
		}
		for i := range calls {
			calls[i].Request = c.read(90)
			calls[i].Done = func(*Call) { order <- i }
			go func() {
				if err := c.e.Start(t.Context(), &calls[i]); err != nil {
					t.Error(err)
				}
			}()
			until(t, func() bool { return line() == i && (i > 0 || c.came.Load() == 1) })
		}
		calls[1].Cancel(context.Canceled)
		if i := <-order; i != 1 || !errors.Is(calls[1].Err, ErrNotSent) || !strings.Contains(calls[1].Err.Error(), "too many") {
			t.Errorf("call %d is over: %v", i, calls[1].Err)
		}
		for n, want := range []int{0, 2, 3} {
			until(t, func() bool { return c.came.Load() == int64(n+1) })
			mu.Lock()
			answer := held[n]
			mu.Unlock()
			answer()
			if i := <-order; i != want || !errors.Is(calls[i].Err, syscall.ENOENT) || !errors.Is(calls[i].Err, ErrRefused) {
				t.Errorf("call %d is over, want %d: %v", i, want, calls[i].Err)
			}
		}
		if used := c.e.room.used.Load(); used != 0 {
			t.Errorf("%#x of the room is left taken", used)
		}
	}
}

// A connection that breaks has its operations sent again, as further attempts of the same ones.
func TestAnOperationSurvivesItsConnection(t *testing.T) {
	c := start(t, Config{})
	c.publish()
	var first atomic.Uint64
	c.do(func(conn *control.Conn, m *control.Message) bool {
		if first.CompareAndSwap(0, m.TID) {
			conn.MarkDown()
			return false
		}
		return m.TID == first.Load() && binary.LittleEndian.Uint32(m.Front[len(m.Front)-12:]) == 1
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := c.read(1 << 16)
	if _, err := c.e.DoInto(ctx, &r, make([]byte, 1<<16)); err != nil || len(r.Ops[0].Out) != 1<<16 {
		t.Errorf("%v, %d bytes", err, len(r.Ops[0].Out))
	}
}

// A connection that is marked down has no reset event: an operation that was sent on it is sent again
// on another one, and so is one that comes later.
func TestAnOperationSurvivesThatItsConnectionIsMarkedDown(t *testing.T) {
	c := start(t, Config{})
	c.publish()
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
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, want := range []int64{2, 3} { // requests that the OSD has seen
		r := c.read(10)
		p, err := c.e.Do(ctx, &r)
		p.Release()
		if err != nil || c.came.Load() != want {
			t.Errorf("%v behind %d requests, want %d", err, c.came.Load(), want)
		}
		markDown()
	}
}

func TestAnAnswerThatIsNoneEndsTheOperation(t *testing.T) {
	c := start(t, Config{})
	c.publish()
	c.do(func(conn *control.Conn, m *control.Message) bool {
		bad := control.NewMessage(osdop.TypeOpReply, []byte("what"), nil)
		bad.TID = m.TID
		if c.came.Load() == 1 { // that ends the session
			_ = conn.Send(control.NewMessage(osdop.TypeBackoff, []byte("what"), nil))
			return false
		}
		for _, typ := range []uint16{osdop.TypeWatchNotify, typeOSDMap} {
			_ = conn.Send(control.NewMessage(typ, []byte("what"), nil))
		}
		_ = conn.Send(bad)
		return false
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := c.read(10)
	if _, err := c.e.Do(ctx, &r); !errors.Is(err, ErrMessage) || !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	c := start(t, Config{Operations: 1})
	c.publish()
	c.do(func(*control.Conn, *control.Message) bool { return false })
	done := make(chan error, 2)
	for range 2 {
		go func() {
			r := c.read(10)
			_, err := c.e.Do(t.Context(), &r)
			done <- err
		}()
	}
	until(t, func() bool { return c.came.Load() == 1 })
	c.e.Close()
	for range 2 {
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
	r := c.read(10)
	if _, err := c.e.Do(t.Context(), &r); !errors.Is(err, ErrClosed) || !errors.Is(err, ErrNotSent) {
		t.Error(err)
	}
}
