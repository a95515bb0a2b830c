package loop

import (
	"math/bits"
	"slices"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
	"github.com/ringmsgr/ringmsgr/uring"
)

const (
	pageSize = 4096
	// Small buffers, 256 B to 4 KiB, are cut out of chunks: a retained
	// message of 64 B must not cost a page.
	minClass   = 8
	maxCut     = 12
	chunkBytes = 64 << 10
	// maxClass is the largest buffer that the pool keeps, 16 MiB; larger ones
	// are mapped and unmapped.
	maxClass = 24
	// classSlack is added to every class above the cut ones, so that a payload of a
	// power of two fits its class together with the rest of its frame.
	classSlack = 2 * pageSize
	// maxRegistered is the largest buffer whose memory stays pinned for direct I/O.
	maxRegistered = 4<<20 + classSlack
)

// Buffer is memory outside the Go heap, lent by a core (Core.Lend). Buffers of
// 4 KiB and more are page-aligned.
type Buffer struct {
	b     []byte        // all of it
	mem   *uring.Memory // nil if cut out of a chunk
	chunk *chunk        // the chunk that it is cut out of, or nil
	pool  *pool
	next  *Buffer
	class int8 // -1: not kept
	tried bool // to register its memory
	// While ReadBuffer lends it: its account, and the bytes that it counts.
	account *Account
	charged int64
}

// Bytes is all of the buffer, at least the requested size. The bytes are not zeroed.
func (b *Buffer) Bytes() []byte { return b.b }

// LetGo gives the buffer back, on the core that lent it: a write that refers to it can
// hold it (Write.Hold).
func (b *Buffer) LetGo() { b.pool.put(b) }

// Lend lends a buffer of at least n bytes, until TakeBack on the same core. It
// fails only if the kernel refuses a mapping. On the core.
func (c *Core) Lend(n int) (*Buffer, error) {
	c.assertOwner()
	return c.pool.get(n)
}

// TakeBack takes back a buffer of Lend. On the core, or in Returner.Returned.
func (c *Core) TakeBack(b *Buffer) {
	c.assertOwner()
	c.pool.put(b)
}

// pool keeps the buffers of one core, in LIFO order, so that the buffer that comes out is likely
// still in the cache: large ones in one list for each size, small ones in one for each chunk.
// Owner: the core.
//
// To map a large buffer and to touch it for the first time costs more than the rest of
// the work on its message. So the pool keeps the buffers that the load of the last
// periods has needed, and trim frees the rest. Besides the lent buffers it holds at most
// the larger of keep and the recent peak of lent bytes, and chunks of small buffers: those of
// which one is lent, or was in the last period, and spareChunks. What is more goes in steps.
type pool struct {
	mapped func(size int) (*uring.Memory, error) // Config.Map
	files  uring.FileDriver                      // registers lent buffers for direct I/O; nil: no such file yet
	free   [maxClass + 1]*Buffer                 // of large buffers
	roomy  [maxCut + 1]*chunk                    // those with free buffers, by class
	chunks []*chunk
	idle   int                  // of chunks: those of which no buffer is lent
	since  [2]uint64            // calls when this period began, and the one before
	used   [maxClass + 1]uint64 // when the class was last asked, by calls
	calls  uint64
	keep   int64    // bytes that may stay for ever
	peaks  [2]int64 // most that was lent in this period and in the one before
	floor  int64    // kept bytes that this step of trim leaves; 0: no further step is due for them
	kept   int64    // bytes of large buffers in the free lists
	inUse  int64    // bytes lent
	frozen bool     // the kernel may still use lent buffers: they are neither freed nor lent again
}

// chunk is memory that small buffers of one class are cut out of.
type chunk struct {
	mem  *uring.Memory
	free *Buffer // LIFO
	next *chunk  // in pool.roomy; meaningless without a free buffer
	lent int     // of its buffers
	used uint64  // when one was last lent, by pool.calls
	gone bool    // it is being freed
}

const (
	// trimEvery is the period of pool.trim.
	trimEvery = time.Second
	// spareChunks is the number of idle chunks that stay for ever.
	spareChunks = 64
	// A trim that has much to free goes on in steps, so that it does not hold up the core:
	// trimStep is the pause between them, and trimCount and trimBytes bound what one frees.
	trimStep  = 10 * time.Millisecond
	trimCount = 32
	trimBytes = trimCount * chunkBytes
)

// classOf is the class of a buffer of n bytes, or -1 if the pool keeps none of
// that size.
func classOf(n int) int {
	if n <= 1<<minClass {
		return minClass
	}
	if n <= 1<<maxCut {
		return bits.Len(uint(n - 1))
	}
	c := maxCut + 1
	if n > classSlack {
		c = max(c, bits.Len(uint(n-classSlack-1)))
	}
	if c > maxClass {
		return -1
	}
	return c
}

// lentSize is how many bytes a buffer has that is lent for n.
func lentSize(n int) int64 {
	switch c := classOf(n); {
	case c < 0:
		return (int64(n) + pageSize - 1) &^ (pageSize - 1)
	case c <= maxCut:
		return 1 << c
	default:
		return 1<<c + classSlack
	}
}

// get lends a buffer of at least n bytes. It fails only if the kernel refuses
// a mapping.
func (p *pool) get(n int) (*Buffer, error) {
	c := classOf(n)
	p.calls++
	if c >= 0 {
		p.used[c] = p.calls
		if c <= maxCut {
			return p.getSmall(c)
		}
		if b := p.free[c]; b != nil {
			p.free[c] = b.next
			b.next = nil
			p.kept -= int64(len(b.b))
			p.lend(b)
			return b, nil
		}
		n = int(lentSize(n))
	}
	mem, err := p.mapped(n)
	if err != nil {
		return nil, err
	}
	b := &Buffer{mem: mem, b: mem.Bytes(), class: int8(c), pool: p}
	p.lend(b)
	return b, nil
}

// getSmall lends a buffer of a chunk.
func (p *pool) getSmall(c int) (*Buffer, error) {
	if p.roomy[c] == nil {
		if err := p.cut(c); err != nil {
			return nil, err
		}
	}
	k := p.roomy[c]
	b := k.free
	if k.free = b.next; k.free == nil {
		p.roomy[c] = k.next
	}
	b.next = nil
	if k.lent == 0 {
		p.idle--
	}
	k.lent, k.used = k.lent+1, p.calls
	p.lend(b)
	return b, nil
}

func (p *pool) lend(b *Buffer) {
	p.inUse += int64(len(b.b))
	p.peaks[0] = max(p.peaks[0], p.inUse)
	if p.files != nil && !b.tried {
		p.register(b)
	}
}

// register has the driver keep the memory of b pinned, for requests with direct I/O.
func (p *pool) register(b *Buffer) {
	b.tried = true
	m := b.mem
	if b.class == maxCut { // files have no smaller ones
		m = b.chunk.mem
	}
	if m != nil && len(b.b) <= maxRegistered {
		_ = p.files.RegisterMemory(m) // without it requests cost more, and do the same
	}
}

// unmap frees a buffer that is none of a chunk.
func (p *pool) unmap(b *Buffer) {
	if b.tried && p.files != nil {
		p.files.UnregisterMemory(b.mem)
	}
	_ = b.mem.Unmap() // it can only fail on an address that we did not map
}

// cut gives a small class, which has no free buffer, a new chunk.
func (p *pool) cut(c int) error {
	mem, err := p.mapped(chunkBytes)
	if err != nil {
		return err
	}
	k := &chunk{mem: mem}
	p.chunks = append(p.chunks, k)
	p.roomy[c] = k
	p.idle++
	all, size := mem.Bytes(), 1<<c
	for at := len(all) - size; at >= 0; at -= size {
		k.free = &Buffer{b: all[at : at+size : at+size], class: int8(c), pool: p, next: k.free, chunk: k}
	}
	return nil
}

// dropChunks frees chunks, the oldest first, that the period has not needed. It returns true if
// more may be left.
func (p *pool) dropChunks() (more bool) {
	n, most := 0, min(p.idle-spareChunks, trimCount)
	if most <= 0 {
		return false
	}
	for _, k := range p.chunks {
		if k.gone = k.lent == 0 && k.used <= p.since[1] && n < most; k.gone {
			n++
		}
	}
	if n == 0 {
		return false
	}
	for c := range p.roomy {
		for link := &p.roomy[c]; *link != nil; {
			if k := *link; k.gone {
				*link = k.next
			} else {
				link = &k.next
			}
		}
	}
	p.idle -= n
	p.chunks = slices.DeleteFunc(p.chunks, func(k *chunk) bool {
		if k.gone && p.files != nil {
			p.files.UnregisterMemory(k.mem)
		}
		if k.gone {
			_ = k.mem.Unmap() // it fails if the kernel has kept it pinned
		}
		return k.gone
	})
	return n == trimCount
}

// put takes a buffer back.
func (p *pool) put(b *Buffer) {
	invariants.Check(b.pool == p, "buffer returned to the pool of another core")
	if p.frozen {
		return // it counts as lent for ever
	}
	if a := b.account; a != nil {
		b.account = nil
		a.core.reads.giveBack(a, b.charged)
	}
	invariants.Poison(b.b)
	p.inUse -= int64(len(b.b))
	if b.class < 0 {
		p.unmap(b)
		return
	}
	if k := b.chunk; k != nil {
		if k.free == nil {
			k.next, p.roomy[b.class] = p.roomy[b.class], k
		}
		b.next, k.free = k.free, b
		if k.lent--; k.lent == 0 {
			p.idle++
		}
		return
	}
	b.next, p.free[b.class] = p.free[b.class], b
	p.kept += int64(len(b.b))
	p.shrink()
}

// limit bounds the bytes of the free lists.
func (p *pool) limit() int64 { return max(p.keep, p.peaks[0], p.peaks[1], p.floor) }

// shrink unmaps free buffers beyond the limit, of the class first that was
// not asked for longest.
func (p *pool) shrink() {
	for p.kept > p.limit() {
		oldest := -1
		for c := maxCut + 1; c <= maxClass; c++ {
			if p.free[c] != nil && (oldest < 0 || p.used[c] < p.used[oldest]) {
				oldest = c
			}
		}
		b := p.free[oldest]
		p.free[oldest] = b.next
		p.kept -= int64(len(b.b))
		p.unmap(b)
	}
}

// trim ends a period, or goes on to free what that has not needed. It returns true if more is left
// of that.
func (p *pool) trim(ends bool) (more bool) {
	if ends {
		p.peaks = [2]int64{p.inUse, p.peaks[0]}
		p.since = [2]uint64{p.calls, p.since[0]}
	}
	p.floor = 0
	if low := p.kept - trimBytes; low > p.limit() {
		p.floor = low
	}
	p.shrink()
	return p.dropChunks() || p.floor > 0
}

// excess says that the pool holds more than it may keep for ever.
func (p *pool) excess() bool { return p.kept > p.keep || p.idle > spareChunks }

// drain unmaps the kept buffers. No buffer may be lent any more.
func (p *pool) drain() {
	for c := range p.free {
		for b := p.free[c]; b != nil; b = b.next {
			p.unmap(b)
		}
		p.free[c] = nil
	}
	clear(p.roomy[:])
	for _, k := range p.chunks {
		_ = k.mem.Unmap()
	}
	p.chunks = nil
	p.kept, p.idle = 0, 0
}

// vecList keeps the gather lists that no write uses, LIFO. Lists that the load of a period
// has not needed are freed at its end, but for the spare ones. Owner: the core.
type vecList struct {
	free []*uring.Vec
	idle int // the fewest that were free in this period
	drop int // those that are still to be freed, as the last period has not needed them
}

// spareVecs is the number of free gather lists that stay for ever.
const spareVecs = 64

func (l *vecList) get() (*uring.Vec, error) {
	n := len(l.free) - 1
	if n < 0 {
		return uring.NewVec(vecEntries)
	}
	v := l.free[n]
	l.free = l.free[:n]
	l.idle = min(l.idle, n)
	return v, nil
}

func (l *vecList) put(v *uring.Vec) {
	v.Reset()
	l.free = append(l.free, v)
}

// trim is that of pool.
func (l *vecList) trim(ends bool) (more bool) {
	if ends {
		l.drop = max(min(l.idle, len(l.free)-spareVecs), 0)
		l.idle = len(l.free)
	}
	n := min(l.drop, len(l.free), trimCount)
	l.shrink(len(l.free) - n)
	l.drop -= n
	l.idle = max(l.idle-n, 0)
	return l.drop > 0 && n == trimCount
}

// shrink frees the lists that were not used longest, until at most n are left.
func (l *vecList) shrink(n int) {
	drop := max(len(l.free)-n, 0)
	for _, v := range l.free[:drop] {
		v.Free()
	}
	l.free = slices.Delete(l.free, 0, drop)
}
