package loop

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
	"github.com/ringmsgr/ringmsgr/uring"
)

func onPage(p []byte) bool { return reflect.ValueOf(p).Pointer()%pageSize == 0 }

func borrow(t *testing.T, p *pool, n int) *Buffer {
	t.Helper()
	b, err := p.get(n)
	must(t, err)
	if len(b.b) < n || cap(b.b) != len(b.b) { // an append would run into a neighbour
		t.Fatalf("asked for %d bytes, got %d of %d", n, len(b.b), cap(b.b))
	}
	return b
}

func TestPoolLendsWhatCameBackLast(t *testing.T) {
	for _, n := range []int{1, 300, 5000, 70 << 10} {
		p := &pool{keep: 1 << 30, mapped: uring.Map}
		a, b, c := borrow(t, p, n), borrow(t, p, n), borrow(t, p, n)
		p.put(b)
		p.put(a)
		p.put(c)
		for i, want := range []*Buffer{c, a, b} {
			if got := borrow(t, p, n); got != want {
				t.Errorf("%d bytes: buffer %d is not the one that came back last", n, i)
			}
		}
		p.drain()
	}
}

// Matrix: IO-21
func TestPoolBuffersHoldWhatWasAskedFor(t *testing.T) {
	p := &pool{keep: 1 << 40, mapped: uring.Map}
	defer p.drain()
	for class := minClass; class <= maxClass; class++ {
		for _, n := range []int{1<<class - 1, 1 << class, 1<<class + 1, 1<<class + classSlack, 1<<class + classSlack + 1} {
			b := borrow(t, p, n)
			if n > 1<<maxCut && !onPage(b.b) {
				t.Errorf("buffer of %d bytes is not page-aligned", n)
			}
			if n <= 1<<maxCut && len(b.b) >= 2*n && len(b.b) > 1<<minClass {
				t.Errorf("%d bytes got a buffer of %d", n, len(b.b))
			}
			if class > maxCut && n == 1<<class+classSlack && len(b.b) != n {
				t.Errorf("%d bytes and their frame got a buffer of %d", 1<<class, len(b.b))
			}
			b.b[0], b.b[len(b.b)-1] = 1, 2
			p.put(b)
			if kept := b.mem == nil || b.mem.Bytes() != nil; kept != (n <= 1<<maxClass+classSlack) {
				t.Errorf("buffer of %d bytes is kept: %v", n, kept)
			}
		}
	}
}

// trimAll ends a period.
func trimAll(p *pool) {
	for ends := true; p.trim(ends); {
		ends = false
	}
}

// Matrix: RL-08
func TestPoolKeepsNoMoreThanItsBound(t *testing.T) {
	const keep = 1 << 20
	p := &pool{keep: keep, mapped: uring.Map}
	rng := rand.New(rand.NewPCG(7, 7))
	var out []*Buffer
	var lent, peak int64
	for range 2000 {
		if len(out) > 0 && rng.IntN(2) == 0 {
			i := rng.IntN(len(out))
			lent -= int64(len(out[i].b))
			p.put(out[i])
			out[i] = out[len(out)-1]
			out = out[:len(out)-1]
		} else if len(out) < 20 {
			b := borrow(t, p, 1+rng.IntN(300<<10))
			lent += int64(len(b.b))
			out = append(out, b)
			peak = max(peak, lent)
		}
		var kept int64
		for c := maxCut + 1; c <= maxClass; c++ {
			for b := p.free[c]; b != nil; b = b.next {
				kept += int64(len(b.b))
			}
		}
		if kept != p.kept || kept > max(keep, peak) || p.inUse != lent {
			t.Fatalf("kept %d (counted %d, bound %d, peak %d), in use %d of %d", p.kept, kept, keep, peak, p.inUse, lent)
		}
	}
	for _, b := range out {
		p.put(b)
	}
	trimAll(p)
	if trimAll(p); p.kept > keep {
		t.Errorf("kept %d after two quiet periods, bound %d", p.kept, keep)
	}
	p.drain()
	if p.kept != 0 || p.inUse != 0 || len(p.chunks) != 0 {
		t.Errorf("after drain: kept %d, in use %d, %d chunks", p.kept, p.inUse, len(p.chunks))
	}
}

// What earlier messages of another size left must not have every later one
// map its buffer anew.
// Matrix: IO-21
func TestAPoolFullOfOtherSizesStillReusesTheOneInDemand(t *testing.T) {
	p := &pool{keep: 8 << 20, mapped: uring.Map}
	var small []*Buffer
	for range 7 {
		small = append(small, borrow(t, p, 1<<20))
	}
	for _, b := range small {
		p.put(b)
	}
	trimAll(p)
	trimAll(p)
	first := borrow(t, p, 4<<20)
	for range 10 {
		p.put(first)
		if b := borrow(t, p, 4<<20); b != first {
			t.Fatal("another buffer")
		}
	}
	p.put(first)
	p.drain()
}

func TestReleasedBuffersArePoisonedInInvariantBuilds(t *testing.T) {
	p := &pool{keep: 1 << 20, mapped: uring.Map}
	defer p.drain()
	for _, n := range []int{100, 10000} {
		b := borrow(t, p, n)
		clear(b.b)
		p.put(b)
		poisoned := b.b[0] == invariants.PoisonByte && b.b[len(b.b)-1] == invariants.PoisonByte
		if poisoned != invariants.Enabled {
			t.Errorf("%d bytes: poisoned=%v, invariants=%v", n, poisoned, invariants.Enabled)
		}
	}
}

// stillMapped wants no memory to be registered that has been unmapped.
func (b *fileBed) stillMapped() {
	b.t.Helper()
	for m, times := range b.d.Registered {
		if m.Bytes() == nil {
			b.t.Fatal("registered memory is unmapped")
		}
		if times > 1 && len(m.Bytes()) > chunkBytes {
			b.t.Errorf("%d bytes were registered %d times", len(m.Bytes()), times)
		}
	}
}

// period lets a period go by, and the steps in which the core frees what that has not needed.
func (b *bed) period() {
	b.t.Helper()
	for pause := trimEvery; pause == trimEvery || b.c.trimming; pause = trimStep {
		p, before := &b.c.pool, len(b.c.vecs.free)
		chunks, kept := len(p.chunks), p.kept
		b.after(pause)
		if lists, n := before-len(b.c.vecs.free), chunks-len(p.chunks); lists > trimCount || n > trimCount || kept-p.kept > trimBytes+1<<maxClass+classSlack {
			b.t.Fatalf("a step frees %d lists, %d chunks, and %d bytes of large buffers", lists, n, kept-p.kept)
		}
	}
}

func (b *fileBed) lend(n int) *Buffer {
	b.t.Helper()
	buf, err := b.c.Lend(n)
	must(b.t, err)
	return buf
}

// A core that has a file with direct I/O has what it lends registered, and gives that up
// before the memory goes.
// Matrix: ST-06
func TestBuffersOfACoreWithDirectIOAreRegisteredUntilTheyAreFreed(t *testing.T) {
	b := newFileBed(t, FileOptions{Direct: uring.Direct}, func(cfg *Config) { cfg.PoolKeep = 1 })
	block := b.lend(unit)
	if b.d.Registered[block.chunk.mem] == 0 {
		t.Error("a block is not in registered memory")
	}
	small := b.lend(200)
	if b.d.Registered[small.chunk.mem] != 0 {
		t.Error("memory that no direct I/O can use is registered")
	}
	var large []*Buffer
	for _, n := range []int{16 << 10, 64 << 10, 4 << 20} {
		buf := b.lend(n)
		if large = append(large, buf); b.d.Registered[buf.mem] != 1 {
			t.Errorf("a buffer of %d bytes is not registered", n)
		}
	}
	huge := b.lend(16 << 20)
	if b.d.Registered[huge.mem] != 0 {
		t.Error("a huge buffer is pinned")
	}
	for _, buf := range append(large, block, small, huge) {
		b.c.TakeBack(buf)
		b.stillMapped()
	}
	again := b.lend(64 << 10) // it comes back as it was
	if b.d.Registered[again.mem] != 1 {
		t.Errorf("registered %d times", b.d.Registered[again.mem])
	}
	b.c.TakeBack(again)
	for range 3 { // the pool keeps nothing
		b.period()
		b.stillMapped()
	}
	if b.c.pool.kept != 0 || len(b.d.Registered) != len(b.c.pool.chunks)-1 {
		t.Errorf("%d bytes are kept, %d pieces of memory are registered", b.c.pool.kept, len(b.d.Registered))
	}
	over := b.lend(20 << 20) // which the pool does not keep
	b.c.TakeBack(over)
	b.stillMapped()
}

// A burst of small messages, or of reads of single blocks, leaves no memory behind, but for the
// spare chunks; a load that goes on has its buffers.
// Matrix: RL-08
func TestSmallBuffersOfABurstAreFreed(t *testing.T) {
	var mapped []*uring.Memory
	b := newFileBed(t, FileOptions{Direct: uring.Direct}, func(cfg *Config) {
		cfg.Map = func(size int) (*uring.Memory, error) {
			m, err := uring.Map(size)
			mapped = append(mapped, m)
			return m, err
		}
	})
	p := &b.c.pool
	use := func(chunks, n int) (out giveBack) {
		for range chunks * chunkBytes / n {
			out = append(out, b.lend(n))
		}
		return out
	}
	first := b.lend(200)
	for range 5 {
		use(4*spareChunks, unit).Returned(b.c)
		b.period()
		if n := len(p.chunks); n < 4*spareChunks {
			t.Fatalf("%d chunks are left for a load that needs %d", n, 4*spareChunks)
		}
	}
	use(8*spareChunks, 256).Returned(b.c)
	last := b.lend(unit)
	for range 12 {
		b.period()
		b.stillMapped()
	}
	mapped = slices.DeleteFunc(mapped, func(m *uring.Memory) bool { return m.Bytes() == nil })
	if n := len(p.chunks); n != spareChunks+2 || len(mapped) != n+1 || p.idle != spareChunks || b.c.trimmer.Armed() {
		t.Errorf("%d chunks, %d idle, %d mapped with the receive buffer, and the core wakes up for that: %v",
			n, p.idle, len(mapped), b.c.trimmer.Armed())
	}
	var bytes int
	for _, k := range p.chunks {
		for f := k.free; f != nil; f = f.next {
			f.b[0] = 1 // it is mapped
			bytes += len(f.b)
		}
	}
	if all := bytes + len(first.b) + len(last.b); all != len(p.chunks)*chunkBytes {
		t.Errorf("%d bytes, free or lent, of %d chunks", all, len(p.chunks))
	}
	b.c.TakeBack(first)
	b.c.TakeBack(last)
}

// giveBack returns buffers.
type giveBack []*Buffer

func (g giveBack) Returned(c *Core) {
	for _, b := range g {
		c.TakeBack(b)
	}
}

// A burst of writes leaves no memory behind, but for the spare lists; a load that goes on
// has its lists.
func TestGatherListsOfABurstAreFreed(t *testing.T) {
	b := newBed(t, nil)
	use := func(n int) {
		var out []*uring.Vec
		for range n {
			v, err := b.c.vecs.get()
			must(t, err)
			out = append(out, v)
		}
		for _, v := range out {
			b.c.vecs.put(v)
		}
	}
	free := func(want int) {
		t.Helper()
		if n := len(b.c.vecs.free); n != want {
			t.Errorf("%d lists are free, want %d", n, want)
		}
	}
	for range 5 {
		use(10 * spareVecs)
		b.period()
		free(10 * spareVecs)
	}
	for range 2 {
		use(2 * spareVecs)
		b.period()
	}
	free(2 * spareVecs)
	b.period()
	b.period()
	free(spareVecs)
	if b.c.trimmer.Armed() {
		t.Error("nothing is left to be freed, and the core wakes up for it")
	}
}
