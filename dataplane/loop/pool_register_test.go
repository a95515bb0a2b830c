package loop

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

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
	if block.chunk == nil || b.d.Registered[block.chunk] == 0 {
		t.Error("a block is not in registered memory")
	}
	small := b.lend(200)
	if small.chunk != nil {
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
		b.after(trimEvery)
		b.stillMapped()
	}
	if b.c.pool.kept != 0 || len(b.d.Registered) != len(b.c.pool.chunks)-1 {
		t.Errorf("%d bytes are kept, %d pieces of memory are registered", b.c.pool.kept, len(b.d.Registered))
	}
	over := b.lend(20 << 20) // which the pool does not keep
	b.c.TakeBack(over)
	b.stillMapped()
}

func TestBuffersLentBeforeTheFirstFileAreRegisteredWhenTheyAreLentAgain(t *testing.T) {
	b := newFileBed(t, FileOptions{}, nil) // through the page cache
	buf, block := b.lend(64<<10), b.lend(unit)
	if len(b.d.Registered) != 0 {
		t.Fatal("memory is registered for a file without direct I/O")
	}
	b.c.TakeBack(buf)
	b.c.TakeBack(block)
	b.open("/direct", FileOptions{Direct: uring.Direct})
	if buf, block = b.lend(64<<10), b.lend(unit); b.d.Registered[buf.mem] != 1 || b.d.Registered[block.chunk] != 1 {
		t.Error("they are not registered")
	}
	b.c.TakeBack(buf)
	b.c.TakeBack(block)
}

func TestMemoryThatCannotBeRegisteredIsTriedOnce(t *testing.T) {
	b := newFileBed(t, FileOptions{Direct: uring.Direct}, nil)
	b.d.ParkFiles = false
	b.d.RegisterErr = unix.ENOMEM
	buf := b.lend(64 << 10)
	b.d.RegisterErr = nil
	w := newRequest()
	must(t, b.f.WriteAt(&w.FileOp, buf.Bytes()[:64<<10], 0, Written))
	b.ended(w, nil)
	b.c.TakeBack(buf)
	if again := b.lend(64 << 10); again != buf || len(b.d.Registered) != 0 {
		t.Error("it is tried again")
	}
	b.c.TakeBack(buf)
}

// Memory that is still lent when its core ends is freed when it comes back, although the
// driver had it registered.
// Matrix: ST-06
func TestRegisteredMemoryIsFreedBehindTheEndOfItsCore(t *testing.T) {
	overFiles(t, func(t *testing.T, cfg Config, direct uring.DirectMode) {
		cfg.Cores = 1
		p := newPlane(t, cfg)
		c := p.Core(0)
		openOn(t, c, t.TempDir()+"/f", direct)
		var large, block *Buffer
		must(t, c.call(func(c *Core) {
			var err, err2 error
			large, err = c.Lend(256 << 10)
			block, err2 = c.Lend(unit)
			must(t, err)
			must(t, err2)
		}))
		must(t, p.Close())
		c.Return(&Loan{Of: giveBack{large, block}})
		if large.mem.Bytes() != nil || len(c.pool.chunks) != 0 {
			t.Error("memory is kept")
		}
	})
}

// giveBack returns buffers.
type giveBack []*Buffer

func (g giveBack) Returned(c *Core) {
	for _, b := range g {
		c.TakeBack(b)
	}
}
