package rados

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/engine"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
)

// Error is an operation that failed: Object, Pool, OSD (-1: none had it), Outcome, and the condition for
// which it was Waiting, For how long. It wraps the Outcome, which is ErrNotSent, ErrUnknown or ErrRefused,
// and the reason Err: a syscall.Errno of the cluster, or the cause of the context.
type Error = engine.Error

// The outcomes of an operation that failed.
var (
	// ErrNotSent: no OSD has seen the operation.
	ErrNotSent = engine.ErrNotSent
	// ErrUnknown: it was sent, and it is not known whether it was or will be carried out. A later read tells
	// if it has OrderReads; without that flag an OSD may have it overtake a write.
	ErrUnknown = engine.ErrUnknown
	// ErrRefused: an OSD, or the map of the cluster, said no. Nothing has changed.
	ErrRefused = engine.ErrRefused
)

var (
	// ErrClosed: the cluster is closed. It wraps net.ErrClosed.
	ErrClosed = engine.ErrClosed
	// ErrMessage: a message of an OSD or a monitor cannot be decoded, or contradicts itself.
	ErrMessage = engine.ErrMessage
)

// Options bound a Cluster. The zero value has the defaults. At most so many Operations are under way at a
// time, 0: 1024, with at most so many Bytes of data, 0: 100 MiB; others wait in line. The Logger gets
// warnings; nil is silent. Location is the place of the client in the CRUSH hierarchy, for LocalizeReads:
// types and names of buckets, such as "host=a", "rack=7"; nil: the host with the name of this machine,
// without its domain, and "root=default".
type Options = engine.Options

// Cluster is a client of a cluster. All methods may be called by any goroutine but a core's.
type Cluster struct {
	mon    *mon.Client
	engine *engine.Engine
	m      *control.Messenger
	keys   *cephx.Client // nil: method none, or keys of the user's
	number uint64        // InstanceID
	owned  bool          // by Dial: the messenger ends with the cluster
}

// New makes a client on a messenger of the user's, beside a client of the monitors. Its Dispatcher must
// be among those of the messenger's Start, behind that of the monitor client; then comes Open. Where an answer
// exceeds its Receiving.Limits, as a page of an omap may exceed the defaults, the connection breaks, and the operation
// is sent again until its context ends.
func New(monitors *mon.Client, o Options) *Cluster {
	if o.Location == nil {
		host, _ := os.Hostname() // without one nothing is near
		host, _, _ = strings.Cut(host, ".")
		o.Location = []string{"host=" + host, "root=default"}
	}
	return &Cluster{mon: monitors, engine: engine.New(monitors, o)}
}

// Dispatcher takes the messages of OSDs, and maps. It leaves all other messages to the next in the chain.
func (c *Cluster) Dispatcher() *control.Dispatcher { return c.engine.Dispatcher() }

// Open lets operations begin. The monitor client is open by then.
func (c *Cluster) Open(m *control.Messenger) {
	c.m = m
	c.engine.Open(m)
}

// Mon is the monitor client.
func (c *Cluster) Mon() *mon.Client { return c.mon }

// Messenger is the messenger that carries everything.
func (c *Cluster) Messenger() *control.Messenger { return c.m }

// Tickets lists the cephx tickets, which are renewed in time; nil with method none, and on a messenger of the
// user's.
func (c *Cluster) Tickets() []cephx.TicketInfo {
	if c.keys == nil {
		return nil
	}
	return c.keys.Tickets()
}

// InstanceID is the global id that the monitors have given to this client at first. Locks, watches and answers
// to notifications name it. 0: it is not known, on a messenger of the user's.
func (c *Cluster) InstanceID() uint64 { return c.number }

// Epoch is that of the newest osdmap; 0: none has come.
func (c *Cluster) Epoch() uint32 {
	if m := c.engine.Map(); m != nil {
		return m.Epoch
	}
	return 0
}

// WaitForLatestOSDMap waits until the client has the osdmap that is the newest of the monitors when they are
// asked: pools, snapshots and a blocklist that others have made before count from then on.
func (c *Cluster) WaitForLatestOSDMap(ctx context.Context) error {
	epoch, err := c.mon.NewestOSDMap(ctx)
	if err == nil {
		_, err = c.engine.WaitEpoch(ctx, epoch)
	}
	if err != nil {
		return fmt.Errorf("rados: the newest osdmap: %w", closed(err))
	}
	return nil
}

// closed has ErrClosed stand for the error of the monitors' client, too.
func closed(err error) error {
	if errors.Is(err, mon.ErrClosed) {
		return ErrClosed
	}
	return err
}

// Pools returns the names of all pools in the map that the client has (WaitForLatestOSDMap), sorted.
func (c *Cluster) Pools(ctx context.Context) ([]string, error) {
	m, err := c.engine.WaitEpoch(ctx, 0)
	if err != nil {
		return nil, err
	}
	return m.PoolNames(), nil
}

// noPool is the error for a pool that does not exist.
func noPool(name string) error {
	return fmt.Errorf("pool %q: %w: %w (ceph osd pool ls, or ceph osd pool create)", name, ErrRefused, syscall.ENOENT)
}

// Pool returns a pool. The error is ENOENT if the newest map of the monitors has none of this name.
func (c *Cluster) Pool(ctx context.Context, name string) (Pool, error) {
	m, err := c.engine.WaitEpoch(ctx, 0)
	if err != nil {
		return Pool{}, err
	}
	id, ok := m.PoolID(name)
	if !ok { // a map that is on its way may have it
		if err := c.WaitForLatestOSDMap(ctx); err != nil {
			return Pool{}, fmt.Errorf("pool %q: %w", name, err)
		}
		if id, ok = c.engine.Map().PoolID(name); !ok {
			return Pool{}, noPool(name)
		}
	}
	return Pool{c: c, id: id, name: name}, nil
}
