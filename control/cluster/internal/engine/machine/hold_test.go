package machine

import (
	"strconv"
	"syscall"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
)

// A map holds back what it pauses, and writes where the cluster or the pool that they name is full; those that may exceed it go on.
// What goes on is sent again when that changes, unless OSDs refuse it (FullTry).
func TestAMapHoldsOperationsBackAndSaysWhy(t *testing.T) {
	const read, write, ordered = osdop.FlagRead, osdop.FlagWrite, osdop.FlagRead | osdop.RWOrdered
	const try, force = osdop.FlagWrite | osdop.FullTry, osdop.FlagWrite | osdop.FullForce
	for _, c := range []struct {
		flags uint32 // of the map
		pool  uint64
		op    uint32
		want  Wait
		again bool
	}{
		{osdmap.PauseReads, 0, read, WaitReads, false}, {osdmap.PauseReads, 0, write, WaitReply, false},
		{osdmap.PauseWrites, 0, write, WaitWrites, false}, {osdmap.PauseWrites, 0, try, WaitWrites, false},
		{osdmap.PauseWrites, 0, read, WaitReply, false}, {osdmap.Full, 0, write, WaitFull, false}, {osdmap.Full, 0, try, WaitReply, false},
		{osdmap.Full, 0, ordered, WaitReply, true}, {osdmap.Full, osdmap.PoolFull, read, WaitReply, true},
		{osdmap.Full, 0, read | osdop.FullTry, WaitReply, false}, {0, osdmap.PoolFull, write, WaitPoolFull, false},
		{0, osdmap.PoolFull | osdmap.PoolQuota, write, WaitQuota, false}, {0, osdmap.PoolQuota, write, WaitReply, false},
		{0, osdmap.PoolFull, ordered, WaitReply, true}, {0, osdmap.PoolFull, try, WaitReply, false}, {0, osdmap.PoolFull, force, WaitReply, true},
	} {
		r, first := newSent(t)
		r.reply(first, osdop.Reply{})
		change := func(flags uint32, pool uint64) []Action {
			return r.next(func(f *fakeMap) { p := f.pools[pool1]; p.Flags = pool; f.pools[pool1], f.flags = p, flags })
		}
		if c.flags&osdmap.Full != 0 { // where both are, the pool is full before
			change(0, c.pool)
		}
		before, o := &Op{Object: first.Object, Flags: c.op}, first // which is used again
		o.Flags = c.op
		r.submit(before)
		if sent := find(change(c.flags, c.pool), Send) != nil; sent != c.again {
			t.Errorf("%+v: what was sent before is sent again: %v", c, sent)
		}
		r.m.Cancel(before)
		r.submit(o)
		if w, _, _ := o.Status(); w != c.want {
			t.Errorf("%+v: it waits for %q", c, w)
		}
		if c.want == WaitFull || c.want == WaitPoolFull || c.want == WaitQuota {
			for flags, want := range map[uint32]Wait{read: WaitReply, read | osdop.RWOrdered: WaitBehind} {
				behind, other := &Op{Object: first.Object, Flags: flags}, &Op{Object: osdop.Object{Pool: pool1, Name: "b"}, Flags: flags}
				r.submit(behind)
				r.submit(other)
				if w, _, _ := behind.Status(); w != want || !other.sent {
					t.Errorf("%+v: a read with flags %#x behind it waits for %q; one of another object is sent: %v", c, flags, w, other.sent)
				}
			}
		}
		if sent := find(change(0, 0), Send) != nil; sent != (c.want != WaitReply || c.again) {
			t.Errorf("%+v: sent in the end: %v", c, sent)
		}
	}
}

// looks are counted of a map, which is asked for its flags each time that an operation is to be sent.
type looks struct {
	*fakeMap
	n int
}

func (l *looks) Flags() uint32 { l.n++; return l.flags }

// Many operations that are canceled together, as one context ends, do not look at each other.
func TestACancelLooksAtNothingThatTheOperationDidNotHold(t *testing.T) {
	for objects, most := range map[int]int{1 << 10: 1, 1: 1 << 10} {
		r, all := newRig(t), make([]*Op, 1<<10)
		r.next(func(f *fakeMap) { f.flags = osdmap.PauseWrites })
		for i := range all {
			all[i] = write(pool1)
			all[i].Object.Name = strconv.Itoa(i % objects)
			r.submit(all[i])
		}
		last := &Op{Object: all[len(all)-1].Object, Flags: osdop.FlagRead}
		r.submit(last)
		r.up()
		l := &looks{fakeMap: r.f}
		r.m.cur = l
		for _, o := range all {
			r.m.Cancel(o)
		}
		if l.n > most || !last.sent {
			t.Errorf("%d operations on %d objects: %d looks; the last one is sent: %v", len(all), objects, l.n, last.sent)
		}
	}
}

// One that an OSD wants later is behind those that waited behind it, and these are sent.
func TestAnOperationThatIsSentAwayHoldsNothing(t *testing.T) {
	r, first := newSent(t)
	r.reply(first, osdop.Reply{})
	read, behind := &Op{Object: first.Object, Flags: osdop.FlagRead}, &Op{Object: first.Object, Flags: osdop.FlagWrite}
	r.submit(read)
	r.next(func(f *fakeMap) { // it is to be sent again, but not now
		p := f.pools[pool1]
		p.Resend = f.epoch
		f.pools[pool1], f.flags = p, osdmap.PauseReads
	})
	r.submit(behind)
	if w, _, _ := behind.Status(); w != WaitBehind {
		t.Fatalf("it waits for %q", w)
	}
	r.reply(read, osdop.Reply{Result: -int32(syscall.EAGAIN)}) // to the first attempt
	if w, _, _ := read.Status(); w != WaitReads || !behind.sent {
		t.Errorf("it waits for %q; the one behind it is sent: %v", w, behind.sent)
	}
}
