package rados

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// CreatePool makes a pool with the cluster's defaults; EEXIST: there is one. The key needs caps to write at
// the monitors.
func (c *Cluster) CreatePool(ctx context.Context, name string) (Pool, error) {
	if err := c.WaitForLatestOSDMap(ctx); err != nil {
		return Pool{}, err
	}
	if _, ok := c.engine.Map().PoolID(name); ok { // a monitor says yes
		return Pool{}, fmt.Errorf("pool %q: %w: %w", name, ErrRefused, syscall.EEXIST)
	}
	if _, err := (Pool{c: c, name: name}).change(ctx, poolOp{what: poolCreate, name: name}, "creation"); err != nil {
		return Pool{}, err
	}
	return c.Pool(ctx, name)
}

// Delete removes the pool with all that is in it; EPERM: the monitors do not allow that
// (mon_allow_pool_delete).
func (p Pool) Delete(ctx context.Context) error {
	// Without a name: a monitor that finds a pool of this one says yes, and deletes nothing.
	_, err := p.change(ctx, poolOp{what: poolDelete}, "deletion")
	return err
}

// CreateSnap makes a snapshot of the whole pool; EEXIST: there is one of this name. A pool that has
// self-managed ones takes none: EINVAL.
func (p Pool) CreateSnap(ctx context.Context, name string) error {
	_, err := p.newestSnap(ctx, name)
	if !errors.Is(err, syscall.ENOENT) {
		return cmp.Or(err, fmt.Errorf("snapshot %q of pool %q: %w: %w", name, p.name, ErrRefused, syscall.EEXIST))
	}
	_, err = p.change(ctx, poolOp{what: poolCreateSnap, name: name}, fmt.Sprintf("snapshot %q", name))
	return err
}

// RemoveSnap removes a snapshot of the pool; ENOENT: there is none of this name.
func (p Pool) RemoveSnap(ctx context.Context, name string) error {
	_, err := p.newestSnap(ctx, name)
	if err == nil {
		_, err = p.change(ctx, poolOp{what: poolDeleteSnap, name: name}, fmt.Sprintf("removal of snapshot %q", name))
	}
	return err
}

// newestSnap is findSnap in the newest map of the monitors, as other clients make and remove snapshots, too.
// A monitor says yes where there is nothing to do. So a request that is sent again after a lost answer succeeds.
func (p Pool) newestSnap(ctx context.Context, name string) (Snap, error) {
	if err := p.c.WaitForLatestOSDMap(ctx); err != nil {
		return Snap{}, err
	}
	return p.findSnap(ctx, name)
}

// CreateSelfManagedSnap makes the id of a snapshot, for WithSnapContext.
func (p Pool) CreateSelfManagedSnap(ctx context.Context) (uint64, error) {
	snap, err := p.change(ctx, poolOp{what: poolCreateUnmanaged}, "self-managed snapshot")
	if err == nil && snap == 0 {
		err = fmt.Errorf("%w: MPoolOpReply without the id of a snapshot", ErrMessage)
	}
	return snap, err
}

// RemoveSelfManagedSnap has the OSDs forget a snapshot.
func (p Pool) RemoveSelfManagedSnap(ctx context.Context, id uint64) error {
	what := fmt.Sprintf("removal of self-managed snapshot %d", id)
	_, err := p.change(ctx, poolOp{what: poolDeleteUnmanaged, snap: id}, what)
	return err
}

// poolOp is the part of MPoolOp that depends on the operation.
type poolOp struct {
	what uint32
	snap uint64
	name string
}

const (
	poolCreate          = 0x01
	poolDelete          = 0x02
	poolCreateSnap      = 0x11
	poolDeleteSnap      = 0x12
	poolCreateUnmanaged = 0x21 // of a self-managed snapshot: the answer has its id
	poolDeleteUnmanaged = 0x22

	typePoolOp      = 49
	typePoolOpReply = 48
)

// message makes MPoolOp, of a sender whose map has an epoch.
func (o *poolOp) message(epoch uint32, fsid mon.FSID, pool int64) *control.Message {
	b := le.AppendUint16(le.AppendUint64(nil, uint64(epoch)), 0xffff)
	b = append(le.AppendUint64(b, 0), fsid[:]...)
	b = le.AppendUint32(le.AppendUint32(b, uint32(pool)), o.what)
	b = le.AppendUint64(le.AppendUint64(b, 0), o.snap)
	m := control.NewMessage(typePoolOp, append(wire.AppendString(b, o.name), 0, 0, 0), nil)
	m.Version, m.CompatVersion = 4, 2
	return m
}

// poolReply is MPoolOpReply. The map of its epoch has the change.
type poolReply struct {
	result int32
	epoch  uint32
	snap   uint64 // by poolCreateUnmanaged
}

var readPoolReply = output("MPoolOp", func(r *wire.Reader) (p poolReply) {
	r.Skip(18 + 16) // head of the monitor's messages, fsid
	p.result, p.epoch = r.S32(), r.U32()
	if r.Bool() && r.U32() >= 8 {
		p.snap = r.U64()
	}
	return p
})

// change has a monitor carry out an operation on the pool, and waits for the map that has the change.
func (p Pool) change(ctx context.Context, op poolOp, what string) (snap uint64, err error) {
	epoch := p.c.Epoch()
	m, err := p.c.mon.Request(ctx, func(fsid mon.FSID) *control.Message { return op.message(epoch, fsid, p.id) })
	if err == nil {
		var reply poolReply
		if reply, err = readPoolReply(m.Front); m.Type != typePoolOpReply {
			err = fmt.Errorf("%w: message of type %d in place of MPoolOpReply", ErrMessage, m.Type)
		} else if err == nil && reply.result < 0 {
			err = fmt.Errorf("%w: %w", ErrRefused, syscall.Errno(-reply.result))
		}
		if m.Release(); err == nil {
			_, err = p.c.engine.WaitEpoch(ctx, reply.epoch)
			snap = reply.snap
		}
	}
	if err != nil {
		return 0, fmt.Errorf("%s of pool %q: %w", what, p.name, closed(err))
	}
	return snap, nil
}
