package rados

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
)

// Flags change how operations are carried out.
type Flags uint32

// The flags that go with operations.
const (
	// BalanceReads reads from any OSD that has the object, not its primary alone. A ReadOp with Exec goes to the
	// primary, also with LocalizeReads, as the method may write.
	BalanceReads = Flags(osdop.BalanceReads)
	// LocalizeReads reads from the OSD that is the nearest by Options.Location; the primary, if others are no
	// nearer. BalanceReads goes before it.
	LocalizeReads = Flags(osdop.LocalizeReads)
	// OrderReads has reads not overtake writes.
	OrderReads = Flags(osdop.RWOrdered)
	// OrderSnap has writes fail with EOVERFLOW if the object has seen a newer snapshot than the context has.
	OrderSnap = Flags(osdop.OrderSnap)
	// FullTry has writes fail with ENOSPC or EDQUOT in place of waiting while the cluster or the pool is
	// full. FullForce carries them out.
	FullTry   = Flags(osdop.FullTry)
	FullForce = Flags(osdop.FullForce)
	// ReturnOutputs has a WriteOp bring the outputs of its steps.
	ReturnOutputs = Flags(osdop.ReturnVec)
)

// AllNamespaces is the namespace with which a list has the objects of all. It is for lists alone: an
// operation needs the namespace of its object (Entry.Namespace).
const AllNamespaces = "\x01"

// Pool is a pool as its user sees it: with a namespace, a locator, snapshots and flags. It is a cheap value;
// the methods beginning with With return another one. Any goroutine.
type Pool struct {
	c         *Cluster
	id        int64
	name      string
	ns, key   string
	snap, seq uint64
	snaps     []uint64
	flags     Flags
}

// Name is that of the pool when it was looked up.
func (p Pool) Name() string { return p.name }

// ID is its number, which it keeps.
func (p Pool) ID() int64 { return p.id }

// WithNamespace has objects in a namespace; "": the default one.
func (p Pool) WithNamespace(ns string) Pool { p.ns = ns; return p }

// WithLocator has all objects placed by this key in place of their names; "": by their names.
func (p Pool) WithLocator(key string) Pool { p.key = key; return p }

// WithSnap has reads see a snapshot; 0: the present state. A snapshot does not change: writes fail with
// EROFS.
func (p Pool) WithSnap(id uint64) Pool { p.snap = id; return p }

// WithSnapContext has writes keep the data that self-managed snapshots need: seq is the newest id, snaps are
// all that exist.
func (p Pool) WithSnapContext(seq uint64, snaps ...uint64) Pool {
	p.seq, p.snaps = seq, slices.Clone(snaps)
	slices.Sort(p.snaps)
	slices.Reverse(p.snaps)
	return p
}

// WithFlags adds flags.
func (p Pool) WithFlags(f Flags) Pool { p.flags |= f; return p }

// Object names an object. It need not exist.
func (p Pool) Object(name string) Object { return Object{pool: p, name: name} }

// Snap is a snapshot of a whole pool: its ID, its Name, and the Time at which it was made.
type Snap = osdmap.Snap

// Snaps lists the snapshots of the pool in the map that the client has (Cluster.WaitForLatestOSDMap), the oldest
// first; not the self-managed ones.
func (p Pool) Snaps(ctx context.Context) ([]Snap, error) {
	m, err := p.c.engine.WaitEpoch(ctx, 0)
	if err != nil {
		return nil, err
	}
	pool := m.Pool(p.id)
	if pool == nil {
		return nil, noPool(p.name)
	}
	return slices.Clone(pool.Snaps), nil
}

// LookupSnap finds a snapshot of the pool by its name. The error is ENOENT if the newest map of the monitors
// has none.
func (p Pool) LookupSnap(ctx context.Context, name string) (Snap, error) {
	s, err := p.findSnap(ctx, name)
	if errors.Is(err, syscall.ENOENT) { // a map that is on its way may have it
		s, err = p.newestSnap(ctx, name)
	}
	return s, err
}

// findSnap is LookupSnap in the map that the client has.
func (p Pool) findSnap(ctx context.Context, name string) (Snap, error) {
	list, err := p.Snaps(ctx)
	if err != nil {
		return Snap{}, err
	}
	if i := slices.IndexFunc(list, func(s Snap) bool { return s.Name == name }); i >= 0 {
		return list[i], nil
	}
	const text = "snapshot %q of pool %q: %w: %w (rados lssnap; self-managed ones have no name)"
	return Snap{}, fmt.Errorf(text, name, p.name, ErrRefused, syscall.ENOENT)
}
