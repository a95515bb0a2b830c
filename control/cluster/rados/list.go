package rados

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math/bits"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Entry is an object in a list. The Locator decides about its place in the name's stead; it is empty as a
// rule.
type Entry struct{ Namespace, Name, Locator string }

// Cursor is a position in the order in which OSDs keep the objects of a pool, which is that of their hashes.
// It stays valid when placement groups split.
type Cursor struct{ at osdop.HObject }

// Cursors cuts the pool into n parts for as many goroutines: part i has the objects that List yields between
// elements i and i+1. The first element is before all objects, the last one behind them.
func (p Pool) Cursors(n int) []Cursor {
	list := []Cursor{{osdop.Min()}}
	for i := 1; i < n; i++ {
		hash := bits.Reverse32(uint32(uint64(i) << 32 / uint64(n)))
		list = append(list, Cursor{osdop.HObject{Pool: p.id, Hash: hash, Snap: osdop.Head}})
	}
	return append(list, Cursor{osdop.HObject{Max: true}})
}

// Objects goes through the objects of the pool's namespace, or of AllNamespaces, in no order that means
// something. An error is its last element. An object that comes or goes meanwhile may be there or not.
func (p Pool) Objects(ctx context.Context) iter.Seq2[Entry, error] {
	all := p.Cursors(1)
	return p.List(ctx, all[0], all[1])
}

// List is Objects from one position up to another.
func (p Pool) List(ctx context.Context, from, to Cursor) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		from := from
		for from.at.Compare(&to.at) < 0 {
			list, err := p.page(ctx, from)
			next := Cursor{list.next}
			if err == nil && next.at.Compare(&from.at) <= 0 {
				err = fmt.Errorf("%w: a list that does not go on", ErrMessage)
			}
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for _, e := range list.entries {
				if p.before(e, &next, &to) && !yield(e, nil) {
					return
				}
			}
			from = next
		}
	}
}

// before says whether an object of a page is before the end of the list. Only in the last page may it not be.
func (p Pool) before(e Entry, next, to *Cursor) bool {
	if to.at.Max || next.at.Compare(&to.at) <= 0 {
		return true
	}
	m := p.c.engine.Map()
	if m.Pool(p.id) == nil {
		return false
	}
	_, hash := m.Locate(p.id, e.Namespace, cmp.Or(e.Locator, e.Name))
	o := osdop.Object{Pool: p.id, Namespace: e.Namespace, Locator: e.Locator, Name: e.Name}
	at := o.HObject(hash)
	return at.Compare(&to.at) < 0
}

// listOp asks for at most limit objects from a position on. The target of the request has no name but a hash,
// that of the position.
func listOp(from *osdop.HObject, limit uint64, epoch uint32) osdop.Op {
	return osdop.Extent(osdop.CodeList, limit, uint64(epoch), from.AppendTo(nil))
}

// page asks for the next 1024 objects behind a position.
func (p Pool) page(ctx context.Context, from Cursor) (page, error) {
	ops := []osdop.Op{listOp(&from.at, 1024, p.c.Epoch())}
	o := Object{pool: p}
	r := o.request(false)
	r.Target.Locator, r.Target.ByHash, r.Target.Hash = "", true, from.at.Hash
	r.Flags |= osdop.IgnoreOverlay
	reply, err := o.do(ctx, r, ops, nil)
	defer reply.Release()
	if err != nil {
		return page{}, err
	}
	return readPage(ops[0].Out)
}

// page is what an OSD knows of a list, and where the list goes on.
type page struct {
	entries []Entry
	next    osdop.HObject
}

var readPage = output("list", func(r *wire.Reader) (p page) {
	r.Envelope(1, func(_ uint8, r *wire.Reader) {
		p.next = osdop.ReadHObject(r)
		p.entries = wire.ListOf(r, 3*4, func(r *wire.Reader) Entry { return Entry{r.Str(), r.Str(), r.Str()} })
	})
	return p
})
