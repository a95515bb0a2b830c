package rados_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/captured"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

var le = binary.LittleEndian

const (
	object = "greeting"
	pool   = "rep" // of the map of a real cluster, where osd.2 and osd.4 are up
	text   = "text"
)

// cluster is a monitor of ours with the map of a real cluster, and changes to it.
type cluster struct {
	addr   wire.Addr // of the monitor
	m      *control.Messenger
	client *rados.Cluster // the last one
	whole  []byte
	first  *osdmap.Map
	stop   []func() error

	mu    sync.Mutex
	epoch uint32
	send  func(front []byte) // to the client that has asked; nil: none has
	quiet bool               // no map is sent
	most  int32              // OSDs that there may be; 0: as many as at first
	osd   *osd               // that serves the object; nil: none of ours
	asks  [][]byte           // the MPoolOp that came; each is answered with success
	ahead uint32             // of the client's map is the one that has the changes
	newer uint32             // than the client's map is the newest, by as many epochs
	looks int                // requests for the number of the newest
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c, err := newCluster()
	check(t, err)
	t.Cleanup(func() { check(t, c.close()) })
	return c
}

var check = drivertest.Must

func newCluster() (*cluster, error) {
	whole, err := captured.Gunzip("../internal/osdmap/testdata/reef-real-e120.osdmap.gz")
	if err != nil {
		return nil, err
	}
	first, err := osdmap.Decode(whole)
	if err != nil {
		return nil, err
	}
	c := &cluster{whole: whole, first: first, epoch: first.Epoch}
	var number atomic.Uint64
	number.Store(4096)
	numbers := none.NewServer(none.ServerConfig{Monitor: true, AssignGlobalID: func(context.Context, wire.EntityName, uint64) (uint64, error) {
		return number.Add(1), nil // of each login, as if no monitor knew the one before
	}})
	m, err := control.New(control.Config{
		Name: wire.EntityName{Type: wire.Mon, ID: "a"}, Nonce: new(uint32), Plane: loop.Config{Cores: 1}, Auth: control.Auth{Server: numbers},
	})
	if err != nil {
		return nil, err
	}
	c.m = m
	c.stop = append(c.stop, func() error { return m.Shutdown(context.Background()) })
	subscriptions := &control.Dispatcher{Fast: func(conn *control.Conn, m *control.Message) bool {
		switch m.Type {
		case 19:
			_ = conn.Send(c.version(m))
			return true
		case 49:
			_ = conn.Send(c.agree(m))
			return true
		}
		if m.Type == 15 && bytes.Contains(m.Front, []byte("osdmap")) {
			c.subscribed(func(front []byte) { _ = conn.Send(control.NewMessage(41, front, nil)) })
		}
		return false
	}}
	server := mon.NewServer(mon.ServerConfig{Map: func() mon.MonMap {
		return mon.MonMap{FSID: mon.FSID{1}, Epoch: 1, Mons: []mon.Mon{{Name: "a", Addrs: m.Addrs()}}}
	}})
	err = m.Start(subscriptions, server)
	var addrs wire.AddrVec
	if err == nil {
		addrs, err = m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	c.addr = addrs[0]
	return c, nil
}

func (c *cluster) close() (err error) {
	for _, stop := range c.stop {
		err = errors.Join(err, stop())
	}
	return err
}

// agree answers MPoolOp.
func (c *cluster) agree(m *control.Message) *control.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asks = append(c.asks, bytes.Clone(m.Front))
	front := append(make([]byte, 18+16+4, 64), 0, 0, 0, 0, 0)
	le.PutUint32(front[18+16+4:], c.epoch+c.ahead)
	reply := control.NewMessage(48, front, nil)
	reply.TID = m.TID
	return reply
}

// version answers MMonGetVersion.
func (c *cluster) version(m *control.Message) *control.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	reply := control.NewMessage(20, le.AppendUint64(le.AppendUint64(bytes.Clone(m.Front[:8]), uint64(c.epoch+c.newer)), 1), nil)
	reply.TID = m.TID
	return reply
}

func (c *cluster) subscribed(send func([]byte)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.send == nil
	c.send = send
	if !c.quiet {
		send(captured.OSDMaps(c.first.FSID[:], c.epoch, nil, c.whole))
	}
	if first && c.osd != nil {
		c.changeLocked(2, c.osd.addr)
	}
}

func (c *cluster) asked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.send != nil
}

// change publishes the next epoch, in which an OSD goes down, or comes up at an address and serves the
// placement group of the object alone.
func (c *cluster) change(osd uint32, up *net.TCPListener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var addr netip.AddrPort
	if up != nil {
		addr = up.Addr().(*net.TCPAddr).AddrPort()
	}
	c.changeLocked(osd, addr)
}

func (c *cluster) changeLocked(osd uint32, up netip.AddrPort) {
	c.epoch++
	list := func(b []byte, n uint32) []byte { return le.AppendUint32(b, n) }
	b, outer := wire.BeginEnvelope(nil, 8, 7)
	b, inner := wire.BeginEnvelope(b, 8, 1)
	b = append(b, c.first.FSID[:]...)
	b = append(le.AppendUint32(b, c.epoch), make([]byte, 8)...)
	b = append(b, bytes.Repeat([]byte{0xff}, 12)...) // no pool, no flags
	b = le.AppendUint64(b, 0)                        // no maps
	b = le.AppendUint32(b, uint32(cmp.Or(c.most, -1)))
	b = list(list(list(b, 0), 0), 0) // pools
	if !up.IsValid() {
		b = list(b, 0) // OSDs that are up
		b = le.AppendUint32(le.AppendUint32(list(b, 1), osd), 2)
		b = list(list(b, 0), 0) // weights, temporary sets
	} else {
		id, _ := c.first.PoolID(pool)
		group, _ := c.first.Locate(id, "", object)
		b = le.AppendUint32(list(b, 1), osd)
		b = wire.AddrVec{{Type: wire.AddrMsgr2, AddrPort: up}}.AppendTo(b)
		b = list(list(b, 0), 0) // states, weights
		b = list(b, 2)
		for _, seed := range []uint32{group.Seed, 0} { // lists begin with 0
			b = le.AppendUint64(append(b, 1), uint64(group.Pool))
			b = le.AppendUint32(le.AppendUint32(b, seed), 0xffffffff)
			b = le.AppendUint32(list(b, 1), osd)
		}
	}
	b = append(b, make([]byte, 10*4+2*8)...) // nothing else
	b = wire.EndEnvelope(b, inner)
	b, inner = wire.BeginEnvelope(b, 1, 1)
	b = wire.EndEnvelope(b, inner)
	at := len(b)
	b = wire.EndEnvelope(append(b, make([]byte, 8)...), outer)
	table := crc32.MakeTable(crc32.Castagnoli)
	le.PutUint32(b[at:], ^crc32.Update(crc32.Checksum(b[:at], table), table, b[at+4:]))
	c.send(captured.OSDMaps(c.first.FSID[:], c.epoch, b, nil))
}

func (c *cluster) dial(ctx context.Context, t *testing.T) *rados.Cluster {
	t.Helper()
	client, err := rados.Dial(ctx, rados.Config{Name: wire.EntityName{Type: wire.Client, ID: "admin"}, Mons: []wire.Addr{c.addr}})
	check(t, err)
	t.Cleanup(func() { client.Close() })
	c.client = client
	return client
}

// listen is an OSD that accepts and says nothing.
func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { l.Close() })
	return l.(*net.TCPListener)
}

func accept(t *testing.T, l *net.TCPListener) {
	t.Helper()
	conn, err := l.Accept()
	check(t, err)
	t.Cleanup(func() { conn.Close() })
}

// A client waits for an OSD that can serve an object, as the real tools do, goes where a new map
// says it is, and says in the end what it waited for.
// Matrix: OB-09
func TestAClientFollowsTheMapUntilItsDeadline(t *testing.T) {
	c := startCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client := c.dial(ctx, t)
	p, err := client.Pool(ctx, pool)
	check(t, err)
	o := p.Object(object)
	c.change(2, nil)
	c.change(4, nil)
	if msgrtest.Until(ctx, func() bool { return client.Epoch() == c.first.Epoch+2 }) != nil {
		t.Fatal("the maps did not come")
	}
	long, stop := context.WithCancelCause(ctx)
	done := make(chan error, 1)
	go func() { done <- o.WriteFull(long, []byte(text)) }()
	a, b := listen(t), listen(t)
	c.change(2, a)
	accept(t, a)
	c.change(4, b) // while the request waits for the other one
	accept(t, b)
	late := errors.New("late")
	stop(late)
	if err := <-done; !errors.Is(err, rados.ErrNotSent) || !errors.Is(err, late) || !strings.Contains(err.Error(), "osd.4") || !strings.Contains(err.Error(), b.Addr().String()) {
		t.Errorf("%v, want ErrNotSent with the address", err)
	}
}

// A client keeps the number by which OSDs know it, though a later login gives it another one.
func TestTheInstanceIDIsTheNumberThatOSDsSee(t *testing.T) {
	ctx, osd, o := startObject(t)
	client := osd.c.client
	for again := range 2 {
		check(t, o.WriteFull(ctx, []byte(text)))
		for _, conn := range osd.m.Conns() {
			if seen := conn.Info().PeerNumber; seen != 4097 || client.InstanceID() != 4097 {
				t.Errorf("OSDs see number %d, the client says %d, want 4097", seen, client.InstanceID())
			}
			conn.MarkDown()
		}
		if again == 1 {
			break
		}
		session := client.Mon().Conn()
		for _, conn := range osd.c.m.Conns() {
			conn.MarkDown()
		}
		if msgrtest.Until(ctx, func() bool { n := client.Mon().Conn(); return n != nil && n != session }) != nil {
			t.Fatal("no other session")
		}
	}
}

// The request to delete a pool has its number and no name: a monitor of Ceph that finds a pool of that name says yes, and deletes
// nothing.
func TestAPoolIsDeletedByItsNumber(t *testing.T) {
	ctx, osd, o := startObject(t)
	p, c := o.Pool(), osd.c
	check(t, p.Delete(ctx))
	c.mu.Lock()
	defer c.mu.Unlock()
	number, nameless := le.AppendUint32(le.AppendUint32(nil, uint32(p.ID())), 2), make([]byte, 8+8+4+3) // 2: delete
	if len(c.asks) != 1 || !bytes.HasSuffix(c.asks[0], append(number, nameless...)) {
		t.Errorf("%x, want the end %x", c.asks, append(number, nameless...))
	}
}

// A change of a pool has returned when the client has the map with it. Whether there is something to do is seen in the newest map of
// the monitors, as others change pools, too.
func TestAChangeOfAPoolHasTheMapBeforeAndBehindIt(t *testing.T) {
	ctx, osd, o := startObject(t)
	c := osd.c
	for name, one := range map[string]struct {
		newer, ahead uint32
		asks         int // that do not wait for the map
		want         error
		change       func() error
	}{
		"behind":   {0, 1, 1, nil, func() error { return o.Pool().CreateSnap(ctx, "snap") }},
		"snapshot": {1, 0, 0, nil, func() error { return o.Pool().CreateSnap(ctx, "new") }},
		"lookup":   {1, 0, 0, rados.ErrRefused, func() error { _, err := o.Pool().LookupSnap(ctx, "none"); return err }},
		"removal":  {1, 0, 0, rados.ErrRefused, func() error { return o.Pool().RemoveSnap(ctx, "none") }},
		"pool":     {1, 0, 0, rados.ErrRefused, func() error { _, err := c.client.CreatePool(ctx, pool); return err }},
	} {
		c.mu.Lock()
		c.newer, c.ahead, c.looks, c.asks = one.newer, one.ahead, 0, nil
		next := c.epoch + 1
		c.mu.Unlock()
		over := make(chan error, 1)
		go func() { over <- one.change() }()
		check(t, msgrtest.Until(ctx, func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.looks == 1 && len(c.asks) == one.asks || len(over) > 0
		}))
		for range 5 { // the answer of the monitor is there before
			check(t, o.WriteFull(ctx, nil))
		}
		c.mu.Lock()
		early := len(over) > 0 || len(c.asks) != one.asks
		c.newer, c.ahead = 0, 0
		c.mu.Unlock()
		c.change(4, nil)
		if err := <-over; early || !errors.Is(err, one.want) || c.client.Epoch() != next {
			t.Errorf("%s: %v, over before the map is there: %v; map %d, want %d", name, err, early, c.client.Epoch(), next)
		}
	}
}

// A monitor of Ceph agrees where there is nothing to do: the pool or the snapshot is there already, or the snapshot is not. The caller
// has an error then, as with librados.
func TestWhatIsThereIsNotMadeAndWhatIsNotIsNotRemoved(t *testing.T) {
	ctx, osd, _ := startObject(t)
	c := osd.c
	names, err := c.client.Pools(ctx)
	check(t, err)
	tried := 0
	for _, name := range names {
		p, err := c.client.Pool(ctx, name)
		check(t, err)
		if _, err := c.client.CreatePool(ctx, name); !errors.Is(err, fs.ErrExist) || !errors.Is(err, rados.ErrRefused) {
			t.Errorf("pool %s is made again: %v", name, err)
		}
		if err := p.RemoveSnap(ctx, "nameless"); !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, rados.ErrRefused) {
			t.Errorf("a snapshot that is not there is removed: %v", err)
		}
		snaps, err := p.Snaps(ctx)
		check(t, err)
		for _, s := range snaps {
			tried++
			if err := p.CreateSnap(ctx, s.Name); !errors.Is(err, fs.ErrExist) || !errors.Is(err, rados.ErrRefused) {
				t.Errorf("snapshot %s is made again: %v", s.Name, err)
			}
			check(t, p.RemoveSnap(ctx, s.Name))
		}
		check(t, p.CreateSnap(ctx, "other"))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if tried == 0 || len(c.asks) != tried+len(names) {
		t.Errorf("%d requests to the monitor, want %d", len(c.asks), tried+len(names))
	}
}

// Whatever a client waits for when its deadline comes, it says it: the monitor that sends no
// map, and that the map which it has sent is none.
// Matrix: OB-09
func TestADeadlineTellsWhatWasWaitedFor(t *testing.T) {
	c := startCluster(t)
	c.quiet = true
	dialing, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client := c.dial(dialing, t)
	ctx, late := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := client.Pool(ctx, pool)
		done <- err
	}()
	check(t, msgrtest.Until(dialing, c.asked))
	late(context.DeadlineExceeded)
	if err := <-done; !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, rados.ErrMessage) || !strings.Contains(err.Error(), "no osdmap came") {
		t.Errorf("no map: %v", err)
	}
	c.send(captured.OSDMaps(c.first.FSID[:], c.epoch, nil, c.whole[:100]))
	var err error
	if msgrtest.Until(dialing, func() bool {
		_, err = client.Pool(ctx, pool)
		return errors.Is(err, rados.ErrMessage)
	}) != nil {
		t.Errorf("half a map: %v", err)
	}
	check(t, client.Close())
	if err := client.WaitForLatestOSDMap(t.Context()); !errors.Is(err, rados.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
