//go:build !epoll

package uring

import (
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// The ways to write and sync a block.
const (
	chained  = "chained"  // the sync is asked for when the write has ended, as WriteThenSync does
	linked   = "linked"   // both are asked for at once, IOSQE_IO_LINK between them
	combined = "combined" // one write with RWF_DSYNC, as WriteDurable is
)

const sqeLink = 1 << 2

// BenchmarkWriteAndSync overwrites blocks of 4 KiB, so many at once, and makes each durable
// by itself.
func BenchmarkWriteAndSync(b *testing.B) {
	for _, direct := range []DirectMode{Direct, Buffered} {
		for _, depth := range []int{1, 16} {
			for name := range map[string]bool{chained: true, linked: true, combined: true} { // in any order
				b.Run(fmt.Sprintf("%s/%d/%s", map[DirectMode]string{Direct: "direct", Buffered: "buffered"}[direct], depth, name),
					func(b *testing.B) { benchSynced(b, direct, depth, name) })
			}
		}
	}
}

func benchSynced(b *testing.B, direct DirectMode, depth int, how string) {
	const blocks, block = 2048, 4096
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fatal := func(err error) {
		b.Helper()
		must(b, err)
	}
	fd, err := Host().Open(b.TempDir()+"/f", FileOptions{Write: true, Create: true, Direct: direct})
	fatal(err)
	defer unix.Close(fd)
	mem, err := Map(blocks * block)
	fatal(err)
	defer mem.Unmap()
	_, err = unix.Pwrite(fd, mem.Bytes(), 0)
	fatal(err)
	fatal(unix.Fsync(fd))
	r, err := setupRing(0, newFeatureSet(nil))
	fatal(err)
	defer r.close()

	next := 0
	write := func(slot int) {
		e, _ := r.next()
		e.opcode, e.fd, e.user = opcodeWrite, int32(fd), uint64(slot)
		e.addr, e.len = uint64(addressOf(mem.Bytes()[slot*block:])), block
		e.off = uint64(next*7919%blocks) * block
		next++
		switch how {
		case linked:
			e.flags = sqeLink | sqeCQESkip // of a success only the sync's answer
		case combined:
			e.opFlags = unix.RWF_DSYNC
		}
	}
	sync := func(slot int) {
		e, _ := r.next()
		e.opcode, e.fd, e.opFlags, e.user = opcodeFsync, int32(fd), uint32(SyncData), uint64(slot)
	}
	syncing := make([]bool, depth)
	ask := func(slot int) {
		write(slot)
		if how == linked {
			sync(slot)
		}
	}
	var before, after unix.Rusage
	fatal(unix.Getrusage(unix.RUSAGE_SELF, &before))
	b.ResetTimer()
	for slot := range min(depth, b.N) {
		ask(slot)
	}
	for ended := 0; ended < b.N; {
		if errno := r.sleep(-1); errno != 0 && errno != unix.EINTR {
			b.Fatal(errno)
		}
		for c := r.peek(); c != nil; c = r.peek() {
			slot, res := int(c.user), c.res
			r.skip()
			if res < 0 {
				b.Fatal(unix.Errno(-res))
			}
			if how == chained && !syncing[slot] {
				syncing[slot] = true
				sync(slot)
				continue
			}
			syncing[slot] = false
			if ended++; next < b.N {
				ask(slot)
			}
		}
		r.commit()
	}
	b.StopTimer()
	fatal(unix.Getrusage(unix.RUSAGE_SELF, &after))
	spent := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(spent)/float64(b.N), "cpu-ns/op")
}
