package loop

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/planetest"
	"github.com/ringmsgr/ringmsgr/uring"
)

// benchBlocks is the size of the file that is overwritten, in blocks.
const benchBlocks = 4096

// BenchmarkDurableWrites overwrites blocks of 4 KiB with direct I/O, so many at once: on a
// driver alone, and on a core by each kind of durability.
func BenchmarkDurableWrites(b *testing.B) {
	for _, one := range planetest.Engines() {
		if ReceiveMode(one.Receive) != ReceiveReady {
			continue
		}
		for _, depth := range []int{1, 16, 64} {
			cfg := Config{Cores: 1, Driver: uring.Config{Backend: one.Backend}}
			b.Run(fmt.Sprintf("%s/%d/driver", one.Name, depth), func(b *testing.B) { benchDriver(b, cfg, depth) })
			for name, how := range map[string]Durability{"through": Through, "committed": Committed} {
				b.Run(fmt.Sprintf("%s/%d/%s", one.Name, depth, name), func(b *testing.B) { benchLoop(b, cfg, depth, how) })
			}
		}
	}
}

// benchFile is a file whose blocks have been written.
func benchFile(b *testing.B) string {
	b.Helper()
	path := b.TempDir() + "/f"
	fd, err := uring.Host{}.Open(path, uring.FileOptions{Write: true, Create: true})
	must(b, err)
	p := newPlane(b, Config{Cores: 1, Driver: uring.Config{Backend: uring.Epoll}})
	must(b, uring.Host{}.Close(fd))
	f := openOn(b, p.Core(0), path, uring.Buffered)
	done := make(chan error, 1)
	must(b, p.Core(0).Do(func(*Core) {
		op := &FileOp{Done: func(_ *Core, op *FileOp) { done <- op.Err }}
		must(b, f.WriteAt(op, make([]byte, benchBlocks*unit), 0, Committed))
	}))
	must(b, await(b, done))
	must(b, p.Close())
	return path
}

func benchDriver(b *testing.B, cfg Config, depth int) {
	path := benchFile(b)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d, err := uring.Open(cfg.Driver)
	must(b, err)
	defer d.CloseDriver()
	fd, err := uring.Host{}.Open(path, uring.FileOptions{Write: true, Direct: uring.TryDirect})
	must(b, err)
	f, err := d.AdoptFile(fd)
	must(b, err)
	mem, err := uring.Map(depth * unit)
	must(b, err)
	defer mem.Unmap()
	vecs := make([]*uring.Vec, depth)
	next := 0
	write := func(i int) {
		next++
		_, err := d.WriteFile(f, vecs[i], int64(next*7919%benchBlocks)*unit, uint64(i), uring.WriteDurable)
		must(b, err)
	}
	for i := range vecs {
		vecs[i], err = uring.NewVec(1)
		must(b, err)
		defer vecs[i].Free()
		vecs[i].Append(mem.Bytes()[i*unit : (i+1)*unit])
	}
	b.ResetTimer()
	for i := range min(depth, b.N) {
		write(i)
	}
	for ended := 0; ended < b.N; {
		got, err := d.Wait(-1)
		must(b, err)
		for i := range got {
			if ended++; got[i].Res != unit {
				b.Fatal(got[i].Errno())
			}
			if next < b.N {
				write(int(got[i].User))
			}
		}
	}
}

func benchLoop(b *testing.B, cfg Config, depth int, how Durability) {
	p := newPlane(b, cfg)
	f := openOn(b, p.Core(0), benchFile(b), uring.TryDirect)
	done := make(chan error, 1)
	b.ResetTimer()
	must(b, p.Core(0).Do(func(c *Core) {
		next, ended := 0, 0
		for range min(depth, b.N) {
			buf, err := c.Lend(unit)
			must(b, err)
			op := new(FileOp)
			write := func() {
				next++
				must(b, f.WriteAt(op, buf.Bytes()[:unit], int64(next*7919%benchBlocks)*unit, how))
			}
			op.Done = func(_ *Core, op *FileOp) {
				if ended++; op.Err != nil || ended == b.N {
					done <- op.Err
				}
				if next < b.N {
					write()
				}
			}
			write()
		}
	}))
	must(b, <-done)
	b.StopTimer()
	must(b, p.Close())
}
